"""One quadratic model with the penalty, minimised roughly: a Newton step, or a projection of the dual point.

If its Gram matrix is cheap, coordinate descent on the matrix finds the face (which coefficients are not zero, and their
signs), and the face is solved exactly. Otherwise cycles over the columns find the face, the stiffest columns together
(stiff.py), and conjugate gradients move along it.
"""

from __future__ import annotations

import numpy as np

from solver.algorithms.certified.cycles import Cycles
from solver.algorithms.certified.gram import examples_needed, gram_for, has_most_features
from solver.algorithms.certified.gram_problem import minimise_gram
from solver.algorithms.certified.quadratic import Progress, Quadratic
from solver.algorithms.certified.stiff import StiffBlock, StiffGram
from solver.algorithms.certified.tuning import GRAM_CHOICE, MODEL, ROUNDING
from solver.arrays import Float64, Int64
from solver.kernels import vectors


class Model:
    """A quadratic, minimised roughly by its Gram matrix, or by cycles and conjugate gradients on the columns.

    stale: the relative error of weights that the Gram matrix may have.
    stiff_gram: the Gram matrix of the stiffest columns, from one model to the next.
    slow_cycles: cycles that earlier models spent with little gain. The budget of a Gram matrix grows by them.

    d: the step. included: the coordinates that take part. cycles: cycles and iterations so far.
    remaining: what is left to gain: twice what the last cycle promised, or the duality gap of the Gram problem.
    used_gram, weight_error: was the Gram matrix used, and the relative error of its weights.
    """

    def __init__(self, quadratic: Quadratic, stale: float, stiff_gram: StiffGram, slow_cycles: int = 0) -> None:
        self._quad, self._stale, self._slow_cycles = quadratic, stale, slow_cycles
        self._stiff_gram = stiff_gram
        self.d = np.zeros(quadratic.position.size)
        self._first_r: Float64 = np.empty(0)  # the residual at d = 0, where cycles change it
        self._stiff: StiffBlock | None = None
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
        self._stiff = StiffBlock.choose(self._quad, self._order, self.d, self._stiff_gram)
        others = self._order if self._stiff is None else np.setdiff1d(self._order, self._stiff.order)
        # Without the stiffest, columns overlap little: parts of a cycle need not see each other's steps.
        descent = Cycles(self._quad, others, self.d, side_by_side=self._stiff is not None)
        total, promise = 0.0, np.inf
        use_cg, cycles = True, MODEL.first_cycles
        for turn in range(max_turns):
            for _ in range(cycles):
                last = promise
                gain, promise = self._cycle(descent, share, least)
                self.cycles += 1
                total += gain
                if promise <= max(share * total, least):
                    break
            self.remaining = 2.0 * promise
            converged_fast = promise <= MODEL.cycles_fast_ratio * last
            if (turn or converged_fast) and promise <= max(share * total, least):
                return True
            if use_cg:
                face_gain = self._move_along_face(share, max(least, MODEL.cg_share * share * total))
                total += face_gain
                # When columns depend on each other, signs change before anything is gained: cycles do better.
                use_cg = face_gain > gain
            cycles = 1 if use_cg else MODEL.cycles_alone
        return False

    def _cycle(self, descent: Cycles, share: float, least: float) -> Progress:
        """One cycle over the columns, the stiffest of them last and together."""
        light = descent.run()
        if self._stiff is None:
            return light
        stiff, step = self._stiff.minimise(share, least)
        descent.slack = max(descent.slack, step)
        return Progress(light.gain + stiff.gain, light.promise + stiff.promise)

    # --- by the Gram matrix -------------------------------------------------------------------------------------

    def _gram_is_cheaper(self) -> bool:
        """Do the k² n multiplications of the Gram matrix cost less than the cycles that it spares?"""
        quad, k = self._quad, self._order.size
        entries = quad.entries(self._order)
        exists = has_most_features(quad.store, quad.position[self._order])
        spared = self._slow_cycles + GRAM_CHOICE.cycles_spared * (GRAM_CHOICE.extension_factor if exists else 1)
        cost = k * k * examples_needed(quad.r.size, k, self._stale) * GRAM_CHOICE.multiplication_cost
        return bool(0 < k <= quad.store.max_gram_columns and cost < spared * entries)

    def _minimise_by_gram(self, least: float, share: float) -> bool:
        """Minimise the model nearly exactly by its Gram matrix, without a pass over the examples."""
        self.used_gram = True
        quad, order = self._quad, self._order
        last = gram_for(quad.store, quad.position[order], quad.w, self._stale, quad.position)
        G, self.weight_error = quad.gram(order, last)
        accuracy = MODEL.gram_accuracy
        self.d[order], ended, self.remaining = minimise_gram(
            G, quad.g[order], quad.beta[order], quad.terms.of(order), quad.energy(), accuracy * share, accuracy * least
        )
        self.cycles += 1
        return ended

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
            quad.r[:] = old_r - quad.image(face, new - old)
            self.d[face] = new
            gain = before - self._value(self.d, quad.r)
            if gain >= 0.0:
                return gain
        self.d[face], quad.r[:] = old, old_r
        return 0.0

    def _conjugate_gradients(self, face: Int64, share: float, least: float) -> Float64:
        """Solve H δ = −∇ on the face, preconditioned by the diagonal of H, until an iteration gains little."""
        quad, terms = self._quad, self._quad.terms.of(face)
        columns, h = quad.store.chosen(quad.slots[face]), quad.h[face] + terms.l2
        residual, image = self._face_slopes(face), np.empty(face.size)
        precondition = (lambda v: v / h) if self._stiff is None else self._stiff.preconditioner(face, h)
        step, direction, total = np.zeros(face.size), np.zeros(face.size), 0.0
        scale, last = np.zeros(face.size), np.inf  # of the direction, in what the preconditioner takes for curvature
        for k in range(MODEL.cg_iterations):
            scaled = precondition(residual)
            energy = float(residual @ scaled)
            if energy <= 0.0:
                break
            direction = scaled + (energy / last) * direction
            scale = residual + (energy / last) * scale
            last = energy
            columns.slopes(quad.w * columns.product(direction), image)
            image += terms.l2 * direction
            curvature = float(direction @ image)
            if curvature <= ROUNDING.flat * float(direction @ scale):
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
        slopes = quad.slopes(face)
        now = quad.beta[face] + self.d[face]
        slopes -= terms.slope_at(now) + terms.l2 * now
        return slopes

    def _value(self, d: Float64, r: Float64) -> float:
        """The model at d, where its residual is r."""
        quad = self._quad
        return float(vectors.model_loss(self._first_r, r, quad.w) + quad.terms.value(quad.beta + d))
