"""The solver's `Blocks` over Dask: one actor for each worker, pinned by the worker's name.

A worker that is gone is noticed within seconds, whatever it was doing: a call that takes long is waited for in short
turns, and between them the scheduler is asked whether the worker is still there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import psutil
from distributed import Client

from pipeline.resident import ExampleOptions, ResidentBlocks, Restarted
from solver import Blocks
from solver.arrays import Int64
from solver.layout import split_for
from transforms import Dataset, UserError
from transforms.errors import ClusterLost, WorkerLost
from transforms.liveness import (
    TURN_SECONDS,
    ask_scheduler,
    check_alive,
    chosen_workers,
    lost_worker,
    release,
    responsive_only,
)

REMEDY = "Results up to the last λ are kept: continue with --resume"
SAFE_SHARE = 0.6  # of a worker's memory limit that resident columns may fill: Dask pauses a worker at 0.8


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as the scheduler sees it."""

    name: Any  # pins: it stays the same when the worker is restarted
    address: str
    threads: int
    memory_limit: int
    memory_used: int
    host: str


def list_workers(client: Client) -> list[WorkerInfo]:
    """The cluster's workers that answer, by name."""

    def shape(dask_scheduler: Any) -> list[tuple[Any, ...]]:
        return [
            (ws.name, ws.address, ws.nthreads, ws.memory_limit or 0, ws.metrics.get("memory", 0), ws.host)
            for ws in dask_scheduler.workers.values()
        ]

    with responsive_only(client):
        chosen = chosen_workers()
    workers = [WorkerInfo(*row) for row in ask_scheduler(client, shape) if chosen is None or row[1] in chosen]
    if not workers:
        raise UserError(f"the scheduler at {client.scheduler.address} has no workers: start some with `dask worker`")
    return sorted(workers, key=lambda worker: (str(worker.name).zfill(8), worker.address))


def make_groups(partitions: int, blocks: int | None, workers: Sequence[WorkerInfo]) -> list[list[int]]:
    """Which partitions make up each block: neighbouring ones; by default a block for each thread of the cluster."""
    count = min(blocks or sum(worker.threads for worker in workers), partitions)
    return [list(range(partitions * k // count, partitions * (k + 1) // count)) for k in range(count)]


@dataclass(frozen=True)
class Placement:
    """What one worker will hold, and how."""

    worker: WorkerInfo
    groups: list[list[int]]
    residency: str


def place(
    dataset: Dataset, groups: Sequence[list[int]], workers: Sequence[WorkerInfo], residency: str
) -> list[Placement]:
    """Deal blocks out to workers in order, by their threads; choose memory or stream for each where it is left open."""
    total = sum(worker.threads for worker in workers)
    placements, first, threads = [], 0, 0
    for worker in workers:
        threads += worker.threads
        last = len(groups) * threads // total
        if last > first:
            mine = list(groups[first:last])
            sharing = sum(other.host == worker.host for other in workers)
            chosen = residency if residency != "auto" else choose_residency(dataset, mine, worker, sharing)
            placements.append(Placement(worker, mine, chosen))
        first = last
    return placements


def choose_residency(dataset: Dataset, groups: Sequence[list[int]], worker: WorkerInfo, sharing: int) -> str:
    """Memory if the columns fit beside what the worker uses already, or else stream."""
    partitions = dataset.partitions
    columns = sum(
        # A dense column takes 4 bytes an example, which is less than its positions and values take as a list.
        partitions[k].info.nnz * (8 if partitions[k].info.values else 4) + 24 * partitions[k].info.features
        for group in groups
        for k in group
    )
    vectors = dataset.n * 48 * len(groups)
    if worker.memory_limit:
        room = SAFE_SHARE * worker.memory_limit - worker.memory_used
    else:
        room = SAFE_SHARE * psutil.virtual_memory().available / sharing
    return "memory" if columns + vectors <= room else "stream"


class DaskBlocks(Blocks):
    """Blocks on a cluster's workers, one actor each. Use as a context manager: the actors end with it."""

    def __init__(
        self,
        client: Client,
        dataset: Dataset,
        placements: Sequence[Placement],
        how: ExampleOptions | None = None,
    ) -> None:
        self._client = client
        self._names = [placement.worker.name for placement in placements]
        self._futures = [
            client.submit(
                ResidentBlocks,
                dataset,
                placement.groups,
                placement.residency,
                placement.worker.threads,
                how,
                key=f"resident-blocks-{k}-{time.time_ns()}",
                workers=[placement.worker.name],
                allow_other_workers=False,
                actor=True,
                pure=False,
            )
            for k, placement in enumerate(placements)
        ]
        self._addresses = [placement.worker.address for placement in placements]
        self._actors: list[Any] = []
        with client.as_current():  # an actor talks through the client that is current when it arrives
            self._actors = [self._wait(k, future) for k, future in enumerate(self._futures)]
            answers = list(self._results([actor.identify() for actor in self._actors]))
        self._tokens = [token for token, _, _ in answers]
        self._addresses = [address for _, address, _ in answers]
        self._sizes = [size for _, _, size in answers]

    @property
    def sizes(self) -> Sequence[int]:
        return self._sizes

    def features(self) -> Int64:
        """The ids of all features, in the order of their positions."""
        pairs = zip(self._actors, self._tokens, strict=True)
        return np.concatenate(list(self._results([actor.features(token) for actor, token in pairs])))

    def ask(self, name: str, *shared: Any, each: Any = None) -> Iterator[Any]:
        own = repeat(None) if each is None else split_for(each, self.layout)
        trios = zip(self._actors, self._tokens, own, strict=False)
        return self._results([actor.ask(token, name, shared, mine) for actor, token, mine in trios])

    def close(self) -> None:
        """Let the actors go, and with them the memory they hold."""
        self._actors = []
        release(self._client, self._futures)
        self._futures = []

    def __enter__(self) -> DaskBlocks:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _results(self, calls: Sequence[Any]) -> Iterator[Any]:
        """The answers in the order of the workers."""
        for k, call in enumerate(calls):
            yield self._wait(k, call)

    def _wait(self, k: int, call: Any) -> Any:
        """The answer of a call, or WorkerLost when there can be none."""
        while True:
            try:
                return call.result(timeout=TURN_SECONDS)
            except TimeoutError:
                self._check_alive(k)
            except Restarted as error:
                raise self._lost(k) from error
            except (OSError, RuntimeError, KeyError) as error:
                # An OSError of the storage is the worker's own; a lost worker shows as its absence.
                self._check_alive(k)
                if not self._has_actor(k):
                    raise self._lost(k) from error
                raise

    def _has_actor(self, k: int) -> bool:
        """Does the worker, which is there, still know the actor? One that was restarted does not."""
        if not self._actors:  # it was being made
            return True
        try:
            self._actors[k].identify().result(timeout=TURN_SECONDS)
        except (OSError, RuntimeError, KeyError, TimeoutError):
            return False
        return True

    def _lost(self, k: int) -> WorkerLost:
        return WorkerLost(lost_worker(self._names[k], self._addresses[k]), REMEDY)

    def _check_alive(self, k: int) -> None:
        """Raise WorkerLost if the worker is gone or does not answer."""
        try:
            check_alive(self._client, {self._names[k]: self._addresses[k]})
        except ClusterLost as lost:
            raise type(lost)(lost.what, REMEDY) from None
