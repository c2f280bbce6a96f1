"""The blocks as the outer loop sees them: a small interface, and threads of this process behind it.

One call per round carries α and Δm of the last round and λ (Algorithm 4, lines 1-5). What comes back is summed
by the caller in the order of the blocks, whichever was ready first, so the result does not depend on timing.

A question is a method of Block, its name, and here its typed front. Whoever holds blocks (threads here, Dask actors in
pipeline/) has one way to pass any question on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import pairwise, repeat
from time import perf_counter, thread_time
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from solver.arrays import Coefficients, Float64, Int64
from solver.block import Block, BlockUpdate, Descent, Step, Sweep, join_parts
from solver.chosen import Coordinates, PartMove
from solver.columns import Columns
from solver.kernels import vectors
from solver.layout import Layout, split_for
from solver.penalty import Penalty, Violation
from solver.point import Point
from solver.problem import Examples
from solver.questions import summed, total
from solver.stretches import Part

if TYPE_CHECKING:
    from solver.algorithms.certified.shard import Sliced, StoredRows, WeightedRows


class Others(NamedTuple):
    """What other processes, which hold all columns in memory, have to work with.

    threads: of all of them. copies: how often a vector that is meant for each of them leaves this process.
    room: bytes that all of them have to spare. byte: seconds that it takes to send one to them.
    """

    threads: int = 0
    processes: int = 0
    copies: int = 0
    room: int = 0
    byte: float = 0.0


class Blocks(ABC):
    """M feature blocks. Every method asks all blocks at once and answers in the order of the blocks.

    A step is the one that ended the last round; a block makes it before anything else. Vectors over examples
    that come back may be the blocks' own buffers, good until the next call.
    """

    @property
    @abstractmethod
    def sizes(self) -> Sequence[int]:
        """Features in each block."""

    @abstractmethod
    def ask(self, name: str, *shared: Any, each: Any = None) -> Iterable[Any]:
        """Call a method of every block: with its own part of `each`, if given, and what all share behind it.

        Arrays that are given stay as they are until the next call that sets the same.
        """

    def follow(self, iterate: Callable[[], tuple[Coefficients, Float64]]) -> None:  # noqa: B027
        """Name who knows β and m as they are once the blocks have made the step that the next question brings.

        Who may lose blocks asks it, to put those that are made anew where the others are. Threads are not lost.
        """

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.sizes)

    def set_penalty(self, penalty: Penalty) -> None:
        """Give each block the penalty of its features."""
        self._do("set_penalty", each=penalty)

    def scales(self) -> Float64:
        """The standard deviation of every column."""
        return np.concatenate(list(self.ask("scales")))

    def start(self, beta: Coefficients) -> Float64:
        """Set the coefficients, forget any step, and give Xβ; the blocks' margins are still to be set."""
        total: Float64 | None = None
        for product in self.ask("start", each=beta):
            if total is None:
                total = np.zeros(product.size)
            if product.size:  # else it is in the first
                vectors.add(total, product)
        assert total is not None, "there is at least one block"
        return total

    def set_margins(self, margins: Float64) -> None:
        """Set every block's margins."""
        self._do("set_margins", Point(margins))

    def cycle(self, step: Step | None, lam: float, nu: float, intercept: bool = False) -> Iterable[BlockUpdate]:
        """Make the step, then one cycle of coordinate descent in each block, which an intercept may follow."""
        return self.ask("cycle", step, lam, nu, intercept)

    def violation(self, step: Step | None, lam: float) -> Violation:
        """Make the step, then say how far the slopes of all features are from dual feasibility at λ."""
        return Violation.joined(list(self.ask("violation", step, lam)))

    def sweep(self, margins: Float64, lam: float, share: float, limit: int) -> Sweep:
        """Set the margins; how far all slopes are from dual feasibility, and who is above a share of its threshold.

        At most `limit` features a block, those with the largest slopes. Features that cannot be above it whatever β is
        need not be looked at.
        """
        return self._joined_sweep("sweep", Point(margins), lam, share, limit)

    def list_again(self, lam: float, share: float, limit: int) -> Sweep:
        """The same at the margins of the last sweep."""
        return self._joined_sweep("list_again", lam, share, limit)

    def _joined_sweep(self, name: str, *shared: Any) -> Sweep:
        answers = list(self.ask(name, *shared))
        return Sweep.joined(answers, self.layout)

    def descend(self, margins: Float64, beta: Coefficients, lam: float, nu: float, cycles: int) -> Iterable[Descent]:
        """Set margins and coefficients; a sweep, and up to so many cycles over the active features of each block.

        A round of the certified mode beyond its budget. Paper mode's is `cycle`.
        """
        return self.ask("descend", Point(margins), lam, nu, cycles, each=beta)

    def columns(self, position: Int64) -> list[Part]:
        """The columns at these positions, which must rise, in parts; views of the blocks' own arrays where they can."""
        return join_parts(list(self.ask("columns", each=position)), self.layout)

    # --- columns that a search has chosen, where the blocks hold them --------------------------------------------

    def chosen_slopes(self, position: Int64, r: Float64) -> Float64:
        """Xᵀr of the columns at these positions, which must rise."""
        return np.concatenate(list(self.ask("chosen_slopes", r, each=position)))

    def chosen_sums(self, position: Int64, r: Float64, w: Float64) -> Float64:
        """Xᵀr of the columns at these positions, and below it Σ w x²."""
        return np.concatenate(list(self.ask("chosen_sums", r, w, each=position)), axis=1)

    def chosen_product(self, step: Coefficients) -> Float64:
        """Xd."""
        return summed(list(self.ask("chosen_product", each=step)), self.layout)

    def begin_cycles(self, chosen: Coordinates, w: Float64) -> None:
        """Give each block its coordinates of a quadratic whose examples have these weights."""
        self._do("begin_cycles", w, each=chosen)

    def run_cycle(self, d: Coefficients, r: Float64, slack: float) -> PartMove:
        """A cycle over these coordinates in each block, from d and the residual r, not seeing the others."""
        return PartMove.joined(list(self.ask("run_cycle", r, slack, each=d)), self.layout)

    def begin_rows(self) -> None:
        """Have each block hold no columns by example."""
        self._do("begin_rows")

    def add_rows(self, rows: StoredRows) -> None:
        """Have each block hold these columns too, over its share of the examples."""
        self._do("add_rows", each=rows)

    def rows_sums(self, vectors: Sliced, position: Int64) -> Float64:
        """Xᵀr of columns that are held by example, and below it Σ w x². Positions count in the order of `add_rows`."""
        return total(list(self.ask("rows_sums", position, each=vectors)))

    def rows_slopes(self, vectors: Sliced, position: Int64) -> Float64:
        """Xᵀr of such columns."""
        return total(list(self.ask("rows_slopes", position, each=vectors)))

    def rows_product(self, position: Int64, d: Float64) -> Float64:
        """Xd of such columns."""
        return np.concatenate(list(self.ask("rows_product", position, d)))

    def rows_gram(self, rows: WeightedRows, position: Int64, first_row: int) -> Float64:
        """XᵀWX of such columns, from a row on."""
        return total(list(self.ask("rows_gram", position, first_row, each=rows)))

    @property
    def shares_columns(self) -> bool:
        """Are all columns in the memory of this process, so that `columns` copies none?"""
        return False

    @property
    def others(self) -> Others:
        """What the blocks have to work with besides this process: nothing."""
        return Others()

    def _do(self, name: str, *shared: Any, each: Any = None) -> None:
        for _ in self.ask(name, *shared, each=each):
            pass


def _at_once(*arguments: Any) -> list[Any]:
    """map, done when it is asked for, as a pool begins at once."""
    return list(map(*arguments))


class ThreadBlocks(Blocks):
    """Blocks in this process, worked on by a pool of threads; the kernels hold no lock on the interpreter."""

    def __init__(self, blocks: Sequence[Block], threads: int | None = None) -> None:
        if not blocks:
            raise ValueError("at least one block is needed")
        self._blocks = blocks
        self._times = [(0.0, 0.0)] * len(blocks)
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
        # One set of arrays for all blocks: wherever they are cut, a search finds the same columns side by side.
        columns = Columns.from_csc(X.indptr, X.indices, X.data, examples.n)
        made = [Block([columns.part(lo, hi)], hi - lo, examples) for lo, hi in pairwise(cuts.tolist())]
        return cls(made, threads)

    @property
    def sizes(self) -> Sequence[int]:
        return [block.size for block in self._blocks]

    @property
    def shares_columns(self) -> bool:
        return all(block.in_memory for block in self._blocks)

    def ask(self, name: str, *shared: Any, each: Any = None) -> Iterable[Any]:
        common = [repeat(value) for value in shared]
        own = [] if each is None else [split_for(each, self.layout)]
        # A single block is asked by the caller's own thread: to wake another takes longer than a small answer.
        go_through: Callable[..., Iterable[Any]] = self._pool.map if len(self._blocks) > 1 else _at_once
        return go_through(partial(self._timed, getattr(Block, name)), range(len(self._blocks)), *own, *common)

    def _timed(self, method: Callable[..., Any], k: int, *arguments: Any) -> Any:
        wall, cpu = perf_counter(), thread_time()
        answer = method(self._blocks[k], *arguments)
        before = self._times[k]
        self._times[k] = (before[0] + perf_counter() - wall, before[1] + thread_time() - cpu)
        return answer

    def take_times(self) -> list[tuple[float, float]]:
        """Of each block, the seconds that its questions took since the last time, and the CPU seconds of them."""
        taken, self._times = self._times, [(0.0, 0.0)] * len(self._blocks)
        return taken

    def close(self) -> None:
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
