"""The subspace search: f minimised over the coordinates of a working set, with their full Hessian.

It is the paper's line search with O(n + p) data in one place, widened from one direction to all active features. Each
step is prox-Newton: a quadratic model at the iterate, minimised roughly (model.py), then a line search.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solver.algorithms.certified.model import Model
from solver.algorithms.certified.quadratic import Quadratic
from solver.algorithms.certified.stiff import StiffGram
from solver.algorithms.certified.store import Store
from solver.algorithms.certified.tuning import DUAL_POINT, ESTIMATE, NEWTON, ROUNDING
from solver.arrays import Coefficients, Float64, Int64
from solver.free import FreeCoordinates
from solver.kernels import vectors
from solver.linesearch import Direction, Found, Ray, line_search
from solver.options import SolverOptions
from solver.penalty import Terms
from solver.problem import Problem
from solver.threads import blas

_SEARCH = SolverOptions()


@dataclass
class NewtonState:
    """What the Newton steps of a search have shown so far.

    gains: the decrease of f by each step.
    in_model: the features that the last model contained.
    used_gram: was the last model minimised by its Gram matrix?
    model_remaining: what the last model's minimiser left to gain on it.
    weight_error: the relative error of the weights in the last model's Gram matrix.
    last_cycles: cycles and iterations that the last model took.
    slow_cycles: cycles and iterations of all slow steps. The budget of a Gram matrix grows by them.
    """

    in_model: NDArray[np.bool_]
    gains: list[float] = field(default_factory=list)
    used_gram: bool = False
    model_remaining: float = 0.0
    weight_error: float = 0.0
    last_cycles: int = 0
    slow_cycles: int = 0

    @property
    def is_slow(self) -> bool:
        """Did the last step gain little less than the one before? Then the model holds it up."""
        return len(self.gains) > 1 and self.gains[-1] > NEWTON.slow_ratio * self.gains[-2]

    @property
    def converges_fast(self) -> bool:
        """Did the last step gain a small part of the one before, at the cost of a few cycles?"""
        last = self.gains[-2:]
        return len(last) == 2 and 0.0 < last[1] <= NEWTON.fast_ratio * last[0] and not self.used_gram

    def remaining(self) -> float:
        """What is left to gain: further steps, extrapolated, and at least what the model's minimiser left."""
        least = ESTIMATE.least_left_by_gram if self.used_gram else ESTIMATE.least_left_by_cycles
        safety = ESTIMATE.newton_safety * (1.0 + self.weight_error / ESTIMATE.doubling_weight_error)
        steps = safety * extrapolated_gain(self.gains, least)
        return max(steps, ESTIMATE.model_gap_factor * self.model_remaining)


class Subspace:
    """β over the working set `position`, the margins and f. The given margins are changed in place.

    remaining: the estimate of what is left to gain over the working set.
    stuck: did a Newton step fail to lower f?
    dual_margins: the margins that the dual point comes from.
    dual_offset: what they were apart from the margins of β when they were last looked for. None: nothing, or not yet.
    """

    def __init__(
        self,
        problem: Problem,
        free: FreeCoordinates,
        store: Store,
        lam: float,
        position: Int64,
        beta: Coefficients,
        margins: Float64,
        dual_offset: Float64 | None = None,
    ) -> None:
        self.position, self.margins, self.lam = position, margins, lam
        self.dual_offset = dual_offset
        self.store, self._free, self._examples = store, free, problem.examples
        self.f = problem.at(lam, position)
        self.slots = store.slots(position)
        self.beta = beta.on(position)
        # Made with the first expansion: the search before this one, and its vectors, are gone by then.
        self.r, self.w = np.empty(0), np.empty(0)
        self._residual_at: Float64 | None = None  # the margins to which r belongs
        self.g, self.h = np.empty(position.size), np.empty(position.size)
        self.objective = self.f.value(margins, self.beta)
        self.remaining = np.inf
        self.dual_margins = margins
        self.steps, self.stuck = 0, False
        self._is_expanded = False  # do r, w, g and h belong to β?
        self._stiff_gram = StiffGram()
        self._state = NewtonState(np.zeros(position.size, np.bool_))

    @property
    def coefficients(self) -> Coefficients:
        chosen = np.flatnonzero(self.beta)
        return Coefficients(self.position[chosen], self.beta[chosen])

    def extrapolate_start(self, before: Coefficients, times: float) -> None:
        """Step by `times` (β − before), as far as the line search allows.

        Penalised coefficients at zero stay there, and none changes its sign.
        """
        new = self.beta + times * (self.beta - before.on(self.position))
        d = np.where((new * self.beta > 0.0) | self.f.terms.free, new, 0.0) - self.beta
        if d.any():
            self._move(d)

    def minimise(
        self, tolerance: float, max_gap: float, limit: int = NEWTON.max_newton_steps, *, dual: bool = True
    ) -> None:
        """Newton steps until `remaining` and the gap of the working set are small enough, each relative to f.

        dual: look for a good dual point even when max_gap asks for none. BLAS keeps to one thread meanwhile: its own
        threads wake slowly for small matrices, and large products are cut into parts here.
        """
        with blas().limit(limits=1, user_api="blas"):
            self._newton_steps(tolerance, max_gap, limit)
            if dual and max_gap > DUAL_POINT.default_gap:
                self._close_default_gap()
            elif not self._is_expanded:
                self._fit_unpenalised()

    def _newton_steps(self, tolerance: float, max_gap: float, limit: int) -> None:
        state, stale = self._state, NEWTON.stale_weights
        state.gains = []
        for _ in range(limit):
            self._expand()
            single_gains, allowed = self._single_coordinate_gains(), tolerance * self.objective
            if single_gains == 0.0:
                self.remaining = 0.0
            unseen = self._unseen_feature_violates()
            settled = max(self.remaining, single_gains) <= allowed and not unseen
            step_is_cheaper = settled and max_gap < np.inf and self._step_closes_gap()
            if settled and not step_is_cheaper and self.close_gap(max_gap) <= max_gap * self.objective:
                self.remaining = max(self.remaining, single_gains)
                return
            if state.is_slow:
                stale *= NEWTON.stale_weights_shrink
                state.slow_cycles += state.last_cycles
            before = self.objective
            if not self._newton_step(allowed, stale, fine=self.remaining <= allowed and not unseen):
                self.remaining, self.stuck = np.inf, True  # only the gap bounds what is left
                return
            state.gains.append(before - self.objective)
            self.remaining = state.remaining()

    def _close_default_gap(self) -> None:
        """Look for a dual point good enough for the default gap, after one more Newton step if that is cheaper."""
        if not self._is_expanded:
            self._expand()
        if self._step_closes_gap():
            self._newton_step(0.0, NEWTON.stale_weights, fine=True)
            self._expand()
        self.close_gap(DUAL_POINT.default_gap)

    def _step_closes_gap(self) -> bool:
        """Would one more Newton step close the gap at less cost than a better dual point?

        It does when steps converge fast by few cycles and the gap is wide: slopes of frequent features are then off by
        more than λ, at next to no cost for f.
        """
        if not self._state.converges_fast:
            return False
        return self._gap_from(self.margins, self.g) > NEWTON.wide_gap * self.objective

    def close_gap(self, asked: float) -> float:
        """Find `dual_margins` with a relative gap of at most `asked`; returns the gap over the working set.

        The residual at β becomes a dual point when it is scaled until no slope is above its threshold. Every
        coefficient then pays for the feature that violates the most. So margins near those of β are looked for at which
        violations are smaller. With an L2 part violations cost in second order only, and Newton steps close the gap.
        """
        self.dual_margins, g = self.margins, self.g
        best, enough = self._gap_from(self.margins, g), asked * self.objective
        if self.dual_offset is not None and best > enough:  # β has moved little since
            best, g = self._try_dual_point(self.margins + self.dual_offset, best, g)
        for _ in range(0 if self.f.terms.is_ridged else DUAL_POINT.max_projections):
            before = best
            if best > enough:
                level = 1.0 + DUAL_POINT.slack_share * asked
                best, g = self._try_dual_point(self._project_dual_point(g, level), best, g)
            if best == before:
                break
        self.dual_offset = None if self.dual_margins is self.margins else self.dual_margins - self.margins
        return best

    def _try_dual_point(self, margins: Float64, best: float, g: Float64) -> tuple[float, Float64]:
        """Take these margins as `dual_margins` if their gap is below `best`; the gap and the slopes that hold then."""
        self._free.refit(margins)
        slopes = self._slopes_at(margins)
        gap = self._gap_from(margins, slopes)
        if not gap < best:
            self._residual_at = None
            return best, g
        self.dual_margins = margins
        return gap, slopes

    def _project_dual_point(self, g: Float64, level: float) -> Float64:
        """Margins near `dual_margins` at which no slope is above `level` times its threshold, roughly.

        The nearest such residual in the norm of the Hessian is that of a lasso: min ½ Σ (r − w Xd)²/w + level ‖d‖₁.
        """
        terms = Terms(*(level * array for array in self.f.terms))
        model = self._model(self.dual_margins, np.zeros(self.position.size), terms, g, NEWTON.stale_weights)
        model.descend(NEWTON.max_turns, 0.0, DUAL_POINT.projection_cycle_share)
        step = Coefficients.from_dense(model.d)
        del model  # its vectors over the examples
        margins = self._product(step)
        self._examples.move(margins, 1.0, self.dual_margins)
        return margins

    def _model(self, margins: Float64, beta: Float64, terms: Terms, g: Float64, stale: float) -> Model:
        """The quadratic model with the residual of these margins, whose slopes are g, and the weights at β."""
        self._find_residual(margins)
        self._residual_at = None  # the model changes r in place
        quadratic = Quadratic(self.store, self.position, self.slots, beta, terms, self.r, self.w, g, self.h)
        return Model(quadratic, stale, self._stiff_gram, self._state.slow_cycles)

    def _find_residual(self, margins: Float64) -> None:
        """Bring the residual at these margins into r."""
        if self._residual_at is not margins:
            self._examples.residual(margins, self.r)
            self._residual_at = margins

    def _product(self, step: Coefficients) -> Float64:
        """Xd, positions counted over the working set."""
        return self.store.product(self.slots[step.position], step.value)

    def _gap_from(self, margins: Float64, g: Float64) -> float:
        """f less the dual value at these margins, whose slopes over the working set are g."""
        return self.objective - self.f.dual_value(margins, self.f.terms.violation(g))

    def _slopes_at(self, margins: Float64) -> Float64:
        g = np.empty(self.position.size)
        self._find_residual(margins)
        self.store.slopes(self.slots, self.r, g)
        return g

    def _expand(self) -> None:
        """The quadratic expansion of the loss at β: residual, weights, slopes and the Hessian's diagonal."""
        self._fit_unpenalised()
        if not self.r.size:
            self.r, self.w = np.empty(self.margins.size), np.empty(self.margins.size)
        self._examples.residuals(self.margins, (self.r, self.w), ROUNDING.least_weight)
        self._is_expanded, self._residual_at = True, self.margins
        self.store.sums(self.slots, self.r, self.w, self.g, self.h)

    def _fit_unpenalised(self) -> None:
        """Minimise f over the unpenalised coordinates: the residual is then orthogonal to their columns."""
        moved = self._free.refit(self.margins)
        if moved.any():
            self.beta[self.f.terms.free] += moved
            self.objective, self._residual_at = self.f.value(self.margins, self.beta), None

    def _single_coordinate_gains(self) -> float:
        """The sum of what each coordinate could gain by itself."""
        return float(self.f.terms.gains(self.g, self.h, self.beta).sum())

    def _unseen_feature_violates(self) -> bool:
        """Does a feature violate that the last model did not contain? Its single gain says little."""
        above = self.f.terms.above(self.g, 1.0 + ESTIMATE.unseen_violation)
        return bool((above & ~self._state.in_model).any())

    def _newton_step(self, allowed: float, stale: float, *, fine: bool) -> bool:
        """Minimise the quadratic model roughly and step along its minimiser. False when no step lowers f.

        allowed: what the search may leave. stale: the relative error of weights that a Gram matrix may have.
        fine: only the gap is left to close, so the model is solved more exactly.
        """
        self.steps += 1
        state = self._state
        model = self._model(self.margins, self.beta, self.f.terms, self.g, stale)
        least, share = (0.0, NEWTON.cycle_share_fine) if fine else (NEWTON.least_gain * allowed, NEWTON.cycle_share)
        model.descend(NEWTON.max_turns, least, share)
        state.last_cycles, state.in_model, state.used_gram = model.cycles, model.included, model.used_gram
        state.model_remaining, state.weight_error = model.remaining, model.weight_error
        step = model.d
        del model  # its vectors over the examples
        return self._move(step) > 0.0

    def _move(self, d: Float64) -> float:
        """Step along d as far as the line search says; returns the step size."""
        step = Coefficients.from_dense(d)
        dmargins = self._product(step)
        penalty = self.f.terms.value(self.beta)
        ray = Ray(self.f, self.margins, self.beta, penalty, Direction(step, dmargins, 0.0))
        found = line_search(ray, self.objective, _SEARCH)
        if found.alpha == 0.0:
            # Near the optimum f no longer shows what a step gains. The slopes, and so the gap, still do.
            if not found.at_one <= self.objective * (1.0 + ROUNDING.objective):
                return 0.0
            found = Found(1.0, found.at_one, found.at_one, found.descent)
        vectors.move_coefficients(self.beta, found.alpha, *step)
        self._examples.move(self.margins, found.alpha, dmargins)
        self.objective, self._is_expanded, self._residual_at = found.objective, False, None
        return found.alpha


def extrapolated_gain(gains: list[float], least: float) -> float:
    """What further steps would gain at the slower of the last two paces, and at least `least` times the last gain."""
    paces = [min(b / a, ESTIMATE.slowest_newton_pace) if a > 0.0 else 0.0 for a, b in pairwise(gains[-3:])]
    pace = max(paces, default=ESTIMATE.first_newton_pace)
    return gains[-1] * max(pace / (1.0 - pace), least)
