"""Unpenalised coordinates, the intercept among them: the driver holds their columns and fits them exactly.

They are few, so Newton's method on them costs little beside a pass over the data. With the others held, the driver
brings f to its minimum over them: at λmax (the null model), after a round, and wherever a dual point is needed, as a
dual point must have xⱼᵀr = 0 for each of them.
"""

from __future__ import annotations

import numpy as np

from solver.arrays import Coefficients, Float32, Float64, Int64
from solver.columns import Columns
from solver.problem import Problem

STEPS = 100  # of Newton's method
HALVINGS = 40  # of one step
EXACT = 1e-12  # of Σ|x r|: a sum xᵀr below this is rounding
NEARLY = 1e-8  # of Σ|x r|: what is left may not be more than this where f falls no further
ROUNDING = 1e-12  # of f: a smaller change is not seen, nor one below what a sum over so many examples may round
SLOWER = 0.5  # slopes that shrink by less than this factor, where f shows no change, are rounding
FLAT = 1e-12  # of the largest eigenvalue: directions of less curvature are left alone
MOST = 1000  # unpenalised features


class NoMinimum(ValueError):
    """Unpenalised coordinates alone separate the examples: f falls for ever."""


class FreeCoordinates:
    """The unpenalised coordinates `position` and their columns, a row each."""

    def __init__(self, problem: Problem, position: Int64, columns: Float32) -> None:
        self._examples, self.position, self._X = problem.examples, position, columns
        self._intercept = problem.intercept
        self._working = np.empty((2, problem.examples.n)) if position.size else np.empty((2, 0))
        self._unseen = max(ROUNDING, problem.examples.n * np.finfo(float).eps)

    @property
    def columns(self) -> Columns:
        """As a store takes them. The intercept's is a list of ones: among such columns Gram matrices need no means."""
        features = Columns.from_rows(self._X[: self.position.size - self._intercept])
        if not self._intercept:
            return features
        n = self._examples.n
        return Columns.joined([features, Columns.all_ones(n)], n)

    def product(self, beta: Coefficients) -> Float64:
        """Their part of Xβ."""
        mine = np.isin(beta.position, self.position)
        rows = np.searchsorted(self.position, beta.position[mine])
        return _combined(self._X, rows, beta.value[mine])

    def refit(self, margins: Float64) -> Float64:
        """What to add to the coefficients so that f is least over them; the margins are moved there."""
        moved = np.zeros(self.position.size)
        if not moved.size:
            return moved
        rows, at_rounding = np.arange(moved.size), False
        slopes, worst, H = self._expand(margins)
        for _ in range(STEPS):
            if worst <= EXACT or at_rounding:
                break
            step = _solve(H, slopes)
            dmargins = _combined(self._X, rows, step)
            alpha, there = 1.0, self._expand(margins + dmargins)
            if not there[1] <= SLOWER * worst:  # slopes do not say that the step is good: f must
                value = self._examples.value(margins)
                alpha, found = self._search(margins, dmargins, value, float(slopes @ step))
                if alpha == 0.0:
                    break
                there = self._expand(margins + alpha * dmargins) if alpha < 1.0 else there
                at_rounding = value - found <= self._unseen * value and there[1] > SLOWER * worst
            slopes, worst, H = there
            margins += alpha * dmargins
            moved += alpha * step
        if worst <= NEARLY:
            return moved
        raise NoMinimum(
            "the loss has no minimum over the coordinates that are not penalised: they separate the examples. "
            "Give these features a penalty factor above 0"
        )

    def _expand(self, margins: Float64) -> tuple[Float64, float, Float64]:
        """Xᵀr, its largest share of Σ|x r|, and XᵀWX."""
        self._examples.residuals(margins, self._working, 1e-300)
        r, w = self._working
        # Or steps from margins far out would be without measure.
        np.maximum(w, self._examples.least_curvature * np.abs(r), out=w)
        k = self.position.size
        slopes, scale, H = np.empty(k), np.empty(k), np.empty((k, k))
        for a in range(k):
            x = self._X[a].astype(np.float64)
            slopes[a], scale[a] = x @ r, np.abs(x) @ np.abs(r)
            xw = x * w
            for b in range(a, k):
                H[a, b] = H[b, a] = xw @ self._X[b]
        return slopes, _largest_share(slopes, scale), H

    def _search(self, margins: Float64, dmargins: Float64, value: float, slope: float) -> tuple[float, float]:
        """The largest of 1, ½, ¼ ... that lowers the loss enough, and the loss there; 0 where none does."""
        alpha = 1.0
        for _ in range(HALVINGS):
            found = float(self._examples.values_along(margins, dmargins, np.array([alpha]))[0])
            if found <= value - 1e-4 * alpha * slope + self._unseen * value:
                return alpha, found
            alpha *= 0.5
        return 0.0, value


def _largest_share(slopes: Float64, scale: Float64) -> float:
    """The largest of |slope| / scale; a column of zeros has none."""
    return float(np.max(np.abs(slopes) / np.where(scale > 0.0, scale, 1.0)))


def _combined(X: Float32, rows: Int64, weights: Float64) -> Float64:
    out = np.zeros(X.shape[1])
    for row, weight in zip(rows, weights, strict=True):
        out += weight * X[row].astype(np.float64)
    return out


def _solve(H: Float64, slopes: Float64) -> Float64:
    """H⁻¹ slopes, directions without curvature left out."""
    unit = np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(H / np.outer(unit, unit))
    kept = values > FLAT * values[-1]
    step: Float64 = vectors[:, kept] @ ((vectors[:, kept].T @ (slopes / unit)) / values[kept]) / unit
    return step
