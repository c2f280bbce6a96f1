"""f minimised over the span of a few directions: the line search of Algorithm 3 in several dimensions.

Rounds with a single step size zigzag when blocks correlate. As in conjugate gradients, the search goes over the blocks'
own directions and the last few steps together. As in Anderson extrapolation, the result is a combination of past
iterates, but the one that minimises f instead of a residual. Margins are linear in β, so the driver has all it needs
without a pass over the data.

|β| has a kink at zero. Newton steps are made on √(β² + ε²) instead, with falling ε; the line search is on f itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.algorithms.certified.tuning import SPAN
from solver.arrays import Float64
from solver.problem import Objective

STEP_SIZES = np.array(SPAN.span_step_sizes)


@dataclass(frozen=True)
class Span:
    """Directions from an iterate: c leads to the margins m + Dᵀc and the coefficients β + Bᵀc.

    beta: the coefficients that are not zero, or that a direction moves. D: a row of margins for each direction.
    B: a row of coefficients for each direction.
    """

    f: Objective
    margins: Float64
    beta: Float64
    D: Float64
    B: Float64

    def minimise(self, objective: float) -> tuple[Float64, float]:
        """The best c, and f there. `objective` is f at c = 0."""
        c = np.zeros(len(self.D))
        reach = np.abs(self.B).sum(axis=0)
        for smoothing in SPAN.smoothing:
            for _ in range(SPAN.span_newton_steps):
                step = self._newton_step(c, smoothing * reach)
                if step is None:
                    return c, objective
                step_size, value = self._line_search(c, step)
                if not value < objective:
                    break
                c, objective = c + step_size * step, value
        return c, objective

    def _newton_step(self, c: Float64, epsilon: Float64) -> Float64 | None:
        """The Newton step of the smoothed objective. None when no ridge keeps it within bounds."""
        working = np.empty((2, self.margins.size))
        self.f.examples.residuals(self.margins + c @ self.D, working)
        beta = self.beta + c @ self.B
        root = np.sqrt(beta**2 + epsilon**2) + np.finfo(float).tiny
        up, down, l2 = self.f.terms
        l1 = np.where(beta > 0.0, up, np.where(np.isinf(down), 0.0, down))
        slope = self.B @ (l1 * (beta / root) + l2 * beta) - self.D @ working[0]
        H = self._curvature(working[1]) + (self.B * (l1 * (epsilon**2 / root**3) + l2)) @ self.B.T
        scale = np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
        H, slope = H / np.outer(scale, scale), slope / scale
        steps = (_solve_ridged(H, slope, ridge) for ridge in SPAN.ridges)
        bounded = (-step / scale for step in steps if (np.abs(c - step / scale) <= SPAN.max_coordinate).all())
        return next(bounded, None)

    def _curvature(self, w: Float64) -> Float64:
        """D W Dᵀ, some examples at a time: a weighted copy of all of D would double the memory."""
        H = np.zeros((len(self.D), len(self.D)))
        for first in range(0, w.size, SPAN.span_examples):
            here = slice(first, first + SPAN.span_examples)
            H += (self.D[:, here] * w[here]) @ self.D[:, here].T
        return H

    def _line_search(self, c: Float64, step: Float64) -> tuple[float, float]:
        """The best of the step sizes, and f there."""
        values = self.f.examples.values_along(self.margins + c @ self.D, step @ self.D, STEP_SIZES)
        start, along = self.beta + c @ self.B, step @ self.B
        values += [self.f.terms.value(start + step_size * along) for step_size in STEP_SIZES]
        best = int(np.argmin(values))
        return float(STEP_SIZES[best]), float(values[best])


def _solve_ridged(H: Float64, slope: Float64, ridge: float) -> Float64:
    """(H + ridge I)⁻¹ slope. NaN, which is within no bound, when the matrix is singular."""
    try:
        return np.asarray(np.linalg.solve(H + ridge * np.eye(slope.size), slope), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full(slope.size, np.nan)
