"""Where a path begins: the blocks put at β, the unpenalised coordinates, the null model and λmax."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import Coefficients, Float64
from solver.blocks import Blocks
from solver.compiling import working_seconds
from solver.free import MOST, FreeCoordinates
from solver.options import ProblemOptions
from solver.penalty import Penalty
from solver.problem import Examples, Problem
from solver.records import Solution


def make_problem(
    blocks: Blocks, examples: Examples, options: ProblemOptions, *, factors: Float64 | None = None
) -> Problem:
    """The problem over the blocks' features, which are given their penalty. factors: of the penalty, by feature."""
    scales = blocks.scales() if options.standardize else None
    penalty = Penalty.scaled(blocks.layout.size, options.l1_ratio, options.nonnegative, factors, scales)
    if options.intercept and examples.loss.LABELS == "binary":
        _refuse_one_class(examples)
    blocks.set_penalty(penalty)
    return Problem(examples, penalty, bool(options.intercept))


def _refuse_one_class(examples: Examples) -> None:
    """An intercept alone would go to infinity."""

    def signs(lo: int, hi: int) -> tuple[bool, bool]:
        r = np.empty(hi - lo)
        examples.loss.residuals(np.zeros(hi - lo), examples.between(lo, hi), 0.0, r, np.empty(hi - lo))
        return bool((r > 0).any()), bool((r < 0).any())

    positive, negative = zip(*examples.threads.over_strips(signs, examples.n), strict=True)
    if not (any(positive) and any(negative)):
        raise ValueError("all examples that weigh anything have the same label: with an intercept there is no model")


def free_coordinates(blocks: Blocks, problem: Problem) -> FreeCoordinates:
    """The unpenalised coordinates, their columns fetched from the blocks; the intercept's is made here."""
    position, p = problem.free, problem.penalty.size
    if position.size > MOST:
        raise ValueError(f"{position.size} features are not penalised: at most {MOST} can be")
    if problem.penalty.nonnegative and problem.penalty.free.size:
        raise ValueError("a penalty factor of 0 does not go with non-negative coefficients: give a small factor")
    inside = position[position < p]
    rows = np.empty((inside.size, problem.examples.n), np.float32)
    if inside.size:
        parts = [part.columns for part in blocks.columns(inside)]
        singles = (part.part(k, k + 1) for part in parts for k in range(part.count))
        for k, column in enumerate(singles):
            x = np.zeros(problem.examples.n)
            column.add_product(np.ones(1), x)
            rows[k] = x
    return FreeCoordinates(problem, position, rows)


def restart(blocks: Blocks, free: FreeCoordinates, beta: Coefficients) -> Float64:
    """Put the blocks at β and return the margins m = Xβ, formed from the data."""
    margins = blocks.start(beta.apart_from(free.position))
    free.add_product(beta, margins)
    blocks.set_margins(margins)
    return margins


@dataclass(frozen=True)
class NullModel:
    """The model of λmax and above: all penalised coefficients are zero.

    beta: the unpenalised coordinates. lambda_max: the smallest λ at which the model is optimal.
    """

    beta: Coefficients
    objective: float
    lambda_max: float

    def solution(self, problem: Problem, lam: float, lambda_index: int) -> Solution:
        """At λ ≥ λmax."""
        began = working_seconds()
        beta, intercept = split_intercept(problem, self.beta)
        return Solution(
            lambda_index, lam, beta, self.objective, 0.0, 0, "zero", working_seconds() - began, 0.0, intercept
        )


def null_model(blocks: Blocks, problem: Problem) -> NullModel:
    """Fit the unpenalised coordinates alone; λmax is where the first of the others would enter."""
    blocks.set_penalty(problem.penalty)
    free = free_coordinates(blocks, problem)
    margins = restart(blocks, free, Coefficients.empty())
    value = free.refit(margins)
    blocks.set_margins(margins)
    largest = blocks.violation(None, 1.0).ratio
    kept = np.flatnonzero(value)
    return NullModel(Coefficients(free.position[kept], value[kept]), problem.examples.value(margins), largest)


def split_intercept(problem: Problem, beta: Coefficients) -> tuple[Coefficients, float]:
    """β over the features, and the intercept."""
    inside = beta.position < problem.penalty.size
    return Coefficients(beta.position[inside], beta.value[inside]), float(beta.value[~inside].sum())


def with_intercept(problem: Problem, beta: Coefficients, intercept: float) -> Coefficients:
    """The two as one vector over the problem's coordinates."""
    if not problem.intercept or intercept == 0.0:
        return beta
    own = Coefficients(np.array([problem.penalty.size], np.int64), np.array([intercept]))
    return beta.merged(own)
