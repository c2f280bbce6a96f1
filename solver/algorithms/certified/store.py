"""The driver's store of columns: a column is loaded when its feature enters the working set, and kept while it fits.

The store keeps to a budget of bytes. Columns lie one after another in buffers that grow by halves. A feature's position
gives its slot, and the slot its column. When room is needed, every column outside the working set is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.algorithms.certified.threads import Threads
from solver.algorithms.certified.tuning import GRAM_MATRIX, STORE
from solver.arrays import Float64, Int64, UInt8
from solver.columns import DENSE, ONES, VALUED, ColumnArrays, Columns, read_only
from solver.kernels import columns as kernels


@dataclass(frozen=True)
class Gram:
    """XᵀWX over the features `position`, in rising order, formed for the weights w."""

    position: Int64
    G: Float64
    w: Float64

    def of(self, position: Int64) -> Float64:
        """The rows and columns of these features, which must be among its own."""
        rows = np.searchsorted(self.position, position)
        return self.G[np.ix_(rows, rows)]


class Store:
    """Columns over n examples out of p coordinates, in at most `budget` bytes, worked on by some threads."""

    def __init__(self, n: int, p: int, budget: int, threads: Threads | None = None) -> None:
        self.n, self.budget, self.threads = n, budget, threads or Threads()
        self.max_gram_columns = int(
            np.clip((budget / GRAM_MATRIX.bytes_per_entry) ** 0.5, GRAM_MATRIX.least_columns, GRAM_MATRIX.max_columns)
        )
        self._slot = np.full(p, -1, np.int32)
        self._position: Int64 = np.empty(0, np.int64)
        self.gram: Gram | None = None  # the last one formed, for the next model
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
        """Bytes of the columns. The buffers may be half as large again."""
        return self._indices.nbytes + self._data.nbytes + self._dense.nbytes

    @property
    def position(self) -> Int64:
        """The features whose columns are here, rising."""
        return np.sort(self._position)

    @property
    def arrays(self) -> ColumnArrays:
        """The arrays that kernels take after the slots."""
        lists = (self._indices.filled, self._data.filled, self._dense.filled)
        return read_only(self._kind, self._lo, self._hi, self._at, *lists)

    @property
    def _columns(self) -> Columns:
        return Columns(self.n, *self.arrays)

    def slots(self, position: Int64) -> Int64:
        """The slots of these features, which must all be in the store."""
        return self._slot[position].astype(np.int64)

    def kinds(self, slots: Int64) -> UInt8:
        """The kind of each column: VALUED, ONES or DENSE."""
        return self._kind[slots]

    def is_constant(self, slots: Int64) -> NDArray[np.bool_]:
        """Which columns are lists of ones of every example: an intercept's."""
        constant: NDArray[np.bool_] = (self._kind[slots] == ONES) & (self._hi[slots] - self._lo[slots] == self.n)
        return constant

    def missing(self, position: Int64) -> Int64:
        """The features whose columns are not in the store."""
        return position[self._slot[position] < 0]

    def add(self, position: Int64, columns: Columns) -> None:
        """Add the columns of these features, as `Columns.select` gives them."""
        behind = np.where(columns.kind == DENSE, self._dense.size, np.where(columns.kind == VALUED, self._data.size, 0))
        first = self._indices.size
        self._indices.append(columns.indices)
        self._data.append(columns.data)
        self._dense.append(columns.dense)
        self._slot[position] = self._kind.size + np.arange(position.size)
        self._position = np.concatenate((self._position, position))
        self._kind = np.concatenate((self._kind, columns.kind))
        self._lo = np.concatenate((self._lo, columns.lo + first))
        self._hi = np.concatenate((self._hi, columns.hi + first))
        self._at = np.concatenate((self._at, columns.at + behind))

    def keep(self, position: Int64) -> None:
        """Drop every column except those of these features."""
        here = position[self._slot[position] >= 0]
        slots = self.slots(here)
        rising = np.argsort(slots)  # `select` takes rising slots
        kept = self._columns.select(slots[rising])
        self._clear()
        self.add(here[rising], kept)

    # --- passes over chosen columns, in parts side by side where that pays --------------------------------------

    def sums(self, slots: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        """g = Xᵀr and h = Σ w x² of the columns at these slots."""
        arrays = self.arrays

        def part(lo: int, hi: int) -> None:
            kernels.sums(slots[lo:hi], *arrays, r, w, g[lo:hi], h[lo:hi])

        self.threads.map(part, self._cuts(slots, STORE.entries_per_thread))

    def slopes(self, slots: Int64, r: Float64, g: Float64) -> None:
        """g = Xᵀr of the columns at these slots."""
        arrays = self.arrays

        def part(lo: int, hi: int) -> None:
            kernels.slopes(slots[lo:hi], *arrays, r, g[lo:hi])

        self.threads.map(part, self._cuts(slots, STORE.entries_per_thread))

    def entries(self, slots: Int64) -> Int64:
        """The work of a pass over each column, in entries of a sparse one."""
        return np.where(
            self._kind[slots] == DENSE, self.n // STORE.dense_values_per_entry, self._hi[slots] - self._lo[slots]
        )

    def product(self, slots: Int64, d: Float64) -> Float64:
        """Xd over the columns at these slots."""
        arrays = self.arrays

        def part(lo: int, hi: int) -> Float64:
            out = np.zeros(self.n)
            kernels.product(slots[lo:hi], *arrays, d[lo:hi], out)
            return out

        # Each part has its own vector over the examples: a part must outweigh the cost of adding it.
        first, *others = self.threads.map(part, self._cuts(slots, max(STORE.entries_per_thread, self.n // 2)))
        for other in others:
            first += other
        return first

    def _cuts(self, slots: Int64, worth: int) -> list[int]:
        """Cut the slots into parts of equal work, one per thread, none below `worth` entries."""
        ends = np.cumsum(self.entries(slots))
        total = int(ends[-1]) if ends.size else 0
        parts = max(1, min(self.threads.count, total // worth))
        return [0, *(int(np.searchsorted(ends, total * k / parts)) for k in range(1, parts)), slots.size]


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
