"""The line search (Algorithm 3): how far to go from β along the sum of the blocks' directions.

All it needs is of size O(n + p) and at hand: margins, Δm, and the coefficients that move. Every scalar is
float64; in float32 the decrease near the optimum drowns in rounding and the iteration wanders.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Coefficients, Float64
from solver.options import SolverOptions
from solver.problem import Objective

_FIRST = np.array([0.125, 0.25, 0.5, 0.75])  # where step 2 looks when the minimum is not at 1
_PER_PASS = 4  # step sizes tried in one pass over the examples
_NEAR = 0.03  # step 2 ends when the minimum is known to lie this near, relatively, to the best step size tried


@dataclass(frozen=True)
class Direction:
    """Δβ, summed over the blocks, and what goes with it. Positions count over all blocks."""

    dbeta: Coefficients
    dmargins: Float64
    curvature: float


@dataclass(frozen=True)
class Ray:
    """The objective f(β + αΔβ) as a function of α. `penalty` is that of β."""

    f: Objective
    margins: Float64
    beta: Float64
    penalty: float
    direction: Direction

    def objective(self, alphas: ArrayLike) -> Float64:
        """f at each step size, in one pass over the examples."""
        steps = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
        losses = self.f.examples.values_along(self.margins, self.direction.dmargins, steps)
        return losses + (self.penalty + self.f.penalty_changes(self.beta, self.direction.dbeta, steps))

    def descent(self, gamma: float) -> float:
        """D = ∇LᵀΔβ + γ ΔβᵀH̃Δβ + penalty(β+Δβ) − penalty(β)."""
        change = float(self.f.penalty_changes(self.beta, self.direction.dbeta, np.ones(1))[0])
        slope = self.f.examples.slope_along(self.margins, self.direction.dmargins)
        return slope + gamma * self.direction.curvature + change


@dataclass(frozen=True)
class Found:
    """The step chosen. alpha = 0: no step passes the Armijo rule, and the iteration can go no further.

    at_one is f(β + Δβ), which the outer loop needs to go back to α = 1; descent is D, nan where it was not
    needed.
    """

    alpha: float
    objective: float
    at_one: float
    descent: float


def line_search(ray: Ray, objective: float, options: SolverOptions) -> Found:
    """Algorithm 3. `objective` is f(β)."""
    at_one = float(ray.objective(1.0)[0])
    if suffices(objective, at_one, options):
        return Found(1.0, at_one, at_one, np.nan)
    alpha, value = initial_step(ray, at_one, options)
    descent = ray.descent(options.gamma)
    alpha, value = armijo(ray, objective, descent, alpha, value, options)
    return Found(alpha, value, at_one, descent)


def suffices(objective: float, at_one: float, options: SolverOptions) -> bool:
    """Step 1: does α = 1 yield sufficient relative decrease?"""
    return objective - at_one >= options.sufficient_decrease * objective


def initial_step(ray: Ray, at_one: float, options: SolverOptions) -> tuple[float, float]:
    """Step 2: α_init = argmin of f(β + αΔβ) over δ < α ≤ 1, and f there.

    f is convex along the ray, so the minimum lies between the neighbours of the best step size tried. Each
    pass puts a few more between these, until they are close. Near the optimum α_init is mostly 1, so the
    first look is just short of it.
    """
    tried = np.array([max(1.0 - _NEAR, options.delta), 1.0])
    values = np.append(ray.objective(tried[0]), at_one)
    while True:
        best = int(np.argmin(values))
        more = _closer(tried, values, best, options.delta)
        if more.size == 0:
            return float(tried[best]), float(values[best])
        tried, values = np.append(tried, more), np.append(values, ray.objective(more))
        order = np.argsort(tried)
        tried, values = tried[order], values[order]


def _closer(tried: Float64, values: Float64, best: int, delta: float) -> Float64:
    """Step sizes nearer to the minimum; none where it is near enough, or lies at an end of (δ, 1]."""
    none: Float64 = np.empty(0)
    at = tried[best]
    if best == tried.size - 1:
        return none
    if best == 0:
        coarse: Float64 = _FIRST[(delta < _FIRST) & (at > _FIRST)]
        fine = np.geomspace(delta, at, _PER_PASS, endpoint=False)
        return coarse if coarse.size else fine[fine < at]
    lo, hi = tried[best - 1], tried[best + 1]
    if hi - lo <= 3.0 * _NEAR * at:
        return none
    guess = _vertex(tried[best - 1 : best + 2], values[best - 1 : best + 2])
    # Halving the wider side keeps the bracket closing where f has kinks and the parabola misleads.
    half = (lo + at) / 2.0 if at - lo > hi - at else (at + hi) / 2.0
    more = np.array([guess * (1.0 - _NEAR), guess, guess * (1.0 + _NEAR), half])
    return np.unique(more[(more > lo) & (more < hi) & (more != at)])


def _vertex(a: Float64, f: Float64) -> float:
    """Where the parabola through three points, the middle one lowest, has its minimum."""
    left, right = a[1] - a[0], a[2] - a[1]
    down, up = (f[0] - f[1]) / left, (f[2] - f[1]) / right
    if not down + up > 0.0:  # level to the last bit
        return float(a[1])
    return float(a[1] + (down * right - up * left) / (2.0 * (down + up)))


def armijo(
    ray: Ray, objective: float, descent: float, alpha: float, value: float, options: SolverOptions
) -> tuple[float, float]:
    """Step 3: the largest α in {α_init bʲ} with f(β + αΔβ) ≤ f(β) + ασD, and f there. `value` is f at α_init.

    Ends with α = 0 once ασ|D| is less than the last bit of f, a decrease that float64 cannot show.
    """
    if not descent < 0.0:
        return 0.0, objective
    steps, values = np.array([alpha]), np.array([value])
    while True:
        passed = np.flatnonzero(values <= objective + steps * options.sigma * descent)
        if passed.size:
            return float(steps[passed[0]]), float(values[passed[0]])
        alpha = float(steps[-1])
        if not alpha * options.sigma * -descent >= np.spacing(objective):  # nor where one is not a number
            return 0.0, objective
        steps = alpha * options.b ** np.arange(1.0, 1.0 + _PER_PASS)
        values = ray.objective(steps)
