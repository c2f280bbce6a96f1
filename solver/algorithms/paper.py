"""Paper mode: d-GLMNET as published, the outer loop for one λ (Algorithms 1 and 4).

Two precautions keep the solution sparse. First, α = 1 is taken without a search where it lowers the objective enough
(step 1 of Algorithm 3). Second, when the iteration ends, by convergence or at the limit, the last step goes back to
α = 1 if the objective allows it: a coefficient that a block sent to zero then is zero.

The paper's model has no intercept. With one, it is part of every block's sub-problem and follows each step, so that
columns count less their means. The driver fits it and other unpenalised features exactly after each round (free.py), so
that the gap is that of a feasible dual point.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from solver.arrays import Coefficients, Float64
from solver.block import Step
from solver.blocks import Blocks
from solver.kernels import vectors
from solver.linesearch import Direction, Found, Ray, line_search
from solver.options import SolverOptions
from solver.path import OnState, PathStart
from solver.problem import Problem
from solver.records import ConvergenceWarning, Log, OnRound, Solution, Stop
from solver.start import NullModel, free_coordinates, restart, split_intercept, with_intercept

NAME = "paper"
Options = SolverOptions
NEEDS = "columns"
INTERCEPT = False  # the paper's model has none
# Of f. Rounds crawl where columns go along with unpenalised features, which are fitted after the blocks. Where the gap
# is as wide as this, slow rounds are not taken for the end.
WIDE = 0.5


def solve_path(
    blocks: Blocks,
    problem: Problem,
    lambdas: Sequence[float],
    options: SolverOptions,
    null: NullModel,
    start: PathStart,
    on_round: OnRound | None = None,
    on_state: OnState | None = None,
) -> Iterator[Solution]:
    """Algorithm 5: each λ from the solution of the last, and from nothing else: there is no state to give out."""
    beta = start.beta(null)
    for k in range(start.done, len(lambdas)):
        if lambdas[k] >= null.lambda_max:
            solution = null.solution(problem, lambdas[k], k)
            beta = null.beta
        else:
            state = State(blocks, problem, lambdas[k], beta)
            solution = solve(state, options, Log(k, lambdas[k], on_round))
            beta = state.coefficients
        yield solution


class State:
    """The iterate, as it stands beside the line search: β, m = Xβ, the penalty and f. O(n + p)."""

    def __init__(self, blocks: Blocks, problem: Problem, lam: float, beta: Coefficients) -> None:
        """Begin at β. Margins are rebuilt from it always, so a run resumed here goes on as if never cut."""
        if not 0 < lam < np.inf:
            raise ValueError(f"λ must be > 0 and finite, got {lam}")
        self._blocks, self.problem, self.lam = blocks, problem, float(lam)
        self._free = free_coordinates(blocks, problem)
        self._step: Step | None = None
        # Two, in turn: blocks may still be reading the last round's sum while this round's is formed.
        self._sums = (np.empty(problem.examples.n), np.empty(problem.examples.n))
        self.f = problem.at(self.lam)
        self.beta = beta.dense(problem.coordinates)
        self.margins = restart(blocks, self._free, beta)
        blocks.follow(self._iterate)
        self.penalty = self.f.terms.value(self.beta)
        self.objective = problem.examples.value(self.margins) + self.penalty

    @property
    def coefficients(self) -> Coefficients:
        return Coefficients.from_dense(self.beta)

    def _iterate(self) -> tuple[Coefficients, Float64]:
        return self.coefficients.apart_from(self._free.position), self.margins

    @property
    def nonzeros(self) -> int:
        """Of the features: the intercept does not count."""
        return int(np.count_nonzero(self.beta[: self.problem.penalty.size]))

    def direction(self, nu: float) -> Direction:
        """Each block's cycle, then the sums Δβ and Δm in the order of the blocks (Algorithm 4, lines 1-5)."""
        dmargins, _ = self._sums = self._sums[::-1]
        dmargins[:] = 0.0
        parts, curvature, dintercept = [], 0.0, 0.0
        for update in self._blocks.cycle(self._take_step(), self.lam, nu, self.problem.intercept):
            if update.dmargins.size:  # else it is in another's
                vectors.add(dmargins, update.dmargins)
            parts.append(update.dbeta)
            curvature += update.curvature
            dintercept += update.dintercept
        dbeta = with_intercept(self.problem, self._blocks.layout.join_coefficients(parts), dintercept)
        return Direction(dbeta, dmargins, curvature)

    def ray(self, direction: Direction) -> Ray:
        return Ray(self.f, self.margins, self.beta, self.penalty, direction)

    def move(self, direction: Direction, found: Found) -> None:
        """β += αΔβ, m += αΔm here; the blocks follow on their next call (Algorithm 4, lines 7-8)."""
        self.penalty += float(self.f.penalty_changes(self.beta, direction.dbeta, np.array([found.alpha]))[0])
        vectors.move_coefficients(self.beta, found.alpha, *direction.dbeta)
        vectors.move(self.margins, found.alpha, direction.dmargins)
        self.objective = found.objective
        self._step = Step(found.alpha, direction.dmargins)

    def fit_free(self) -> None:
        """Bring f to its minimum over the unpenalised coordinates. The blocks' margins follow with the next step."""
        if not self._free.position.size:
            return
        before = self.margins.copy()
        self.beta[self._free.position] += self._free.refit(self.margins)
        self.objective = self.problem.examples.value(self.margins) + self.penalty
        if self._step is None or self._step.alpha == 0.0:
            self._step = None
            self._blocks.set_margins(self.margins)
        else:
            self._step.dmargins[:] += (self.margins - before) / self._step.alpha

    @property
    def has_free(self) -> bool:
        return bool(self._free.position.size)

    def gap(self) -> float:
        violation = self._blocks.violation(self._take_step(), self.lam)
        return max(self.objective - self.f.dual_value(self.margins, violation), 0.0)  # rounding aside, it is

    def _take_step(self) -> Step | None:
        step, self._step = self._step, None
        return step


def solve(state: State, options: SolverOptions, log: Log) -> Solution:
    """Minimise f at the state's λ."""
    stop: Stop = "limit"
    state.fit_free()
    for number in range(1, options.max_rounds + 1):
        log.begin(state.objective)
        direction = state.direction(options.nu)
        with log.searching():
            found = line_search(state.ray(direction), log.before, options)
        ended = log.before - found.objective <= options.tol * log.before
        stuck = no_step(found, log.before, options)
        if (ended or number == options.max_rounds) and not stuck:
            found = back_to_one(found, log.before, options)
        state.move(direction, found)
        state.fit_free()
        log.end(state.objective, state.nonzeros, alpha=found.alpha)
        if ended:
            stop = "no step" if stuck else "tolerance"
            break
    gap = state.gap()
    if stop == "tolerance" and state.has_free and gap > WIDE * state.objective:
        stop = "gap"
    solution = log.solution(*split_intercept(state.problem, state.coefficients), state.objective, gap, stop)
    _warn_unless_converged(solution, options)
    return solution


def back_to_one(found: Found, before: float, options: SolverOptions) -> Found:
    """The second precaution: α = 1 after all, if that costs little and stays below where the round began."""
    little = found.at_one - found.objective <= options.allowed_rise * found.objective
    if little and found.at_one <= before:
        return Found(1.0, found.at_one, found.at_one, found.descent)
    return found


def no_step(found: Found, before: float, options: SolverOptions) -> bool:
    """No step passed the Armijo rule, and D is too large for rounding to be the reason."""
    return found.alpha == 0.0 and abs(found.descent) > max(options.tol, 1e-9) * before


def _warn_unless_converged(solution: Solution, options: SolverOptions) -> None:
    if solution.converged:
        return
    reason = {
        "limit": f"{options.max_rounds} rounds did not bring the relative decrease to tol = {options.tol:g}; "
        "raise max_rounds or tol",
        "gap": f"after {solution.rounds} rounds the objective hardly falls, but the gap is wide. Features that go "
        "along with unpenalised ones slow rounds down: give those a factor above 0, or use the default algorithm",
        "no step": f"after {solution.rounds} rounds the line search found no step that lowers the objective",
    }[solution.stop]
    warnings.warn(
        f"λ = {solution.lam:g}: {reason}. The duality gap reached is {solution.gap:.3g}, the objective "
        f"{solution.objective:.9g}.",
        ConvergenceWarning,
        stacklevel=3,
    )
