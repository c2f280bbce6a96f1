"""celer: working sets chosen by the dual, proximal Newton inside, each λ begun at the last solution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Peer, Rung, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> tuple[Any, np.ndarray]:
    return problem.columns(), problem.y


def path(data: tuple[Any, np.ndarray], lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from celer import celer_path

    last = None
    for lam in lambdas:
        # Its logistic loss is a sum, so its alpha is our λ.
        _, coefficients, _ = celer_path(
            *data, pb="logreg", alphas=[lam], coef_init=last, use_PN=True, max_iter=100, **rung
        )
        last = coefficients[:, 0].copy()
        yield last


PEER = Peer(
    name="celer",
    label="celer",
    package="celer",
    requirements=("celer==0.7.4",),
    prepare=prepare,
    path=path,
    ladder=tolerances(1, 8),
    warm=True,
)

if __name__ == "__main__":
    run(PEER)
