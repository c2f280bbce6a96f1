"""Unpenalised coordinates, the intercept among them: the driver holds their columns and fits them exactly.

They are few, so Newton's method on them costs little beside a pass over the data. With the others held, the driver
brings f to its minimum over them: at λmax (the null model), after a round, and wherever a dual point is needed, as a
dual point must have xⱼᵀr = 0 for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np

from solver.arrays import Coefficients, Float32, Float64, Int64
from solver.columns import Columns
from solver.kernels import vectors
from solver.problem import Problem

T = TypeVar("T")
Sums: TypeAlias = tuple[Float64, Float64, Float64]
"""Xᵀr, |X|ᵀ|r| and XᵀWX over some examples."""
STEPS = 100  # of Newton's method
HALVINGS = 40  # of one step
EXACT = 1e-12  # of Σ|x r|: a sum xᵀr below this is rounding
NEARLY = 1e-8  # of Σ|x r|: what is left may not be more than this where f falls no further
ROUNDING = 1e-12  # of f: a smaller change is not seen, nor one below what a sum over so many examples may round
SLOWER = 0.5  # slopes that shrink by less than this factor, where f shows no change, are rounding
FLAT = 1e-12  # of the largest eigenvalue: directions of less curvature are left alone
MOST = 1000  # unpenalised features
PIECE = 1 << 22  # values of columns that are multiplied at a time


class NoMinimum(ValueError):
    """Unpenalised coordinates alone separate the examples: f falls for ever."""


class FreeCoordinates:
    """The unpenalised coordinates `position`, and the columns of the features among them, a row each.

    The intercept, the last of them if there is one, has no row: its column is all ones.
    """

    def __init__(self, problem: Problem, position: Int64, rows: Float32) -> None:
        self._examples, self.position, self._rows = problem.examples, position, rows
        self._intercept = problem.intercept
        self._unseen = max(ROUNDING, problem.examples.n * np.finfo(float).eps)

    @property
    def columns(self) -> Columns:
        """As a store takes them. The intercept's is bits, all set: beside columns of ones no means are taken off."""
        features = Columns.from_rows(self._rows)
        if not self._intercept:
            return features
        n = self._examples.n
        return Columns.joined([features, Columns.all_ones(n)], n)

    def add_product(self, beta: Coefficients, margins: Float64) -> None:
        """Add their part of Xβ to the margins."""
        self._move(margins, beta.on(self.position))

    def refit(self, margins: Float64) -> Float64:
        """What to add to the coefficients so that f is least over them; the margins are moved there."""
        moved = np.zeros(self.position.size)
        if not moved.size:
            return moved
        at_rounding = False
        slopes, worst, H = self._expand(margins, moved)
        for _ in range(STEPS):
            if worst <= EXACT or at_rounding:
                break
            step = _solve(H, slopes)
            alpha, there = 1.0, self._expand(margins, moved + step)
            if not there[1] <= SLOWER * worst:  # slopes do not say that the step is good: f must
                value = self._value(margins, moved)
                alpha, found = self._search(margins, moved, step, value, float(slopes @ step))
                if alpha == 0.0:
                    break
                there = self._expand(margins, moved + alpha * step) if alpha < 1.0 else there
                at_rounding = value - found <= self._unseen * value and there[1] > SLOWER * worst
            slopes, worst, H = there
            moved += alpha * step
        if worst <= NEARLY:
            self._move(margins, moved)
            return moved
        raise NoMinimum(
            "the loss has no minimum over the coordinates that are not penalised: they separate the examples. "
            "Give these features a penalty factor above 0"
        )

    def _search(
        self, margins: Float64, moved: Float64, step: Float64, value: float, slope: float
    ) -> tuple[float, float]:
        """The largest of 1, ½, ¼ ... that lowers the loss enough, and the loss there; 0 where none does."""
        alpha = 1.0
        for _ in range(HALVINGS):
            found = self._value(margins, moved + alpha * step)
            if found <= value - 1e-4 * alpha * slope + self._unseen * value:
                return alpha, found
            alpha *= 0.5
        return 0.0, value

    # --- passes over the examples, a strip at a time: no vector over all of them is made -------------------------

    def _expand(self, margins: Float64, moved: Float64) -> tuple[Float64, float, Float64]:
        """With the coefficients moved by so much: Xᵀr, its largest share of Σ|x r|, and XᵀWX."""
        slopes, scale, H = _added(self._strips(lambda lo, hi: self._sums(margins, moved, lo, hi)))
        return slopes, _largest_share(slopes, scale), H

    def _sums(self, margins: Float64, moved: Float64, lo: int, hi: int) -> Sums:
        """Of one strip."""
        there, r, w = np.empty((3, hi - lo))
        self._move_strip(margins, moved, lo, hi, there)
        self._examples.loss.residuals(there, self._examples.between(lo, hi), 1e-300, r, w)
        # Or steps from margins far out would be without measure.
        slope, scale, curvature = vectors.hold_curvature(r, w, self._examples.least_curvature)
        if not len(self._rows):
            return np.array([slope]), np.array([scale]), np.array([[curvature]])
        size = max(1, PIECE // self.position.size)
        pieces = [slice(k, min(k + size, hi - lo)) for k in range(0, hi - lo, size)]
        return _added([self._products(r[here], w[here], lo + here.start) for here in pieces])

    def _products(self, r: Float64, w: Float64, lo: int) -> Sums:
        """Of the examples from lo on, as many as r has."""
        X = np.ones((self.position.size, r.size))
        X[: len(self._rows)] = self._rows[:, lo : lo + r.size]
        return X @ r, np.abs(X) @ np.abs(r), (X * w) @ X.T

    def _value(self, margins: Float64, moved: Float64) -> float:
        """The loss with the coefficients moved by so much."""

        def part(lo: int, hi: int) -> float:
            there = np.empty(hi - lo)
            self._move_strip(margins, moved, lo, hi, there)
            return float(self._examples.loss.value(there, self._examples.between(lo, hi)))

        return sum(self._strips(part))

    def _move(self, margins: Float64, moved: Float64) -> None:
        """Move the margins as the coefficients moved."""
        if moved.any():
            self._strips(lambda lo, hi: self._move_strip(margins, moved, lo, hi, margins[lo:hi]))

    def _move_strip(self, margins: Float64, moved: Float64, lo: int, hi: int, out: Float64) -> None:
        """out = the margins of a strip, where they are once the coefficients have moved."""
        np.add(margins[lo:hi], moved[-1] if self._intercept else 0.0, out=out)
        for row, weight in zip(self._rows, moved, strict=False):
            out += weight * row[lo:hi].astype(np.float64)

    def _strips(self, work: Callable[[int, int], T]) -> list[T]:
        return self._examples.threads.over_strips(work, self._examples.n)


def _added(parts: Sequence[Sums]) -> Sums:
    """Their sum, in their order."""
    slopes, scale, H = parts[0]
    for part in parts[1:]:
        slopes, scale, H = slopes + part[0], scale + part[1], H + part[2]
    return slopes, scale, H


def _largest_share(slopes: Float64, scale: Float64) -> float:
    """The largest of |slope| / scale; a column of zeros has none."""
    return float(np.max(np.abs(slopes) / np.where(scale > 0.0, scale, 1.0)))


def _solve(H: Float64, slopes: Float64) -> Float64:
    """H⁻¹ slopes, directions without curvature left out."""
    if slopes.size == 1:
        alone: Float64 = slopes / H[0]
        return alone
    unit = np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(H / np.outer(unit, unit))
    kept = values > FLAT * values[-1]
    step: Float64 = vectors[:, kept] @ ((vectors[:, kept].T @ (slopes / unit)) / values[kept]) / unit
    return step
