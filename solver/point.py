"""Margins that blocks are asked about, and what all blocks of a process need there: the residual and the weights.

Blocks of one process that are asked at the same time are given the same point. They compute r and w once, each some
strips of it, and keep the vectors only while they work with them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import pairwise
from threading import Event, Lock

import numpy as np

from solver.arrays import Float64
from solver.problem import Examples
from solver.threads import strips


class Expansion:
    """r and w at some margins, filled in by all threads that ask for them."""

    def __init__(self, margins: Float64, examples: Examples) -> None:
        self.r, self.w = np.empty(examples.n), np.empty(examples.n)
        self._margins, self._examples = margins, examples
        cuts = strips(examples.n)
        self._waiting: Iterator[tuple[int, int]] = iter(pairwise(cuts))
        self._left, self._lock, self._is_done = len(cuts) - 1, Lock(), Event()

    def complete(self) -> None:
        """Take strips that no thread has taken yet, and wait for those that others have."""
        for lo, hi in self._waiting:
            try:
                read = self._examples.between(lo, hi)
                self._examples.loss.residuals(self._margins[lo:hi], read, 0.0, self.r[lo:hi], self.w[lo:hi])
            finally:  # or the others would wait for ever
                self._count()
        self._is_done.wait()

    def _count(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._is_done.set()


class Point:
    """Margins of the whole model. They stay as they are while the point is in use."""

    def __init__(self, margins: Float64) -> None:
        self.margins = margins
        self._lock = Lock()
        self._last: weakref.ref[Expansion] | None = None

    def __reduce__(self) -> tuple[type[Point], tuple[Float64]]:
        return Point, (self.margins,)

    def expand(self, examples: Examples) -> Expansion:
        """r and w here, kept as long as some block uses them."""
        with self._lock:
            found = self._last() if self._last is not None else None
            if found is None:
                found = Expansion(self.margins, examples)
                self._last = weakref.ref(found)
        found.complete()
        return found
