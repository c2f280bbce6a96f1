"""LIBLINEAR itself, by its authors' Python package: -s 6, every λ from a cold start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import Peer, Rung, run, tolerances
from benchmarks.problem import Problem


def prepare(problem: Problem) -> Any:
    from liblinear.liblinear import problem as make

    return make(problem.y, problem.X.astype(np.float64))


def path(data: Any, lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from liblinear.liblinearutil import train

    for lam in lambdas:
        model = train(data, f"-s 6 -c {1 / lam!r} -e {rung['tol']!r} -q")
        # Weights are of the label that comes first in the data.
        yield np.ctypeslib.as_array(model.w, (model.nr_feature,)) * model.get_labels()[0]


PEER = Peer(
    name="liblinear",
    label="LIBLINEAR",
    package="liblinear-official",
    requirements=("liblinear-official==2.50.0",),
    prepare=prepare,
    path=path,
    ladder=tolerances(1, 8),
)

if __name__ == "__main__":
    run(PEER)
