"""Where a block's columns come from, in stretches, and how much of each stretch can matter at a given λ.

A source gives the same stretches in the same order in each pass: columns in memory, or a reader that fetches them
anew. One that knows its stretches' sizes and can read single ones spares reading what is not wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from solver.arrays import Float64, Int64
from solver.columns import Columns
from solver.kernels import screening

SLACK = 1e-9  # relative: bounds are sums, rounded


class Part(NamedTuple):
    """Some columns of one stretch, and the position of the stretch's first column, which names it."""

    first: int
    columns: Columns


@runtime_checkable
class Stretches(Protocol):
    """Stretches of columns that can be read one by one."""

    @property
    def counts(self) -> Sequence[int]:
        """Columns in each stretch."""
        ...

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        """These stretches, which rise; each is read when it is asked for, and so is `chosen`."""
        ...

    def __iter__(self) -> Iterator[Columns]: ...


ColumnSource: TypeAlias = Iterable[Columns]
"""Gives the same Columns in the same order each time it is iterated over. `Stretches` spare reading.

To get the same bits from memory as from a stream, give the same stretches: dense columns, and those of bits, are taken
four at a time, counted from the beginning of a run of them within a stretch.
"""


class InMemory:
    """Stretches that are there."""

    def __init__(self, stretches: Sequence[Columns]) -> None:
        self._stretches = stretches
        self.counts = [columns.count for columns in stretches]

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        return (self._stretches[k] for k in chosen)

    def __iter__(self) -> Iterator[Columns]:
        return iter(self._stretches)


class InPasses:
    """A source that can only be read from beginning to end; its stretches are counted in a pass of its own."""

    def __init__(self, source: ColumnSource) -> None:
        self._source = source

    @cached_property
    def counts(self) -> Sequence[int]:
        return [columns.count for columns in self._source]

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        wanted = iter(chosen)
        following = next(wanted, None)
        for k, columns in enumerate(self._source):
            if following is None:
                return
            if k == following:
                yield columns
                following = next(wanted, None)

    def __iter__(self) -> Iterator[Columns]:
        return iter(self._source)


def in_stretches(source: ColumnSource) -> Stretches:
    """The source, with sizes and single reading, whatever it costs."""
    if isinstance(source, Stretches):
        return source
    return InMemory(source) if isinstance(source, Sequence) else InPasses(source)


class SafePrefix:
    """Which features can matter at λ. Those whose bound is at most λ are zero there, whatever else happens.

    bounds: for each feature, the λ from which on it is zero, as |∂L/∂βⱼ| is bounded. Of each stretch, the columns up to
    the last with bound > λ count. Any order of the features is right; only where bounds fall, as in a data set's
    partitions, much is spared. Without bounds, everything can matter.
    """

    def __init__(self, bounds: Float64 | None, counts: Sequence[int]) -> None:
        self.starts: Int64 = np.array([0, *accumulate(counts)], np.int64)
        if bounds is not None and bounds.shape != (self.starts[-1],):
            raise ValueError(f"{bounds.size} bounds given for {self.starts[-1]} columns")
        self._falling = None if bounds is None else bounds.astype(np.float64)
        if self._falling is not None:
            screening.largest_to_come(self._falling, self.starts)

    def lengths(self, level: float) -> Int64:
        """How many columns of each stretch, from its first, are wanted at this level."""
        if self._falling is None:
            return np.diff(self.starts)
        lengths: Int64 = np.empty(self.starts.size - 1, np.int64)
        screening.prefix_lengths(self._falling, self.starts, level - SLACK * abs(level), lengths)
        return lengths

    def length(self, k: int, level: float) -> int:
        """How many columns of stretch k, from its first, are wanted at this level."""
        lo, hi = self.starts[k : k + 2]
        if self._falling is None:
            return int(hi - lo)
        lengths = np.empty(1, np.int64)
        screening.prefix_lengths(self._falling, self.starts[k : k + 2], level - SLACK * abs(level), lengths)
        return int(lengths[0])
