"""Rounds split by feature, for a working set that exceeds the driver's budget.

A round is Algorithm 4, extended, at one pass over the data:
    1. Each block sweeps, and makes several cycles over its active features.
    2. A line search along the sum of the blocks' directions (Algorithm 3).
    3. A search over the span of the blocks' single directions and the last steps (span.py).
    4. The subspace search over the features that fit into the budget: those that moved f the most for their bytes.
The sweep gives a dual point, and so the gap: f less the best dual value at this λ. Memory grows with the active
features only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from solver.algorithms.certified.certificate import Certificate
from solver.algorithms.certified.span import Span
from solver.algorithms.certified.tuning import ROUNDING, SPAN, SPLIT_ROUNDS
from solver.arrays import Coefficients, Float64
from solver.block import Descent, Sweep
from solver.blocks import Blocks
from solver.free import FreeCoordinates
from solver.kernels import vectors
from solver.linesearch import Direction, Found, Ray, line_search
from solver.options import DefaultOptions, SolverOptions
from solver.problem import Problem
from solver.records import Log
from solver.start import restart

_PAPER = SolverOptions.paper()


@dataclass(frozen=True)
class Iterate:
    """β, m = Xβ and f(β)."""

    beta: Coefficients
    margins: Float64
    objective: float


class Move(NamedTuple):
    """Δβ and Δm = X Δβ."""

    dbeta: Coefficients
    dmargins: Float64


PartSearch: TypeAlias = Callable[[Iterate, Sweep, Coefficients], Iterate]
"""Step 4: takes an iterate, the round's sweep and the blocks' Δβ, and returns an iterate of lower f."""


class SplitRounds:
    """The iterate at one λ, and the rounds that move it."""

    def __init__(
        self,
        blocks: Blocks,
        problem: Problem,
        free: FreeCoordinates,
        lam: float,
        beta: Coefficients,
        search_part: PartSearch,
    ) -> None:
        self._blocks, self._problem, self._free, self._lam = blocks, problem, free, lam
        self._search_part = search_part
        self._pace = Pace()
        self._cycles, self._best_dual = SPLIT_ROUNDS.block_cycles, -np.inf
        self._last_steps: deque[Move] = deque(maxlen=_span_steps(problem.examples.n))
        self._is_final = False  # was the certificate met? One more round, without step 3, makes zeros exact
        self._full_step: Iterate | None = None  # the iterate at α = 1 after step 2, where zeros are exact
        margins = restart(blocks, free, beta)
        self.iterate = self._fit_unpenalised(Iterate(beta, margins, problem.value(margins, beta, lam)))

    def run(self, options: DefaultOptions, log: Log) -> Certificate:
        """Rounds until the certificate is met, f no longer falls, or the limit of rounds."""
        stuck = 0
        while True:
            log.begin(self.iterate.objective)
            alpha = self._round(log)
            gain = log.before - self.iterate.objective
            remaining = self._pace.add(gain)
            certificate = self._certify(self.iterate, remaining)
            met = certificate.met(options)
            if met and self._full_step is not None:
                # The second precaution for sparsity: go back to α = 1, where zeros are exact.
                full = self._fit_unpenalised(self._full_step)
                if self._certify(full, remaining).met(options):
                    certificate, self.iterate, self._is_final = self._certify(full, remaining), full, True
            log.end(self.iterate.objective, self._nonzeros, alpha=alpha, gap=certificate.gap)
            stuck = stuck + 1 if gain <= 0.0 else 0
            if (met and self._is_final) or stuck == SPLIT_ROUNDS.stuck_rounds or log.rounds >= options.max_rounds:
                return certificate
            self._is_final = met

    @property
    def _nonzeros(self) -> int:
        return int(np.count_nonzero(self.iterate.beta.position < self._problem.penalty.size))

    def _fit_unpenalised(self, at: Iterate) -> Iterate:
        """Minimise f over the unpenalised coordinates, as the next sweep's dual point needs it."""
        if not self._free.position.size:
            return at
        margins = at.margins.copy()
        moved = Coefficients(self._free.position, self._free.refit(margins))
        beta = at.beta.moved(moved)
        return Iterate(beta, margins, self._problem.value(margins, beta, self._lam))

    def _certify(self, at: Iterate, remaining: float) -> Certificate:
        gap = max(at.objective - self._best_dual, 0.0)  # below 0 only by rounding
        left = remaining + at.objective - self.iterate.objective
        return Certificate(at.objective, gap, min(gap, left))

    def _round(self, log: Log) -> float:
        """Steps 1 to 4; returns the step size of step 2."""
        start = self.iterate
        sweep, moves = self._descend_blocks()
        with log.searching():
            direction = Direction(*_joined(moves), 0.0)
            found = self._search_direction(direction)
            self._adapt_cycles(found)
            self._full_step = self._iterate_at_one(start, direction, found)
            if not self._is_final:
                self._search_spans(moves, start.objective - self.iterate.objective)
            self.iterate = self._fit_unpenalised(self._search_part(self.iterate, sweep, direction.dbeta))
        self._last_steps.append(Move(self.iterate.beta.moved(start.beta, -1.0), self.iterate.margins - start.margins))
        return found.alpha

    def _descend_blocks(self) -> tuple[Sweep, list[Move]]:
        """Step 1: the blocks' sweep and their directions. The dual value at the iterate is noted."""
        at = self.iterate
        penalised = at.beta.apart_from(self._free.position)
        answers: list[Descent] = list(self._blocks.descend(at.margins, penalised, self._lam, _PAPER.nu, self._cycles))
        layout, blocks = self._blocks.layout, len(answers)
        moves: list[list[Move]] = [[] for _ in range(min(SPLIT_ROUNDS.block_directions, blocks))]
        for k, answer in enumerate(answers):
            dbeta = Coefficients(answer.dbeta.position + layout.starts[k], answer.dbeta.value)
            group = moves[k * len(moves) // blocks]
            group[:] = [_joined([*group, Move(dbeta, answer.dmargins)])]
        sweep = Sweep.joined([answer.sweep for answer in answers], layout)
        f = self._problem.at(self._lam, at.beta.position)
        self._best_dual = max(self._best_dual, f.dual_value(at.margins, sweep.violation))
        return sweep, [group[0] for group in moves]

    def _search_direction(self, direction: Direction) -> Found:
        """Step 2: the line search. α = 1, which keeps zeros exact, is preferred when it costs little."""
        before = self.iterate.objective
        space = np.union1d(self.iterate.beta.position, direction.dbeta.position)
        local = Coefficients(np.searchsorted(space, direction.dbeta.position), direction.dbeta.value)
        f, beta = self._problem.at(self._lam, space), self.iterate.beta.on(space)
        moving = Direction(local, direction.dmargins, 0.0)
        found = line_search(Ray(f, self.iterate.margins, beta, f.terms.value(beta), moving), before, _PAPER)
        cost, gain = found.at_one - found.objective, before - found.objective
        if cost <= max(SPLIT_ROUNDS.full_step_share * gain, ROUNDING.objective * before):
            found = Found(1.0, found.at_one, found.at_one, found.descent)
        self._move(direction.dbeta, direction.dmargins, found.alpha, found.objective)
        return found

    def _iterate_at_one(self, start: Iterate, direction: Direction, found: Found) -> Iterate | None:
        """The iterate at α = 1. None if f would rise."""
        if found.alpha == 1.0:
            return self.iterate
        if found.at_one > start.objective:
            return None
        return Iterate(start.beta.moved(direction.dbeta), start.margins + direction.dmargins, found.at_one)

    def _adapt_cycles(self, found: Found) -> None:
        """More cycles while the sum of the blocks' directions is a good step, fewer when the step size is small."""
        if found.alpha >= SPLIT_ROUNDS.double_cycles_from:
            self._cycles = min(2 * self._cycles, SPLIT_ROUNDS.max_block_cycles)
        elif found.alpha < SPLIT_ROUNDS.halve_cycles_below:
            self._cycles = max(self._cycles // 2, 1)

    def _search_spans(self, moves: Sequence[Move], gained: float) -> None:
        """Step 3: the span of the blocks' directions and the last steps, then of those that keep all zeros.

        Once the zeros are settled, a combination of all directions rarely keeps them. The later directions do.
        """
        # The direction of a single block has been searched already.
        several = [*(moves if len(moves) > 1 or self._last_steps else []), *self._last_steps]
        directions = [move for move in several if move.dbeta.position.size]
        keeping = [move for move in directions if np.isin(move.dbeta.position, self.iterate.beta.position).all()]
        for span in (directions, keeping) if len(keeping) < len(directions) else (directions,):
            before = self.iterate.objective
            if span and self._search_span(span, least=SPLIT_ROUNDS.span_gain_share * gained):
                gained += before - self.iterate.objective

    def _search_span(self, directions: Sequence[Move], least: float) -> bool:
        """Move to the minimum over the span if that gains more than `least`."""
        space = np.unique(np.concatenate([self.iterate.beta.position, *(dbeta.position for dbeta, _ in directions)]))
        B = np.array([dbeta.on(space) for dbeta, _ in directions])
        D = np.array([dmargins for _, dmargins in directions])
        span = Span(self._problem.at(self._lam, space), self.iterate.margins, self.iterate.beta.on(space), D, B)
        c, objective = span.minimise(self.iterate.objective)
        # Margins of a last step are a difference, rounded: large multiples of nearly equal steps would part m from Xβ.
        gains = self.iterate.objective - objective > least and float(np.abs(c).sum()) <= SPAN.largest_combination
        if gains:
            self._move(Coefficients(space, c @ B), c @ D, 1.0, objective)
        return gains

    def _move(self, dbeta: Coefficients, dmargins: Float64, alpha: float, objective: float) -> None:
        """Move to β + αΔβ."""
        at = self.iterate
        self.iterate = Iterate(at.beta.moved(dbeta, alpha), at.margins + alpha * dmargins, objective)


def _span_steps(n: int) -> int:
    """How many of the last steps the span holds: as many as fit into their memory, within limits."""
    fitting = SPLIT_ROUNDS.span_steps_bytes // (8 * n)
    return int(np.clip(fitting, SPLIT_ROUNDS.least_span_steps, SPLIT_ROUNDS.max_span_steps))


def _joined(moves: Sequence[Move]) -> Move:
    """One move from moves of different features, in their order."""
    position = np.concatenate([move.dbeta.position for move in moves])
    value = np.concatenate([move.dbeta.value for move in moves])
    dmargins = np.zeros(moves[0].dmargins.size)
    for move in moves:
        vectors.add(dmargins, move.dmargins)
    return Move(Coefficients(position, value), dmargins)


class Pace:
    """The estimate of what is left to gain, from the pace of the last rounds.

    Rounds with a span search gain by fits and starts, so the best of the last few rounds counts.
    """

    def __init__(self) -> None:
        self._gains: list[float] = []

    def add(self, gain: float) -> float:
        """Note the gain of a round; returns what is left after it."""
        self._gains.append(max(gain, 0.0))
        if len(self._gains) < 3:
            return np.inf
        window = max(SPLIT_ROUNDS.pace_rounds, int(SPLIT_ROUNDS.pace_rounds_share * len(self._gains)))
        recent = self._gains[-window - 1 :]
        earlier, rounds = recent[0], len(recent) - 1
        pace = 0.0
        if earlier > 0.0:
            pace = min((max(recent[-3:]) / earlier) ** (1.0 / rounds), SPLIT_ROUNDS.slowest_round_pace)
        return SPLIT_ROUNDS.pace_safety * max(recent[-window:]) * max(pace / (1.0 - pace), 1.0)
