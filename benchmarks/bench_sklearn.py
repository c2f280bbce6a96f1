"""scikit-learn's LIBLINEAR: every λ from a cold start, as it always does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Peer, Rung, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> tuple[Any, np.ndarray]:
    return problem.rows(), problem.y


def path(data: tuple[Any, np.ndarray], lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from sklearn.linear_model import LogisticRegression

    for lam in lambdas:
        model = LogisticRegression(
            l1_ratio=1.0, C=1 / lam, solver="liblinear", fit_intercept=False, max_iter=10_000, random_state=0, **rung
        )
        yield model.fit(*data).coef_[0]


PEER = Peer(
    name="sklearn",
    label="scikit-learn (LIBLINEAR)",
    package="scikit-learn",
    prepare=prepare,
    path=path,
    ladder=tolerances(1, 8),
)

if __name__ == "__main__":
    run(PEER)
