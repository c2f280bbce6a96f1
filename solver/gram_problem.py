"""min ½ dᵀGd − gᵀd + λ‖β + d‖₁ with G at hand: a quadratic model by its Gram matrix.

Cycles of coordinate descent find the face, and the face is solved exactly, by turns. Where columns nearly depend on
each other, faces follow one upon another, each with a little gain: there, alternating directions go on.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from solver import subspace_kernels
from solver.arrays import Float64

CYCLES = 20  # of coordinate descent, before the face is solved exactly
FACES = 10  # at the most
SLOW_FACES, SLOW_GAIN = 2, 0.02  # faces, and a share of all gained by the last, from which on they are slow
SPLIT_STEPS, SPLIT_END = 200, 1e-7  # of alternating directions at the most, and a relative step to end with
RELAXED = 1.6  # of the step to a minimum of the quadratic


class GramProblem:
    """d, and q = g − Gd beside it."""

    def __init__(self, G: Float64, g: Float64, beta: Float64, lam: float) -> None:
        self._G, self._g, self._beta, self._lam = G, g, beta, lam
        self.d, self._q = np.zeros(g.size), g.copy()

    def minimise(self, share: float, least: float) -> tuple[bool, float]:
        """Until a cycle gains less than `share` of a run of cycles, or `least`: whether so, and what may be left."""
        value, split = 0.0, False
        for face in range(FACES):
            cycles, gain = subspace_kernels.descend_gram(
                self._G, self._q, self._beta, self.d, self._lam, CYCLES, share, least
            )
            if face and cycles < CYCLES:
                break
            before, value = value, self.value()
            slow = face >= SLOW_FACES and not split and before - value > SLOW_GAIN * -value
            if not (self._split() if slow else self._solve_face()):
                break
            split = split or slow
        return cycles < CYCLES, 2.0 * gain

    def value(self) -> float:
        """The objective, less what it is at d = 0."""
        l1 = float(np.abs(self._beta + self.d).sum() - np.abs(self._beta).sum())
        return self._lam * l1 - 0.5 * float((self._g + self._q) @ self.d)

    def _solve_face(self) -> bool:
        """Go to the minimum over the coefficients that are not zero, those that would change sign stopping at zero.

        Where that gains less than to go straight up to where the first of them becomes zero, go there. False where
        there is no face, or no way to solve on it.
        """
        face = np.flatnonzero(self._beta + self.d)
        if face.size == 0:
            return False
        now = self._beta[face] + self.d[face]
        slope = self._q[face] - self._lam * np.sign(now)
        try:
            factor = cho_factor(self._G[np.ix_(face, face)], lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return False
        step = cho_solve(factor, slope, check_finite=False)
        crossing = (now + step) * now < 0.0
        change = np.where(crossing, -now, step)
        image = self._G[:, face] @ change
        reach = np.where(crossing, -now / np.where(crossing, step, 1.0), 1.0)
        scale = float(reach.min())
        if slope @ change - 0.5 * change @ image[face] < (scale - 0.5 * scale**2) * float(slope @ step):
            change = np.where(crossing & (reach <= scale), -now, scale * step)
            image = self._G[:, face] @ change
        self._q -= image
        self.d[face] = np.where(change == -now, -self._beta[face], self.d[face] + change)
        return bool(np.isfinite(self.d).all())

    def _split(self) -> bool:
        """Alternating directions: the quadratic and the L1 term by turns.

        In units in which G's diagonal is 1. ρ is the typical curvature of a column beyond what those before it
        explain. False where there is no way to solve.
        """
        unit, now = np.sqrt(self._G.diagonal()), self._beta + self.d
        scaled = self._G / np.outer(unit, unit)
        try:
            own = cho_factor(scaled, lower=True, check_finite=False)[0].diagonal() ** 2
            rho = float(np.median(own))
            factor = cho_factor(scaled + rho * np.eye(unit.size), lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return False
        pull, threshold = (self._q + self._G @ now) / unit, self._lam / (rho * unit)
        z, u = unit * now, np.zeros(unit.size)
        for _ in range(SPLIT_STEPS):
            x = cho_solve(factor, pull + rho * (z - u), check_finite=False)
            target = RELAXED * x + (1.0 - RELAXED) * z + u
            new = np.sign(target) * np.maximum(np.abs(target) - threshold, 0.0)
            u = target - new
            largest, z = max(np.abs(new - z).max(), np.abs(x - new).max()), new
            if largest <= SPLIT_END * np.abs(z).max():
                break
        self._go_to(z / unit)
        return True

    def _go_to(self, coefficients: Float64) -> None:
        """Make β + d these, unless that raises the objective."""
        change = coefficients - (self._beta + self.d)
        image = self._G @ change
        l1 = float(np.abs(coefficients).sum() - np.abs(self._beta + self.d).sum())
        if 0.5 * change @ image - self._q @ change + self._lam * l1 < 0.0:
            self.d = np.where(coefficients == 0.0, -self._beta, self.d + change)
            self._q -= image
