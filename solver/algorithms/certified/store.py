"""The driver's store of columns: a column is loaded when its feature enters the working set, and kept while it fits.

The store keeps to a budget of bytes. A feature's position gives its slot, and the slot its column. The columns of a
stretch are on one shelf: copied into buffers that grow by halves, or left where they are, if the blocks are in this
process. A pass goes over runs of slots on one shelf, so that it does the same sums in the same order wherever columns
came from. When room is needed, every column outside the working set is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from solver import columns
from solver.algorithms.certified.tuning import GRAM_MATRIX, STORE
from solver.arrays import Float64, Int64, UInt8
from solver.chosen import Coordinates
from solver.columns import BITS, DENSE, VALUED, ColumnArrays, ColumnLists, Columns, read_only
from solver.stretches import Part
from solver.threads import Threads

T = TypeVar("T")


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


class Run(NamedTuple):
    """Neighbouring slots of one shelf, and where they are among the slots asked for."""

    slots: Int64
    here: slice
    arrays: ColumnArrays


_Part: TypeAlias = tuple[slice, list[Run]]  # where it is among the slots asked for


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
        self._size: Int64 = np.empty(0, np.int64)
        self._ranges: tuple[UInt8, Int64, Int64, Int64] = read_only(self._kind, self._lo, self._hi, self._at)
        self._shelf: Int64 = np.empty(0, np.int64)  # of each slot
        self._shelves: list[_Shelf] = []
        self._numbers: dict[tuple[int, ...], int] = {}  # of shelves
        self.nbytes = 0  # of all columns, copied or not; buffers may be half as large again

    @property
    def position(self) -> Int64:
        """The features whose columns are here, rising."""
        return np.sort(self._position)

    def runs(self, slots: Int64) -> Iterator[Run]:
        """The slots in their order, cut where the shelf changes."""
        shelf = self._shelf[slots]
        cuts = [0, *(np.flatnonzero(np.diff(shelf)) + 1).tolist(), slots.size]
        for lo, hi in pairwise(cuts):
            if lo < hi:
                yield Run(slots[lo:hi], slice(lo, hi), (*self._ranges, *self._shelves[shelf[lo]].arrays))

    def columns(self, run: Run) -> Columns:
        """The columns of a run, viewed."""
        ranges = self._kind[run.slots], self._lo[run.slots], self._hi[run.slots], self._at[run.slots]
        return Columns(self.n, *ranges, *self._shelves[self._shelf[run.slots[0]]].arrays)

    def slots(self, position: Int64) -> Int64:
        """The slots of these features, which must all be in the store."""
        return self._slot[position].astype(np.int64)

    def positions(self, slots: Int64) -> Int64:
        """The features of these slots."""
        return self._position[slots]

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

    def sizes(self, slots: Int64) -> Int64:
        """Bytes that each column takes."""
        return self._size[slots]

    def missing(self, position: Int64) -> Int64:
        """The features whose columns are not in the store."""
        return position[self._slot[position] < 0]

    def add(self, position: Int64, parts: Sequence[Part]) -> None:
        """Add the columns of these features, which the parts have in their order."""
        shelves = [self._shelf_for(part) for part in parts]
        placed = [self._shelves[k].put(part.columns) for k, part in zip(shelves, parts, strict=True)]
        self._slot[position] = self._kind.size + np.arange(position.size)
        self._position = np.concatenate((self._position, position))
        self._kind = np.concatenate((self._kind, *(one.kind for one in placed)))
        self._lo = np.concatenate((self._lo, *(one.lo for one in placed)))
        self._hi = np.concatenate((self._hi, *(one.hi for one in placed)))
        self._at = np.concatenate((self._at, *(one.at for one in placed)))
        self._shelf = np.concatenate((self._shelf, np.repeat(np.array(shelves, np.int64), [c.count for c in placed])))
        self._ranges = read_only(self._kind, self._lo, self._hi, self._at)
        self._size = np.concatenate((self._size, *(one.sizes() for one in placed)))
        self.nbytes = int(self._size.sum())

    def _shelf_for(self, part: Part) -> int:
        """The number of the shelf for columns of this stretch; of these very arrays, if they are viewed."""
        lists = part.columns.lists  # the shelf keeps them
        name = tuple(id(array) for array in lists) if part.columns.is_view else (part.first,)
        if name not in self._numbers:
            self._numbers[name] = len(self._shelves)
            self._shelves.append(_Shelf(part.first, part.columns))
        return self._numbers[name]

    def keep(self, position: Int64) -> None:
        """Drop every column except those of these features."""
        here = position[self._slot[position] >= 0]
        slots = self.slots(here)
        rising = np.lexsort((slots, self._shelf[slots]))  # `select` takes columns in their order
        parts = []
        for run in self.runs(slots[rising]):
            shelf, columns = self._shelves[self._shelf[run.slots[0]]], self.columns(run)
            if shelf.is_view:
                columns = columns.on(shelf.lists)
            else:
                columns = columns.select(np.arange(run.slots.size))
            parts.append(Part(shelf.first, columns))
        self._clear()
        self.add(here[rising], parts)

    # --- passes over chosen columns, in parts side by side where that pays --------------------------------------

    def chosen(self, slots: Int64) -> Chosen:
        """The columns at these slots, for several passes: good until columns are added or dropped."""
        return Chosen(self, slots)

    def sums(self, slots: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        """g = Xᵀr and h = Σ w x² of the columns at these slots."""
        self.chosen(slots).sums(r, w, g, h)

    def slopes(self, slots: Int64, r: Float64, g: Float64) -> None:
        """g = Xᵀr of the columns at these slots."""
        self.chosen(slots).slopes(r, g)

    def entries(self, slots: Int64) -> Int64:
        """The work of a pass over each column, in entries of a sparse one."""
        kind, listed = self._kind[slots], self._hi[slots] - self._lo[slots]
        rows = np.where(kind == DENSE, self.n // STORE.dense_values_per_entry, self.n // STORE.bits_per_entry)
        return np.where(kind >= DENSE, rows, listed)

    def product(self, slots: Int64, d: Float64) -> Float64:
        """Xd over the columns at these slots."""
        return self.chosen(slots).product(d)

    def shared_parts(self, chosen: Coordinates, order: Int64, w: Float64) -> Any:
        """The parts of cycles over these coordinates, if others do them: None."""
        return None

    def shared_gram(self, position: Int64, rows: Rows, first_row: int) -> Float64 | None:
        """XᵀWX, from a row on, if others form it: None."""
        return None

    def cuts(self, slots: Int64, *, into_vectors: bool = False) -> list[int]:
        """Cut the slots into parts of equal work, one per thread, each worth waking a thread for.

        into_vectors: each part makes a vector over the examples of its own, and must outweigh the cost of adding it.
        """
        worth = max(STORE.entries_per_thread, self.n // 2) if into_vectors else STORE.entries_per_thread
        ends = np.cumsum(self.entries(slots))
        total = int(ends[-1]) if ends.size else 0
        parts = max(1, min(self.threads.count, total // worth))
        return [0, *(int(np.searchsorted(ends, total * k / parts)) for k in range(1, parts)), slots.size]


class Chosen:
    """Some columns of a store, cut into parts for its threads and into runs of one shelf: once, for many passes."""

    def __init__(self, store: Store, slots: Int64) -> None:
        self._store, self._slots = store, slots

    @cached_property
    def _parts(self) -> list[_Part]:
        return self._cut(self._store.cuts(self._slots))

    @cached_property
    def _parts_into_vectors(self) -> list[_Part]:
        return self._cut(self._store.cuts(self._slots, into_vectors=True))

    def _cut(self, cuts: list[int]) -> list[_Part]:
        return [(slice(lo, hi), list(self._store.runs(self._slots[lo:hi]))) for lo, hi in pairwise(cuts)]

    def _map(self, work: Callable[[slice, list[Run]], T], parts: list[_Part]) -> list[T]:
        return self._store.threads.map(lambda k, _: work(*parts[k]), range(len(parts) + 1))

    def sums(self, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        """g = Xᵀr and h = Σ w x²."""

        def part(here: slice, runs: list[Run]) -> None:
            for run in runs:
                columns.sums(run.slots, run.arrays, r, w, g[here][run.here], h[here][run.here])

        self._map(part, self._parts)

    def slopes(self, r: Float64, g: Float64) -> None:
        """g = Xᵀr."""

        def part(here: slice, runs: list[Run]) -> None:
            for run in runs:
                columns.slopes(run.slots, run.arrays, r, g[here][run.here])

        self._map(part, self._parts)

    def product(self, d: Float64) -> Float64:
        """Xd."""

        def part(here: slice, runs: list[Run]) -> Float64:
            out = np.zeros(self._store.n)
            for run in runs:
                columns.add_product(run.slots, run.arrays, d[here][run.here], out)
            return out

        first, *others = self._map(part, self._parts_into_vectors)
        for other in others:
            first += other
        return first


class _Shelf:
    """The arrays that hold columns of one stretch: the block's own, if they are viewed, or buffers of copies.

    first: of the stretch.
    """

    def __init__(self, first: int, columns: Columns) -> None:
        self.first, self.is_view = first, columns.is_view
        self.arrays: ColumnLists = read_only(*columns.lists)
        # A view's own objects name the shelf. Of copies the buffers take what is there, and nothing else is kept.
        self.lists = columns.lists if columns.is_view else ()
        self._buffers = [] if columns.is_view else [_Buffer(np.empty_like(array[:0])) for array in columns.lists]

    def put(self, columns: Columns) -> Columns:
        """Copy columns behind the others, unless they are viewed; returns them where they are now."""
        if self.is_view:
            return columns
        indices, data, dense, bits = (buffer.size for buffer in self._buffers)
        for buffer, more in zip(self._buffers, columns.lists, strict=True):
            buffer.append(more)
        self.arrays = read_only(*(buffer.filled for buffer in self._buffers))
        kinds = [columns.kind == DENSE, columns.kind == BITS, columns.kind == VALUED]
        at = columns.at + np.select(kinds, [dense, bits, data], 0)
        return replace(columns, lo=columns.lo + indices, hi=columns.hi + indices, at=at)


class _Buffer:
    """An array that grows at its end."""

    def __init__(self, empty: Any) -> None:
        self._room = empty
        self.size = 0

    @property
    def filled(self) -> Any:
        return self._room[: self.size]

    def append(self, more: Any) -> None:
        need = self.size + len(more)
        if need > len(self._room):
            room = np.empty((max(need, len(self._room) * 3 // 2), *self._room.shape[1:]), self._room.dtype)
            room[: self.size] = self.filled
            self._room = room
        self._room[self.size : need] = more
        self.size = need
