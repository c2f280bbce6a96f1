"""The subspace search: f minimised over the coordinates of a working set, with their full Hessian.

This is the paper's line search, O(n + p) data at one place, widened from one direction to the space of all active
features. Proximal Newton: a quadratic model at the iterate, a few cycles of coordinate descent on it, a line search.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from threadpoolctl import ThreadpoolController

from solver import kernels, subspace_kernels
from solver.arrays import Coefficients, Float64, Int64
from solver.examples import Examples
from solver.gap import duality_gap
from solver.gram import extended, gram_for, heaviest, weighed
from solver.linesearch import Direction, Found, Ray, line_search
from solver.options import SolverOptions
from solver.store import Gram, Store

CYCLES = 3  # of coordinate descent on a quadratic model, before conjugate gradients go on along the face
ITERATIONS = 40  # of conjugate gradients on a face
ALONE = 10  # cycles of coordinate descent in a turn where conjugate gradients do not help
SCALES = (1.0, 0.25, 0.0625)  # of the step along a face, tried in turn
FLAT = 1e-6  # of the curvature that columns would have if none depended on others: less is none
GRAM_CYCLES = 20  # of coordinate descent on a Gram matrix, before the face is solved exactly
GRAM_FACES = 30  # solved on one model
GRAM_SHARE = 0.01  # there, how much further cycles go on, compared with cycles over columns
DUAL_STEPS, DUAL_CYCLES = 4, 40  # towards a better dual point, and of coordinate descent in each, at the most
DUAL_GAP = 8e-3  # where no gap is asked for, a dual point good enough for this one is looked for all the same
DUAL_SHARE = 0.01  # a cycle that gains less than this share of the total is the last of a step
STIFF_ITERATIONS = 8  # of conjugate gradients, that the Gram matrix of the stiffest columns may cost
STIFF_LEFT = 0.02  # of the weights may be left out of it
LEAST_STIFF = 20  # of them are worth one
MOST_GRAM = 3000  # columns that a Gram matrix is formed of
GRAM_COST = 0.008  # of a multiplication by BLAS, compared with an entry of a column in a cycle
SPARED = 30  # cycles over the columns that a Gram matrix spares
STALE = 0.15  # relative change of the weights up to which a Gram matrix is used again
FINE_STALE = 0.02  # the same, once only the gap is left to close
SLOW = 0.3  # Newton steps that gain on each other by less are waiting for a better Gram matrix
TURNS = 3  # of both, on one quadratic model: at first more are better spent on the next model
MOST_TURNS = 10  # once steps of full length say that the model holds
SHARE = 0.1  # a cycle that lowers the model by less than this share of the best one is the last
FINE_SHARE = 0.01  # the same, once only the gap is left to close
LEAST_WEIGHT = 1e-10  # w is held above this, so that examples far on one side leave the model bounded
NEAR = 0.9  # a coefficient at zero whose slope is below this share of λ sits out a Newton step
LEAST_LEFT = 0.25  # of the last step's gain is taken to be left after it, however fast steps are closing in
SAFETY = 2.0  # what is left may be so much more than it seems
OFF = (
    0.05  # and as much again for each such share of the weights that a Gram matrix, which hides slow directions, is off
)
SLOWEST = 0.95  # Newton steps are taken to gain at least this factor on each other, when extrapolated
ROUNDING = 1e-14  # a relative rise of f that is no rise

_SEARCH = SolverOptions()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class Subspace:
    """β over the working set `position`, the margins, and f. The margins given are changed in place."""

    def __init__(
        self, store: Store, position: Int64, beta: Coefficients, margins: Float64, examples: Examples, lam: float
    ) -> None:
        self.position, self.margins, self.lam = position, margins, lam
        self.store, self._signed = store, examples.signed
        self.slots = store.slots(position)
        self.beta = np.zeros(position.size)
        self.beta[np.searchsorted(position, beta.position)] = beta.value
        self._working = np.empty((2, margins.size))
        self.r, self.w = np.empty(margins.size), np.empty(margins.size)
        self.g, self.h = np.empty(position.size), np.empty(position.size)
        self.objective = kernels.loss(margins, self._signed) + lam * float(np.abs(self.beta).sum())
        self.remaining = np.inf
        self.dual_margins = margins
        self.steps = self.cycles = 0
        self.stuck = self._expanded = False
        self._left = self._off = 0.0

    @property
    def coefficients(self) -> Coefficients:
        chosen = np.flatnonzero(self.beta)
        return Coefficients(self.position[chosen], self.beta[chosen])

    def go_on(self, before: Coefficients, times: float) -> None:
        """Step from β on as from `before` to it, so many times as far, or as much of it as lowers f.

        Coefficients that are zero stay so, and none changes its sign.
        """
        old = np.zeros(self.position.size)
        here = np.isin(before.position, self.position, assume_unique=True)
        old[np.searchsorted(self.position, before.position[here])] = before.value[here]
        new = self.beta + times * (self.beta - old)
        d = np.where(new * self.beta > 0.0, new, 0.0) - self.beta
        if d.any():
            self._move(d)

    def minimise(self, enough: float, max_gap: float, limit: int = 100) -> None:
        """Newton steps until `remaining`, what is left to gain, and the gap of the working set are small enough.

        Both limits are relative to f as it falls. BLAS keeps to one thread meanwhile: its own are slow to wake for
        small matrices, and where a large one is formed, both cores are put to work here.
        """
        with _blas().limit(limits=1, user_api="blas"):
            self._minimise(enough, max_gap, limit)
            if max_gap > DUAL_GAP:  # it was not looked at
                if not self._expanded:
                    self._expand()
                self.close_gap(DUAL_GAP)

    def _minimise(self, enough: float, max_gap: float, limit: int) -> None:
        gains: list[float] = []
        self._cap, stale = TURNS, STALE
        for _ in range(limit):
            self._expand()
            possible, asked = self._possible(), enough * self.objective
            if possible == 0.0:
                self.remaining = 0.0
            if max(self.remaining, possible) <= asked and self.close_gap(max_gap) <= max_gap * self.objective:
                self.remaining = max(self.remaining, possible)
                return
            before = self.objective
            if len(gains) > 1 and gains[-1] > SLOW * gains[-2]:
                stale *= 0.1
            if not self._newton_step(asked, stale, fine=self.remaining <= asked):
                self.remaining, self.stuck = possible, True
                return
            gains.append(before - self.objective)
            self.remaining = max(SAFETY * (1.0 + self._off / OFF) * extrapolated(gains), 2.0 * self._left)

    def close_gap(self, asked: float) -> float:
        """The duality gap of the problem restricted to the working set; `dual_margins` is where its dual point is from.

        The residual at β is a dual point once it is scaled until no slope is above λ, and then every coefficient pays
        for the feature that violates that the most. So margins nearby are looked for, β aside, at which violations are
        less, until the gap is as small as asked, relative to f.
        """
        self.dual_margins, g = self.margins, self.g
        best, level = self._gap_from(self.margins, g), (1.0 + min(0.5 * asked, 1e-2)) * self.lam
        for _ in range(DUAL_STEPS):
            if best <= asked * self.objective:
                break
            margins = self._less_violating(g, level)
            tried = self._slopes_at(margins)
            gap = self._gap_from(margins, tried)
            if gap >= best:
                break
            best, self.dual_margins, g = gap, margins, tried
        return best

    def _less_violating(self, g: Float64, level: float) -> Float64:
        """Margins near `dual_margins` at which slopes g above the level are back at it.

        The residual nearest in the norm of the Hessian is that of a lasso: min ½ Σ (r − w Xd)²/w + level ‖d‖₁.
        """
        d = np.zeros(self.position.size)
        order = np.flatnonzero((np.abs(g) > NEAR * self.lam) & (self.h > 0.0))
        if not self._descend_known(order, g, level, d):
            self._descend_listed(order, level, d)
        chosen = np.flatnonzero(d)
        return self.dual_margins + self.store.product(self.slots[chosen], d[chosen])

    def _descend_listed(self, order: Int64, level: float, d: Float64) -> None:
        """Cycles of coordinate descent on that lasso, over the columns."""
        none = np.zeros(self.position.size)
        working = np.empty((2, self.margins.size))
        kernels.working_response(self.dual_margins, self._signed, working)
        count, slack, total = order.size, np.inf, 0.0
        for _ in range(DUAL_CYCLES):
            count, slack, gain = subspace_kernels.descend(
                self.slots, *self.store.arrays, none, self.h, level, working[0], self.w, d, order, count, slack
            )
            total += gain
            if gain <= DUAL_SHARE * total:
                break

    def _descend_known(self, order: Int64, g: Float64, level: float, d: Float64) -> bool:
        """The same on the last Gram matrix, if it has all but few of these features."""
        position = self.position[order]
        known = extended(self.store, position)
        if known is None:
            return False
        step = np.zeros(order.size)
        G = known.of(position)
        subspace_kernels.descend_gram(G, g[order], step.copy(), step, level, DUAL_CYCLES, DUAL_SHARE, 0.0)
        d[order] = step
        return True

    def _gap_from(self, margins: Float64, g: Float64) -> float:
        return duality_gap(self.objective, margins, self._signed, self.lam, float(np.abs(g).max(initial=0.0)))

    def _slopes_at(self, margins: Float64) -> Float64:
        working, g = np.empty((2, margins.size)), np.empty(self.position.size)
        kernels.working_response(margins, self._signed, working)
        self.store.slopes(self.slots, working[0], g)
        return g

    def _expand(self) -> None:
        """The quadratic model at β: residual, weights, slopes, and the Hessian's diagonal."""
        self._expanded = True
        kernels.working_response(self.margins, self._signed, self._working)
        subspace_kernels.unpack(self._working, self._signed, LEAST_WEIGHT, self.r, self.w)
        self.store.sums(self.slots, self.r, self.w, self.g, self.h)

    def _possible(self) -> float:
        """What single coordinates could gain, each by itself, summed."""
        return float(single_gains(self.g, self.h, self.beta, self.lam).sum())

    def _newton_step(self, enough: float, stale: float, *, fine: bool) -> bool:
        """Minimise the model roughly, search along the step, make it; False where there is none."""
        self.steps += 1
        model = _Model(self, min(stale, FINE_STALE) if fine else stale)
        ended = model.descend(self._cap, *((0.0, FINE_SHARE) if fine else (0.02 * enough, SHARE)))
        self.cycles += model.cycles
        self._left, self._off = model.left, model.off
        alpha = self._move(model.d)
        if alpha == 1.0 and not ended:
            self._cap = min(2 * self._cap, MOST_TURNS)
        return alpha > 0.0

    def _move(self, d: Float64) -> float:
        """Step along d as far as the line search says; returns that step size."""
        step = Coefficients.from_dense(d)
        dmargins = self.store.product(self.slots[step.position], step.value)
        ray = Ray(
            self.margins,
            self._signed,
            self.beta,
            float(np.abs(self.beta).sum()),
            Direction(step, dmargins, 0.0),
            self.lam,
        )
        found = line_search(ray, self.objective, _SEARCH)
        if found.alpha == 0.0:
            # Near the optimum f no longer shows what a step gains, where the slopes, and so the gap, still do.
            if not found.at_one <= self.objective * (1.0 + ROUNDING):
                return 0.0
            found = Found(1.0, found.at_one, found.at_one, found.descent)
        kernels.move_coefficients(self.beta, found.alpha, *step)
        kernels.move(self.margins, found.alpha, dmargins)
        self.objective, self._expanded = found.objective, False
        return found.alpha


class _Model:
    """The quadratic model at β: coordinate descent in d = Δβ, and conjugate gradients."""

    def __init__(self, at: Subspace, stale: float) -> None:
        self._at, self._stale = at, stale
        self.d = np.zeros(at.position.size)
        self._start = at.r.copy()
        self._order = np.flatnonzero(((at.beta != 0.0) | (np.abs(at.g) > NEAR * at.lam)) & (at.h > 0.0))
        self.cycles = 0
        self.left = 0.0  # what more cycles would gain, if they go on as the last two
        self.off = 0.0  # the relative distance of the weights that the Gram matrix stands for

    def descend(self, limit: int, least: float, share: float) -> bool:
        """Cycles of coordinate descent find the face, conjugate gradients go along it, by turns.

        Ends when a cycle after a run along the face gains less than `share` of all that was gained, or `least`, and
        True is returned; or at the limit of turns.
        """
        if self._gram_pays():
            return self._by_gram(least, share)
        at, count, slack, total = self._at, self._order.size, np.inf, 0.0
        along, cycles = True, CYCLES
        for turn in range(limit):
            for _ in range(cycles):
                count, slack, gain = subspace_kernels.descend(
                    at.slots, *at.store.arrays, at.beta, at.h, at.lam, at.r, at.w, self.d, self._order, count, slack
                )
                self.cycles += 1
                total += gain
                if gain <= max(share * total, least):
                    break
            self.left = 2.0 * gain
            if turn and gain <= max(share * total, least):
                return True
            if along:
                face = self._along_face(share, max(least, 0.1 * share * total))
                total += face
                # Where columns depend on each other, signs change before anything is gained: cycles do better.
                along = face > gain
            cycles = 1 if along else ALONE
        return False

    def _gram_pays(self) -> bool:
        """Is the Gram matrix, k² n multiplications by BLAS, cheaper than the cycles that it spares?"""
        at, k = self._at, self._order.size
        entries = float(at.store.entries(at.slots[self._order]).sum())
        return bool(0 < k <= MOST_GRAM and k * k * at.r.size * GRAM_COST < SPARED * entries)

    def _by_gram(self, least: float, share: float) -> bool:
        """Minimise the model all but exactly, by coordinate descent on the Gram matrix: no pass over the examples."""
        at = self._at
        order, G = self._order, self._gram()
        q, beta, d = at.g[order], at.beta[order], np.zeros(order.size)
        ended = False
        for face in range(GRAM_FACES):
            cycles, gain = subspace_kernels.descend_gram(
                G, q, beta, d, at.lam, GRAM_CYCLES, GRAM_SHARE * share, GRAM_SHARE * least
            )
            ended = cycles < GRAM_CYCLES
            if (face and ended) or not _solve_face(G, q, beta, d, at.lam):
                break
        self.d[order] = d
        self.cycles += 1
        self.left = 2.0 * gain
        return bool(ended)

    def _gram(self) -> Float64:
        """XᵀWX over the order, for weights that are nearly the model's."""
        at, wanted = self._at, self._at.position[self._order]
        gram = gram_for(at.store, wanted, at.w, self._stale)
        self.off = float(np.abs(at.w - gram.w).sum()) / float(at.w.sum())
        G = gram.of(wanted)
        G.flat[:: wanted.size + 1] *= 1.0 + 1e-6  # rounding must leave no direction flat
        return G

    def _along_face(self, share: float, least: float) -> float:
        """Conjugate gradients over the coefficients that are not zero, their signs held; returns the gain."""
        at = self._at
        face = np.flatnonzero(at.beta + self.d)
        if face.size < 2:
            return 0.0
        before, old, kept = self._value(self.d, at.r), self.d[face], at.r.copy()
        signs = np.sign(at.beta[face] + old)
        step = self._conjugate(face, signs, share, least)
        for scale in SCALES:
            # Coefficients that would change sign stop at zero.
            stays = (at.beta[face] + old + scale * step) * signs > 0.0
            new = np.where(stays, old + scale * step, -at.beta[face])
            at.r[:] = kept - at.w * at.store.product(at.slots[face], new - old)
            self.d[face] = new
            gain = before - self._value(self.d, at.r)
            if gain >= 0.0:
                return gain
        self.d[face], at.r[:] = old, kept
        return 0.0

    def _conjugate(self, face: Int64, signs: Float64, share: float, least: float) -> Float64:
        """Solve H δ = −∇ on the face, preconditioned, until an iteration gains little."""
        at = self._at
        slots, h, precondition = at.slots[face], at.h[face], self._preconditioner(face)
        residual, image = np.empty(slots.size), np.empty(slots.size)
        at.store.slopes(slots, at.r, residual)
        residual -= at.lam * signs
        step, direction, total = np.zeros(slots.size), np.zeros(slots.size), 0.0
        last = np.inf
        for _ in range(ITERATIONS):
            scaled = precondition(residual)
            energy = float(residual @ scaled)
            if energy <= 0.0:
                break
            direction = scaled + (energy / last) * direction
            last = energy
            at.store.slopes(slots, at.w * at.store.product(slots, direction), image)
            bend = float(direction @ image)
            if bend <= FLAT * float(direction @ (h * direction)):
                break
            alpha = energy / bend
            step += alpha * direction
            residual -= alpha * image
            self.cycles += 1
            total += 0.5 * alpha * energy
            if 0.5 * alpha * energy <= max(0.1 * share * total, least):
                break
        return step

    def _preconditioner(self, face: Int64) -> Callable[[Float64], Float64]:
        """H's diagonal, but for the stiffest columns, those with the largest curvature, their own Gram matrix.

        They are the well filled ones, which overlap the most and hold conjugate gradients up. The matrix need not be
        fresh to be of use: it is formed anew when most of them, or the weights' proportions, have changed.
        """
        at, h = self._at, self._at.h[face]
        stiff = np.sort(np.argsort(-h, kind="stable")[: self._stiff_count(face)])
        if stiff.size < LEAST_STIFF:
            return lambda residual: residual / h
        scale, last = float(at.w.sum()), at.store.stiff
        if last is None or last.changed(at.position[face[stiff]], at.w / scale):
            weights = heaviest(at.w / scale, STIFF_LEFT)
            G = weighed(at.store, at.position[face[stiff]], weights)
            np.fill_diagonal(G, np.maximum(G.diagonal(), at.h[face[stiff]] / scale) * (1.0 + 1e-5))  # positive definite
            at.store.stiff = last = Gram(at.position[face[stiff]], G, weights)
        here = np.flatnonzero(np.isin(at.position[face], last.position, assume_unique=True))
        try:
            factor = cho_factor(scale * last.of(at.position[face[here]]), lower=True, check_finite=False)
        except LinAlgError:  # columns that depend on each other beyond float32: the diagonal serves
            return lambda residual: residual / h

        def precondition(residual: Float64) -> Float64:
            scaled = residual / h
            scaled[here] = cho_solve(factor, residual[here], check_finite=False)
            return scaled

        return precondition

    def _stiff_count(self, face: Int64) -> int:
        """As many as have a Gram matrix that costs no more than a few iterations."""
        at = self._at
        entries = float(at.store.entries(at.slots[face]).sum())
        return min(int(np.sqrt(STIFF_ITERATIONS * 2.0 * entries / (GRAM_COST * at.r.size))), face.size)

    def _value(self, d: Float64, r: Float64) -> float:
        at = self._at
        loss = subspace_kernels.model_loss(self._start, r, at.w)
        return float(loss + at.lam * subspace_kernels.l1_norm(at.beta, d))


def _solve_face(G: Float64, q: Float64, beta: Float64, d: Float64, lam: float) -> bool:
    """Go to the minimum over the coefficients that are not zero, or up to where the first of them becomes zero.

    d and q = g − Gd are changed in place. False where there is no face, or no way to solve on it.
    """
    face = np.flatnonzero(beta + d)
    if face.size == 0:
        return False
    now = beta[face] + d[face]
    try:
        factor = cho_factor(G[np.ix_(face, face)], lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return False
    step = cho_solve(factor, q[face] - lam * np.sign(now), check_finite=False)
    crossing = (now + step) * now < 0.0
    reach = np.where(crossing, -now / np.where(crossing, step, 1.0), 1.0)
    scale = float(reach.min())
    change = scale * step
    new = d[face] + change
    new[crossing & (reach <= scale)] = -beta[face][crossing & (reach <= scale)]
    q -= G[:, face] @ (new - d[face])
    d[face] = new
    return bool(np.isfinite(d).all())


def extrapolated(gains: list[float]) -> float:
    """What further steps would gain, at the slower of the paces of the last two."""
    paces = [min(b / a, SLOWEST) if a > 0.0 else 0.0 for a, b in pairwise(gains[-3:])]
    pace = max(paces, default=0.5)
    return gains[-1] * max(pace / (1.0 - pace), LEAST_LEFT)


def single_gains(g: Float64, h: Float64, beta: Float64, lam: float) -> Float64:
    """What f, as its quadratic model has it, would fall by if one coordinate alone were minimised; g is −∇L."""
    safe = np.maximum(h, np.finfo(float).tiny)
    target = g + h * beta
    new = np.sign(target) * np.maximum(np.abs(target) - lam, 0.0) / safe
    d = np.where(h > 0.0, new - beta, 0.0)
    gains: Float64 = g * d - 0.5 * h * d * d - lam * (np.abs(beta + d) - np.abs(beta))
    return np.maximum(gains, 0.0)
