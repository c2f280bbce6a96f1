"""Rounds split by feature, for a working set beyond the driver's budget, ended by the same certificate.

A round is Algorithm 4 with more to it, at one pass over the data:
    1. in each block: a sweep, and several cycles over the block's active features
    2. the line search along the sum of the blocks' directions (Algorithm 3)
    3. a search over the span of the blocks' single directions and the last steps (span.py)
    4. the subspace search over what fits into the budget: the features that moved f the most, for their bytes
The sweep of step 1 gives a dual point, and so the gap: f less the best dual value found so far at this λ. Nothing here
grows with the number of features, only with those that are active.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from solver.algorithms.certified.certificate import Certificate
from solver.algorithms.certified.span import Span
from solver.algorithms.certified.tuning import ROUNDING, SPLIT_ROUNDS
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


Move: TypeAlias = tuple[Coefficients, Float64]
"""Δβ and Δm = X Δβ."""

PartSearch: TypeAlias = Callable[[Iterate, Sweep, Coefficients], Iterate]
"""Step 4: from an iterate, what the round's sweep listed and the blocks' Δβ, to a lower f."""


class SplitRounds:
    """The iterate at one λ, and how it moves on."""

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
        self._cycles, self._dual = SPLIT_ROUNDS.block_cycles, -np.inf
        kept = int(
            np.clip(
                SPLIT_ROUNDS.span_steps_bytes // (8 * problem.examples.n),
                SPLIT_ROUNDS.least_span_steps,
                SPLIT_ROUNDS.max_span_steps,
            )
        )
        self._steps: deque[Move] = deque(maxlen=kept)
        self._last = False  # is all done but for zeros that are nearly zero? Then a round more, without step 3
        self._plain: Iterate | None = None  # after the second step of a round, if its zeros are exact
        margins = restart(blocks, free, beta)
        self.at = self._with_free(Iterate(beta, margins, problem.value(margins, beta, lam)))

    def run(self, options: DefaultOptions, log: Log) -> Certificate:
        """Rounds until the certificate is met, or there is no way to it."""
        stuck = 0
        while True:
            log.begin(self.at.objective)
            alpha = self._round(log)
            gain = log.before - self.at.objective
            remaining = self._pace.add(gain)
            certificate = self._certify(self.at, remaining)
            met = certificate.met(options)
            if met and self._plain is not None:
                # The second precaution for sparsity: back to α = 1 alone, where zeros are exact.
                plain = self._with_free(self._plain)
                if self._certify(plain, remaining).met(options):
                    certificate, self.at, self._last = self._certify(plain, remaining), plain, True
            log.end(self.at.objective, self._nonzeros, alpha=alpha, gap=certificate.gap)
            stuck = stuck + 1 if gain <= 0.0 else 0
            if (met and self._last) or stuck == SPLIT_ROUNDS.stuck_rounds or log.rounds >= options.max_rounds:
                return certificate
            self._last = met

    @property
    def _nonzeros(self) -> int:
        return int(np.count_nonzero(self.at.beta.position < self._problem.penalty.size))

    def _with_free(self, at: Iterate) -> Iterate:
        """f brought to its minimum over the unpenalised coordinates, as the next sweep's dual point needs it."""
        if not self._free.position.size:
            return at
        margins = at.margins.copy()
        moved = Coefficients(self._free.position, self._free.refit(margins))
        beta = at.beta.moved(moved)
        return Iterate(beta, margins, self._problem.value(margins, beta, self._lam))

    def _certify(self, at: Iterate, remaining: float) -> Certificate:
        gap = max(at.objective - self._dual, 0.0)  # rounding aside, it is
        left = remaining + at.objective - self.at.objective
        return Certificate(at.objective, gap, min(gap, left))

    def _round(self, log: Log) -> float:
        """Steps 1 to 4; returns the step size of the second."""
        start = self.at
        sweep, moves = self._descend()
        with log.searching():
            direction = Direction(*_sum(moves), 0.0)
            found = self._step(direction)
            self._adapt(found)
            self._plain = self._at_one(start, direction, found)
            if not self._last:
                self._widen(moves, start.objective - self.at.objective)
            self.at = self._with_free(self._search_part(self.at, sweep, direction.dbeta))
        self._steps.append((self.at.beta.moved(start.beta, -1.0), self.at.margins - start.margins))
        return found.alpha

    def _descend(self) -> tuple[Sweep, list[Move]]:
        """Step 1: what the blocks found where the round begins, with the gap there, and their directions."""
        own, layout = self.at.beta.apart_from(self._free.position), self._blocks.layout
        blocks = len(layout.starts) - 1
        answers: list[Descent] = []
        moves: list[list[Move]] = [[] for _ in range(min(SPLIT_ROUNDS.block_directions, blocks))]
        for k, answer in enumerate(self._blocks.descend(self.at.margins, own, self._lam, _PAPER.nu, self._cycles)):
            dbeta = Coefficients(answer.dbeta.position + layout.starts[k], answer.dbeta.value)
            group = moves[k * len(moves) // blocks]
            group[:] = [_sum([*group, (dbeta, answer.dmargins)])]
            answers.append(answer)
        sweep = Sweep.joined([answer.sweep for answer in answers], layout)
        f = self._problem.at(self._lam, self.at.beta.position)
        self._dual = max(self._dual, f.dual_value(self.at.margins, sweep.violation))
        return sweep, [group[0] for group in moves]

    def _step(self, direction: Direction) -> Found:
        """Step 2."""
        before = self.at.objective
        space = np.union1d(self.at.beta.position, direction.dbeta.position)
        local = Coefficients(np.searchsorted(space, direction.dbeta.position), direction.dbeta.value)
        f, beta = self._problem.at(self._lam, space), self.at.beta.on(space)
        moving = Direction(local, direction.dmargins, 0.0)
        found = line_search(Ray(f, self.at.margins, beta, f.terms.value(beta), moving), before, _PAPER)
        if found.at_one - found.objective <= max(
            SPLIT_ROUNDS.full_step_share * (before - found.objective), ROUNDING.objective * before
        ):
            found = Found(1.0, found.at_one, found.at_one, found.descent)
        self._move(direction.dbeta, direction.dmargins, found.alpha, found.objective)
        return found

    def _at_one(self, start: Iterate, direction: Direction, found: Found) -> Iterate | None:
        """Where α = 1 leads to, unless f would rise."""
        if found.alpha == 1.0 or found.at_one > start.objective:
            return self.at if found.alpha == 1.0 else None
        return Iterate(start.beta.moved(direction.dbeta), start.margins + direction.dmargins, found.at_one)

    def _adapt(self, found: Found) -> None:
        """More cycles while the blocks' directions add up well, fewer where they get into each other's way."""
        if found.alpha >= SPLIT_ROUNDS.double_cycles_from:
            self._cycles = min(2 * self._cycles, SPLIT_ROUNDS.max_block_cycles)
        elif found.alpha < SPLIT_ROUNDS.halve_cycles_below:
            self._cycles = max(self._cycles // 2, 1)

    def _widen(self, moves: Sequence[Move], gained: float) -> None:
        """Step 3: over the span of the blocks' directions and the last steps, where that gains something.

        Once zeros are settled, hardly a combination of all of these keeps them, but the later ones do one by one.
        """
        # With one block alone, its direction has been searched along already.
        several = [*(moves if len(moves) > 1 or self._steps else []), *self._steps]
        directions = [move for move in several if move[0].position.size]
        keeping = [move for move in directions if np.isin(move[0].position, self.at.beta.position).all()]
        for span in (directions, keeping) if len(keeping) < len(directions) else (directions,):
            before = self.at.objective
            if span and self._search_span(span, least=SPLIT_ROUNDS.span_gain_share * gained):
                gained += before - self.at.objective

    def _search_span(self, directions: Sequence[Move], least: float) -> bool:
        """To the minimum over the span, if that gains more than `least`."""
        space = np.unique(np.concatenate([self.at.beta.position, *(dbeta.position for dbeta, _ in directions)]))
        B = np.array([dbeta.on(space) for dbeta, _ in directions])
        D = np.array([dmargins for _, dmargins in directions])
        span = Span(self._problem.at(self._lam, space), self.at.margins, self.at.beta.on(space), D, B)
        c, objective = span.minimise(self.at.objective)
        gains = self.at.objective - objective > least
        if gains:
            self._move(Coefficients(space, c @ B), c @ D, 1.0, objective)
        return gains

    def _move(self, dbeta: Coefficients, dmargins: Float64, alpha: float, objective: float) -> None:
        """To β + αΔβ."""
        self.at = Iterate(self.at.beta.moved(dbeta, alpha), self.at.margins + alpha * dmargins, objective)


def _sum(moves: Sequence[Move]) -> Move:
    """Of different features, in their order."""
    position = np.concatenate([dbeta.position for dbeta, _ in moves])
    dmargins = np.zeros(moves[0][1].size)
    for _, part in moves:
        vectors.add(dmargins, part)
    return Coefficients(position, np.concatenate([dbeta.value for dbeta, _ in moves])), dmargins


class Pace:
    """What is left to gain, if rounds go on gaining as the best of the last few did.

    Searched over a span, rounds gain by fits and starts: a poor one says little.
    """

    def __init__(self) -> None:
        self._gains: list[float] = []

    def add(self, gain: float) -> float:
        self._gains = [*self._gains[-SPLIT_ROUNDS.pace_rounds :], max(gain, 0.0)]
        if len(self._gains) < 3:
            return np.inf
        earlier, rounds = self._gains[0], len(self._gains) - 1
        pace = (
            min((max(self._gains[-3:]) / earlier) ** (1.0 / rounds), SPLIT_ROUNDS.slowest_round_pace)
            if earlier > 0.0
            else 0.0
        )
        return SPLIT_ROUNDS.pace_safety * max(self._gains[-SPLIT_ROUNDS.pace_rounds :]) * max(pace / (1.0 - pace), 1.0)
