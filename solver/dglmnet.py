"""The outer loop for one λ (Algorithms 1 and 4), with the two precautions that keep the solution sparse.

First, α = 1 is taken without a search where it lowers the objective enough (step 1 of Algorithm 3). Second,
when the iteration ends, by convergence or at the limit, the last step goes back to α = 1 if the objective
allows it: a coefficient that a block sent to zero then is zero.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import Literal, TypeAlias

import numpy as np

from solver import kernels
from solver.arrays import Coefficients, Float64
from solver.block import Step
from solver.blocks import Blocks
from solver.examples import Examples
from solver.gap import duality_gap
from solver.linesearch import Direction, Found, Ray, line_search
from solver.options import SolverOptions

Stop: TypeAlias = Literal["zero", "tolerance", "limit", "no step"]


class ConvergenceWarning(UserWarning):
    """The iteration ended before it met its tolerance."""


@dataclass(frozen=True)
class RoundRecord:
    """One round, for progress and trace. Objective, nonzeros and gap are those after the step.

    gap: the duality gap, absolute; None where the round did not compute it.
    """

    lambda_index: int
    lam: float
    round: int
    objective: float
    relative_decrease: float
    alpha: float
    nonzeros: int
    seconds: float
    line_search_seconds: float
    gap: float | None = None


@dataclass(frozen=True)
class Solution:
    """The result for one λ. Positions of beta count over all blocks, in their order.

    stop: "zero", λ ≥ λmax, where the solution is zero; "tolerance", the relative decrease fell to tol;
    "limit", max_rounds; "no step", the line search found no step although rounding does not explain it.
    """

    lambda_index: int
    lam: float
    beta: Coefficients = field(repr=False)
    objective: float
    gap: float
    rounds: int
    stop: Stop
    seconds: float
    line_search_seconds: float

    @property
    def converged(self) -> bool:
        return self.stop in ("zero", "tolerance")

    @property
    def nonzeros(self) -> int:
        return self.beta.position.size


OnRound: TypeAlias = Callable[[RoundRecord], None]


class State:
    """The iterate, as it stands beside the line search: β, m = Xβ, ‖β‖₁ and f. O(n + p)."""

    def __init__(self, blocks: Blocks, examples: Examples, lam: float, beta: Coefficients) -> None:
        """Begin at β. Margins are rebuilt from it always, so a run resumed here goes on as if never cut."""
        self._blocks = blocks
        self._signed = examples.signed
        self._lam = lam
        self._offsets = offsets(blocks.sizes)
        self._step: Step | None = None
        # Two, in turn: blocks may still be reading the last round's sum while this round's is formed.
        self._sums = (np.empty(examples.n), np.empty(examples.n))
        self.beta = beta.dense(self._offsets[-1])
        self.l1 = float(np.abs(beta.value).sum())
        self.nonzeros = int(np.count_nonzero(beta.value))
        self.margins = restart(blocks, examples.n, beta)
        self.objective = kernels.loss(self.margins, self._signed) + lam * self.l1

    def direction(self, nu: float) -> Direction:
        """Each block's cycle, then the sums Δβ and Δm in the order of the blocks (Algorithm 4, lines 1-5)."""
        dmargins, _ = self._sums = self._sums[::-1]
        dmargins[:] = 0.0
        position, value, curvature = [], [], 0.0
        updates = self._blocks.cycle(self._take_step(), self._lam, nu)
        for first, update in zip(self._offsets[:-1], updates, strict=True):
            kernels.add(dmargins, update.dmargins)
            position.append(update.dbeta.position + first)
            value.append(update.dbeta.value)
            curvature += update.curvature
        dbeta = Coefficients(np.concatenate(position), np.concatenate(value))
        return Direction(dbeta, dmargins, curvature)

    def ray(self, direction: Direction) -> Ray:
        return Ray(self.margins, self._signed, self.beta, self.l1, direction, self._lam)

    def move(self, direction: Direction, found: Found) -> None:
        """β += αΔβ, m += αΔm here; the blocks follow on their next call (Algorithm 4, lines 7-8)."""
        alpha = np.array([found.alpha])
        change = np.empty(1)
        kernels.l1_changes(self.beta, *direction.dbeta, alpha, change)
        self.l1 += float(change[0])
        self.nonzeros += kernels.move_coefficients(self.beta, found.alpha, *direction.dbeta)
        kernels.move(self.margins, found.alpha, direction.dmargins)
        self.objective = found.objective
        self._step = Step(found.alpha, direction.dmargins)

    def max_gradient(self) -> float:
        """‖Xᵀr‖∞ at the iterate."""
        return max(self._blocks.max_gradient(self._take_step()))

    def gap(self) -> float:
        gap = duality_gap(self.objective, self.margins, self._signed, self._lam, self.max_gradient())
        return max(gap, 0.0)  # rounding aside, it is

    def _take_step(self) -> Step | None:
        step, self._step = self._step, None
        return step


def solve(
    blocks: Blocks,
    examples: Examples,
    lam: float,
    options: SolverOptions,
    beta: Coefficients | None = None,
    *,
    lambda_index: int = 0,
    on_round: OnRound | None = None,
) -> Solution:
    """Minimise f at λ from the given β, or from zero."""
    lam = float(lam)
    if not 0 < lam < np.inf:
        raise ValueError(f"λ must be > 0 and finite, got {lam}")
    log = _Log(lambda_index, lam, on_round)
    state = State(blocks, examples, lam, Coefficients.empty() if beta is None else beta)
    stop: Stop = "limit"
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
        log.end(number, state, found.alpha)
        if ended:
            stop = "no step" if stuck else "tolerance"
            break
    solution = log.solution(number, state, stop)
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


def offsets(sizes: Sequence[int]) -> list[int]:
    """Position of each block's first feature, counted over all blocks; last, the number of features."""
    return [0, *accumulate(sizes)]


def split(beta: Coefficients, starts: Sequence[int]) -> list[Coefficients]:
    """β cut at the blocks' limits, positions counted within each block."""
    cuts = np.searchsorted(beta.position, np.asarray(starts))
    if cuts[0] != 0 or cuts[-1] != beta.position.size:
        raise ValueError(f"coefficient positions must lie in 0..{starts[-1] - 1}")
    spans = zip(starts[:-1], cuts[:-1], cuts[1:], strict=True)
    return [Coefficients(beta.position[lo:hi] - first, beta.value[lo:hi]) for first, lo, hi in spans]


def restart(blocks: Blocks, n: int, beta: Coefficients) -> Float64:
    """Put the blocks at β and return the margins m = Xβ, formed from the data."""
    margins = np.zeros(n)
    for product in blocks.start(split(beta, offsets(blocks.sizes))):
        kernels.add(margins, product)
    blocks.set_margins(margins)
    return margins


class _Log:
    """The clock, and what the outer loop reports."""

    def __init__(self, lambda_index: int, lam: float, on_round: OnRound | None) -> None:
        self._index, self._lam, self._on_round = lambda_index, lam, on_round
        self._began = perf_counter()
        self._search_total = 0.0

    def begin(self, objective: float) -> None:
        self.before = objective
        self._round_began = perf_counter()

    @contextmanager
    def searching(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self._search = perf_counter() - began
        self._search_total += self._search

    def end(self, number: int, state: State, alpha: float) -> None:
        if self._on_round is None:
            return
        decrease = (self.before - state.objective) / self.before if self.before > 0 else 0.0
        self._on_round(
            RoundRecord(
                lambda_index=self._index,
                lam=self._lam,
                round=number,
                objective=state.objective,
                relative_decrease=decrease,
                alpha=alpha,
                nonzeros=state.nonzeros,
                seconds=perf_counter() - self._round_began,
                line_search_seconds=self._search,
            )
        )

    def solution(self, rounds: int, state: State, stop: Stop) -> Solution:
        return Solution(
            lambda_index=self._index,
            lam=self._lam,
            beta=Coefficients.from_dense(state.beta),
            objective=state.objective,
            gap=state.gap(),
            rounds=rounds,
            stop=stop,
            seconds=perf_counter() - self._began,
            line_search_seconds=self._search_total,
        )


def _warn_unless_converged(solution: Solution, options: SolverOptions) -> None:
    if solution.converged:
        return
    reason = {
        "limit": f"{options.max_rounds} rounds did not bring the relative decrease to tol = {options.tol:g}; "
        "raise max_rounds or tol",
        "no step": f"after {solution.rounds} rounds the line search found no step that lowers the objective",
    }[solution.stop]
    warnings.warn(
        f"λ = {solution.lam:g}: {reason}. The duality gap reached is {solution.gap:.3g}, the objective "
        f"{solution.objective:.9g}.",
        ConvergenceWarning,
        stacklevel=3,
    )
