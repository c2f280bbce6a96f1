"""Snap ML: parallel coordinate descent on the primal, every λ from a cold start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import CORES, Peer, Rung, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> tuple[Any, np.ndarray]:
    return problem.columns(), problem.y


def path(data: tuple[Any, np.ndarray], lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from snapml import LogisticRegression

    for lam in lambdas:
        model = LogisticRegression(
            penalty="l1", regularizer=lam, dual=False, n_jobs=CORES, max_iter=100_000, random_state=0, **rung
        )
        yield model.fit(*data).coef_.ravel()


PEER = Peer(
    name="snapml",
    label="Snap ML",
    package="snapml",
    requirements=("snapml==1.17.2",),
    prepare=prepare,
    path=path,
    ladder=tolerances(1, 8),
)

if __name__ == "__main__":
    run(PEER)
