"""The driver's store of columns: those of the working set, taken in once, when they enter, and kept while useful.

It holds to a budget of bytes. Columns lie one after another in buffers that grow by halves; a column is found by its
slot, and slots by the feature's position. When room is needed, everything outside the working set goes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from solver import subspace_kernels
from solver.arrays import Float32, Float64, Int32, Int64, UInt8
from solver.columns import Columns
from solver.subspace_kernels import DENSE, VALUED

StoreArrays: TypeAlias = tuple[UInt8, Int64, Int64, Int64, Int32, Float32, Float32]

T = TypeVar("T")
WORTH_TWO = 200_000  # entries from which a second thread is worth waking
# Columns in a Gram matrix, at the most: between these, as many as take no more than the budget again.
LEAST_GRAM, MOST_GRAM = 256, 3000
GRAM_BYTES = 6 * 8  # that an entry takes while it is formed


@dataclass(frozen=True)
class Gram:
    """XᵀWX over the features `position`, which rise, as it was with the weights w."""

    position: Int64
    G: Float64
    w: Float64

    def of(self, position: Int64) -> Float64:
        """The part over these of its features."""
        rows = np.searchsorted(self.position, position)
        return self.G[np.ix_(rows, rows)]

    def changed(self, position: Int64, w: Float64) -> bool:
        """Are most of these features unknown here, or have the weights' proportions changed a lot?"""
        known = np.isin(position, self.position, assume_unique=True).mean()
        return bool(known < 0.5 or float(np.abs(w - self.w).sum()) > 0.5)


class Store:
    """Columns over n examples out of p features, in at most `budget` bytes."""

    def __init__(self, n: int, p: int, budget: int) -> None:
        self.n, self.budget = n, budget
        self.most_gram = int(np.clip((budget / GRAM_BYTES) ** 0.5, LEAST_GRAM, MOST_GRAM))
        self._slot = np.full(p, -1, np.int32)
        self._position: Int64 = np.empty(0, np.int64)
        self.gram: Gram | None = None  # the last one formed, which may serve again
        self.stiff: Gram | None = None  # the same, of the stiffest columns, of weights that sum to 1
        self._clear()

    def _clear(self) -> None:
        self._slot[self._position] = -1
        self._position = np.empty(0, np.int64)
        self._kind: UInt8 = np.empty(0, np.uint8)
        self._lo: Int64 = np.empty(0, np.int64)
        self._hi: Int64 = np.empty(0, np.int64)
        self._at: Int64 = np.empty(0, np.int64)
        self._indices = _Buffer(np.empty(0, np.int32))
        self._data = _Buffer(np.empty(0, np.float32))
        self._dense = _Buffer(np.empty((0, self.n), np.float32))

    @property
    def nbytes(self) -> int:
        """What the columns take; the buffers may be half as large again."""
        return self._indices.nbytes + self._data.nbytes + self._dense.nbytes

    @property
    def arrays(self) -> StoreArrays:
        """What the kernels take, after the slots."""
        parts = (self._indices.filled, self._data.filled, self._dense.filled)
        return (self._kind, self._lo, self._hi, self._at, *parts)

    def slots(self, position: Int64) -> Int64:
        """Where these features are; all of them must be here."""
        return self._slot[position].astype(np.int64)

    def kinds(self, slots: Int64) -> UInt8:
        """Of these columns: VALUED, ONES or DENSE."""
        return self._kind[slots]

    def missing(self, position: Int64) -> Int64:
        """Those of these features that are not here."""
        return position[self._slot[position] < 0]

    def add(self, position: Int64, columns: Columns) -> None:
        """Take in the columns of these features."""
        sizes = np.diff(columns.indptr)
        valued, dense = columns.kind == VALUED, columns.kind == DENSE
        lo = self._indices.size + columns.indptr[:-1] - columns.indptr[0]
        at = np.where(dense, self._dense.size + np.cumsum(dense) - 1, 0)
        at[valued] = self._data.size + (np.cumsum(sizes[valued]) - sizes[valued])
        listed = slice(int(columns.indptr[0]), int(columns.indptr[-1]))
        self._indices.append(columns.indices[listed])
        if valued.any():
            self._data.append(columns.data[listed][np.repeat(valued, sizes)])
        self._dense.append(columns.dense)
        self._slot[position] = self._kind.size + np.arange(position.size)
        self._position = np.concatenate((self._position, position))
        self._kind = np.concatenate((self._kind, columns.kind))
        self._lo, self._hi = np.concatenate((self._lo, lo)), np.concatenate((self._hi, lo + sizes))
        self._at = np.concatenate((self._at, at))

    def keep(self, position: Int64) -> None:
        """Drop every column but those of these features."""
        here = position[self._slot[position] >= 0]
        slots = self.slots(here)
        kind, lo, hi, at, indices, data, dense = self.arrays
        sizes = hi[slots] - lo[slots]
        take = _ranges(lo[slots], sizes)
        values = np.zeros(take.size, np.float32)
        valued = kind[slots] == VALUED
        values[np.repeat(valued, sizes)] = data[_ranges(at[slots][valued], sizes[valued])]
        indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        rows = dense[at[slots][kind[slots] == DENSE]]
        kept = Columns(self.n, kind[slots], indptr, indices[take], values, rows)
        self._clear()
        self.add(here, kept)

    # --- passes over chosen columns, in two parts side by side where that pays ----------------------------------

    def sums(self, slots: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        """g = Xᵀr and h = Σ w x² of the columns at these slots."""
        arrays = self.arrays

        def part(lo: int, hi: int) -> None:
            subspace_kernels.sums(slots[lo:hi], *arrays, r, w, g[lo:hi], h[lo:hi])

        self._in_parts(slots, part)

    def slopes(self, slots: Int64, r: Float64, g: Float64) -> None:
        """g = Xᵀr of the columns at these slots."""
        arrays = self.arrays

        def part(lo: int, hi: int) -> None:
            subspace_kernels.slopes(slots[lo:hi], *arrays, r, g[lo:hi])

        self._in_parts(slots, part)

    def entries(self, slots: Int64) -> Int64:
        """How much work each of these columns is, in entries of a list."""
        return np.where(self._kind[slots] == DENSE, self.n // 4, self._hi[slots] - self._lo[slots])

    def product(self, slots: Int64, d: Float64) -> Float64:
        """Xd over the columns at these slots."""
        arrays = self.arrays

        def part(lo: int, hi: int) -> Float64:
            out = np.zeros(self.n)
            subspace_kernels.product(slots[lo:hi], *arrays, d[lo:hi], out)
            return out

        first, *others = self._in_parts(slots, part)
        for other in others:
            first += other
        return first

    def _in_parts(self, slots: Int64, work: Callable[[int, int], T]) -> list[T]:
        """The work on all slots at once, or on two parts of about as many entries; the data alone say which."""
        ends = np.cumsum(self.entries(slots))
        if not ends.size or ends[-1] < WORTH_TWO:
            return [work(0, slots.size)]
        return in_parts(slots.size, work, cut=int(np.searchsorted(ends, ends[-1] / 2)))


def in_parts(size: int, work: Callable[[int, int], T], *, worth: int = 0, cut: int | None = None) -> list[T]:
    """work(0, size), or from a size of `worth` on, two parts of it side by side."""
    if size < worth:
        return [work(0, size)]
    cut = size // 2 if cut is None else cut
    other = _helper().submit(work, cut, size)
    return [work(0, cut), other.result()]


@cache
def _helper() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="subspace")


class _Buffer:
    """An array that grows at its end."""

    def __init__(self, empty: Any) -> None:
        self._room = empty
        self.size = 0

    @property
    def filled(self) -> Any:
        return self._room[: self.size]

    @property
    def nbytes(self) -> int:
        return int(self.filled.nbytes)

    def append(self, more: Any) -> None:
        need = self.size + len(more)
        if need > len(self._room):
            room = np.empty((max(need, len(self._room) * 3 // 2), *self._room.shape[1:]), self._room.dtype)
            room[: self.size] = self.filled
            self._room = room
        self._room[self.size : need] = more
        self.size = need


def _ranges(first: Int64, sizes: Int64) -> Int64:
    """np.concatenate([np.arange(f, f + s) for f, s in zip(first, sizes)])"""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if ends.size else 0
    ranges: Int64 = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - sizes), sizes)
    return ranges
