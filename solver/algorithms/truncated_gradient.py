"""Distributed online learning via truncated gradient (section 4.3): what the paper compares d-GLMNET with.

Truncated gradient (Langford et al., 2009) on each part of the examples by itself, then the average of the classifiers,
weighted by the parts' examples, which is the warm start of the next pass: the first part of Algorithm 2 of Agarwal et
al. (2011). Learning rate, its decay and truncation are those of Vowpal Wabbit's plain steps (`--sgd`), with
`--l1` = λ/n: with one part, the weights are Vowpal Wabbit's.

A λ begins at β = 0 and ends after so many passes: there is no certificate, so the gap is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from solver.arrays import Coefficients
from solver.compiling import working_seconds
from solver.options import TruncatedGradientOptions
from solver.path import OnPass, OnState, PathStart
from solver.problem import Problem
from solver.records import OnRound, RoundRecord, Solution
from solver.rows import Rows, Schedule
from solver.start import NullModel

NAME = "truncated-gradient"
Options = TruncatedGradientOptions
NEEDS = "rows"
INTERCEPT = False  # as the paper's model
FIRST = 1.0  # examples that count as seen before the first: `--initial_t`, as plain steps have it


def solve_path(
    rows: Rows,
    problem: Problem,
    lambdas: Sequence[float],
    options: TruncatedGradientOptions,
    null: NullModel,
    start: PathStart,
    on_round: OnRound | None = None,
    on_state: OnState | None = None,
    on_pass: OnPass | None = None,
) -> Iterator[Solution]:
    """Each λ by itself. on_pass gets λ's index, the pass, counted from 1, and β after it."""
    for k in range(start.done, len(lambdas)):
        yield _solve(rows, problem, lambdas[k], k, options, null, on_round, on_pass)


def _solve(
    rows: Rows,
    problem: Problem,
    lam: float,
    index: int,
    options: TruncatedGradientOptions,
    null: NullModel,
    on_round: OnRound | None,
    on_pass: OnPass | None,
) -> Solution:
    began, seconds = working_seconds(), 0.0
    beta, objective = np.zeros(rows.width), null.objective
    for number in range(1, options.passes + 1):
        before, started = objective, working_seconds()
        beta = rows.learn(beta, schedules(rows, lam, number, options))
        seconds = working_seconds() - started
        coefficients = Coefficients.from_dense(beta)
        objective = rows.loss(beta) + lam * float(np.abs(coefficients.value).sum())
        if on_round is not None:
            decrease = (before - objective) / before if before > 0.0 else 0.0
            found = coefficients.position.size
            on_round(RoundRecord(index, lam, number, objective, decrease, 1.0, found, seconds, 0.0))
        if on_pass is not None:
            on_pass(index, number, coefficients)
    return Solution(
        index, lam, coefficients, objective, math.nan, options.passes, "passes", working_seconds() - began, 0.0
    )


def schedules(rows: Rows, lam: float, number: int, options: TruncatedGradientOptions) -> list[Schedule]:
    """Of each part: the rate of this pass, and how many examples the part has seen in the passes before."""
    rate = options.learning_rate * options.decay ** (number - 1)
    l1 = lam / sum(rows.weights)
    return [Schedule(rate, FIRST + (number - 1) * weight, options.power_t, l1) for weight in rows.weights]
