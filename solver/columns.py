"""Columns in the form the kernels read (the paper's Table 1): those of a block, and those in the driver's store.

A column is one of four kinds, chosen for each by itself, wherever a block is cut:
    valued   positions and float32 values
    ones     positions only: every value is 1
    dense    a row of a float32 matrix, no positions: read in order, vectorised
    bits     a row of a matrix of bits, one for each example: every value is 1, and many examples have it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float32, Float64, Int32, Int64, UInt8, UInt64
from solver.compiling import one_process
from solver.kernels import columns as kernels
from solver.kernels.columns import BITS, DENSE, ONES, VALUED
from solver.layout import WORD

__all__ = [
    "BITS",
    "DENSE",
    "ONES",
    "VALUED",
    "ColumnArrays",
    "ColumnLists",
    "Columns",
    "add_product",
    "compile_for",
    "read_only",
    "slopes",
    "sums",
]

# Share of nonzeros from which a column is kept dense. An entry of the matrix costs about a quarter of the time of
# one in a list (benchmarks/bench_kernel.py); from one half on it takes no more memory than position and value.
DENSE_AT = 0.5

# Shares of ones between which a column of ones is kept as bits. At 1/8 they take a quarter of the memory of a list and
# no more time (benchmarks/bench_kernel.py). A column of nearly all ones is dense: Gram matrices are about its mean.
BITS_BETWEEN = (1 / 8, 0.9)

ColumnLists: TypeAlias = tuple[Int32, Float32, Float32, UInt64]
ColumnArrays: TypeAlias = tuple[UInt8, Int64, Int64, Int64, Int32, Float32, Float32, UInt64]


def read_only(*arrays: np.ndarray) -> Any:
    """Views that cannot be written to, as some columns come and some do not: kernels are compiled for one type."""
    views = tuple(one.view() for one in arrays)
    for view in views:
        view.flags.writeable = False
    return views


@dataclass(frozen=True)
class Columns:
    """Columns over n examples in a fixed order: kind, lo, hi, at, indices, data, dense, bits (kernels/columns.py).

    The rows of dense columns follow one another in the order of the columns, and so do those of bits.
    is_view: are these some of the columns of arrays that stay where they are? Copies are made when they travel.
    """

    n: int
    kind: UInt8
    lo: Int64
    hi: Int64
    at: Int64
    indices: Int32
    data: Float32
    dense: Float32
    bits: UInt64
    is_view: bool = False

    @classmethod
    def from_csc(cls, indptr: ArrayLike, indices: ArrayLike, data: ArrayLike | None, n: int) -> Columns:
        """Take the arrays of a CSC matrix of n rows; data is None where every value is 1.

        Positions must rise within a column. Arrays of the right type (int64, int32, float32) are not copied, unless
        some columns, but not all, are dense, or some are bits. indptr need not begin at 0: a slice of a larger matrix
        will do.
        """
        ptr = np.ascontiguousarray(indptr, dtype=np.int64)
        idx = np.ascontiguousarray(indices, dtype=np.int32)
        val = np.empty(0, np.float32) if data is None else np.ascontiguousarray(data, dtype=np.float32)
        if ptr.ndim != 1 or ptr.size == 0:
            raise ValueError(f"indptr must be a vector of columns + 1 entries, got shape {ptr.shape}")
        if data is not None and val.shape != idx.shape:
            raise ValueError(f"indices and data differ in length: {idx.size} and {val.size}")
        kind = np.empty(ptr.size - 1, np.uint8)
        bad = kernels.survey(ptr, idx, val, data is not None, n, DENSE_AT, BITS_BETWEEN, kind)
        if bad >= 0:
            raise ValueError(f"column {bad}: positions must rise and lie in 0..{n - 1}, and values must be finite")
        whole = cls(n, kind, ptr[:-1], ptr[1:], ptr[:-1], idx, val, _no_rows(n), _no_bits(n))
        return whole._with_rows(valued=data is not None) if (kind >= DENSE).any() else whole

    @classmethod
    def from_rows(cls, rows: Float32) -> Columns:
        """Dense columns, each a row of this matrix, which is not copied."""
        count, n = rows.shape
        none = np.zeros(count, np.int64)
        empty = np.empty(0, np.int32), np.empty(0, np.float32)
        return cls(n, np.full(count, DENSE, np.uint8), none, none, np.arange(count), *empty, rows, _no_bits(n))

    @classmethod
    def all_ones(cls, n: int) -> Columns:
        """One column, an intercept's: a bit for every example."""
        bits = np.full((1, -(-n // WORD)), ~np.uint64(0))
        if n % WORD:
            bits[0, -1] >>= np.uint64(WORD - n % WORD)
        none = np.zeros(1, np.int64)
        empty = np.empty(0, np.int32), np.empty(0, np.float32)
        return cls(n, np.full(1, BITS, np.uint8), none, none, none, *empty, _no_rows(n), bits)

    @classmethod
    def empty(cls, n: int) -> Columns:
        return cls.from_rows(np.empty((0, n), np.float32))

    @property
    def count(self) -> int:
        return self.kind.size

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)

    @property
    def lists(self) -> ColumnLists:
        """The arrays that hold what is in the columns."""
        return self.indices, self.data, self.dense, self.bits

    @cached_property
    def arrays(self) -> ColumnArrays:
        """What the kernels take."""
        arrays: ColumnArrays = read_only(self.kind, self.lo, self.hi, self.at, *self.lists)
        return arrays

    def sizes(self) -> Int64:
        """Bytes that each column takes."""
        entry = np.where(self.kind == VALUED, 8, 4)
        whole = np.where(self.kind == DENSE, 4 * self.n, 8 * self.bits.shape[1])
        sizes: Int64 = np.where(self.kind >= DENSE, whole, entry * (self.hi - self.lo))
        return sizes

    def slopes(self, r: Float64, out: Float64) -> None:
        """out = Xᵀr."""
        slopes(np.arange(self.count), self.arrays, r, out)

    def slopes_of(self, chosen: Int64, r: Float64, out: Float64) -> None:
        """out = Xᵀr of these columns."""
        slopes(chosen, self.arrays, r, out)

    def sums_of(self, chosen: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        """g = Xᵀr and h = Σ w x² of these columns."""
        sums(chosen, self.arrays, r, w, g, h)

    def curvature(self, chosen: Int64, w: Float64) -> Float64:
        """Σ w x² of these columns."""
        out = np.empty(chosen.size)
        sums(chosen, self.arrays, w, w, np.empty(chosen.size), out)
        return out

    def add_product(self, beta: Float64, out: Float64) -> None:
        """out += Xβ."""
        chosen = np.flatnonzero(beta)
        add_product(chosen, self.arrays, beta[chosen], out)

    def add_product_of(self, chosen: Int64, d: Float64, out: Float64) -> None:
        """out += Xd over these columns."""
        add_product(chosen, self.arrays, d, out)

    def part(self, first: int, last: int) -> Columns:
        """The columns first to last, viewed."""
        return self._at(slice(first, last))

    def on(self, lists: ColumnLists) -> Columns:
        """The same columns, viewed in these arrays, which must be as the others."""
        return Columns(self.n, self.kind, self.lo, self.hi, self.at, *lists, is_view=True)

    def view(self, chosen: Int64) -> Columns:
        """These columns alone, viewed."""
        return replace(self._at(chosen), is_view=True)

    def _at(self, here: slice | Int64) -> Columns:
        return replace(self, kind=self.kind[here], lo=self.lo[here], hi=self.hi[here], at=self.at[here])

    def __reduce__(self) -> tuple[object, ...]:
        """A view travels as a copy of its own columns, without the others."""
        if self.is_view:
            return self.select(np.arange(self.count)).__reduce__()
        return Columns, (self.n, self.kind, self.lo, self.hi, self.at, *self.lists)

    def select(self, chosen: Int64) -> Columns:
        """These columns alone, copied; chosen must rise."""
        kind, sizes = self.kind[chosen], self.hi[chosen] - self.lo[chosen]
        valued, dense, bits = kind == VALUED, kind == DENSE, kind == BITS
        ends = np.cumsum(sizes)
        lo = ends - sizes
        indices = np.empty(int(ends[-1]) if ends.size else 0, np.int32)
        kernels.take(self.lo[chosen], sizes, self.indices, indices)
        data = np.empty(int(sizes[valued].sum()), np.float32)
        kernels.take(self.at[chosen[valued]], sizes[valued], self.data, data)
        at = np.zeros(chosen.size, np.int64)
        at[valued] = np.cumsum(sizes[valued]) - sizes[valued]
        at[dense], at[bits] = np.arange(np.count_nonzero(dense)), np.arange(np.count_nonzero(bits))
        rows = self.dense[self.at[chosen[dense]]], self.bits[self.at[chosen[bits]]]
        return Columns(self.n, kind, lo, ends, at, indices, data, *rows)

    def rows(self, first: int, last: int) -> Columns:
        """These columns over the examples first to last alone, copied. Both are n or multiples of WORD."""
        every = np.arange(self.count)
        lo, hi = np.empty(self.count, np.int64), np.empty(self.count, np.int64)
        kernels.seek(every, self.lo, self.hi, self.indices, first, lo)
        kernels.seek(every, self.lo, self.hi, self.indices, last, hi)
        listed = self.kind < DENSE
        lo, hi = np.where(listed, lo, self.lo), np.where(listed, hi, self.lo)
        at = np.where(self.kind == VALUED, self.at + (lo - self.lo), self.at)
        dense, bits = self.dense[:, first:last], self.bits[:, first // WORD : -(-last // WORD)]
        cut = replace(self, n=last - first, lo=lo, hi=hi, at=at, dense=dense, bits=bits).select(every)
        cut.indices[:] -= first
        return cut

    @classmethod
    def joined(cls, parts: Sequence[Columns], n: int) -> Columns:
        """The columns of all parts, in their order; parts come from `select`."""
        if len(parts) == 1:
            return parts[0]
        parts = parts or [cls.empty(n)]
        listed = np.cumsum([0, *(part.indices.size for part in parts[:-1])])
        values = np.cumsum([0, *(part.data.size for part in parts[:-1])])
        rows = np.cumsum([0, *(len(part.dense) for part in parts[:-1])])
        words = np.cumsum([0, *(len(part.bits) for part in parts[:-1])])
        at = [
            part.at + np.select([part.kind == DENSE, part.kind == BITS], [row, word], value)
            for part, value, row, word in zip(parts, values, rows, words, strict=True)
        ]
        return cls(
            n,
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.lo + first for part, first in zip(parts, listed, strict=True)]),
            np.concatenate([part.hi + first for part, first in zip(parts, listed, strict=True)]),
            np.concatenate(at),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.dense for part in parts]),
            np.concatenate([part.bits for part in parts]),
        )

    def _with_rows(self, *, valued: bool) -> Columns:
        """The dense columns and the bits moved from the lists into their matrices."""
        is_dense, is_bits = self.kind == DENSE, self.kind == BITS
        sizes = self.hi - self.lo
        if valued and is_dense.all() and (sizes == self.n).all():
            return Columns.from_rows(self.data[self.lo[0] : self.hi[-1]].reshape(self.count, self.n))
        dense = np.zeros((int(is_dense.sum()), self.n), np.float32)
        for row, j in enumerate(np.flatnonzero(is_dense)):
            lo, hi = self.lo[j], self.hi[j]
            kernels.spread(self.indices[lo:hi], self.data[lo:hi], valued, dense[row])
        bits = np.empty((int(is_bits.sum()), -(-self.n // WORD)), np.uint64)
        for row, j in enumerate(np.flatnonzero(is_bits)):
            kernels.set_bits(self.indices[self.lo[j] : self.hi[j]], bits[row])
        listed = self.kind < DENSE
        first, last = int(self.lo[0]), int(self.hi[-1])
        kept = np.repeat(listed, sizes) if listed.any() else np.empty(0, np.int64)
        hi = np.cumsum(np.where(listed, sizes, 0))
        lo = hi - np.where(listed, sizes, 0)
        at = np.select([is_dense, is_bits], [np.cumsum(is_dense) - 1, np.cumsum(is_bits) - 1], lo)
        data = self.data[first:last][kept] if valued else self.data
        return Columns(self.n, self.kind, lo, hi, at, self.indices[first:last][kept], data, dense, bits)


def _no_rows(n: int) -> Float32:
    return np.empty((0, n), np.float32)


def _no_bits(n: int) -> UInt64:
    return np.empty((0, -(-n // WORD)), np.uint64)


# --- passes over chosen columns: a kernel for each kind that the arrays hold ----------------------------------------


def sums(chosen: Int64, arrays: ColumnArrays, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
    """g = Xᵀr and h = Σ w x² of these columns."""
    kind, lo, hi, at, indices, data, dense, bits = arrays
    if indices.size:
        kernels.listed_sums(chosen, kind, lo, hi, at, indices, data, r, w, g, h)
    else:
        g[:], h[:] = 0.0, 0.0  # lists that are there are empty
    if len(dense):
        kernels.dense_sums(chosen, kind, at, dense, r, w, g, h)
    if len(bits):
        kernels.bits_sums(chosen, kind, at, bits, r, w, g, h)


def slopes(chosen: Int64, arrays: ColumnArrays, r: Float64, g: Float64) -> None:
    """g = Xᵀr of these columns."""
    kind, lo, hi, at, indices, data, dense, bits = arrays
    if indices.size:
        kernels.listed_slopes(chosen, kind, lo, hi, at, indices, data, r, g)
    else:
        g[:] = 0.0  # lists that are there are empty
    if len(dense):
        kernels.dense_slopes(chosen, kind, at, dense, r, g)
    if len(bits):
        kernels.bits_sums(chosen, kind, at, bits, r, None, g, None)


def add_product(chosen: Int64, arrays: ColumnArrays, d: Float64, out: Float64) -> None:
    """out += Xd over these columns."""
    kind, lo, hi, at, indices, data, dense, bits = arrays
    if indices.size:
        kernels.add_listed(chosen, kind, lo, hi, at, indices, data, d, out)
    if len(dense):
        kernels.add_dense(chosen, kind, at, dense, d, out)
    if len(bits):
        kernels.add_bits(chosen, kind, at, bits, d, out)


def compile_for(columns: Columns) -> None:
    """Compile what a sweep over such columns needs, or load it: no other process compiles the same meanwhile."""
    none, nothing = np.empty(0, np.int64), np.empty(0)
    with one_process(kernels.listed_slopes):
        slopes(none, columns.arrays, nothing, nothing)
        sums(none, columns.arrays, nothing, nothing, nothing, nothing)
