"""Cycles of coordinate descent over the columns of a quadratic, on all cores where they are long."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from solver.algorithms.certified.quadratic import Progress, Quadratic, shortened
from solver.arrays import Float64, Int64
from solver.kernels import descent, vectors


class Cycles:
    """Coordinate descent over some coordinates of a quadratic. d and the residual are changed in place.

    Coordinates that rest at zero move behind the others, and later cycles leave them out while that is safe: a step
    elsewhere may change their slope by no more than `slack`, the largest step of the last cycle.

    side_by_side: a long cycle is cut into parts, one per thread. Each goes from the same residual and does not see the
    steps of the others. Their sum is shortened where parts that overlap would overshoot.
    """

    def __init__(self, quad: Quadratic, order: Int64, d: Float64, *, side_by_side: bool) -> None:
        self._quad, self._d, self.slack = quad, d, np.inf
        cuts = quad.store.cuts(quad.slots[order], into_vectors=True) if side_by_side else [0, order.size]
        self._parts = [_Part(quad, order[lo:hi]) for lo, hi in pairwise(cuts)]

    def run(self) -> Progress:
        """One cycle."""
        if len(self._parts) == 1:
            gain, self.slack = self._parts[0].descend(self._quad.r, self._d, self.slack)
            return Progress(gain, gain)
        return self._run_parts()

    def _run_parts(self) -> Progress:
        """A cycle of each part, side by side."""
        quad, before, first = self._quad, self._d.copy(), self._quad.r

        def descend(k: int, _: int) -> tuple[float, float, Float64]:
            r = first.copy()
            gain, step = self._parts[k].descend(r, self._d, self.slack)
            r -= first
            return gain + 0.5 * float(vectors.energy(r, quad.w)), step, r

        falls, steps, changes = zip(*quad.store.threads.map(descend, range(len(self._parts) + 1)), strict=True)
        change, *others = changes
        for other in others:
            change += other
        fall, curvature = float(sum(falls)), float(vectors.energy(change, quad.w))
        alpha, progress = shortened(fall, curvature)
        if alpha < 1.0:
            change *= alpha
            self._d[:] = before + alpha * (self._d - before)
        np.add(first, change, out=quad.r)
        self.slack = max(steps)
        return progress


class _Part:
    """Some coordinates of a cycle, in runs of columns that are in one place."""

    def __init__(self, quad: Quadratic, order: Int64) -> None:
        self._quad = quad
        self._runs = [(run.arrays, order[run.here].copy()) for run in quad.store.runs(quad.slots[order])]
        self._counts = [part.size for _, part in self._runs]

    def descend(self, r: Float64, d: Float64, slack: float) -> tuple[float, float]:
        """One cycle that changes r and d; what the model fell by, at least, and the largest step in slopes."""
        quad, largest, total = self._quad, 0.0, 0.0
        for k, (arrays, order) in enumerate(self._runs):
            self._counts[k], step, gain = descent.descend(
                quad.slots, *arrays, quad.beta, quad.h, *quad.terms, r, quad.w, d, order, self._counts[k], slack
            )
            largest, total = max(largest, step), total + gain
        return total, largest
