"""The columns of a feature block, or of a stretch of one, in the form the kernels read (the paper's Table 1).

A column is one of three kinds, chosen for each by itself, wherever a block is cut:
    valued   positions and float32 values
    ones     positions only: every value is 1
    dense    a row of a float32 matrix, no positions: read in order, vectorised
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from solver import kernels, subspace_kernels
from solver.arrays import Float32, Float64, Int32, Int64, UInt8

# Share of nonzeros from which a column is kept dense. An entry of the matrix costs about a quarter of the time of
# one in a list (benchmarks/bench_kernel.py); from one half on it takes no more memory than position and value.
DENSE_AT = 0.5

ColumnArrays: TypeAlias = tuple[UInt8, Int64, Int32, Float32, Float32]


@dataclass(frozen=True)
class Columns:
    """Columns in a fixed order. The s-th of the dense ones is dense[s], and its range of indptr is empty."""

    n: int
    kind: UInt8
    indptr: Int64
    indices: Int32
    data: Float32
    dense: Float32

    @classmethod
    def from_csc(cls, indptr: ArrayLike, indices: ArrayLike, data: ArrayLike | None, n: int) -> Columns:
        """Take the arrays of a CSC matrix of n rows; data is None where every value is 1.

        Positions must rise within a column. Arrays of the right type (int64, int32, float32) are not copied,
        unless some columns, but not all, are dense. indptr need not begin at 0, so a slice of a larger matrix
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
        bad = kernels.survey(ptr, idx, val, data is not None, n, DENSE_AT, kind)
        if bad >= 0:
            raise ValueError(f"column {bad}: positions must rise and lie in 0..{n - 1}, and values must be finite")
        none = np.empty((0, n), np.float32)
        whole = cls(n, kind, ptr, idx, val, none)
        return whole._with_dense(valued=data is not None) if (kind == kernels.DENSE).any() else whole

    @property
    def count(self) -> int:
        return self.kind.size

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)

    @property
    def arrays(self) -> ColumnArrays:
        """What the kernels take."""
        return self.kind, self.indptr, self.indices, self.data, self.dense

    def sizes(self, chosen: Int64) -> Int64:
        """Bytes that each of these columns takes."""
        entry = np.where(self.kind[chosen] == kernels.VALUED, 8, 4)
        listed = entry * (self.indptr[chosen + 1] - self.indptr[chosen])
        sizes: Int64 = np.where(self.kind[chosen] == kernels.DENSE, 4 * self.n, listed)
        return sizes

    def diagonal(self, chosen: Int64, working: Float64) -> Float64:
        """Σ w x² of these columns."""
        out = np.empty(chosen.size)
        subspace_kernels.diagonal(chosen, *self.arrays, self._rows(), working, out)
        return out

    def select(self, chosen: Int64) -> Columns:
        """These columns alone, copied; chosen must rise."""
        kind = self.kind[chosen]
        indptr = np.concatenate(([0], np.cumsum(self.indptr[chosen + 1] - self.indptr[chosen]))).astype(np.int64)
        indices = np.empty(int(indptr[-1]), np.int32)
        subspace_kernels.take(chosen, self.indptr, self.indices, indptr, indices)
        data = np.empty(indices.size if (kind == kernels.VALUED).any() else 0, np.float32)
        if data.size:
            subspace_kernels.take(chosen, self.indptr, self.data, indptr, data)
        rows = self._rows()[chosen[kind == kernels.DENSE]]
        return Columns(self.n, kind, indptr, indices, data, self.dense[rows])

    @classmethod
    def joined(cls, parts: Sequence[Columns], n: int) -> Columns:
        """The columns of all parts, in their order; parts come from `select`."""
        if len(parts) == 1:
            return parts[0]
        parts = parts or [cls(n, np.empty(0, np.uint8), np.zeros(1, np.int64), *_empty_lists(n))]
        valued = any(part.data.size for part in parts)
        ends = np.cumsum([0, *(part.indptr[-1] for part in parts[:-1])])
        indptr = np.concatenate([[0], *(part.indptr[1:] + end for part, end in zip(parts, ends, strict=True))])
        data = [part.data if part.data.size else np.ones(part.indices.size, np.float32) for part in parts]
        return cls(
            n,
            np.concatenate([part.kind for part in parts]),
            indptr.astype(np.int64),
            np.concatenate([part.indices for part in parts]),
            np.concatenate(data) if valued else np.empty(0, np.float32),
            np.concatenate([part.dense for part in parts]),
        )

    def _rows(self) -> Int64:
        """The row of `dense` that each column is, if it is dense."""
        return np.cumsum(self.kind == kernels.DENSE) - 1 if len(self.dense) else np.empty(0, np.int64)

    def _with_dense(self, *, valued: bool) -> Columns:
        """The dense columns moved from the lists into the matrix."""
        is_dense = self.kind == kernels.DENSE
        sizes = np.diff(self.indptr)
        if valued and is_dense.all() and (sizes == self.n).all():
            full = self.data[self.indptr[0] : self.indptr[-1]].reshape(self.count, self.n)
            return Columns(self.n, self.kind, np.zeros_like(self.indptr), self.indices[:0], self.data[:0], full)
        dense = np.zeros((int(is_dense.sum()), self.n), np.float32)
        for slot, j in enumerate(np.flatnonzero(is_dense)):
            lo, hi = self.indptr[j], self.indptr[j + 1]
            kernels.spread(self.indices[lo:hi], self.data[lo:hi], valued, dense[slot])
        kept = np.repeat(~is_dense, sizes)
        listed = slice(int(self.indptr[0]), int(self.indptr[-1]))
        indptr = np.concatenate(([0], np.cumsum(np.where(is_dense, 0, sizes)))).astype(np.int64)
        data = self.data[listed][kept] if valued else self.data
        return Columns(self.n, self.kind, indptr, self.indices[listed][kept], data, dense)


def _empty_lists(n: int) -> tuple[Int32, Float32, Float32]:
    return np.empty(0, np.int32), np.empty(0, np.float32), np.empty((0, n), np.float32)
