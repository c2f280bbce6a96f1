"""Where each block's features are among all: positions count over the blocks, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from solver.arrays import Coefficients, Int64

WORD = 64  # examples: columns of bits are cut between their words


class Layout:
    """Blocks of these sizes, one after another."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.starts: Int64 = np.array([0, *accumulate(sizes)], np.int64)

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    def split(self, position: Int64) -> list[Int64]:
        """Rising positions, cut at the blocks' limits and counted within each block."""
        cuts = np.searchsorted(position, self.starts)
        if cuts[0] != 0 or cuts[-1] != position.size:
            raise ValueError(f"positions must lie in 0..{self.size - 1}")
        spans = zip(self.starts[:-1], cuts[:-1], cuts[1:], strict=True)
        return [position[lo:hi] - first for first, lo, hi in spans]

    def split_coefficients(self, beta: Coefficients) -> list[Coefficients]:
        """A sparse vector, cut at the blocks' limits, positions counted within each block."""
        positions = self.split(beta.position)
        cuts = np.cumsum([0, *(one.size for one in positions)])
        return [
            Coefficients(one, beta.value[lo:hi]) for one, lo, hi in zip(positions, cuts[:-1], cuts[1:], strict=True)
        ]

    def join(self, positions: Iterable[Int64]) -> Int64:
        """Positions counted within each block, as positions among all."""
        moved = [one + first for one, first in zip(positions, self.starts[:-1], strict=True)]
        return np.concatenate([np.empty(0, np.int64), *moved])

    def join_coefficients(self, parts: Sequence[Coefficients]) -> Coefficients:
        """The blocks' sparse vectors as one."""
        return Coefficients(self.join([one.position for one in parts]), np.concatenate([one.value for one in parts]))


def examples_for(n: int, first: int, last: int, size: int) -> tuple[int, int]:
    """Of n examples, those of a block that has the features first to last of `size`: as large a share of them."""
    if first == last:  # a block without features
        return 0, 0
    lo, hi = (n * one // size // WORD * WORD for one in (first, last))
    return lo, n if last == size else hi


def split_for(value: Any, layout: Layout) -> list[Any]:
    """What all blocks together were given, for each block: coefficients, positions, or what can be cut by features."""
    if isinstance(value, Coefficients):
        return layout.split_coefficients(value)
    if isinstance(value, np.ndarray):
        return layout.split(value)
    return [value.part(first, last) for first, last in pairwise(layout.starts.tolist())]
