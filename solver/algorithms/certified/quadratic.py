"""One quadratic model with the penalty, minimised roughly: a Newton step, or a projection of the dual point.

If its Gram matrix is cheap, coordinate descent on the matrix finds the face (which coefficients are not zero, and their
signs), and the face is solved exactly. Otherwise cycles over the columns find the face, and conjugate gradients move
along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.algorithms.certified.gram import examples_needed, gram_for, has_most_features
from solver.algorithms.certified.gram_problem import Eliminated, GramProblem
from solver.algorithms.certified.store import Store
from solver.algorithms.certified.tuning import GRAM_CHOICE, MODEL, ROUNDING
from solver.arrays import Float64, Int64
from solver.columns import DENSE
from solver.kernels import descent, vectors
from solver.penalty import Terms


@dataclass(frozen=True)
class Quadratic:
    """½ dᵀXᵀWXd − gᵀd + penalty(β + d) in d = Δβ, over the coordinates `position`.

    slots: where their columns are in the store. r: the residual, changed in place to r − WXd. w: the weights of the
    examples, W = diag(w). g: the slopes Xᵀr at d = 0. h: the diagonal of XᵀWX.
    """

    store: Store
    position: Int64
    slots: Int64
    beta: Float64
    terms: Terms
    r: Float64
    w: Float64
    g: Float64
    h: Float64


class _Cycle:
    """Cycles of coordinate descent over some coordinates of a quadratic. d and the residual are changed in place.

    Coordinates that rest at zero move behind the others, and later cycles leave them out while that is safe: a step
    elsewhere may change their slope by no more than `slack`, the largest step of the last cycle.
    """

    def __init__(self, quad: Quadratic, order: Int64, d: Float64) -> None:
        self._quad, self._d, self._slack = quad, d, np.inf
        self._parts = [(run.arrays, order[run.here].copy()) for run in quad.store.runs(quad.slots[order])]
        self._counts = [part.size for _, part in self._parts]

    def run(self) -> float:
        """One cycle; returns what the model fell by, at least."""
        quad, worst, total = self._quad, 0.0, 0.0
        for k, (arrays, order) in enumerate(self._parts):
            self._counts[k], step, gain = descent.descend(
                quad.slots,
                *arrays,
                quad.beta,
                quad.h,
                *quad.terms,
                quad.r,
                quad.w,
                self._d,
                order,
                self._counts[k],
                self._slack,
            )
            worst, total = max(worst, step), total + gain
        self._slack = worst
        return total


class Model:
    """A quadratic, minimised roughly by its Gram matrix, or by cycles and conjugate gradients on the columns.

    stale: the relative error of weights that the Gram matrix may have.
    slow_cycles: cycles that earlier models spent with little gain. The budget of a Gram matrix grows by them.

    d: the step. included: the coordinates that take part. cycles: cycles and iterations so far.
    remaining: what is left to gain: twice the last cycle's gain, or the duality gap of the Gram problem.
    used_gram, weight_error: was the Gram matrix used, and the relative error of its weights.
    """

    def __init__(self, quadratic: Quadratic, stale: float, slow_cycles: int = 0) -> None:
        self._quad, self._stale, self._slow_cycles = quadratic, stale, slow_cycles
        self.d = np.zeros(quadratic.position.size)
        self._first_r: Float64 = np.empty(0)  # the residual at d = 0, where cycles change it
        self._unpenalised = quadratic.terms.free
        near = quadratic.terms.above(quadratic.g, MODEL.include_share)
        self.included = ((quadratic.beta != 0.0) | self._unpenalised | near) & (quadratic.h > 0.0)
        self._order = np.flatnonzero(self.included)
        self.cycles = 0
        self.remaining = 0.0
        self.used_gram = False
        self.weight_error = 0.0

    def descend(self, max_turns: int, least: float, share: float) -> bool:
        """Minimise until a cycle gains less than `share` of the gain so far, or than `least`. False at max_turns.

        A turn is some cycles of coordinate descent, which find the face, and conjugate gradients along it.
        """
        if self._gram_is_cheaper():
            return self._minimise_by_gram(least, share)
        self._first_r = self._quad.r.copy()
        cycle = _Cycle(self._quad, self._order, self.d)
        total, gain = 0.0, np.inf
        use_cg, cycles = True, MODEL.first_cycles
        for turn in range(max_turns):
            for _ in range(cycles):
                last, gain = gain, cycle.run()
                self.cycles += 1
                total += gain
                if gain <= max(share * total, least):
                    break
            self.remaining = 2.0 * gain
            converged_fast = gain <= MODEL.cycles_fast_ratio * last
            if (turn or converged_fast) and gain <= max(share * total, least):
                return True
            if use_cg:
                face_gain = self._move_along_face(share, max(least, MODEL.cg_share * share * total))
                total += face_gain
                # When columns depend on each other, signs change before anything is gained: cycles do better.
                use_cg = face_gain > gain
            cycles = 1 if use_cg else MODEL.cycles_alone
        return False

    # --- by the Gram matrix -------------------------------------------------------------------------------------

    def _gram_is_cheaper(self) -> bool:
        """Do the k² n multiplications of the Gram matrix cost less than the cycles that it spares?"""
        quad, k = self._quad, self._order.size
        entries = float(quad.store.entries(quad.slots[self._order]).sum())
        exists = has_most_features(quad.store, quad.position[self._order])
        spared = self._slow_cycles + GRAM_CHOICE.cycles_spared * (GRAM_CHOICE.extension_factor if exists else 1)
        cost = k * k * examples_needed(quad.r.size, k, self._stale) * GRAM_CHOICE.multiplication_cost
        return bool(0 < k <= quad.store.max_gram_columns and cost < spared * entries)

    def _minimise_by_gram(self, least: float, share: float) -> bool:
        """Minimise the model nearly exactly by its Gram matrix, without a pass over the examples."""
        self.used_gram = True
        quad, order, G = self._quad, self._order, self._gram()
        beta, terms, g = quad.beta[order], quad.terms.of(order), quad.g[order]
        energy = vectors.energy(quad.r, quad.w)
        if terms.is_ridged:  # the L2 part acts as examples of its own, with the residual −√l2 β
            G[np.diag_indices(order.size)] += terms.l2
            g, energy = g - terms.l2 * beta, energy + float(terms.l2 @ beta**2)
        unpenalised = np.flatnonzero(self._unpenalised[order])
        reduced = Eliminated(G, g, unpenalised, energy) if unpenalised.size else None
        if reduced is not None:
            G, g, energy = reduced.G, reduced.g, reduced.energy
            beta, terms = beta[reduced.kept], terms.of(reduced.kept)
        problem = GramProblem(G, g, beta, terms, energy)
        ended, self.remaining = problem.minimise(MODEL.gram_accuracy * share, MODEL.gram_accuracy * least)
        self.d[order] = problem.d if reduced is None else reduced.step(problem.d)
        self.cycles += 1
        return ended

    def _gram(self) -> Float64:
        """XᵀWX over the included coordinates, for weights near the model's."""
        quad, wanted = self._quad, self._quad.position[self._order]
        gram = gram_for(quad.store, wanted, quad.w, self._stale, quad.position)
        self.weight_error = gram.error + vectors.distance(quad.w, gram.w, 1.0) / float(quad.w.sum())
        G, h = gram.of(wanted), quad.h[self._order]
        diagonal = G.diagonal()
        # A feature may have most of its weight on examples that the matrix left out.
        curvature = np.where(diagonal < MODEL.least_curvature_share * h, h, diagonal)
        np.fill_diagonal(G, curvature + self._ridge())
        return G

    def _ridge(self) -> Float64:
        """A share of each included column's curvature, for dense columns of the curvature about their mean.

        Products are formed about the mean: only that part has float32 errors.
        """
        quad, slots, h = self._quad, self._quad.slots[self._order], self._quad.h[self._order]
        if not (quad.store.kinds(slots) == DENSE).any():
            return ROUNDING.gram_ridge * h
        sums = np.empty(slots.size)
        quad.store.slopes(slots, quad.w, sums)
        spread = np.maximum(h - sums**2 / float(quad.w.sum()), 0.0)
        return ROUNDING.gram_ridge * spread + ROUNDING.sums_ridge * h

    # --- along the face -----------------------------------------------------------------------------------------

    def _move_along_face(self, share: float, least: float) -> float:
        """Conjugate gradients over the nonzero coefficients with their signs held; returns the gain.

        Unpenalised coefficients have no sign to hold.
        """
        quad = self._quad
        face = np.flatnonzero((quad.beta + self.d != 0.0) | (self._unpenalised & self.included))
        if face.size < 2:
            return 0.0
        before, old, old_r = self._value(self.d, quad.r), self.d[face], quad.r.copy()
        signs = np.sign(quad.beta[face] + old)
        step = self._conjugate_gradients(face, share, least)
        for scale in MODEL.face_step_sizes:
            # A coefficient that would change sign stops at zero.
            stays = ((quad.beta[face] + old + scale * step) * signs > 0.0) | self._unpenalised[face]
            new = np.where(stays, old + scale * step, -quad.beta[face])
            quad.r[:] = old_r - quad.w * quad.store.product(quad.slots[face], new - old)
            self.d[face] = new
            gain = before - self._value(self.d, quad.r)
            if gain >= 0.0:
                return gain
        self.d[face], quad.r[:] = old, old_r
        return 0.0

    def _conjugate_gradients(self, face: Int64, share: float, least: float) -> Float64:
        """Solve H δ = −∇ on the face, preconditioned by the diagonal of H, until an iteration gains little."""
        quad, terms = self._quad, self._quad.terms.of(face)
        slots, h = quad.slots[face], quad.h[face] + terms.l2
        residual, image = self._face_slopes(face), np.empty(slots.size)
        step, direction, total = np.zeros(slots.size), np.zeros(slots.size), 0.0
        last = np.inf
        for k in range(MODEL.cg_iterations):
            scaled = residual / h
            energy = float(residual @ scaled)
            if energy <= 0.0:
                break
            direction = scaled + (energy / last) * direction
            last = energy
            quad.store.slopes(slots, quad.w * quad.store.product(slots, direction), image)
            image += terms.l2 * direction
            curvature = float(direction @ image)
            if curvature <= ROUNDING.flat * float(direction @ (h * direction)):
                break
            alpha = energy / curvature
            step += alpha * direction
            residual -= alpha * image
            self.cycles += 1
            gain = 0.5 * alpha * energy
            total += gain
            if k + 1 >= MODEL.cg_least_iterations and gain <= max(MODEL.cg_share * share * total, least):
                break
        return step

    def _face_slopes(self, face: Int64) -> Float64:
        """Minus the gradient of the model over the face."""
        quad, terms = self._quad, self._quad.terms.of(face)
        slopes = np.empty(face.size)
        quad.store.slopes(quad.slots[face], quad.r, slopes)
        now = quad.beta[face] + self.d[face]
        slopes -= terms.slope_at(now) + terms.l2 * now
        return slopes

    def _value(self, d: Float64, r: Float64) -> float:
        """The model at d, where its residual is r."""
        quad = self._quad
        return float(vectors.model_loss(self._first_r, r, quad.w) + quad.terms.value(quad.beta + d))
