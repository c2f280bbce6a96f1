"""One feature block S_k: what a worker holds and does (Algorithm 2, and lines 1-2 and 7-8 of Algorithm 4).

A block keeps its coefficients, its own copy of the margins, and O(n + p_k) working space. Its columns come
from a source that is read from beginning to end in each pass: a list of Columns in memory, or a reader that
fetches them anew. The arithmetic is the same, so the coefficients are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from solver import kernels
from solver.arrays import Coefficients, Float64, Int64
from solver.columns import Columns
from solver.examples import Examples

ColumnSource: TypeAlias = Iterable[Columns]
"""Gives the same Columns in the same order each time it is iterated over.

To get the same bits from memory as from a stream, give the same stretches: dense columns are taken four at a time,
counted from the beginning of a run of them within a stretch.
"""


@dataclass(frozen=True)
class Step:
    """The step that ended the last round: β += α Δβ and m += α Δm, Δm being summed over the blocks."""

    alpha: float
    dmargins: Float64


@dataclass(frozen=True)
class BlockUpdate:
    """What one cycle gives. dmargins is the block's own buffer: read it before the block's next call.

    dbeta: Δβ_k, positions counted within the block.
    dmargins: Δm_k = X_k Δβ_k.
    curvature: Δβ_kᵀ H_k Δβ_k, the block's part of the γ term in D.
    """

    dbeta: Coefficients
    dmargins: Float64
    curvature: float


@dataclass(frozen=True)
class Sweep:
    """What a sweep over a block's features found at the margins given, and which of them may enter a working set.

    max_gradient: max |∂L/∂βⱼ| over every feature of the block, listed or not.
    position: features with |∂L/∂βⱼ| above the threshold, rising, counted within the block; where there are more than
    asked for, those with the largest slopes.
    gradient, curvature, nbytes: −∂L/∂βⱼ, ∂²L/∂βⱼ² and the size of the column, of those listed.
    """

    max_gradient: float
    position: Int64
    gradient: Float64
    curvature: Float64
    nbytes: Int64

    @classmethod
    def joined(cls, parts: Sequence[Sweep], starts: Iterable[int]) -> Sweep:
        """The sweeps of neighbouring blocks as one; `starts` are the positions of the blocks' first features."""
        return cls(
            max(part.max_gradient for part in parts),
            np.concatenate([part.position + first for part, first in zip(parts, starts, strict=False)]),
            np.concatenate([part.gradient for part in parts]),
            np.concatenate([part.curvature for part in parts]),
            np.concatenate([part.nbytes for part in parts]),
        )


class Block:
    """A block of `size` features over the given examples. Begins at β = 0."""

    def __init__(self, source: ColumnSource, size: int, examples: Examples) -> None:
        self.size = size
        self._source = source
        self._signed = examples.signed
        self._beta = np.zeros(size)
        self._margins = np.zeros(examples.n)
        self._working = np.empty((examples.n, 2))
        self._apart = np.empty((2, 0))
        self._dmargins = np.zeros(examples.n)
        self._moved = np.empty(size, np.int64)
        self._dbeta = np.empty(size)
        self._last = Coefficients.empty()
        self._slopes = np.empty(0)

    def start(self, beta: Coefficients) -> Float64:
        """Take these coefficients, counted within the block; return X_k β_k, in the block's own buffer."""
        self._beta[:] = 0.0
        self._beta[beta.position] = beta.value
        self._last = Coefficients.empty()
        self._dmargins[:] = 0.0
        if beta.position.size:
            for first, columns in self._columns():
                kernels.add_product(*columns.arrays, self._beta[first:], self._dmargins)
        return self._dmargins

    def set_margins(self, margins: Float64) -> None:
        """Take the margins of the whole model."""
        if margins.shape != self._margins.shape:
            raise ValueError(f"margins of {margins.size} examples given to a block of {self._margins.size}")
        self._margins[:] = margins

    def cycle(self, step: Step | None, lam: float, nu: float) -> BlockUpdate:
        """Make the last round's step, then one cycle of coordinate descent on the sub-problem at λ."""
        self._apply(step)
        kernels.working_response(self._margins, self._signed, self._working)
        self._dmargins[:] = 0.0
        count = 0
        for first, columns in self._columns():
            moved = self._moved[count:]
            found = kernels.cycle(
                *columns.arrays,
                self._beta[first:],
                lam,
                nu,
                self._working,
                self._apart_for(columns),
                self._dmargins,
                moved,
                self._dbeta[count:],
            )
            moved[:found] += first
            count += found
        self._last = Coefficients(self._moved[:count].copy(), self._dbeta[:count].copy())
        return BlockUpdate(self._last, self._dmargins, kernels.curvature(self._working, self._dmargins))

    def max_gradient(self, step: Step | None) -> float:
        """Make the last round's step, then return max |∂L/∂βⱼ| over the block."""
        self._apply(step)
        kernels.working_response(self._margins, self._signed, self._working)
        largest = 0.0
        for _, columns in self._columns():
            slopes = np.empty(columns.count)
            kernels.gradient(*columns.arrays, self._working, slopes)
            largest = max(largest, float(np.abs(slopes).max(initial=0.0)))
        return largest

    def sweep(self, margins: Float64 | None, threshold: float, limit: int) -> Sweep:
        """Take the margins and compute the slope of every feature; list those above the threshold.

        Without margins, list from the slopes of the last sweep: no pass over the data but for what is listed.
        """
        if margins is not None:
            self.set_margins(margins)
            kernels.working_response(self._margins, self._signed, self._working)
            self._slopes = np.empty(self.size)
            for first, columns in self._columns():
                kernels.gradient(*columns.arrays, self._working, self._slopes[first : first + columns.count])
        slopes = np.abs(self._slopes)
        position = np.flatnonzero(slopes > threshold)
        if position.size > limit:
            position = np.sort(position[np.argpartition(-slopes[position], limit)[:limit]])
        curvature, nbytes = np.empty(position.size), np.empty(position.size, np.int64)
        for chosen, columns, here in self._among(position):
            curvature[here] = columns.diagonal(chosen, self._working)
            nbytes[here] = columns.sizes(chosen)
        return Sweep(float(slopes.max(initial=0.0)), position, self._slopes[position], curvature, nbytes)

    def columns(self, position: Int64) -> Columns:
        """The columns at these positions, which must rise."""
        return Columns.joined(
            [columns.select(chosen) for chosen, columns, _ in self._among(position)], self._margins.size
        )

    def _among(self, position: Int64) -> Iterator[tuple[Int64, Columns, slice]]:
        """The stretches that hold some of these positions: which of its columns, and which of the positions."""
        if position.size == 0:
            return
        for first, columns in self._columns():
            lo, hi = np.searchsorted(position, (first, first + columns.count))
            if hi > lo:
                yield position[lo:hi] - first, columns, slice(int(lo), int(hi))

    def _apply(self, step: Step | None) -> None:
        if step is None:
            return
        kernels.move(self._margins, step.alpha, step.dmargins)
        kernels.move_coefficients(self._beta, step.alpha, *self._last)
        self._last = Coefficients.empty()

    def _apart_for(self, columns: Columns) -> Float64:
        """Space that dense columns need, made when the first of them comes."""
        if columns.dense.shape[0] and self._apart.size == 0:
            self._apart = np.empty((2, self._margins.size))
        return self._apart

    def _columns(self) -> Iterator[tuple[int, Columns]]:
        """The source's columns, each stretch with the position of its first column."""
        first = 0
        for columns in self._source:
            if columns.n != self._margins.size or first + columns.count > self.size:
                raise ValueError(
                    f"the source gave {first + columns.count} columns or more over {columns.n} examples; "
                    f"the block has {self.size} columns over {self._margins.size}"
                )
            yield first, columns
            first += columns.count
        if first != self.size:
            raise ValueError(f"the source gave {first} columns, the block has {self.size}")
