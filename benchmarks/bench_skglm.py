"""skglm: proximal Newton with working sets, each λ begun at the last solution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Peer, Rung, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> tuple[Any, np.ndarray]:
    return problem.columns(), problem.y


def path(data: tuple[Any, np.ndarray], lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from skglm import SparseLogisticRegression

    model = SparseLogisticRegression(fit_intercept=False, warm_start=True, max_iter=100, **rung)
    for lam in lambdas:
        model.alpha = lam / data[1].size
        yield model.fit(*data).coef_[0].copy()


PEER = Peer(
    name="skglm",
    label="skglm",
    package="skglm",
    requirements=("skglm==0.5",),
    prepare=prepare,
    path=path,
    ladder=tolerances(2, 9),
    warm=True,
)

if __name__ == "__main__":
    run(PEER)
