"""min ½ dᵀGd − gᵀd + penalty(β + d): a quadratic model whose Gram matrix G is at hand.

The L2 part of the penalty is part of G and g, and unpenalised coordinates are eliminated (`Eliminated`). So every
coordinate here has an L1 penalty.

A turn is some cycles of coordinate descent, which find the face (which coefficients are not zero, and their signs), and
an exact solve on that face. When columns nearly depend on each other, many faces follow one another, each with a little
gain. Then ADMM takes over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from solver.algorithms.certified.tuning import GRAM_PROBLEM, ROUNDING
from solver.arrays import Float64, Int64
from solver.kernels import descent
from solver.penalty import Terms


class GramStep(NamedTuple):
    """d, whether it is as exact as asked, and what is left to gain at most."""

    d: Float64
    ended: bool
    remaining: float


def minimise_gram(
    G: Float64, g: Float64, beta: Float64, terms: Terms, energy: float, share: float, least: float
) -> GramStep:
    """Minimise ½ dᵀGd − gᵀd + penalty(β + d), with any penalty. G stays as it is; share, least as in `GramProblem`."""
    if terms.is_ridged:  # the L2 part acts as examples of its own, with the residual −√l2 β
        G = G + np.diag(terms.l2)
        g, energy = g - terms.l2 * beta, energy + float(terms.l2 @ beta**2)
    unpenalised = np.flatnonzero(terms.free)
    if not unpenalised.size:
        problem = GramProblem(G, g, beta, terms, energy)
        ended, remaining = problem.minimise(share, least)
        return GramStep(problem.d, ended, remaining)
    reduced = Eliminated(G, g, unpenalised, energy)
    problem = GramProblem(reduced.G, reduced.g, beta[reduced.kept], terms.of(reduced.kept), reduced.energy)
    ended, remaining = problem.minimise(share, least)
    return GramStep(reduced.step(problem.d), ended, remaining)


class GramProblem:
    """The step d, and the slopes q = g − Gd. energy: Σ r²/w of the residual r with g = Xᵀr."""

    def __init__(self, G: Float64, g: Float64, beta: Float64, terms: Terms, energy: float) -> None:
        self._G, self._g, self._beta, self._energy = G, g, beta, energy
        self._terms = terms._replace(l2=np.zeros(g.size))
        self.d, self._q = np.zeros(g.size), g.copy()

    def minimise(self, share: float, least: float) -> tuple[bool, float]:
        """Minimise until the duality gap is at most `share` of the gain so far, or `least`: whether it is, and the gap.

        The gap decides, not the last gain: when columns depend on each other, cycles and face solves may gain next to
        nothing with a lot left.
        """
        value, turns, sign_changes, admm_done = 0.0, 0, 0, False
        limit = self._max_face_solves()
        for _ in range(limit):
            is_slow = sign_changes > GRAM_PROBLEM.sign_change_share * limit
            if not sign_changes:
                self._cycles(share, least)
                before, value, gap = value, self.value(), self.gap()
                if gap <= max(share * -value, least, ROUNDING.model_gap * self._terms.value(self._beta + self.d)):
                    return True, gap
                turns += 1
                is_slow = turns > GRAM_PROBLEM.slow_turns and before - value < GRAM_PROBLEM.slow_gain * gap
            try:
                if is_slow and not admm_done:
                    self._admm()
                    admm_done, sign_changes = True, 0
                else:
                    sign_changes = sign_changes + 1 if self._solve_face() else 0
            except LinAlgError:
                break
        return False, self.gap()

    def _cycles(self, share: float, least: float) -> None:
        up, down, _ = self._terms
        descent.descend_gram(self._G, self._q, self._beta, self.d, up, down, GRAM_PROBLEM.cycles_per_face, share, least)

    def _max_face_solves(self) -> int:
        return int(np.clip(GRAM_PROBLEM.face_work / max(self.d.size, 1) ** 3, *GRAM_PROBLEM.face_limits))

    def gap(self) -> float:
        """The duality gap bounds what is left to gain. The dual point is the residual, scaled until |q| ≤ λ."""
        now = self._beta + self.d
        scale = 1.0 / max(1.0, self._terms.violation(self._q).ratio)
        residual = max(self._energy - float((self._g + self._q) @ self.d), 0.0)
        gap = self._terms.value(now) - scale * float(self._q @ now) + 0.5 * (1.0 - scale) ** 2 * residual
        return max(gap, 0.0)

    def value(self) -> float:
        """The objective less its value at d = 0."""
        rise = self._terms.value(self._beta + self.d) - self._terms.value(self._beta)
        return rise - 0.5 * float((self._g + self._q) @ self.d)

    def _solve_face(self) -> bool:
        """Move to the minimum over the nonzero coefficients; one that would change sign stops at zero.

        If the straight step to where the first of them reaches zero gains more, that is taken. True when a sign would
        have changed: the face without that coefficient is next, since cycles would only bring it back.
        """
        face = np.flatnonzero(self._beta + self.d)
        if face.size == 0:
            return False
        now = self._beta[face] + self.d[face]
        slope = self._q[face] - self._terms.of(face).slope_at(now)
        factor = cho_factor(self._G[np.ix_(face, face)], lower=True, overwrite_a=True, check_finite=False)
        step = cho_solve(factor, slope, check_finite=False)
        if not np.isfinite(step).all():
            raise LinAlgError("the face has no finite minimum")
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

    def _admm(self) -> None:
        """ADMM: the alternating direction method of multipliers, on the quadratic and the L1 term.

        Columns are scaled so that the diagonal of G is 1. ρ is the median curvature of a column that the columns before
        it do not explain.
        """
        unit, now = np.sqrt(self._G.diagonal()), self._beta + self.d
        scaled = self._G / np.outer(unit, unit)
        unexplained = cho_factor(scaled, lower=True, check_finite=False)[0].diagonal() ** 2
        rho = float(np.median(unexplained))
        factor = cho_factor(scaled + rho * np.eye(unit.size), lower=True, overwrite_a=True, check_finite=False)
        linear = (self._q + self._G @ now) / unit
        thresholds = Terms(*(array / (rho * unit) for array in self._terms))
        z, u = unit * now, np.zeros(unit.size)
        for _ in range(GRAM_PROBLEM.admm_steps):
            x = cho_solve(factor, linear + rho * (z - u), check_finite=False)
            target = GRAM_PROBLEM.admm_relaxation * x + (1.0 - GRAM_PROBLEM.admm_relaxation) * z + u
            new = thresholds.soft_threshold(target)
            u = target - new
            largest, z = max(np.abs(new - z).max(), np.abs(x - new).max()), new
            if largest <= GRAM_PROBLEM.admm_tolerance * np.abs(z).max():
                break
        self._move_to(z / unit)

    def _move_to(self, coefficients: Float64) -> None:
        """Set β + d to these coefficients, unless that raises the objective."""
        change = coefficients - (self._beta + self.d)
        image = self._G @ change
        rise = self._terms.value(coefficients) - self._terms.value(self._beta + self.d)
        if 0.5 * change @ image - self._q @ change + rise < 0.0:
            self.d = np.where(coefficients == 0.0, -self._beta, self.d + change)
            self._q -= image


class Eliminated:
    """A quadratic model without its unpenalised coordinates U, which are set to their minimum given the others.

    The Gram matrix over the penalised coordinates P becomes G_PP − G_PU G_UU⁻¹ G_UP. For an intercept that is the Gram
    matrix of columns less their means.
    """

    def __init__(self, G: Float64, g: Float64, free: Int64, energy: float) -> None:
        self._free = free
        self._kept = np.setdiff1d(np.arange(g.size), free)
        own = G[np.ix_(free, free)]
        # Least squares: unpenalised columns may depend on each other, as two constant ones do.
        self._coupling = np.linalg.lstsq(own, G[np.ix_(free, self._kept)], rcond=ROUNDING.rank)[0]
        self._free_step = np.linalg.lstsq(own, g[free], rcond=ROUNDING.rank)[0]
        self.G = G[np.ix_(self._kept, self._kept)] - G[np.ix_(self._kept, free)] @ self._coupling
        self.g = g[self._kept] - G[np.ix_(self._kept, free)] @ self._free_step
        self.energy = max(energy - float(g[free] @ self._free_step), 0.0)

    @property
    def kept(self) -> Int64:
        """The penalised coordinates."""
        return self._kept

    def step(self, d: Float64) -> Float64:
        """The step over all coordinates, from the step over the penalised ones."""
        full = np.empty(self._free.size + d.size)
        full[self._kept] = d
        full[self._free] = self._free_step - self._coupling @ d
        return full
