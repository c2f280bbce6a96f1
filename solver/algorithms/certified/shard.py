"""Columns by example: of those that a search forms Gram matrices of, each block holds a share of the examples.

A Gram matrix over all columns is the sum of those over parts of the examples. Blocks are cut by feature, so for this
the columns are spread once more, the other way: a block with a tenth of the features gets a tenth of the examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.algorithms.certified.gram import weighted_gram
from solver.algorithms.certified.store import Rows, Store
from solver.algorithms.certified.tuning import SHARING
from solver.arrays import Float64, Int64
from solver.columns import Columns
from solver.layout import examples_for
from solver.stretches import Part
from solver.threads import Threads


@dataclass(frozen=True)
class ColumnRows:
    """Columns over n examples, to be cut for blocks that have `size` features in all."""

    columns: Sequence[Columns]
    n: int
    size: int

    def part(self, first: int, last: int) -> ColumnRows:
        lo, hi = examples_for(self.n, first, last, self.size)
        return ColumnRows([columns.rows(lo, hi) for columns in self.columns], hi - lo, last - first)


@dataclass(frozen=True)
class StoredRows:
    """The same of columns in a store, which are looked up there when they are cut: a store may move them."""

    store: Store
    position: Int64
    size: int

    def part(self, first: int, last: int) -> ColumnRows:
        store = self.store
        columns = [store.columns(run) for run in store.runs(store.slots(self.position))]
        return ColumnRows(columns, store.n, self.size).part(first, last)


@dataclass(frozen=True)
class WeightedRows:
    """Some of n examples with weights, to be cut likewise."""

    rows: Rows
    n: int
    size: int

    def part(self, first: int, last: int) -> WeightedRows:
        lo, hi = examples_for(self.n, first, last, self.size)
        here = slice(*np.searchsorted(self.rows.example, (lo, hi)).tolist())
        return WeightedRows(Rows(self.rows.example[here] - lo, self.rows.weight[here]), hi - lo, last - first)


@dataclass(frozen=True)
class Sliced:
    """Vectors over n examples, to be cut likewise."""

    vectors: tuple[Float64, ...]
    n: int
    size: int

    def part(self, first: int, last: int) -> Sliced:
        lo, hi = examples_for(self.n, first, last, self.size)
        return Sliced(tuple(vector[lo:hi] for vector in self.vectors), hi - lo, last - first)


class Shard:
    """Columns over a share of the examples, numbered in the order in which they came."""

    def __init__(self) -> None:
        self._store: Store | None = None
        self._count = 0

    def add(self, rows: ColumnRows) -> None:
        if self._store is None:
            self._store = Store(rows.n, SHARING.most_by_example, budget=0, threads=Threads(1))
        for columns in rows.columns:
            position = self._count + np.arange(columns.count)
            self._store.add(position, [Part(0, columns)])  # one shelf for all: a pass is one run
            self._count += columns.count

    def sums(self, position: Int64, r: Float64, w: Float64) -> Float64:
        """Xᵀr of these columns over the examples here, and below it Σ w x²."""
        sums = np.zeros((2, position.size))
        if self._store is not None:
            self._store.sums(self._store.slots(position), r, w, *sums)
        return sums

    def slopes(self, position: Int64, r: Float64) -> Float64:
        """Xᵀr of these columns over the examples here."""
        slopes = np.zeros(position.size)
        if self._store is not None:
            self._store.slopes(self._store.slots(position), r, slopes)
        return slopes

    def product(self, position: Int64, d: Float64) -> Float64:
        """Xd over the examples here."""
        return np.empty(0) if self._store is None else self._store.product(self._store.slots(position), d)

    def gram(self, position: Int64, rows: Rows, first_row: int) -> Float64:
        """XᵀWX of these columns over the examples here, from a row on."""
        if self._store is None or rows.example.size == 0:
            return np.zeros((position.size - first_row, position.size))
        return weighted_gram(self._store, position, rows, first_row)
