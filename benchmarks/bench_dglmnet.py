"""Ours: the certified path with two blocks and two threads in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import CORES, Peer, Rung, run, timed
from benchmarks.problem import Problem
from solver import (
    DefaultOptions,
    Examples,
    NullModel,
    Penalty,
    Solution,
    ThreadBlocks,
    lambda_grid,
    null_model,
    solve_path,
)
from solver import Problem as Fit


@dataclass
class Ready:
    """Blocks in memory. `order`: the features as the blocks count them; neighbours go to different blocks."""

    blocks: ThreadBlocks
    fit: Fit
    null: NullModel
    order: np.ndarray
    last: Solution | None = None

    def dense(self, solution: Solution) -> np.ndarray:
        beta = np.zeros(self.order.size)
        beta[self.order[solution.beta.position]] = solution.beta.value
        return beta


def prepare(problem: Problem) -> Ready:
    # Ids often fall in frequency: cut in the middle, they would leave one block with most of the entries.
    order = np.concatenate([np.arange(first, problem.X.shape[1], CORES) for first in range(CORES)])
    examples = Examples.of(problem.y)
    blocks = ThreadBlocks.from_csc(problem.X.tocsc()[:, order], examples, CORES, threads=CORES)
    fit = Fit(examples, Penalty(order.size))
    return Ready(blocks, fit, null_model(blocks, fit), order)


def path(data: Ready, lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    for solution in solve_path(data.blocks, data.fit, lambdas, DefaultOptions(**rung), null=data.null):
        data.last = solution
        yield data.dense(solution)


def warm_up(data: Ready, problem: Problem) -> None:
    """Which kernels are compiled depends on the kinds of columns: the same problem, once, loosely."""
    list(path(data, problem.lambdas.tolist(), {"tol": 1e-2}))


def about(data: Ready) -> dict[str, Any]:
    """What only we can tell of a fit: passes over the data, and the duality gap that certifies it."""
    assert data.last is not None
    return {"rounds": data.last.rounds, "gap": data.last.gap / data.last.objective}


def by_default(data: Ready, problem: Problem) -> dict[str, Any]:
    """The path at the default tolerance, λ by λ; all its twenty points where the problem has the first ten."""
    lambdas, grid = problem.lambdas.tolist(), lambda_grid(problem.largest, 20)
    if len(lambdas) >= 10 and np.allclose(lambdas[:10], grid[:10]):
        lambdas = grid
    solutions = path(data, lambdas, {})
    told = [(timed(lambda: next(solutions))[1], *about(data).values()) for _ in lambdas]
    seconds, rounds, gaps = zip(*told, strict=True)
    return {"seconds": seconds, "rounds": rounds, "gap": gaps}


PEER = Peer(
    name="dglmnet",
    label="dglmnet (ours)",
    package="dglmnet",
    prepare=prepare,
    path=path,
    ladder=[{"tol": 10.0**-k} for k in (2, 3, 4, 5, 6)],
    warm=True,
    warm_up=warm_up,
    about=about,
    after=by_default,
)

if __name__ == "__main__":
    run(PEER)
