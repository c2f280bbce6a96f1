"""What lives on a worker during a fit: some feature blocks, resident, as one Dask actor.

One call per round (Algorithm 4): it brings α and the summed Δm of the last round, and takes back the worker's own Δm
and sparse Δβ. Margins, weights and the working residual never travel.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from distributed import get_worker

from solver import Block, BlockUpdate, Coefficients, Columns, Descent, Examples, Step, Sweep, ThreadBlocks
from solver.arrays import Float64, Int64
from transforms import Dataset, Partition


class PartitionColumns:
    """The columns of some partitions, read from Parquet row group by row group, anew each time (section 3).

    A stretch is a row group. Their sizes and bounds are known, so that those which do not matter stay unread.
    """

    def __init__(self, partitions: Sequence[Partition], n: int) -> None:
        self._partitions, self._n = partitions, n
        groups = [partition.read_bounds() for partition in partitions]
        self._ends = np.cumsum([len(bounds) for bounds in groups]).tolist()
        self.counts = [bounds.size for part in groups for bounds in part]
        self.bounds = np.concatenate([np.empty(0), *(bounds for part in groups for bounds in part)])

    def __iter__(self) -> Iterator[Columns]:
        return self.read(range(len(self.counts)))

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        numbers = _Peekable(chosen)
        first = 0
        for partition, end in zip(self._partitions, self._ends, strict=True):
            if numbers.next_is_below(end):
                for csc in partition.read_groups(k - first for k in numbers.below(end)):
                    yield Columns.from_csc(csc.indptr, csc.indices, csc.data, self._n)
            first = end


class LoadedColumns:
    """The same columns in memory, in the same stretches; each file is opened once."""

    def __init__(self, partitions: Sequence[Partition], n: int) -> None:
        self._stretches: list[Columns] = []
        bounds = [np.empty(0)]
        for partition in partitions:
            for csc in partition.stream():
                self._stretches.append(Columns.from_csc(csc.indptr, csc.indices, csc.data, n))
                bounds.append(csc.bounds)
        self.counts = [columns.count for columns in self._stretches]
        self.bounds = np.concatenate(bounds)

    def __iter__(self) -> Iterator[Columns]:
        return iter(self._stretches)

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        return (self._stretches[k] for k in chosen)


class _Peekable:
    """Rising numbers, taken one by one, only when they are needed: which come next may depend on what was read."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)
        self._next = next(self._numbers, None)

    def next_is_below(self, end: int) -> bool:
        return self._next is not None and self._next < end

    def below(self, end: int) -> Iterator[int]:
        while self._next is not None and self._next < end:
            yield self._next
            self._next = next(self._numbers, None)


class ResidentBlocks:
    """The blocks that one worker holds. `groups` says which partitions make up each block."""

    def __init__(self, dataset: Dataset, groups: Sequence[Sequence[int]], residency: str, threads: int) -> None:
        self._token = uuid.uuid4().hex
        partitions = dataset.partitions
        self._partitions = [partitions[k] for group in groups for k in group]
        examples = Examples.of(*dataset.labels())
        # Both ways cut columns alike, so that they give the same result to the last bit.
        load = PartitionColumns if residency == "stream" else LoadedColumns

        def block(group: Sequence[int]) -> Block:
            members = [partitions[k] for k in group]
            columns = load(members, examples.n)
            return Block(columns, sum(part.info.features for part in members), examples, columns.bounds)

        with ThreadPoolExecutor(max(1, min(threads, len(groups)))) as pool:  # files are hashed and decoded side by side
            blocks = list(pool.map(block, groups))
        self._blocks = ThreadBlocks(blocks, threads=min(threads, len(blocks)))
        self._cuts = np.cumsum([0, *self._blocks.sizes])
        self._sum = np.zeros(examples.n)

    def identify(self) -> tuple[str, str, int]:
        """A token of this very object, its worker's address, and its number of features.

        Calls carry the token: a worker that was restarted makes a new object, at β = 0, which must not go unnoticed.
        """
        return self._token, get_worker().address, int(self._cuts[-1])

    def features(self, token: str) -> Int64:
        """The ids of the features, in the order of their positions."""
        self._check(token)
        return np.concatenate([np.empty(0, np.int64), *(part.read_features() for part in self._partitions)])

    def start(self, token: str, beta: Coefficients) -> Float64:
        """Set β and return the worker's part of Xβ."""
        self._check(token)
        return self._summed(self._blocks.start(self._split(beta)))

    def set_margins(self, token: str, margins: Float64) -> None:
        self._check(token)
        self._blocks.set_margins(margins)

    def cycle(self, token: str, alpha: float, dmargins: Float64 | None, lam: float, nu: float) -> BlockUpdate:
        """Make the last step, then a cycle of coordinate descent in each block; Δβ and Δm summed over them."""
        self._check(token)
        updates = list(self._blocks.cycle(_step(alpha, dmargins), lam, nu))
        position = np.concatenate([one.dbeta.position + k for one, k in zip(updates, self._cuts[:-1], strict=True)])
        value = np.concatenate([one.dbeta.value for one in updates])
        total = self._summed(one.dmargins for one in updates)
        return BlockUpdate(Coefficients(position, value), total, sum(one.curvature for one in updates))

    def max_gradient(self, token: str, alpha: float, dmargins: Float64 | None) -> float:
        self._check(token)
        return max(self._blocks.max_gradient(_step(alpha, dmargins)))

    def sweep(self, token: str, margins: Float64 | None, threshold: float, limit: int) -> Sweep:
        """Slopes at these margins, or those of the last sweep, and who is above; positions count over the blocks."""
        self._check(token)
        return Sweep.joined(list(self._blocks.sweep(margins, threshold, limit)), self._cuts)

    def descend(self, token: str, margins: Float64, beta: Coefficients, lam: float, nu: float, cycles: int) -> Descent:
        """A sweep, and cycles over the active features of each block; Δβ and Δm summed over them."""
        self._check(token)
        found = list(self._blocks.descend(margins, self._split(beta), lam, nu, cycles))
        position = np.concatenate([one.dbeta.position + k for one, k in zip(found, self._cuts[:-1], strict=True)])
        dbeta = Coefficients(position, np.concatenate([one.dbeta.value for one in found]))
        sweep = Sweep.joined([one.sweep for one in found], self._cuts)
        return Descent(sweep, dbeta, self._summed(one.dmargins for one in found))

    def columns(self, token: str, position: Int64) -> Columns:
        """The columns at these positions, which must rise."""
        self._check(token)
        cuts = np.searchsorted(position, self._cuts)
        spans = zip(self._cuts[:-1], cuts[:-1], cuts[1:], strict=True)
        parts = self._blocks.columns([position[lo:hi] - first for first, lo, hi in spans])
        return Columns.joined(list(parts), self._sum.size)

    def _split(self, beta: Coefficients) -> list[Coefficients]:
        """β cut at the blocks' limits, positions counted within each."""
        cuts = np.searchsorted(beta.position, self._cuts)
        spans = zip(self._cuts[:-1], cuts[:-1], cuts[1:], strict=True)
        return [Coefficients(beta.position[lo:hi] - first, beta.value[lo:hi]) for first, lo, hi in spans]

    def _summed(self, vectors: Iterable[Float64]) -> Float64:
        self._sum[:] = 0.0
        for vector in vectors:
            self._sum += vector
        return self._sum

    def _check(self, token: str) -> None:
        if token != self._token:
            raise RuntimeError("the worker was restarted and lost its part of the model")


def _step(alpha: float, dmargins: Float64 | None) -> Step | None:
    return None if dmargins is None else Step(alpha, dmargins)
