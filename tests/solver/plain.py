"""The plain problem, logistic loss with λ‖β‖₁ and no intercept, solved in one call: what most tests here need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from solver import (
    Blocks,
    Coefficients,
    Examples,
    NullModel,
    OnRound,
    PathStart,
    Penalty,
    Problem,
    Solution,
    SolverOptions,
    null_model,
    solve_path,
)
from solver.algorithms import paper
from solver.algorithms.certified.store import Store
from solver.algorithms.certified.subspace import Subspace
from solver.algorithms.paper import State
from solver.arrays import Float64
from solver.free import FreeCoordinates
from solver.records import Log


def problem_of(blocks: Blocks, examples: Examples) -> Problem:
    return Problem(examples, Penalty(blocks.layout.size))


def null(blocks: Blocks, examples: Examples) -> NullModel:
    return null_model(blocks, problem_of(blocks, examples))


def lambda_max(blocks: Blocks, examples: Examples) -> float:
    return null(blocks, examples).lambda_max


def state_at(blocks: Blocks, examples: Examples, lam: float, beta: Coefficients) -> State:
    """Paper mode's iterate at β."""
    return State(blocks, problem_of(blocks, examples), lam, beta)


def solve(
    blocks: Blocks,
    examples: Examples,
    lam: float,
    options: SolverOptions,
    beta: Coefficients | None = None,
    *,
    on_round: OnRound | None = None,
) -> Solution:
    """Paper mode at one λ, from β or from 0."""
    state = state_at(blocks, examples, lam, Coefficients.empty() if beta is None else beta)
    return paper.solve(state, options, Log(0, lam, on_round))


def path(
    blocks: Blocks,
    examples: Examples,
    lambdas: Iterable[float],
    options: Any,
    *,
    done: int = 0,
    betas: Iterable[Coefficients] = (),
    null: NullModel | None = None,
    on_round: OnRound | None = None,
) -> list[Solution]:
    """The solutions at these λ, all of them."""
    start = PathStart(done, tuple(betas))
    problem = problem_of(blocks, examples)
    return list(solve_path(blocks, problem, list(lambdas), options, null=null, start=start, on_round=on_round))


def subspace(store: Store, p: int, margins: Float64, examples: Examples, lam: float) -> Subspace:
    """The search over p columns of the store, from β = 0."""
    problem = Problem(examples, Penalty(p))
    free = FreeCoordinates(problem, problem.free, np.empty((0, examples.n), np.float32))
    return Subspace(problem, free, store, lam, np.arange(p), Coefficients.empty(), margins)
