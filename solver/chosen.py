"""Columns that a search has chosen, where they are: a quadratic over them, and coordinate descent on it.

The driver's store has copies of all of them; each block has its own. A part of a cycle is the same work in both places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solver.arrays import Coefficients, Float64, Int64
from solver.columns import ColumnArrays
from solver.kernels import descent, vectors
from solver.layout import Layout
from solver.penalty import Terms
from solver.questions import summed


@dataclass(frozen=True)
class Coordinates:
    """Coordinates of a quadratic: their positions, rising; β, the diagonal of the Hessian and the penalty there."""

    position: Int64
    beta: Float64
    h: Float64
    terms: Terms

    def part(self, first: int, last: int) -> Coordinates:
        """For a block: those of its features, counted within it."""
        lo, hi = np.searchsorted(self.position, (first, last)).tolist()
        return Coordinates(self.position[lo:hi] - first, self.beta[lo:hi], self.h[lo:hi], self.terms.between(lo, hi))


class Run(NamedTuple):
    """Coordinates whose columns are in the same arrays: which they are, in the order in which to go over them."""

    arrays: ColumnArrays
    order: Int64


class CyclePart:
    """Some coordinates of a cycle. Those that rest at zero move behind the others and are left out while that is safe.

    slots: where the columns of all coordinates are in the arrays of their run.
    """

    def __init__(self, slots: Int64, beta: Float64, h: Float64, terms: Terms, w: Float64, runs: Sequence[Run]) -> None:
        self._slots, self._beta, self._h, self._terms, self._w = slots, beta, h, terms, w
        self._runs = runs
        self._counts = [run.order.size for run in runs]

    def descend(self, r: Float64, d: Float64, slack: float) -> tuple[float, float]:
        """One cycle that changes r and d; what the model fell by, at least, and the largest step in slopes."""
        largest, total = 0.0, 0.0
        for k, (arrays, order) in enumerate(self._runs):
            self._counts[k], step, gain = descent.descend(
                self._slots, *arrays, self._beta, self._h, *self._terms, r, self._w, d, order, self._counts[k], slack
            )
            largest, total = max(largest, step), total + gain
        return total, largest

    def descend_from(self, r: Float64, d: Float64, slack: float) -> PartMove:
        """One cycle that changes d and leaves r: what it changes there comes back."""
        change = r.copy()
        gain, step = self.descend(change, d, slack)
        change -= r
        return PartMove(gain + 0.5 * float(vectors.energy(change, self._w)), step, change)


@dataclass(frozen=True)
class PartMove:
    """What a part of a cycle did, not seeing the others.

    fall: how fast the model falls along its step. step: the largest change of a slope.
    change: of the residual. d: the coordinates after it, where they are not at the caller.
    """

    fall: float
    step: float
    change: Float64
    d: Coefficients | None = None

    @classmethod
    def joined(cls, parts: Sequence[PartMove], layout: Layout) -> PartMove:
        d = layout.join_coefficients([part.d for part in parts if part.d is not None])
        change = summed([part.change for part in parts], layout)
        return cls(sum(part.fall for part in parts), max(part.step for part in parts), change, d)
