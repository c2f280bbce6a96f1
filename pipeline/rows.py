"""The solver's `Rows` over Dask: a task's result for each part of the examples, resident on the worker that made it.

The data set is transposed back by Map/Reduce (transforms/rows.py). A part that is lost with its worker is made again by
Dask, elsewhere, from the same Parquet files, and the question that was under way is asked of it again: questions leave
nothing behind (solver/rows.py), so a path with losses is the path without.
"""

from __future__ import annotations

import logging
import operator
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Client, Future

from pipeline.placement import WorkerInfo, check_rows
from pipeline.resident import ExampleOptions
from solver.arrays import Int64
from solver.problem import Examples
from solver.rows import RowPart, Rows, arguments
from transforms import Dataset
from transforms.rows import RowPiece, join_by_example, split_by_example
from transforms.tasks import Shared, Submitted, as_finished, attended, release

logger = logging.getLogger("dglmnet")


class DaskRows(Rows):
    """Parts of a data set's examples on a cluster's workers. Use as a context manager: they are let go with it.

    cuts: where each part begins, and the end.
    """

    def __init__(
        self, client: Client, dataset: Dataset, cuts: Sequence[int], how: ExampleOptions, workers: Sequence[WorkerInfo]
    ) -> None:
        check_rows(dataset, workers)
        self._client, self._dataset, self._cuts, self._how = client, dataset, list(cuts), how
        self._name = f"rows-{uuid.uuid4().hex[:12]}"
        self._parts: list[Future] = []
        self._asked = 0
        self._stack = ExitStack()
        self.width = dataset.p
        owned = how.examples(dataset).weights
        self.weights = [float(owned[lo:hi].sum()) for lo, hi in pairwise(cuts)]
        try:
            self._stack.enter_context(attended(client))
            self._load(workers)
        except BaseException:
            self.close()
            raise

    def _load(self, workers: Sequence[WorkerInfo]) -> None:
        """Map every partition, reduce every part. Parts are spread over the workers' threads, but may move."""
        submit, firsts = self._client.submit, np.cumsum([0, *(part.info.features for part in self._dataset.partitions)])
        mapped = [
            submit(split_by_example, part, int(first), self._cuts, key=f"split-{self._name}-{k}", pure=False)
            for k, (part, first) in enumerate(zip(self._dataset.partitions, firsts[:-1], strict=True))
        ]
        threads = [worker.address for worker in workers for _ in range(worker.threads)]
        for m, (lo, hi) in enumerate(pairwise(self._cuts)):
            pieces = [
                submit(operator.getitem, one, m, key=f"piece-{self._name}-{k}-{m}", pure=False)
                for k, one in enumerate(mapped)
            ]
            part = submit(
                hold_rows,
                pieces,
                self._dataset,
                self._how,
                lo,
                hi,
                key=f"part-{self._name}-{m}",
                workers=[threads[m * len(threads) // (len(self._cuts) - 1)]],
                allow_other_workers=True,
                pure=False,
            )
            self._parts.append(part)
        ready = [submit(_is_held, part, key=f"held-{self._name}-{m}", pure=False) for m, part in enumerate(self._parts)]
        for _ in as_finished(self._client, ready):
            pass

    def features(self) -> Int64:
        """The ids of all features, in the order of their positions."""
        return np.concatenate([part.read_features() for part in self._dataset.partitions])

    def ask(self, name: str, shared: Any = None, each: Sequence[Any] | None = None) -> list[Any]:
        self._asked += 1
        sent = None if shared is None else Shared(self._client, lambda: shared)
        given = [(part, name, *arguments(sent, each, k)) for k, part in enumerate(self._parts)]
        tasks = Submitted(self._client, _call, given, f"{name}-{self._name}-{self._asked}")
        try:
            for k in range(len(given)):
                tasks.submit(k)
            return [tasks.take(k) for k in range(len(given))]
        finally:
            tasks.close()

    def rebalance(self) -> None:
        """Dask gives tasks to workers that join; parts stay where they are while those are there."""

    def close(self) -> None:
        release(self._client, self._parts)
        self._parts = []
        self._stack.close()

    def __enter__(self) -> DaskRows:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def hold_rows(pieces: Sequence[RowPiece], dataset: Dataset, how: ExampleOptions, lo: int, hi: int) -> RowPart:
    """Reduce: the examples lo to hi with their labels and weights."""
    rows, examples = join_by_example(pieces), how.examples(dataset)
    own = Examples(examples.loss, np.ascontiguousarray(examples.encoded[lo:hi]))
    return RowPart(rows.indptr, rows.features, rows.values, own, dataset.p)


def _is_held(part: RowPart) -> bool:
    return True


def _call(part: RowPart, name: str, *given: Any) -> Any:
    return getattr(part, name)(*given)
