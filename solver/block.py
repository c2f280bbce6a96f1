"""One feature block S_k: what a worker holds and does (Algorithm 2, and lines 1-2 and 7-8 of Algorithm 4).

A block keeps its coefficients, its own copy of the margins, and O(n + p_k) working space. Its columns come
from a source (source.py): a list of Columns in memory, or a reader that fetches them anew in each pass. The
arithmetic is the same, so the coefficients are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver import kernels, screening_kernels
from solver.arrays import Coefficients, Float64, Int64
from solver.batches import Batches
from solver.columns import Columns
from solver.examples import Examples
from solver.source import ColumnSource, SafePrefix, in_stretches, part

ACTIVE = 0.9  # a feature takes part in `descend` when its slope is above this share of λ, or its coefficient is not 0


@dataclass(frozen=True)
class Step:
    """The step that ended the last round: β += α Δβ and m += α Δm, Δm being summed over the blocks."""

    alpha: float
    dmargins: Float64


@dataclass(frozen=True)
class BlockUpdate:
    """What one cycle gives. Its arrays are the block's own buffers: read them before the block's next call.

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

    max_gradient: max |∂L/∂βⱼ| over the features of the block, or at most the threshold where no slope is above it.
    position: features with |∂L/∂βⱼ| above the threshold, rising, counted within the block; where there are more than
    asked for, those with the largest slopes.
    gradient, curvature, nbytes: −∂L/∂βⱼ, ∂²L/∂βⱼ² and the size of the column, of those listed. The curvature is nan
    where slopes of an earlier sweep are listed.
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


@dataclass(frozen=True)
class Descent:
    """What coordinate descent over a block's active features gives, and what was seen on the way.

    sweep: at the margins given; listed are the active features.
    dbeta: Δβ_k, positions counted within the block.
    dmargins: Δm_k = X_k Δβ_k, in the block's own buffer.
    """

    sweep: Sweep
    dbeta: Coefficients
    dmargins: Float64


class Block:
    """A block of `size` features over the given examples. Begins at β = 0.

    bounds: for each feature, what |∂L/∂βⱼ| cannot exceed, whatever β is. Features that cannot matter are passed over
    in sweeps, and stretches of the source that hold no others are not read.
    """

    def __init__(self, source: ColumnSource, size: int, examples: Examples, bounds: Float64 | None = None) -> None:
        self.size = size
        self._source = in_stretches(source)
        self._bounds = bounds
        self._signed = examples.signed
        self._beta = np.zeros(size)
        self._margins = np.zeros(examples.n)
        self._working = np.empty((2, examples.n))
        self._paired = np.empty((0, 2))  # made for the first cycle: sweeps do without
        self._dmargins = np.zeros(examples.n)
        self._moved = np.empty(size, np.int64)
        self._dbeta = np.empty(size)
        self._last = Coefficients.empty()
        self._support: Int64 = np.empty(0, np.int64)
        self._slopes, self._sizes = np.empty(0), np.empty(0, np.int64)
        self._visited: Int64 = np.empty(0, np.int64)

    # --- Algorithm 4 --------------------------------------------------------------------------------------------

    def start(self, beta: Coefficients) -> Float64:
        """Take these coefficients, counted within the block; return X_k β_k, in the block's own buffer."""
        self._beta[:] = 0.0
        self._beta[beta.position] = beta.value
        self._support = beta.position
        self._last = Coefficients.empty()
        self._dmargins[:] = 0.0
        for first, columns, _ in self._among(beta.position):
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
        kernels.begin_cycle(self._working, self._pairs(), self._dmargins)
        count, apart = 0, False
        for first, columns in self._columns():
            moved = self._moved[count:]
            found, apart = kernels.cycle(
                *columns.arrays,
                self._beta[first:],
                lam,
                nu,
                self._working,
                self._paired,
                apart,
                moved,
                self._dbeta[count:],
            )
            moved[:found] += first
            count += found
        kernels.end_cycle(self._working, self._paired, apart, self._dmargins)
        self._last = Coefficients(self._moved[:count], self._dbeta[:count])
        return BlockUpdate(self._last, self._dmargins, kernels.curvature(self._working, self._dmargins))

    def max_gradient(self, step: Step | None) -> float:
        """Make the last round's step, then return max |∂L/∂βⱼ| over the block.

        What cannot be above the largest slope found so far is passed over.
        """
        self._apply(step)
        kernels.working_response(self._margins, self._signed, self._working)
        largest = 0.0
        chosen = (k for k in range(len(self._source.counts)) if self._prefix.length(k, largest))
        for k, columns in self._read(chosen):
            slopes = np.empty(self._prefix.length(k, largest))
            kernels.gradient(*part(columns, 0, slopes.size).arrays, self._working, slopes)
            largest = max(largest, screening_kernels.largest(slopes))
        return largest

    # --- the certified mode -------------------------------------------------------------------------------------

    def sweep(self, margins: Float64 | None, threshold: float, limit: int) -> Sweep:
        """Take the margins, compute the slopes of all features that can be above the threshold, list those that are.

        Without margins, list by the slopes of the last sweep; of the data, only what it passed over is read.
        """
        found = []
        if margins is not None:
            self._begin(margins)
        for first, columns in self._unvisited(self._prefix.lengths(threshold)):
            chosen = self._listed(first, columns.count, threshold)
            if margins is not None:
                found.append(columns.diagonal(chosen, self._working))
        count, largest = screening_kernels.above(
            self._slopes, self._prefix.starts, self._visited, threshold, self._moved
        )
        position = self._moved[:count].copy()
        curvature = np.concatenate([np.empty(0), *found]) if margins is not None else np.full(count, np.nan)
        if count > limit:
            strongest = np.sort(np.argpartition(-np.abs(self._slopes[position]), limit)[:limit])
            position, curvature = position[strongest], curvature[strongest]
        return Sweep(largest, position, self._slopes[position], curvature, self._sizes[position])

    def descend(self, margins: Float64, beta: Coefficients, lam: float, nu: float, cycles: int) -> Descent:
        """Take margins and coefficients, sweep as above, and minimise the sub-problem over the active features.

        Active are those with coefficients, and those with slopes near λ or above. Up to so many cycles go over them,
        fewer where they come to rest.
        """
        self._replace(beta)
        self._begin(margins)
        batches = Batches(self._working.copy(), self._pairs(), self._dmargins, lam, nu, cycles)
        curvature, position = [np.empty(0)], [np.empty(0, np.int64)]
        wanted = np.maximum(self._prefix.lengths(lam), self._lengths_of(beta.position))
        for first, columns in self._unvisited(wanted):
            chosen = self._listed(first, columns.count, ACTIVE * lam, self._beta[first : first + columns.count])
            curvature.append(columns.diagonal(chosen, self._working))
            position.append(chosen + first)
            batches.add(chosen + first, columns.select(chosen), self._beta[chosen + first])
        active = np.concatenate(position)
        _, largest = screening_kernels.above(self._slopes, self._prefix.starts, self._visited, np.inf, self._moved)
        sweep = Sweep(largest, active, self._slopes[active], np.concatenate(curvature), self._sizes[active])
        return Descent(sweep, batches.change(), self._dmargins)

    def columns(self, position: Int64) -> Columns:
        """The columns at these positions, which must rise."""
        found = [columns.select(position[here] - first) for first, columns, here in self._among(position)]
        return Columns.joined(found, self._margins.size)

    def _begin(self, margins: Float64) -> None:
        """Take the margins; no slope is known yet."""
        self.set_margins(margins)
        kernels.working_response(self._margins, self._signed, self._working)
        if self._slopes.size != self.size:
            self._slopes = np.empty(self.size)
            self._sizes = np.full(self.size, -1, np.int64)
        self._visited = np.zeros(len(self._source.counts), np.int64)

    def _unvisited(self, wanted: Int64) -> Iterator[tuple[int, Columns]]:
        """Compute the slopes of so many columns of each stretch; gives those columns whose slopes were not known."""
        before = self._visited
        self._visited = np.maximum(wanted, before)
        for k, columns in self._read(np.flatnonzero(wanted > before).tolist()):
            first = int(self._prefix.starts[k] + before[k])
            columns = part(columns, int(before[k]), int(wanted[k]))
            kernels.gradient(*columns.arrays, self._working, self._slopes[first : first + columns.count])
            if self._sizes[first + columns.count - 1] < 0:  # seen for the first time
                self._sizes[first : first + columns.count] = columns.sizes(np.arange(columns.count))
            yield first, columns

    def _listed(self, first: int, count: int, threshold: float, beta: Float64 | None = None) -> Int64:
        """Of some columns, those with slopes above the threshold or with coefficients."""
        slopes = self._slopes[first : first + count]
        beta = np.zeros(count) if beta is None else beta
        found: int = screening_kernels.active(slopes, beta, threshold, self._moved)
        return self._moved[:found].copy()

    def _lengths_of(self, position: Int64) -> Int64:
        """Of each stretch, how many columns there are up to the last of these positions, which must rise."""
        starts = self._prefix.starts
        last = np.searchsorted(position, starts[1:]) - 1
        here = (last >= 0) & (position[np.maximum(last, 0)] >= starts[:-1]) if position.size else last >= 0
        lengths: Int64 = np.zeros(starts.size - 1, np.int64)
        lengths[here] = position[last[here]] + 1 - starts[:-1][here]
        return lengths

    def _replace(self, beta: Coefficients) -> None:
        """Take these coefficients; the work is that of those which are not zero."""
        self._beta[self._support] = 0.0
        self._beta[beta.position] = beta.value
        self._support, self._last = beta.position, Coefficients.empty()

    # --- reading ------------------------------------------------------------------------------------------------

    @cached_property
    def _prefix(self) -> SafePrefix:
        self._check_count(sum(self._source.counts))
        return SafePrefix(self._bounds, self._source.counts)

    def _among(self, position: Int64) -> Iterator[tuple[int, Columns, slice]]:
        """The stretches that hold some of these positions: where each begins, and which of the positions it holds."""
        starts = self._prefix.starts
        cuts = np.searchsorted(position, starts)
        for k, columns in self._read(np.flatnonzero(np.diff(cuts)).tolist()):
            yield int(starts[k]), columns, slice(int(cuts[k]), int(cuts[k + 1]))

    def _read(self, chosen: Iterable[int]) -> Iterator[tuple[int, Columns]]:
        """These stretches, each with its number; `chosen` may depend on what was read before."""
        taken: list[int] = []

        def noted() -> Iterator[int]:
            for k in chosen:
                taken.append(k)
                yield k

        for columns in self._source.read(noted()):
            self._check_stretch(columns)
            yield taken[-1], columns

    def _columns(self) -> Iterator[tuple[int, Columns]]:
        """The source's columns, each stretch with the position of its first column."""
        first = 0
        for columns in self._source:
            self._check_stretch(columns, first)
            yield first, columns
            first += columns.count
        self._check_count(first)

    def _check_stretch(self, columns: Columns, first: int = 0) -> None:
        if columns.n != self._margins.size or first + columns.count > self.size:
            raise ValueError(
                f"the source gave {first + columns.count} columns or more over {columns.n} examples; "
                f"the block has {self.size} columns over {self._margins.size}"
            )

    def _check_count(self, found: int) -> None:
        if found != self.size:
            raise ValueError(f"the source gave {found} columns, the block has {self.size}")

    def _apply(self, step: Step | None) -> None:
        if step is None:
            return
        kernels.move(self._margins, step.alpha, step.dmargins)
        kernels.move_coefficients(self._beta, step.alpha, *self._last)
        self._last = Coefficients.empty()

    def _pairs(self) -> Float64:
        if self._paired.size == 0:
            self._paired = np.empty((self._margins.size, 2))
        return self._paired
