"""The subspace search: f minimised over the coordinates of a working set, with their full Hessian.

This is the paper's line search, O(n + p) data at one place, widened from one direction to the space of all active
features. Proximal Newton: a quadratic model at the iterate, a few cycles of coordinate descent on it, a line search.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from threadpoolctl import ThreadpoolController

from solver.algorithms.certified.quadratic import Model, Quadratic
from solver.algorithms.certified.store import Store
from solver.algorithms.certified.tuning import DUAL_POINT, ESTIMATE, NEWTON, ROUNDING
from solver.arrays import Coefficients, Float64, Int64
from solver.free import FreeCoordinates
from solver.kernels import vectors
from solver.linesearch import Direction, Found, Ray, line_search
from solver.options import SolverOptions
from solver.penalty import Terms
from solver.problem import Problem

_SEARCH = SolverOptions()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class Subspace:
    """β over the working set `position`, the margins, and f. The margins given are changed in place."""

    def __init__(
        self,
        problem: Problem,
        free: FreeCoordinates,
        store: Store,
        lam: float,
        position: Int64,
        beta: Coefficients,
        margins: Float64,
    ) -> None:
        self.position, self.margins, self.lam = position, margins, lam
        self.store, self._free, self._examples = store, free, problem.examples
        self.f = problem.at(lam, position)
        self.slots = store.slots(position)
        self.beta = beta.on(position)
        self._working = np.empty((2, margins.size))
        self.r, self.w = np.empty(margins.size), np.zeros(margins.size)
        self.g, self.h = np.empty(position.size), np.empty(position.size)
        self.objective = self.f.value(margins, self.beta)
        self.remaining = np.inf
        self.dual_margins = margins
        self.steps = self.cycles = self._last_cycles = 0
        self.stuck = self._expanded = False
        self._turned = np.inf  # how much the last step changed the weights, relatively
        self._left, self._off = 0.0, 0.0
        self._slow_cycles = 0  # that went into steps which gained little on those before
        self._gains, self._by_gram = list[float](), False  # of Newton steps so far, and how the last was found
        self._modelled = np.zeros(position.size, np.bool_)

    @property
    def coefficients(self) -> Coefficients:
        chosen = np.flatnonzero(self.beta)
        return Coefficients(self.position[chosen], self.beta[chosen])

    def go_on(self, before: Coefficients, times: float) -> None:
        """Step from β on as from `before` to it, so many times as far, or as much of it as lowers f.

        Penalised coefficients that are zero stay so, and none changes its sign.
        """
        new = self.beta + times * (self.beta - before.on(self.position))
        d = np.where((new * self.beta > 0.0) | self.f.terms.free, new, 0.0) - self.beta
        if d.any():
            self._move(d)

    def minimise(
        self, enough: float, max_gap: float, limit: int = NEWTON.max_newton_steps, *, dual: bool = True
    ) -> None:
        """Newton steps until `remaining`, what is left to gain, and the gap of the working set are small enough.

        Both limits are relative to f as it falls. dual: look for a good dual point even where no gap is asked for.
        BLAS keeps to one thread meanwhile: its own are slow to wake for small matrices, and where a large one is
        formed, both cores are put to work here.
        """
        with _blas().limit(limits=1, user_api="blas"):
            self._minimise(enough, max_gap, limit)
            if dual and max_gap > DUAL_POINT.default_gap:  # it was not looked at
                if not self._expanded:
                    self._expand()
                if self._step_closes():
                    self._newton_step(0.0, NEWTON.stale_weights, fine=True)
                    self._expand()
                self.close_gap(DUAL_POINT.default_gap)
            elif not self._expanded:
                self._fit_free()

    def _minimise(self, enough: float, max_gap: float, limit: int) -> None:
        self._gains = gains = list[float]()
        self._cap, stale = NEWTON.turns, NEWTON.stale_weights
        for _ in range(limit):
            self._expand()
            possible, asked = self._possible(), enough * self.objective
            if possible == 0.0:
                self.remaining = 0.0
            anew = self._violated_anew()
            settled = max(self.remaining, possible) <= asked and not anew
            only_gap = settled and max_gap < np.inf and self._step_closes()
            if settled and not only_gap and self.close_gap(max_gap) <= max_gap * self.objective:
                self.remaining = max(self.remaining, possible)
                return
            before = self.objective
            if len(gains) > 1 and gains[-1] > NEWTON.slow_ratio * gains[-2] and self._turned < NEWTON.steady_weights:
                stale = max(NEWTON.stale_weights_shrink * stale, NEWTON.stale_weights_least)
                self._slow_cycles += self._last_cycles
            if not self._newton_step(asked, stale, fine=self.remaining <= asked and not anew):
                self.remaining, self.stuck = np.inf, True  # nothing is known of what is left but the gap
                return
            gains.append(before - self.objective)
            left = extrapolated(gains, ESTIMATE.least_left_by_gram if self._by_gram else ESTIMATE.least_left_by_cycles)
            self.remaining = max(
                ESTIMATE.newton_safety * (1.0 + self._off / ESTIMATE.weight_error) * left,
                ESTIMATE.model_gap_factor * self._left,
            )

    def _step_closes(self) -> bool:
        """Would one more Newton step close the gap at less cost than steps towards a better dual point?

        So it is where few cycles bring a step far, and well filled columns have slopes off by more than λ, at next to
        no cost for f.
        """
        last = self._gains[-2:]
        fast = len(last) == 2 and 0.0 < last[1] <= NEWTON.fast_ratio * last[0] and not self._by_gram
        return fast and self._gap_from(self.margins, self.g) > NEWTON.wide_gap * self.objective

    def close_gap(self, asked: float) -> float:
        """The duality gap of the problem restricted to the working set; `dual_margins` is where its dual point is from.

        The residual at β is a dual point once it is scaled until no slope is above its threshold, and then every
        coefficient pays for the feature that violates that the most. So margins nearby are looked for, β aside, at
        which violations are less, until the gap is as small as asked, relative to f. An L2 part makes violations a
        price of second order instead: there, Newton steps close the gap.
        """
        self.dual_margins, g = self.margins, self.g
        best, level = self._gap_from(self.margins, g), 1.0 + min(DUAL_POINT.slack_share * asked, DUAL_POINT.max_slack)
        for _ in range(0 if self.f.terms.is_ridged else DUAL_POINT.max_projections):
            if best <= asked * self.objective:
                break
            margins = self._less_violating(g, level)
            self._free.refit(margins)
            tried = self._slopes_at(margins)
            gap = self._gap_from(margins, tried)
            if gap >= best:
                break
            best, self.dual_margins, g = gap, margins, tried
        return best

    def _less_violating(self, g: Float64, level: float) -> Float64:
        """Margins near `dual_margins` at which slopes g above so many times their threshold are back at that.

        The residual nearest in the norm of the Hessian is that of a lasso: min ½ Σ (r − w Xd)²/w + level ‖d‖₁.
        """
        working = np.empty((2, self.margins.size))
        self._examples.residuals(self.dual_margins, working)
        terms = Terms(*(level * array for array in self.f.terms))
        model = Model(
            self._quadratic(np.zeros(self.position.size), terms, working[0], g),
            DUAL_POINT.projection_stale_weights,
            self._slow_cycles,
        )
        model.descend(DUAL_POINT.projection_turns, 0.0, DUAL_POINT.projection_cycle_share)
        chosen = np.flatnonzero(model.d)
        return self.dual_margins + self.store.product(self.slots[chosen], model.d[chosen])

    def _quadratic(self, beta: Float64, terms: Terms, r: Float64, g: Float64) -> Quadratic:
        return Quadratic(self.store, self.position, self.slots, beta, terms, r, self.w, g, self.h)

    def _gap_from(self, margins: Float64, g: Float64) -> float:
        return self.objective - self.f.dual_value(margins, self.f.terms.violation(g))

    def _slopes_at(self, margins: Float64) -> Float64:
        working, g = np.empty((2, margins.size)), np.empty(self.position.size)
        self._examples.residuals(margins, working)
        self.store.slopes(self.slots, working[0], g)
        return g

    def _expand(self) -> None:
        """The quadratic model at β: residual, weights, slopes, and the Hessian's diagonal."""
        self._fit_free()
        self._expanded = True
        before = self.w.copy()
        self._examples.residuals(self.margins, self._working, ROUNDING.least_weight)
        self.r[:], self.w[:] = self._working
        self._turned = float(np.abs(self.w - before).sum()) / float(self.w.sum())
        self.store.sums(self.slots, self.r, self.w, self.g, self.h)

    def _fit_free(self) -> None:
        """Bring f to its minimum over the unpenalised coordinates: then the residual is orthogonal to their columns."""
        moved = self._free.refit(self.margins)
        if moved.any():
            self.beta[self.f.terms.free] += moved
            self.objective = self.f.value(self.margins, self.beta)

    def _possible(self) -> float:
        """What single coordinates could gain, each by itself, summed."""
        return float(self.f.terms.gains(self.g, self.h, self.beta).sum())

    def _violated_anew(self) -> bool:
        """Does a feature violate its threshold that the last model left out? Single gains say little of it."""
        return bool((self.f.terms.above(self.g, 1.0 + ESTIMATE.unseen_violation) & ~self._modelled).any())

    def _newton_step(self, enough: float, stale: float, *, fine: bool) -> bool:
        """Minimise the model roughly, search along the step, make it; False where there is none."""
        self.steps += 1
        quadratic = self._quadratic(self.beta, self.f.terms, self.r, self.g)
        model = Model(quadratic, min(stale, NEWTON.stale_weights_fine) if fine else stale, self._slow_cycles)
        ended = model.descend(
            self._cap, *((0.0, NEWTON.cycle_share_fine) if fine else (NEWTON.least_gain * enough, NEWTON.cycle_share))
        )
        self._last_cycles = model.cycles
        self.cycles += model.cycles
        self._left, self._off, self._modelled, self._by_gram = model.left, model.off, model.chosen, model.by_gram
        alpha = self._move(model.d)
        if alpha == 1.0 and not ended:
            self._cap = min(2 * self._cap, NEWTON.max_turns)
        return alpha > 0.0

    def _move(self, d: Float64) -> float:
        """Step along d as far as the line search says; returns that step size."""
        step = Coefficients.from_dense(d)
        dmargins = self.store.product(self.slots[step.position], step.value)
        penalty = self.f.terms.value(self.beta)
        ray = Ray(self.f, self.margins, self.beta, penalty, Direction(step, dmargins, 0.0))
        found = line_search(ray, self.objective, _SEARCH)
        if found.alpha == 0.0:
            # Near the optimum f no longer shows what a step gains, where the slopes, and so the gap, still do.
            if not found.at_one <= self.objective * (1.0 + ROUNDING.objective):
                return 0.0
            found = Found(1.0, found.at_one, found.at_one, found.descent)
        vectors.move_coefficients(self.beta, found.alpha, *step)
        vectors.move(self.margins, found.alpha, dmargins)
        self.objective, self._expanded = found.objective, False
        return found.alpha


def extrapolated(gains: list[float], least: float) -> float:
    """What further steps would gain, at the slower of the last two paces: `least` times the last gain, or more."""
    paces = [min(b / a, ESTIMATE.slowest_newton_pace) if a > 0.0 else 0.0 for a, b in pairwise(gains[-3:])]
    pace = max(paces, default=ESTIMATE.first_newton_pace)
    return gains[-1] * max(pace / (1.0 - pace), least)
