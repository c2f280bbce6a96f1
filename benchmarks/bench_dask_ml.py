"""dask-ml: ADMM over row chunks, by threads, every λ from a cold start. It takes dense data only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import psutil

from benchmarks.measure import CORES, Peer, Rung, Unfit, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> tuple[Any, Any]:
    import dask.array as da

    size = 8 * problem.X.shape[0] * problem.X.shape[1]
    if size > psutil.virtual_memory().available / 3:
        raise Unfit(f"takes dense data only, here {size / 1e9:,.0f} GB")
    rows = -(-problem.n // CORES)
    X = da.from_array(problem.X.astype(np.float64).toarray(), chunks=(rows, -1))
    return X.persist(), da.from_array((problem.y > 0).astype(np.float64), chunks=rows).persist()


def path(data: tuple[Any, Any], lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from dask_ml.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    for lam in lambdas:
        # With its own rho = 1, thousands of iterations go by before the duals have grown to the size of λ.
        settings = {"normalize": False, "rho": lam, "reltol": rung["tol"], "abstol": 0.01 * rung["tol"]}
        model = LogisticRegression(
            penalty="l1", C=1 / lam, fit_intercept=False, solver="admm", max_iter=10_000, solver_kwargs=settings
        )
        with threadpool_limits(1):  # as Dask advises: BLAS threads beside Dask's are many times slower
            model.fit(*data)
        yield model.coef_


PEER = Peer(
    name="dask_ml",
    label="dask-ml (ADMM)",
    package="dask-ml",
    requirements=("dask-ml==2025.1.0",),
    prepare=prepare,
    path=path,
    ladder=tolerances(1, 5),
    warm_up=lambda data, problem: None,  # nothing is compiled
)

if __name__ == "__main__":
    run(PEER)
