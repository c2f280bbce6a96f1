"""The regularisation path (Algorithm 5): λmax from the data, then falling λ, each begun at the last solution.

A path can be cut after any λ and taken up again from the coefficients stored there. Margins are rebuilt from
the coefficients at the beginning of every λ, whether the run was cut or not, so both end the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np

from solver import kernels
from solver.arrays import Coefficients
from solver.blocks import Blocks
from solver.dglmnet import OnRound, Solution, restart, solve
from solver.examples import Examples
from solver.options import SolverOptions


def lambda_max(blocks: Blocks, examples: Examples) -> float:
    """The smallest λ at which β = 0 is optimal: max |∂L/∂βⱼ| at β = 0. The model has no intercept."""
    restart(blocks, examples.n, Coefficients.empty())
    return float(max(blocks.max_gradient(None)))


def lambda_grid(largest: float, length: int = 20, ratio: float = 0.5, extra: Iterable[float] = ()) -> list[float]:
    """λmax · ratioⁱ for i = 1..length, and the extra values in their places, falling."""
    if not 0 < largest < math.inf:
        raise ValueError(f"λmax must be > 0 and finite, got {largest}: no feature tells the labels apart at β = 0")
    if length < 1:
        raise ValueError(f"the path length must be at least 1, got {length}")
    if not 0 < ratio < 1:
        raise ValueError(f"the path ratio must lie between 0 and 1, got {ratio}")
    return falling([*(largest * ratio**i for i in range(1, length + 1)), *extra])


def falling(lambdas: Iterable[float]) -> list[float]:
    """Sorted, largest first, each value once."""
    values = sorted({float(lam) for lam in lambdas}, reverse=True)
    for lam in values:
        if not 0 < lam < math.inf:
            raise ValueError(f"λ must be > 0 and finite, got {lam}")
    return values


def solve_path(
    blocks: Blocks,
    examples: Examples,
    lambdas: Sequence[float],
    options: SolverOptions,
    *,
    largest: float,
    done: int = 0,
    beta: Coefficients | None = None,
    on_round: OnRound | None = None,
) -> Iterator[Solution]:
    """Solve for each λ in turn and yield as soon as it is done. `largest` is λmax.

    To take up a path, pass the same lambdas, the number that are done, and the last β stored.
    """
    if list(lambdas) != falling(lambdas):
        raise ValueError("lambdas must fall, each value once")
    beta = Coefficients.empty() if beta is None else beta
    for k in range(done, len(lambdas)):
        if lambdas[k] >= largest:
            solution = zero_solution(examples, lambdas[k], k)
        else:
            solution = solve(blocks, examples, lambdas[k], options, beta, lambda_index=k, on_round=on_round)
        beta = solution.beta
        yield solution


def zero_solution(examples: Examples, lam: float, lambda_index: int = 0) -> Solution:
    """The solution at λ ≥ λmax."""
    began = perf_counter()
    objective = float(kernels.loss(np.zeros(examples.n), examples.signed))
    empty = Coefficients.empty()
    return Solution(lambda_index, lam, empty, objective, 0.0, 0, "zero", perf_counter() - began, 0.0)
