"""Cycles of coordinate descent over the columns of a quadratic, on all cores where they are long."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from solver.algorithms.certified.quadratic import Progress, Quadratic, shortened
from solver.arrays import Float64, Int64
from solver.chosen import CyclePart, PartMove, Run
from solver.kernels import vectors


class Parts(Protocol):
    """The parts of a cycle, which do not see each other's steps."""

    def run(self, r: Float64, d: Float64, slack: float) -> list[PartMove]:
        """A cycle of each part from the same residual, which stays; d is changed in place."""
        ...


class Cycles:
    """Coordinate descent over some coordinates of a quadratic. d and the residual are changed in place.

    Coordinates that rest at zero move behind the others, and later cycles leave them out while that is safe: a step
    elsewhere may change their slope by no more than `slack`, the largest step of the last cycle.

    side_by_side: a long cycle is cut into parts, one per thread, or one for each block where the blocks share it. Each
    goes from the same residual and does not see the steps of the others. Their sum is shortened where parts that
    overlap would overshoot.
    """

    def __init__(self, quad: Quadratic, order: Int64, d: Float64, *, side_by_side: bool) -> None:
        self._quad, self._d, self.slack = quad, d, np.inf
        self._parts: Parts | None = quad.shared_parts(order) if side_by_side else None
        cuts = quad.store.cuts(quad.slots[order], into_vectors=True) if side_by_side else [0, order.size]
        if self._parts is None and len(cuts) > 2:
            self._parts = ThreadParts(quad, order, cuts)
        self._whole = _part(quad, order) if self._parts is None else None

    def run(self) -> Progress:
        """One cycle."""
        if self._whole is not None:
            gain, self.slack = self._whole.descend(self._quad.r, self._d, self.slack)
            return Progress(gain, gain)
        assert self._parts is not None, "a cycle is whole or in parts"
        quad, before = self._quad, self._d.copy()
        moves = self._parts.run(quad.r, self._d, self.slack)
        change = moves[0].change
        for other in moves[1:]:
            change += other.change
        fall, curvature = float(sum(move.fall for move in moves)), float(vectors.energy(change, quad.w))
        alpha, progress = shortened(fall, curvature)
        if alpha < 1.0:
            change *= alpha
            self._d[:] = before + alpha * (self._d - before)
        quad.r[:] += change
        self.slack = max(move.step for move in moves)
        return progress


class ThreadParts:
    """Parts of a cycle on the threads of this process."""

    def __init__(self, quad: Quadratic, order: Int64, cuts: list[int]) -> None:
        self._threads = quad.store.threads
        self._parts = [_part(quad, order[lo:hi]) for lo, hi in pairwise(cuts)]

    def run(self, r: Float64, d: Float64, slack: float) -> list[PartMove]:
        def descend(k: int, _: int) -> PartMove:
            return self._parts[k].descend_from(r, d, slack)

        return self._threads.map(descend, range(len(self._parts) + 1))


def _part(quad: Quadratic, order: Int64) -> CyclePart:
    """Some coordinates, in runs of columns that are in one place."""
    runs = [Run(run.arrays, order[run.here].copy()) for run in quad.store.runs(quad.slots[order])]
    return CyclePart(quad.slots, quad.beta, quad.h, quad.terms, quad.w, runs)
