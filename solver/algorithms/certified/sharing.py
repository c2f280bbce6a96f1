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
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solver.algorithms.certified.shard import Sliced, StoredRows, WeightedRows
from solver.algorithms.certified.store import Chosen, Rows, Store
from solver.algorithms.certified.tuning import SHARING
from solver.arrays import Coefficients, Float64, Int64
from solver.blocks import Blocks, Others
from solver.chosen import Coordinates, PartMove
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
        self.blocks, self.features = blocks, features
        self._by_example: Int64 = np.empty(0, np.int64)  # what blocks hold by example, in their order

    def keep(self, position: Int64) -> None:
        if self._by_example.size:  # before columns go: a block that is lost meanwhile is given those that it had
            self.blocks.begin_rows()
            self._by_example = np.empty(0, np.int64)
        super().keep(position)

    def chosen(self, slots: Int64) -> Chosen:
        return SharedChosen(self, slots) if slots.size and self.blocks.others.threads else Chosen(self, slots)

    def shared_parts(self, chosen: Coordinates, order: Int64, w: Float64) -> BlockParts | None:
        """The parts of cycles over these coordinates, done by the blocks; None where the driver does them."""
        slots = self.slots(chosen.position)
        if not self.blocks.others.threads or (chosen.position >= self.features).any():  # the intercept is the driver's
            return None
        seconds = SHARING.cycle_entry * float(self.entries(slots).sum())
        expected = self._expected(self._work(slots, seconds, 2, self.n, 0))
        return BlockParts(self.blocks, order, chosen, w) if expected[BY_FEATURE] < expected[HERE] else None

    def shared_gram(self, position: Int64, rows: Rows, first_row: int) -> Float64 | None:
        """XᵀWX, from a row on, by the blocks; None where the driver forms it."""
        entries = position.size * (position.size - first_row)
        seconds = SHARING.multiplication * float(entries) * rows.example.size
        slots = self.slots(position)
        at = self._expected(self._work(slots, seconds, 2, rows.example.size, entries))
        if at.get(BY_EXAMPLE, np.inf) >= at[HERE]:
            return None
        self._spread(slots)
        rows_here = WeightedRows(rows, self.n, self.features)
        return self.blocks.rows_gram(rows_here, self.numbers_of(slots), first_row)

    def describe(self, position: Int64) -> str:
        """Where passes over these columns are made, and what each place was expected to take."""
        slots = self.slots(position)
        seconds = self._expected(self._work(slots, self.pass_seconds(slots), 2, self.n, 2 * slots.size))
        places = ", ".join(f"{place} {1e3 * each:.3g} ms" for place, each in seconds.items())
        return (
            f"{slots.size} columns, {float(self.entries(slots).sum()):.3g} entries: passes are made "
            f"{min(seconds, key=lambda one: seconds[one])} (expected: {places})"
        )

    # --- where --------------------------------------------------------------------------------------------------

    def place(self, slots: Int64, seconds: float, vectors: int) -> str:
        """Where a pass over these columns is made. Those that are held by example then are there when this returns.

        seconds: that it takes on one core. vectors: over the examples that go to the blocks or come back.
        """
        expected = self._expected(self._work(slots, seconds, vectors, self.n, vectors * slots.size))
        place = min(expected, key=lambda one: expected[one])
        if place == BY_EXAMPLE:
            self._spread(slots)
        return place

    def pass_seconds(self, slots: Int64) -> float:
        """What a pass takes on one core."""
        return SHARING.entry * float(self.entries(slots).sum())

    def _expected(self, work: Work) -> dict[str, float]:
        return expected_seconds(work, self.threads.count, self.blocks.others)

    def _work(self, slots: Int64, seconds: float, vectors: int, n: int, numbers: int) -> Work:
        if slots.size > SHARING.most_by_example:
            return Work(seconds, vectors, n, numbers, slots.size, 0)
        missing = self._to_spread(slots)
        return Work(seconds, vectors, n, numbers, missing.size, int(self.sizes(missing).sum()))

    def _to_spread(self, slots: Int64) -> Int64:
        """Those of these columns that the blocks do not hold by example; all, if there is no room for more of them."""
        missing = slots[~np.isin(self.positions(slots), self._by_example)]
        held = self.slots(self._by_example)
        columns, nbytes = held.size + missing.size, int(self.sizes(held).sum() + self.sizes(missing).sum())
        fits = columns <= SHARING.most_by_example and nbytes <= self.blocks.others.room
        return missing if fits or not missing.size else slots

    def _spread(self, slots: Int64) -> None:
        """Have the blocks hold these columns by example, those that are missing, a piece at a time."""
        missing = self._to_spread(slots)
        if missing.size == 0:
            return
        if self._by_example.size == 0 or missing is slots:
            self.blocks.begin_rows()
            self._by_example = np.empty(0, np.int64)
        ends = np.cumsum(self.sizes(missing)) // SHARING.piece_bytes
        for piece in np.split(missing, np.flatnonzero(np.diff(ends)) + 1):
            self.blocks.add_rows(StoredRows(self, self.positions(piece), self.features))
        self._by_example = np.concatenate((self._by_example, self.positions(missing)))

    def numbers_of(self, slots: Int64) -> Int64:
        """Where these columns are among those that the blocks hold by example."""
        rising = np.argsort(self._by_example, kind="stable")
        return rising[np.searchsorted(self._by_example, self.positions(slots), sorter=rising)]


class SharedChosen(Chosen):
    """Columns of such a store. Each pass over them is made where that is expected to take the least time."""

    def __init__(self, store: SharedStore, slots: Int64) -> None:
        super().__init__(store, slots)
        self._shared, self._blocks = store, store.blocks
        self._seconds = store.pass_seconds(slots)

    def sums(self, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
        place = self._place(vectors=2)
        if place == HERE:
            super().sums(r, w, g, h)
        elif place == BY_EXAMPLE:
            g[:], h[:] = self._blocks.rows_sums(self._sliced(r, w), self._numbers)
        else:
            there, here, rest = self._by_feature
            mine = np.empty((2, here.size))
            rest.sums(r, w, *mine)
            g[here], h[here] = mine
            g[there.which], h[there.which] = self._blocks.chosen_sums(there.position, r, w)

    def slopes(self, r: Float64, g: Float64) -> None:
        place = self._place(vectors=1)
        if place == HERE:
            super().slopes(r, g)
        elif place == BY_EXAMPLE:
            g[:] = self._blocks.rows_slopes(self._sliced(r), self._numbers)
        else:
            there, here, rest = self._by_feature
            mine = np.empty(here.size)
            rest.slopes(r, mine)
            g[here] = mine
            g[there.which] = self._blocks.chosen_slopes(there.position, r)

    def product(self, d: Float64) -> Float64:
        place = self._place(vectors=1)
        if place == HERE:
            return super().product(d)
        if place == BY_EXAMPLE:
            return self._blocks.rows_product(self._numbers, d)
        there, here, rest = self._by_feature
        total = self._blocks.chosen_product(Coefficients(there.position, d[there.which]))
        return total + rest.product(d[here]) if here.size else total

    def _place(self, vectors: int) -> str:
        return self._shared.place(self._slots, self._seconds, vectors)

    @property
    def _numbers(self) -> Int64:
        return self._shared.numbers_of(self._slots)

    def _sliced(self, *vectors: Float64) -> Sliced:
        return Sliced(vectors, self._shared.n, self._shared.features)

    @cached_property
    def _by_feature(self) -> tuple[_There, Int64, Chosen]:
        """The columns that blocks have, by feature; which ones they have not, and these."""
        position = self._shared.positions(self._slots)
        rising = np.argsort(position, kind="stable")
        cut = int(np.searchsorted(position, self._shared.features, sorter=rising))
        there, here = rising[:cut], rising[cut:]
        return _There(there, position[there]), here, Chosen(self._shared, self._slots[here])


class _There(NamedTuple):
    """Columns that blocks have: which ones of those asked for, and the positions of their features, rising."""

    which: Int64
    position: Int64


class BlockParts:
    """Parts of a cycle, one for each block, done where the columns are."""

    def __init__(self, blocks: Blocks, order: Int64, chosen: Coordinates, w: Float64) -> None:
        self._blocks, self._order, self._position = blocks, order, chosen.position
        blocks.begin_cycles(chosen, w)

    def run(self, r: Float64, d: Float64, slack: float) -> list[PartMove]:
        move = self._blocks.run_cycle(Coefficients(self._position, d[self._order]), r, slack)
        assert move.d is not None, "blocks give their coordinates back"
        d[self._order] = move.d.value
        return [move]
