"""What lives on a worker during a fit: some feature blocks, resident, as one Dask actor.

One call per round (Algorithm 4): it brings α and the summed Δm of the last round, and takes back the worker's own Δm
and sparse Δβ. Margins, weights and the working residual never travel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pipeline.exchange import Exchanger, Packed, SumPlan
from solver import Block, Columns, Examples, ThreadBlocks
from solver.arrays import Float64, Int64, UInt8
from solver.columns import DENSE, compile_for
from solver.losses import find_loss
from solver.questions import join_answers, take_summed
from solver.stretches import InMemory
from solver.threads import one_ahead
from transforms import Dataset, Partition
from transforms.pages import Lists, Memory, PageReader

# Columns times examples of a stretch. Row groups of few long columns are joined up to this, and to four columns, as
# kernels take four rows of a matrix at a time. Dense ones then take 16 MB, or more with millions of examples.
STRETCH_ENTRIES = 1 << 22
STRETCH_ONES = 64  # columns of ones, however many examples: as bits they take what one vector over the examples does


def stretches(counts: Sequence[int], n: int, *, ones: bool) -> list[range]:
    """The row groups of a part, of so many columns each, that become one stretch. ones: is every value 1?"""
    most = max(STRETCH_ONES if ones else 4, STRETCH_ENTRIES // n // 4 * 4)
    found, first, columns = [], 0, 0
    for group, count in enumerate(counts):
        if columns and columns + count > most:
            found.append(range(first, group))
            first, columns = group, 0
        columns += count
    return [*found, range(first, len(counts))] if counts else []


class PartitionColumns:
    """The columns of some partitions, read from Parquet row group by row group, anew each time (section 3).

    A stretch is a row group, or some of them. Their sizes and bounds are known, so that those which do not matter stay
    unread. The next stretch is read while one is worked on.
    """

    def __init__(self, partitions: Sequence[Partition], n: int) -> None:
        groups = [partition.read_bounds() for partition in partitions]
        sizes = [[bounds.size for bounds in part] for part in groups]
        self.memory = Memory()
        self._parts = [
            _Streamed(partition, n, stretches(counts, n, ones=not partition.info.values), self.memory)
            for counts, partition in zip(sizes, partitions, strict=True)
        ]
        self._ends = np.cumsum([len(part.stretches) for part in self._parts]).tolist()
        self.counts = [
            sum(part[group] for group in stretch)
            for part, streamed in zip(sizes, self._parts, strict=True)
            for stretch in streamed.stretches
        ]
        self.bounds = np.concatenate([np.empty(0), *(bounds for part in groups for bounds in part)])

    def __iter__(self) -> Iterator[Columns]:
        return self.read(range(len(self.counts)))

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        return one_ahead(self._read, chosen)

    def _read(self, chosen: Iterator[int]) -> Generator[Columns, None, None]:
        for k, numbers in groupby(chosen, key=lambda number: bisect_right(self._ends, number)):
            first = self._ends[k - 1] if k else 0
            yield from self._parts[k].read(number - first for number in numbers)


class _Streamed:
    """One partition in stretches, and what is known of its row groups once they were read."""

    def __init__(self, partition: Partition, n: int, cut: list[range], memory: Memory) -> None:
        self.stretches = cut
        self._partition, self._n, self._memory = partition, n, memory
        self._again = PageReader(memory)
        self._kinds: dict[int, UInt8] = {}  # of the columns of each row group

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        """These stretches, each read when it is asked for."""
        taken: list[range] = []

        def groups() -> Iterator[int]:
            for k in chosen:
                taken.append(self.stretches[k])
                yield from taken[-1]

        parts: list[Columns] = []
        for lists in self._partition.read_groups(groups(), self._again):
            parts.append(self._columns(taken[-1][len(parts)], lists))
            del lists  # its memory is used again when nobody holds it
            if len(parts) == len(taken[-1]):
                yield self._joined(parts)
                parts = []

    def _joined(self, parts: list[Columns]) -> Columns:
        """One stretch. Fresh memory for a matrix would take longer than to fill it."""
        rows = [part.dense for part in parts if len(part.dense) == part.count]
        if len(rows) < max(2, len(parts)):
            return Columns.joined(parts, self._n)
        matrix = self._memory.empty(sum(one.size for one in rows), np.float32).reshape(-1, self._n)
        return Columns.from_rows(np.concatenate(rows, out=matrix))

    def _columns(self, group: int, lists: Lists) -> Columns:
        """The columns of a row group. Lists that were surveyed before, and full columns, are used as they are."""
        if lists.indices is None:
            assert lists.data is not None, "columns without positions have values"
            return Columns.from_rows(lists.data.reshape(-1, self._n))
        kind = self._kinds.get(group)
        if kind is None or (kind >= DENSE).any():
            columns = Columns.from_csc(lists.indptr, lists.indices, lists.data, self._n)
            self._kinds[group] = columns.kind
            return columns
        lo, hi = lists.indptr[:-1], lists.indptr[1:]
        data = np.empty(0, np.float32) if lists.data is None else lists.data
        return replace(Columns.empty(self._n), kind=kind, lo=lo, hi=hi, at=lo, indices=lists.indices, data=data)


class LoadedColumns(InMemory):
    """The columns of some partitions in memory, in the same stretches; each file is opened once."""

    def __init__(self, partitions: Sequence[Partition], n: int) -> None:
        found: list[Columns] = []
        bounds = [np.empty(0)]
        for partition in partitions:
            parts = []
            for csc in partition.stream():
                parts.append(Columns.from_csc(csc.indptr, csc.indices, csc.data, n))
                bounds.append(csc.bounds)
            joined = stretches([part.count for part in parts], n, ones=not partition.info.values)
            found += [Columns.joined(parts[one.start : one.stop], n) for one in joined]
        super().__init__(found)
        self.bounds = np.concatenate(bounds)


def compile_for_all(source: InMemory) -> None:
    """Compile what sweeps over these columns need, once for each of the kinds of columns that stand together."""
    by_kinds = {(one.indices.size > 0, len(one.dense) > 0, len(one.bits) > 0): one for one in source}
    for columns in by_kinds.values():
        compile_for(columns)


@dataclass(frozen=True)
class ExampleOptions:
    """How the examples of a data set count: by which loss, and with which weights of the classes −1 and +1."""

    loss: str = "logistic"
    class_weights: tuple[float, float] | None = None

    def examples(self, dataset: Dataset) -> Examples:
        """The examples of an opened data set: one copy of them for the driver and all blocks of a process."""
        with _LOADING:
            found = _HELD.get((dataset.session, self))
            if found is None:
                found = _HELD[dataset.session, self] = self._load(dataset)
            return found

    def _load(self, dataset: Dataset) -> Examples:
        labels, weights = dataset.labels()
        if self.class_weights is not None:  # by the classes, whatever numbers stand for them
            own = np.where(labels > 0, self.class_weights[1], self.class_weights[0])
            weights = own if weights is None else own * weights
        numbers = find_loss(self.loss).LABELS == "number"
        return Examples.of(dataset.as_written(labels) if numbers else labels, weights, self.loss)

    def bounds(self, dataset: Dataset, stored: Float64) -> Float64 | None:
        """Bounds of |∂L/∂βⱼ| with these weights, if the data set has any. A block uses them if its loss allows it."""
        if dataset.numeric:
            return None
        return stored if self.class_weights is None else max(self.class_weights) * stored


_HELD: WeakValueDictionary[tuple[str, ExampleOptions], Examples] = WeakValueDictionary()
_LOADING = Lock()


@dataclass
class Handed:
    """A question as it is handed to an actor: its name, what all blocks are given, and what is this worker's own.

    Dask keeps the arguments of a call until Python next looks for reference cycles. In this process vectors over
    examples would wait for that, so the question is emptied once it is answered.
    """

    name: str
    shared: Sequence[Any] | Packed
    own: Any
    sum: SumPlan | None = None  # the exchange that adds up the vectors in the answers

    def empty(self) -> None:
        self.shared, self.own = (), None


class ResidentBlocks(Exchanger):
    """The blocks that one worker holds. None at first: `hold` says which."""

    def __init__(self, dataset: Dataset, threads: int, how: ExampleOptions | None = None) -> None:
        super().__init__()
        self._dataset, self._threads, self._how = dataset, threads, how or ExampleOptions()
        self._residency = ""
        self._held: dict[tuple[int, ...], Block] = {}
        self._blocks: ThreadBlocks | None = None

    @cached_property
    def _examples(self) -> Examples:
        return self._how.examples(self._dataset)

    def hold(self, token: str, groups: Sequence[Sequence[int]], residency: str) -> int:
        """Hold these blocks, each some partitions, and no others; how many features they have.

        Those that are held already are not loaded again, and stay at their β: the caller puts all where they belong.
        """
        self._check(token)
        if self._blocks is not None:
            self._blocks.close()
        kept = self._held if residency == self._residency else {}
        wanted = [tuple(group) for group in groups]
        self._held = {group: kept[group] for group in wanted if group in kept}  # the others go before new ones come
        self._residency = residency
        del kept
        missing = [group for group in wanted if group not in self._held]
        with ThreadPoolExecutor(max(1, min(self._threads, len(missing)))) as pool:  # files are hashed side by side
            self._held |= dict(zip(missing, pool.map(self._load, missing), strict=True))
        self._held = {group: self._held[group] for group in wanted}  # in this order
        self._blocks = ThreadBlocks(list(self._held.values()), threads=min(self._threads, len(wanted)))
        return self._blocks.layout.size

    def _load(self, group: Sequence[int]) -> Block:
        # Both ways cut columns alike, so that they give the same result to the last bit.
        load = PartitionColumns if self._residency == "stream" else LoadedColumns
        members = [self._dataset.partitions[k] for k in group]
        columns = load(members, self._examples.n)
        if isinstance(columns, LoadedColumns):  # before the first λ, whose seconds are those of the work
            compile_for_all(columns)
        bounds = self._how.bounds(self._dataset, columns.bounds)
        return Block(columns, sum(part.info.features for part in members), self._examples, bounds)

    def ask(self, token: str, question: Handed) -> Any:
        """Pass a question on to the blocks (solver/blocks.py); their answers as one."""
        blocks = self._at_work(token)
        shared = self._unpack(question.shared)
        answers = list(blocks.ask(question.name, *shared, each=question.own))
        answer = join_answers(question.name, answers, blocks.layout)
        if question.sum is not None:
            answer, vector = take_summed(question.name, answer)
            self._hold_back(question.sum[0], vector, question.sum[1])
        return answer

    def features(self, token: str) -> Int64:
        """The ids of the features, in the order of their positions."""
        self._check(token)
        parts = [self._dataset.partitions[k] for group in self._held for k in group]
        return np.concatenate([np.empty(0, np.int64), *(part.read_features() for part in parts)])

    def take_times(self, token: str) -> list[tuple[float, float]]:
        """Of each block, the seconds that its questions took since the last time, and the CPU seconds of them."""
        return self._at_work(token).take_times()

    def _at_work(self, token: str) -> ThreadBlocks:
        self._check(token)
        assert self._blocks is not None, "it holds blocks"
        return self._blocks
