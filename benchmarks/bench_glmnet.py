"""glmnet, the Fortran code behind R's package, by python-glmnet: the whole path in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Peer, Rung, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> tuple[Any, np.ndarray]:
    return problem.rows(), problem.y


def path(data: tuple[Any, np.ndarray], lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from glmnet import LogitNet

    alphas = np.array(lambdas) / data[1].size
    model = LogitNet(lambda_path=alphas, standardize=False, fit_intercept=False, n_splits=0, max_iter=10**6, **rung)
    model.fit(*data)
    yield from model.coef_path_[0].T


PEER = Peer(
    name="glmnet",
    label="glmnet",
    package="python-glmnet",
    requirements=("python-glmnet==2.6.1",),
    prepare=prepare,
    path=path,
    ladder=tolerances(3, 12),
    warm=True,
)

if __name__ == "__main__":
    run(PEER)
