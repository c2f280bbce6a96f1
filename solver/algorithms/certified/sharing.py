"""Where the work of a search is done: by the driver, on its copies of the columns, or by the blocks.

Work that is shared costs messages. There are two ways:
    by feature  each block works on its own columns. Vectors over the examples go to every process that holds blocks,
                and come back from each. Cycles of coordinate descent are shared this way alone.
    by example  each block works on all columns, over its share of the examples (shard.py). Columns must be sent there
                once. Then a process is sent its part of a vector only, and numbers by column, or matrices, come back.
A small cost model chooses for each piece of work. By feature suits many columns over few examples, by example few over
many. On threads of one process there is nothing to share: the driver works on the blocks' own columns, with all cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.algorithms.certified.store import Rows, Store
from solver.algorithms.certified.tuning import SHARING
from solver.arrays import Coefficients, Float64, Int64
from solver.blocks import Blocks, Others
from solver.chosen import Chosen, PartMove
from solver.shard import Sliced, StoredRows, WeightedRows
from solver.threads import Threads

HERE, BY_FEATURE, BY_EXAMPLE = "here", "by feature", "by example"


@dataclass(frozen=True)
class Work:
    """A pass over columns, or a Gram matrix of them, in what it costs.

    seconds: on one core. vectors: over n examples that go to the blocks or come back. numbers: that go or come besides,
    for each process. columns, nbytes: of those that the blocks must be sent first to work by example.
    """

    seconds: float
    vectors: int
    n: int
    numbers: int
    columns: int
    nbytes: int


def expected_seconds(work: Work, threads: int, others: Others) -> dict[str, float]:
    """What a piece of work should take in each place that is open to it."""
    places = {HERE: work.seconds / threads}
    if others.threads == 0:
        return places
    number = SHARING.number * others.byte
    there = SHARING.call + work.seconds / others.threads
    places[BY_FEATURE] = there + number * work.vectors * work.n * others.copies
    if work.columns <= SHARING.most_by_example and work.nbytes <= others.room:
        sent = number * (work.vectors * work.n + work.numbers * others.processes)
        places[BY_EXAMPLE] = there + sent + others.byte * work.nbytes / SHARING.uses_to_come
    return places


class SharedStore(Store):
    """The driver's store, which has the blocks work on its columns where that is expected to take less time.

    features: those of the blocks. A coordinate past them, the intercept, is the driver's own, unless columns are held
    by example.
    """

    def __init__(self, n: int, p: int, budget: int, threads: Threads, blocks: Blocks, features: int) -> None:
        super().__init__(n, p, budget, threads)
        self._blocks, self._features = blocks, features
        self._by_example: Int64 = np.empty(0, np.int64)  # what blocks hold by example, in their order

    def keep(self, position: Int64) -> None:
        super().keep(position)
        if self._by_example.size:
            self._blocks.begin_rows()
            self._by_example = np.empty(0, np.int64)

    # --- passes -------------------------------------------------------------------------------------------------

    def sums(self, slots: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        place = self._place(slots, vectors=2)
        if place == HERE:
            super().sums(slots, r, w, g, h)
        elif place == BY_EXAMPLE:
            g[:], h[:] = self._blocks.rows_sums(self._sliced(r, w), self._numbers_of(slots))
        else:
            there, here = self._by_feature(slots)
            g[there], h[there] = self._blocks.chosen_sums(self._position[slots[there]], r, w)
            mine = np.empty((2, here.size))
            super().sums(slots[here], r, w, *mine)
            g[here], h[here] = mine

    def slopes(self, slots: Int64, r: Float64, g: Float64) -> None:
        place = self._place(slots, vectors=1)
        if place == HERE:
            super().slopes(slots, r, g)
        elif place == BY_EXAMPLE:
            g[:] = self._blocks.rows_slopes(self._sliced(r), self._numbers_of(slots))
        else:
            there, here = self._by_feature(slots)
            g[there] = self._blocks.chosen_slopes(self._position[slots[there]], r)
            mine = np.empty(here.size)
            super().slopes(slots[here], r, mine)
            g[here] = mine

    def product(self, slots: Int64, d: Float64) -> Float64:
        place = self._place(slots, vectors=1)
        if place == HERE:
            return super().product(slots, d)
        if place == BY_EXAMPLE:
            return self._blocks.rows_product(self._numbers_of(slots), d)
        there, here = self._by_feature(slots)
        total = self._blocks.chosen_product(Coefficients(self._position[slots[there]], d[there]))
        return total + super().product(slots[here], d[here]) if here.size else total

    def shared_parts(self, chosen: Chosen, order: Int64, w: Float64) -> BlockParts | None:
        """The parts of cycles over these coordinates, done by the blocks; None where the driver does them."""
        slots = self.slots(chosen.position)
        seconds = self._expected(self._pass(slots, 2, SHARING.cycle_entry))
        is_intercepts = chosen.position >= self._features
        if seconds.get(BY_FEATURE, np.inf) >= seconds[HERE] or is_intercepts.any():
            return None
        return BlockParts(self._blocks, order, chosen, w)

    def shared_gram(self, position: Int64, rows: Rows, first_row: int) -> Float64 | None:
        """XᵀWX, from a row on, by the blocks; None where the driver forms it."""
        entries = position.size * (position.size - first_row)
        seconds = SHARING.multiplication * float(entries) * rows.example.size
        slots = self.slots(position)
        at = self._expected(self._work(slots, seconds, 2, rows.example.size, entries))
        if at.get(BY_EXAMPLE, np.inf) >= at[HERE]:
            return None
        self._spread(slots)
        rows_here = WeightedRows(rows, self.n, self._features)
        return self._blocks.rows_gram(rows_here, self._numbers_of(slots), first_row)

    def describe(self, position: Int64) -> str:
        """Where passes over these columns are made, and what each place was expected to take."""
        slots = self.slots(position)
        work = self._pass(slots, 2, SHARING.entry)
        seconds = self._expected(work)
        places = ", ".join(f"{place} {1e3 * each:.3g} ms" for place, each in seconds.items())
        return (
            f"{slots.size} columns, {float(self.entries(slots).sum()):.3g} entries: passes are made "
            f"{min(seconds, key=lambda one: seconds[one])} (expected: {places})"
        )

    # --- where --------------------------------------------------------------------------------------------------

    def _place(self, slots: Int64, vectors: int) -> str:
        """Where a pass over these columns is made. Afterwards they are there."""
        if self._blocks.others.threads == 0:
            return HERE
        seconds = self._expected(self._pass(slots, vectors, SHARING.entry))
        place = min(seconds, key=lambda one: seconds[one])
        if place == BY_EXAMPLE:
            self._spread(slots)
        return place

    def _expected(self, work: Work) -> dict[str, float]:
        return expected_seconds(work, self.threads.count, self._blocks.others)

    def _pass(self, slots: Int64, vectors: int, entry: float) -> Work:
        """entry: seconds of one."""
        seconds = entry * float(self.entries(slots).sum())
        return self._work(slots, seconds, vectors, self.n, vectors * slots.size)

    def _work(self, slots: Int64, seconds: float, vectors: int, n: int, numbers: int) -> Work:
        missing = self._to_spread(slots)
        return Work(seconds, vectors, n, numbers, missing.size, int(self.sizes(missing).sum()))

    def _by_feature(self, slots: Int64) -> tuple[Int64, Int64]:
        """Which of these columns blocks have, in the order of the features; and those that they have not."""
        position = self._position[slots]
        rising = np.argsort(position, kind="stable")
        cut = int(np.searchsorted(position, self._features, sorter=rising))
        return rising[:cut], rising[cut:]

    def _to_spread(self, slots: Int64) -> Int64:
        """Those of these columns that the blocks do not hold by example; all, if there is no room for more of them."""
        missing = slots[~np.isin(self._position[slots], self._by_example)]
        held = self.slots(self._by_example)
        columns, nbytes = held.size + missing.size, int(self.sizes(held).sum() + self.sizes(missing).sum())
        fits = columns <= SHARING.most_by_example and nbytes <= self._blocks.others.room
        return missing if fits or not missing.size else slots

    def _spread(self, slots: Int64) -> None:
        """Have the blocks hold these columns by example, those that are missing, a piece at a time."""
        missing = self._to_spread(slots)
        if missing.size == 0:
            return
        if self._by_example.size == 0 or missing is slots:
            self._blocks.begin_rows()
            self._by_example = np.empty(0, np.int64)
        ends = np.cumsum(self.sizes(missing)) // SHARING.piece_bytes
        for piece in np.split(missing, np.flatnonzero(np.diff(ends)) + 1):
            self._blocks.add_rows(StoredRows(self, self._position[piece], self._features))
        self._by_example = np.concatenate((self._by_example, self._position[missing]))

    def _numbers_of(self, slots: Int64) -> Int64:
        """Where these columns are among those that the blocks hold by example."""
        rising = np.argsort(self._by_example, kind="stable")
        return rising[np.searchsorted(self._by_example, self._position[slots], sorter=rising)]

    def _sliced(self, *vectors: Float64) -> Sliced:
        return Sliced(vectors, self.n, self._features)


class BlockParts:
    """Parts of a cycle, one for each block, done where the columns are."""

    def __init__(self, blocks: Blocks, order: Int64, chosen: Chosen, w: Float64) -> None:
        self._blocks, self._order, self._position = blocks, order, chosen.position
        blocks.begin_cycles(chosen, w)

    def run(self, r: Float64, d: Float64, slack: float) -> list[PartMove]:
        move = self._blocks.run_cycle(Coefficients(self._position, d[self._order]), r, slack)
        assert move.d is not None, "blocks give their coordinates back"
        d[self._order] = move.d.value
        return [move]
