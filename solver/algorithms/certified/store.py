"""The driver's store of columns: a column is loaded when its feature enters the working set, and kept while it fits.

The store keeps to a budget of bytes. A feature's position gives its slot, and the slot its column. Columns that were
sent here lie one after another in buffers that grow by halves. Columns of blocks in this process are not copied: slots
refer to the blocks' own arrays. So a slot also says in which `Shelf` of arrays its column is, and a pass goes over runs
of slots on one shelf. When room is needed, every column outside the working set is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solver.algorithms.certified.tuning import GRAM_MATRIX, STORE
from solver.arrays import Float32, Float64, Int32, Int64, UInt8, UInt64
from solver.columns import BITS, DENSE, VALUED, ColumnArrays, Columns, read_only
from solver.kernels import columns as kernels
from solver.threads import Threads


class Rows(NamedTuple):
    """Some examples, rising, and their weights in a Gram matrix. All others weigh nothing."""

    example: Int64
    weight: Float64

    @classmethod
    def of(cls, w: Float64) -> Rows:
        example = np.flatnonzero(w)
        return cls(example, w[example])

    def spread(self, n: int) -> Float64:
        """As a vector over all examples."""
        w = np.zeros(n)
        w[self.example] = self.weight
        return w


@dataclass(frozen=True)
class Gram:
    """XᵀWX over the features `position`, in rising order, for the weights w.

    sample: the examples that it was formed of, with weights that make up for those left out. None: of w itself.
    drawn: how many examples a sample is worth. Those with much weight are taken for certain and count for several.
    """

    position: Int64
    G: Float64
    w: Float64
    sample: Rows | None = field(default=None, repr=False)
    drawn: float = np.inf

    def of(self, position: Int64) -> Float64:
        """The rows and columns of these features, which must be among its own."""
        rows = np.searchsorted(self.position, position)
        return self.G[np.ix_(rows, rows)]

    def among(self, position: Int64) -> Gram:
        """Over these of its features alone."""
        return replace(self, position=position, G=self.of(position))

    def scaled(self, scale: float) -> Gram:
        """For weights that all change by one factor."""
        sample = self.sample and self.sample._replace(weight=scale * self.sample.weight)
        return Gram(self.position, scale * self.G, scale * self.w, sample, self.drawn)

    @property
    def error(self) -> float:
        """The relative error, about, that comes of sampling."""
        return float((self.position.size / self.drawn) ** 0.5)

    @property
    def rows(self) -> Rows:
        """The examples that it was formed of."""
        return Rows.of(self.w) if self.sample is None else self.sample


class Shelf(NamedTuple):
    """Arrays that hold columns: indices, data, dense, bits."""

    indices: Int32
    data: Float32
    dense: Float32
    bits: UInt64


class Run(NamedTuple):
    """Neighbouring slots of one shelf, and where they are among the slots asked for."""

    slots: Int64
    here: slice
    arrays: ColumnArrays


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
        self._shelf: Int64 = np.empty(0, np.int64)  # of each slot; 0 is the store's own
        self._others: list[Shelf] = []
        self._numbers: dict[tuple[int, ...], int] = {}  # of shelves
        self._own = _OwnShelf(self.n)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns that are here, copied or not. The store's own buffers may be half as large again."""
        return self._own.nbytes + int(self._columns(np.flatnonzero(self._shelf), 0).sizes().sum())

    @property
    def position(self) -> Int64:
        """The features whose columns are here, rising."""
        return np.sort(self._position)

    def _columns(self, slots: Int64, shelf: int) -> Columns:
        """The columns at these slots, all of one shelf."""
        ranges = self._kind[slots], self._lo[slots], self._hi[slots], self._at[slots]
        return Columns(self.n, *ranges, *self._shelf_arrays(shelf))

    def _shelf_arrays(self, shelf: int) -> Shelf:
        return self._own.arrays if shelf == 0 else self._others[shelf - 1]

    def runs(self, slots: Int64) -> Iterator[Run]:
        """The slots in their order, cut where the shelf changes."""
        shelf = self._shelf[slots]
        cuts = [0, *(np.flatnonzero(np.diff(shelf)) + 1).tolist(), slots.size]
        for lo, hi in pairwise(cuts):
            if lo < hi:
                arrays = read_only(self._kind, self._lo, self._hi, self._at, *self._shelf_arrays(int(shelf[lo])))
                yield Run(slots[lo:hi], slice(lo, hi), arrays)

    def slots(self, position: Int64) -> Int64:
        """The slots of these features, which must all be in the store."""
        return self._slot[position].astype(np.int64)

    def kinds(self, slots: Int64) -> UInt8:
        """The kind of each column: VALUED, ONES, DENSE or BITS."""
        return self._kind[slots]

    def is_constant(self, slots: Int64) -> NDArray[np.bool_]:
        """Which columns are bits of every example: an intercept's."""
        constant = np.zeros(slots.size, np.bool_)
        for run in self.runs(slots):
            bits = np.flatnonzero(self._kind[run.slots] == BITS)
            rows = run.arrays[-1][self._at[run.slots[bits]]]
            constant[run.here][bits] = np.bitwise_count(rows).sum(axis=1) == self.n
        return constant

    def missing(self, position: Int64) -> Int64:
        """The features whose columns are not in the store."""
        return position[self._slot[position] < 0]

    def add(self, position: Int64, parts: Sequence[Columns]) -> None:
        """Add the columns of these features: parts one after the other, views, or copies as `select` gives them."""
        placed = [columns if columns.is_view else self._own.append(columns) for columns in parts]
        shelves = [np.full(columns.count, self._shelf_of(columns)) for columns in placed]
        self._slot[position] = self._kind.size + np.arange(position.size)
        self._position = np.concatenate((self._position, position))
        self._kind = np.concatenate((self._kind, *(columns.kind for columns in placed)))
        self._lo = np.concatenate((self._lo, *(columns.lo for columns in placed)))
        self._hi = np.concatenate((self._hi, *(columns.hi for columns in placed)))
        self._at = np.concatenate((self._at, *(columns.at for columns in placed)))
        self._shelf = np.concatenate((self._shelf, *shelves))

    def _shelf_of(self, columns: Columns) -> int:
        """The number of the shelf that these columns are on."""
        if not columns.is_view:
            return 0
        arrays = Shelf(columns.indices, columns.data, columns.dense, columns.bits)
        identity = tuple(id(array) for array in arrays)  # the shelf keeps them alive
        if identity not in self._numbers:
            self._others.append(arrays)
            self._numbers[identity] = len(self._others)
        return self._numbers[identity]

    def keep(self, position: Int64) -> None:
        """Drop every column except those of these features."""
        here = position[self._slot[position] >= 0]
        slots = self.slots(here)
        rising = np.argsort(slots)  # `select` takes rising slots
        parts = []
        for run in self.runs(slots[rising]):
            shelf = int(self._shelf[run.slots[0]])
            columns = self._columns(run.slots, shelf)
            parts.append(columns.select(np.arange(columns.count)) if shelf == 0 else replace(columns, is_view=True))
        self._clear()
        self.add(here[rising], parts)

    # --- passes over chosen columns, in parts side by side where that pays --------------------------------------

    def sums(self, slots: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        """g = Xᵀr and h = Σ w x² of the columns at these slots."""

        def part(lo: int, hi: int) -> None:
            for run in self.runs(slots[lo:hi]):
                kernels.sums(run.slots, *run.arrays, r, w, g[lo:hi][run.here], h[lo:hi][run.here])

        self.threads.map(part, self._cuts(slots, STORE.entries_per_thread))

    def slopes(self, slots: Int64, r: Float64, g: Float64) -> None:
        """g = Xᵀr of the columns at these slots."""

        def part(lo: int, hi: int) -> None:
            for run in self.runs(slots[lo:hi]):
                kernels.slopes(run.slots, *run.arrays, r, g[lo:hi][run.here])

        self.threads.map(part, self._cuts(slots, STORE.entries_per_thread))

    def entries(self, slots: Int64) -> Int64:
        """The work of a pass over each column, in entries of a sparse one."""
        kind, listed = self._kind[slots], self._hi[slots] - self._lo[slots]
        rows = [self.n // STORE.dense_values_per_entry, self.n // STORE.bits_per_entry]
        return np.select([kind == DENSE, kind == BITS], rows, listed)

    def product(self, slots: Int64, d: Float64) -> Float64:
        """Xd over the columns at these slots."""

        def part(lo: int, hi: int) -> Float64:
            out = np.zeros(self.n)
            for run in self.runs(slots[lo:hi]):
                kernels.product(run.slots, *run.arrays, d[lo:hi][run.here], out)
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


class _OwnShelf:
    """Columns that were copied here, in arrays that grow."""

    def __init__(self, n: int) -> None:
        self._empty = Columns.empty(n)
        self._indices, self._data = _Buffer(self._empty.indices), _Buffer(self._empty.data)
        self._dense, self._bits = _Buffer(self._empty.dense), _Buffer(self._empty.bits)

    @property
    def arrays(self) -> Shelf:
        return Shelf(self._indices.filled, self._data.filled, self._dense.filled, self._bits.filled)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def append(self, columns: Columns) -> Columns:
        """Copy these columns behind the others; returns them where they are now."""
        kinds = [columns.kind == DENSE, columns.kind == BITS, columns.kind == VALUED]
        behind = np.select(kinds, [self._dense.size, self._bits.size, self._data.size], 0)
        first = self._indices.size
        for buffer, more in (
            (self._indices, columns.indices),
            (self._data, columns.data),
            (self._dense, columns.dense),
            (self._bits, columns.bits),
        ):
            buffer.append(more)
        return replace(columns, lo=columns.lo + first, hi=columns.hi + first, at=columns.at + behind)


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
