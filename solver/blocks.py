"""The blocks as the outer loop sees them: a small interface, and threads of this process behind it.

One call per round carries α and Δm of the last round and λ (Algorithm 4, lines 1-5). What comes back is summed
by the caller in the order of the blocks, whichever was ready first, so the result does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, repeat
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from scipy import sparse

from solver.arrays import Coefficients, Float64, Int64
from solver.block import Block, BlockUpdate, Descent, Step, Sweep
from solver.columns import Columns
from solver.examples import Examples


class Blocks(Protocol):
    """M feature blocks. Every method asks all blocks at once and answers in the order of the blocks.

    A step is the one that ended the last round; a block makes it before anything else. Vectors over examples
    that come back may be the blocks' own buffers, good until the next call.
    """

    @property
    def sizes(self) -> Sequence[int]:
        """Features in each block."""
        ...

    def start(self, beta: Sequence[Coefficients]) -> Iterable[Float64]:
        """Set each block's coefficients, forget any step, and give X_k β_k."""
        ...

    def set_margins(self, margins: Float64) -> None:
        """Set every block's copy of the margins."""
        ...

    def cycle(self, step: Step | None, lam: float, nu: float) -> Iterable[BlockUpdate]:
        """Make the step, then one cycle of coordinate descent in each block."""
        ...

    def max_gradient(self, step: Step | None) -> Iterable[float]:
        """Make the step, then give max |∂L/∂βⱼ| of each block."""
        ...

    def sweep(self, margins: Float64 | None, threshold: float, limit: int) -> Iterable[Sweep]:
        """Set the margins; from each block, its largest slope and its features with slopes above the threshold.

        At most `limit` features a block, those with the largest slopes. Without margins, the same at those of the last
        sweep. Features that cannot be above the threshold whatever β is need not be looked at.
        """
        ...

    def descend(
        self, margins: Float64, beta: Sequence[Coefficients], lam: float, nu: float, cycles: int
    ) -> Iterable[Descent]:
        """Set margins and coefficients; a sweep, and up to so many cycles over the active features of each block.

        A round of the certified mode beyond its budget. Paper mode's is `cycle`.
        """
        ...

    def columns(self, position: Sequence[Int64]) -> Iterable[Columns]:
        """From each block, the columns at these positions, counted within the block and rising."""
        ...


class ThreadBlocks:
    """Blocks in this process, worked on by a pool of threads; the kernels hold no lock on the interpreter."""

    def __init__(self, blocks: Sequence[Block], threads: int | None = None) -> None:
        if not blocks:
            raise ValueError("at least one block is needed")
        self._blocks = blocks
        self._pool = ThreadPoolExecutor(threads or len(blocks), thread_name_prefix="block")

    @classmethod
    def from_csc(
        cls,
        X: sparse.csc_matrix | sparse.csc_array,
        examples: Examples,
        blocks: int,
        threads: int | None = None,
    ) -> ThreadBlocks:
        """Cut X into contiguous blocks of about equal numbers of columns."""
        p = X.shape[1]
        if not 1 <= blocks <= p:
            raise ValueError(f"blocks must lie in 1..{p}, the number of features, got {blocks}")
        cuts = np.linspace(0, p, blocks + 1).astype(int)
        made = []
        for lo, hi in pairwise(cuts.tolist()):
            columns = Columns.from_csc(X.indptr[lo : hi + 1], X.indices, X.data, examples.n)
            made.append(Block([columns], hi - lo, examples))
        return cls(made, threads)

    @property
    def sizes(self) -> Sequence[int]:
        return [block.size for block in self._blocks]

    def start(self, beta: Sequence[Coefficients]) -> Iterable[Float64]:
        return self._pool.map(Block.start, self._blocks, beta)

    def set_margins(self, margins: Float64) -> None:
        for _ in self._pool.map(Block.set_margins, self._blocks, repeat(margins)):
            pass

    def cycle(self, step: Step | None, lam: float, nu: float) -> Iterable[BlockUpdate]:
        return self._pool.map(Block.cycle, self._blocks, repeat(step), repeat(lam), repeat(nu))

    def max_gradient(self, step: Step | None) -> Iterable[float]:
        return self._pool.map(Block.max_gradient, self._blocks, repeat(step))

    def sweep(self, margins: Float64 | None, threshold: float, limit: int) -> Iterable[Sweep]:
        return self._pool.map(Block.sweep, self._blocks, repeat(margins), repeat(threshold), repeat(limit))

    def descend(
        self, margins: Float64, beta: Sequence[Coefficients], lam: float, nu: float, cycles: int
    ) -> Iterable[Descent]:
        constant = repeat(lam), repeat(nu), repeat(cycles)
        return self._pool.map(Block.descend, self._blocks, repeat(margins), beta, *constant)

    def columns(self, position: Sequence[Int64]) -> Iterable[Columns]:
        return self._pool.map(Block.columns, self._blocks, position)

    def close(self) -> None:
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
