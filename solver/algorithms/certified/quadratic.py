"""Quadratic models with a penalty: what a Newton step, and a better dual point, are found by.

Where the Gram matrix pays, coordinate descent on it finds the face, and the face is solved exactly. Where it does not,
cycles over the columns find the face and conjugate gradients go along it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from solver.algorithms.certified.gram import gram_for, heaviest, is_near, weighed
from solver.algorithms.certified.gram_problem import Eliminated, GramProblem
from solver.algorithms.certified.store import Gram, Store
from solver.algorithms.certified.tuning import GRAM_CHOICE, MODEL, PRECONDITIONER, ROUNDING
from solver.arrays import Float64, Int64
from solver.columns import DENSE
from solver.kernels import descent, vectors
from solver.penalty import Terms


@dataclass(frozen=True)
class Quadratic:
    """½ dᵀXᵀWXd − gᵀd + penalty(β + d) in d = Δβ, over the coordinates `position`; g = Xᵀr, h is XᵀWX's diagonal."""

    store: Store
    position: Int64
    slots: Int64
    beta: Float64
    terms: Terms
    r: Float64  # changed in place, to r − WXd
    w: Float64
    g: Float64
    h: Float64


class Model:
    """A quadratic, minimised roughly: by its Gram matrix, or by cycles and conjugate gradients on the columns.

    stale: the Gram matrix may be of weights that are off by so much, relatively.
    slow_cycles: so many were made in vain so far, and the Gram matrix may cost as many more.
    """

    def __init__(self, at: Quadratic, stale: float, slow_cycles: int = 0) -> None:
        self._at, self._stale, self._slow_cycles = at, stale, slow_cycles
        self.d = np.zeros(at.position.size)
        self._start = at.r.copy()
        self._free = at.terms.free
        self.included = ((at.beta != 0.0) | self._free | at.terms.above(at.g, MODEL.include_share)) & (at.h > 0.0)
        self._order = np.flatnonzero(self.included)
        self.cycles = 0
        self.remaining = 0.0  # what more cycles would gain, if they go on as the last two
        self.used_gram = False
        self.weight_error = 0.0  # the relative distance of the weights that the Gram matrix stands for

    def descend(self, limit: int, least: float, share: float) -> bool:
        """Cycles of coordinate descent find the face, conjugate gradients go along it, by turns.

        Ends when a cycle after a run along the face gains less than `share` of all that was gained, or `least`, and
        True is returned; or at the limit of turns.
        """
        if self._gram_pays():
            return self._by_gram(least, share)
        at, count, slack, total, gain = self._at, self._order.size, np.inf, 0.0, np.inf
        along, cycles = True, MODEL.first_cycles
        for turn in range(limit):
            for _ in range(cycles):
                last = gain
                count, slack, gain = descent.descend(
                    at.slots, *at.store.arrays, at.beta, at.h, *at.terms, at.r, at.w, self.d, self._order, count, slack
                )
                self.cycles += 1
                total += gain
                if gain <= max(share * total, least):
                    break
            self.remaining = 2.0 * gain
            if (turn or gain <= MODEL.cycles_fast_ratio * last) and gain <= max(share * total, least):
                return True
            if along:
                face = self._along_face(share, max(least, MODEL.cg_share * share * total))
                total += face
                # Where columns depend on each other, signs change before anything is gained: cycles do better.
                along = face > gain
            cycles = 1 if along else MODEL.cycles_alone
        return False

    def _gram_pays(self) -> bool:
        """Is the Gram matrix, k² n multiplications by BLAS, cheaper than the cycles that it spares?"""
        at, k = self._at, self._order.size
        entries = float(at.store.entries(at.slots[self._order]).sum())
        again = is_near(at.store, at.position[self._order])
        spared = self._slow_cycles + GRAM_CHOICE.cycles_spared * (GRAM_CHOICE.extension_factor if again else 1)
        return bool(
            0 < k <= at.store.most_gram and k * k * at.r.size * GRAM_CHOICE.multiplication_cost < spared * entries
        )

    def _by_gram(self, least: float, share: float) -> bool:
        """Minimise the model all but exactly, by its Gram matrix: no pass over the examples."""
        self.used_gram = True
        at, order, G = self._at, self._order, self._gram()
        beta, terms, g = at.beta[order], at.terms.of(order), at.g[order]
        energy = vectors.energy(at.r, at.w)
        if terms.is_ridged:  # examples of their own, with the residual −√l2 β
            G[np.diag_indices(order.size)] += terms.l2
            g, energy = g - terms.l2 * beta, energy + float(terms.l2 @ beta**2)
        free = np.flatnonzero(self._free[order])
        rest = Eliminated(G, g, free, energy) if free.size else None
        if rest is not None:
            G, g, beta, terms, energy = rest.G, rest.g, beta[rest.kept], terms.of(rest.kept), rest.energy
        problem = GramProblem(G, g, beta, terms, energy)
        ended, self.remaining = problem.minimise(MODEL.gram_accuracy * share, MODEL.gram_accuracy * least)
        self.d[order] = problem.d if rest is None else rest.step(problem.d)
        self.cycles += 1
        return ended

    def _gram(self) -> Float64:
        """XᵀWX over the order, for weights that are nearly the model's."""
        at, wanted = self._at, self._at.position[self._order]
        gram = gram_for(at.store, wanted, at.w, self._stale, at.position)
        self.weight_error = float(np.abs(at.w - gram.w).sum()) / float(at.w.sum())
        G, h = gram.of(wanted), at.h[self._order]
        own = G.diagonal()
        # A feature may have most of its weight where the matrix has none; and rounding must leave no direction flat.
        np.fill_diagonal(
            G, np.where(own < MODEL.least_curvature_share * h, h, own) + self._ridge(self._order, ROUNDING.gram_ridge)
        )
        return G

    def _ridge(self, chosen: Int64, share: float) -> Float64:
        """A share of these columns' curvature, of dense ones that about their mean: what lies in it is exact."""
        at, slots, h = self._at, self._at.slots[chosen], self._at.h[chosen]
        if not (at.store.kinds(slots) == DENSE).any():
            return share * h
        sums = np.empty(slots.size)
        at.store.slopes(slots, at.w, sums)
        spread = np.maximum(h - sums**2 / float(at.w.sum()), 0.0)
        return share * spread + ROUNDING.sums_ridge * h

    def _along_face(self, share: float, least: float) -> float:
        """Conjugate gradients over the coefficients that are not zero, their signs held; returns the gain.

        Unpenalised ones have no sign to hold.
        """
        at = self._at
        face = np.flatnonzero((at.beta + self.d != 0.0) | (self._free & self.included))
        if face.size < 2:
            return 0.0
        before, old, kept = self._value(self.d, at.r), self.d[face], at.r.copy()
        signs = np.sign(at.beta[face] + old)
        step = self._conjugate(face, share, least)
        for scale in MODEL.face_step_sizes:
            # Coefficients that would change sign stop at zero.
            stays = ((at.beta[face] + old + scale * step) * signs > 0.0) | self._free[face]
            new = np.where(stays, old + scale * step, -at.beta[face])
            at.r[:] = kept - at.w * at.store.product(at.slots[face], new - old)
            self.d[face] = new
            gain = before - self._value(self.d, at.r)
            if gain >= 0.0:
                return gain
        self.d[face], at.r[:] = old, kept
        return 0.0

    def _conjugate(self, face: Int64, share: float, least: float) -> Float64:
        """Solve H δ = −∇ on the face, preconditioned, until an iteration gains little."""
        at, terms = self._at, self._at.terms.of(face)
        slots, h, precondition = at.slots[face], at.h[face] + terms.l2, self._preconditioner(face)
        residual, image = np.empty(slots.size), np.empty(slots.size)
        at.store.slopes(slots, at.r, residual)
        now = at.beta[face] + self.d[face]
        residual -= terms.slope_at(now) + terms.l2 * now
        step, direction, total = np.zeros(slots.size), np.zeros(slots.size), 0.0
        last = np.inf
        for k in range(MODEL.cg_iterations):
            scaled = precondition(residual)
            energy = float(residual @ scaled)
            if energy <= 0.0:
                break
            direction = scaled + (energy / last) * direction
            last = energy
            at.store.slopes(slots, at.w * at.store.product(slots, direction), image)
            image += terms.l2 * direction
            bend = float(direction @ image)
            if bend <= ROUNDING.flat * float(direction @ (h * direction)):
                break
            alpha = energy / bend
            step += alpha * direction
            residual -= alpha * image
            self.cycles += 1
            total += 0.5 * alpha * energy
            if k + 1 >= MODEL.cg_least_iterations and 0.5 * alpha * energy <= max(
                MODEL.cg_share * share * total, least
            ):
                break
        return step

    def _preconditioner(self, face: Int64) -> Callable[[Float64], Float64]:
        """H's diagonal, but for the stiffest columns, those with the largest curvature, their own Gram matrix.

        They are the well filled ones, which overlap the most and hold conjugate gradients up. The matrix need not be
        fresh to be of use: it is formed anew when most of them, or the weights' proportions, have changed.
        """
        at, l2 = self._at, self._at.terms.l2[face]
        h = at.h[face] + l2
        stiff = np.sort(np.argsort(-h, kind="stable")[: self._stiff_count(face)])
        if stiff.size < PRECONDITIONER.least_stiff_columns:
            return lambda residual: residual / h
        scale, last = float(at.w.sum()), at.store.stiff
        if last is None or last.changed(at.position[face[stiff]], at.w / scale):
            weights = heaviest(at.w / scale, PRECONDITIONER.weights_left_out)
            G = weighed(at.store, at.position[face[stiff]], weights)
            own = np.maximum(G.diagonal(), at.h[face[stiff]] / scale)
            np.fill_diagonal(G, own + self._ridge(face[stiff], PRECONDITIONER.stiff_ridge) / scale)  # positive definite
            at.store.stiff = last = Gram(at.position[face[stiff]], G, weights)
        here = np.flatnonzero(np.isin(at.position[face], last.position, assume_unique=True))
        try:
            G = scale * last.of(at.position[face[here]])
            G[np.diag_indices(here.size)] += l2[here]
            factor = cho_factor(G, lower=True, check_finite=False)
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
        worth = int(
            np.sqrt(PRECONDITIONER.iterations_worth * 2.0 * entries / (GRAM_CHOICE.multiplication_cost * at.r.size))
        )
        return min(worth, face.size, at.store.most_gram)

    def _value(self, d: Float64, r: Float64) -> float:
        at = self._at
        return float(vectors.model_loss(self._start, r, at.w) + at.terms.value(at.beta + d))
