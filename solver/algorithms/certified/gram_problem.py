"""min ½ dᵀGd − gᵀd + penalty(β + d) with G at hand: a quadratic model by its Gram matrix.

The L2 part of the penalty is part of G and g, and unpenalised coordinates are eliminated (`Eliminated`), so that here
every coordinate has an L1 penalty.


Cycles of coordinate descent find the face, and the face is solved exactly, by turns. Where columns nearly depend on
each other, faces follow one upon another, each with a little gain: there, alternating directions go on.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from solver.algorithms.certified.tuning import GRAM_PROBLEM, ROUNDING
from solver.arrays import Float64, Int64
from solver.kernels import descent
from solver.penalty import Terms


class GramProblem:
    """d, and q = g − Gd beside it. energy: Σ r²/w of the residual r that g = Xᵀr is of."""

    def __init__(self, G: Float64, g: Float64, beta: Float64, terms: Terms, energy: float) -> None:
        self._G, self._g, self._beta, self._energy = G, g, beta, energy
        self._terms = terms._replace(l2=np.zeros(g.size))
        self.d, self._q = np.zeros(g.size), g.copy()

    def minimise(self, share: float, least: float) -> tuple[bool, float]:
        """Until no more than `share` of all that was gained is left, or `least`: whether so, and what is left at most.

        The problem's own duality gap says so. Where columns depend on each other, cycles, and faces too, may each gain
        next to nothing with a lot still to be gained.
        """
        value, turns, crossed, split, most = 0.0, 0, 0, False, self._most_faces()
        for _ in range(most):
            slow = crossed > GRAM_PROBLEM.sign_change_share * most
            if not crossed:
                self._cycles(share, least)
                before, value, gap = value, self.value(), self.gap()
                if gap <= max(share * -value, least, ROUNDING.model_gap * self._terms.value(self._beta + self.d)):
                    return True, gap
                turns += 1
                slow = turns > GRAM_PROBLEM.slow_turns and before - value < GRAM_PROBLEM.slow_gain * gap
            try:
                if slow and not split:
                    self._split()
                    split, crossed = True, 0
                else:
                    crossed = crossed + 1 if self._solve_face() else 0
            except LinAlgError:
                break
        return False, self.gap()

    def _cycles(self, share: float, least: float) -> None:
        up, down, _ = self._terms
        descent.descend_gram(self._G, self._q, self._beta, self.d, up, down, GRAM_PROBLEM.cycles_per_face, share, least)

    def _most_faces(self) -> int:
        return int(np.clip(GRAM_PROBLEM.face_work / max(self.d.size, 1) ** 3, *GRAM_PROBLEM.face_limits))

    def gap(self) -> float:
        """The duality gap: what is left to gain at the most. The dual point is the residual, scaled until q ≤ λ."""
        now = self._beta + self.d
        scale = 1.0 / max(1.0, self._terms.violation(self._q).ratio)
        residual = max(self._energy - float((self._g + self._q) @ self.d), 0.0)
        gap = self._terms.value(now) - scale * float(self._q @ now) + 0.5 * (1.0 - scale) ** 2 * residual
        return max(gap, 0.0)

    def value(self) -> float:
        """The objective, less what it is at d = 0."""
        rise = self._terms.value(self._beta + self.d) - self._terms.value(self._beta)
        return rise - 0.5 * float((self._g + self._q) @ self.d)

    def _solve_face(self) -> bool:
        """Go to the minimum over the coefficients that are not zero, those that would change sign stopping at zero.

        Where that gains less than to go straight up to where the first of them becomes zero, go there. True if there
        were any: then the face without them is next, as cycles would only bring them back.
        """
        face = np.flatnonzero(self._beta + self.d)
        if face.size == 0:
            return False
        now = self._beta[face] + self.d[face]
        slope = self._q[face] - self._terms.of(face).slope_at(now)
        factor = cho_factor(self._G[np.ix_(face, face)], lower=True, overwrite_a=True, check_finite=False)
        step = cho_solve(factor, slope, check_finite=False)
        if not np.isfinite(step).all():
            raise LinAlgError("the face has no minimum that can be told")
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
        return bool(crossing.any())

    def _split(self) -> None:
        """Alternating directions: the quadratic and the L1 term by turns.

        In units in which G's diagonal is 1. ρ is the typical curvature of a column beyond what those before it
        explain.
        """
        unit, now = np.sqrt(self._G.diagonal()), self._beta + self.d
        scaled = self._G / np.outer(unit, unit)
        own = cho_factor(scaled, lower=True, check_finite=False)[0].diagonal() ** 2
        rho = float(np.median(own))
        factor = cho_factor(scaled + rho * np.eye(unit.size), lower=True, overwrite_a=True, check_finite=False)
        pull = (self._q + self._G @ now) / unit
        thresholds = Terms(*(array / (rho * unit) for array in self._terms))
        z, u = unit * now, np.zeros(unit.size)
        for _ in range(GRAM_PROBLEM.admm_steps):
            x = cho_solve(factor, pull + rho * (z - u), check_finite=False)
            target = GRAM_PROBLEM.admm_relaxation * x + (1.0 - GRAM_PROBLEM.admm_relaxation) * z + u
            new = thresholds.soft_threshold(target)
            u = target - new
            largest, z = max(np.abs(new - z).max(), np.abs(x - new).max()), new
            if largest <= GRAM_PROBLEM.admm_tolerance * np.abs(z).max():
                break
        self._go_to(z / unit)

    def _go_to(self, coefficients: Float64) -> None:
        """Make β + d these, unless that raises the objective."""
        change = coefficients - (self._beta + self.d)
        image = self._G @ change
        rise = self._terms.value(coefficients) - self._terms.value(self._beta + self.d)
        if 0.5 * change @ image - self._q @ change + rise < 0.0:
            self.d = np.where(coefficients == 0.0, -self._beta, self.d + change)
            self._q -= image


class Eliminated:
    """A quadratic model whose unpenalised coordinates are always at their minimum, given the others.

    They leave a smaller problem: G_PP − G_PU G_UU⁻¹ G_UP over the penalised coordinates P. For an intercept that is the
    Gram matrix of columns less their means.
    """

    def __init__(self, G: Float64, g: Float64, free: Int64, energy: float) -> None:
        self._free = free
        self._kept = np.setdiff1d(np.arange(g.size), free)
        own = G[np.ix_(free, free)]
        # Columns that depend on each other, as two constant ones do, share what they explain.
        self._coupling = np.linalg.lstsq(own, G[np.ix_(free, self._kept)], rcond=ROUNDING.rank)[0]
        self._alone = np.linalg.lstsq(own, g[free], rcond=ROUNDING.rank)[0]
        self.G = G[np.ix_(self._kept, self._kept)] - G[np.ix_(self._kept, free)] @ self._coupling
        self.g = g[self._kept] - G[np.ix_(self._kept, free)] @ self._alone
        self.energy = max(energy - float(g[free] @ self._alone), 0.0)

    @property
    def kept(self) -> Int64:
        """The coordinates that are left."""
        return self._kept

    def step(self, d: Float64) -> Float64:
        """d over all coordinates, from that over those left."""
        full = np.empty(self._free.size + d.size)
        full[self._kept] = d
        full[self._free] = self._alone - self._coupling @ d
        return full
