"""Which worker holds which blocks of a fit, and whether in memory or streamed from Parquet.

A block is some neighbouring partitions; it is the unit that moves. Workers take neighbouring blocks in the order of
their names, each as many as its threads and its speed allow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from distributed import Client, get_worker

from solver.columns import BITS_BETWEEN
from transforms import Dataset, UserError
from transforms.errors import NoWorkers
from transforms.liveness import ask_scheduler, ask_workers, go_on_without
from transforms.parts import PartInfo

SAFE_SHARE = 0.6  # of a worker's memory limit that a fit may fill by its own choice: Dask pauses a worker at 0.8
MOST_SHARE = 0.95  # and what it is refused beyond: Dask ends a worker there
PROCESS_BYTES = 256 << 20  # of a worker's process with its libraries and kernels
EXAMPLE_BYTES = 48  # of vectors over examples, for each block that runs cycles; sweeps alone take less
# Of the driver's vectors. Measured at 16 million examples in one process, those of two blocks included: 75 bytes an
# example, and 82 for a strict gap.
DRIVER_EXAMPLE_BYTES, DRIVER_FEATURE_BYTES = 90, 48
# For each block that is streamed: the stretch that is worked on, the one that is read meanwhile and the one before, a
# row group that is decoded. Where there are so many examples that four columns make a stretch, it is by the examples.
STREAM_BYTES, STREAM_EXAMPLE_BYTES = 64 << 20, 48
STREAM_FEATURE_BYTES = 9  # where its list ends, and its kind
ROW_BYTES = 16  # of a nonzero by example: position and value, twice while pieces are joined


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as the scheduler sees it."""

    name: Any  # it stays the same when the worker is restarted
    address: str
    threads: int
    memory_limit: int
    memory_used: int
    host: str
    id: str = ""  # of the process: another one when the worker is restarted


def list_workers(client: Client, *, told: bool = True) -> list[WorkerInfo]:
    """The cluster's workers that answer, by name. Those that do not are told, unless that was done."""

    def shape(dask_scheduler: Any) -> list[tuple[Any, ...]]:
        return [
            (w.name, w.address, w.nthreads, w.memory_limit or 0, w.metrics.get("memory", 0), w.host, w.server_id)
            for w in dask_scheduler.workers.values()
        ]

    answers, silent = ask_workers(client, os.getpid)
    go_on_without(answers, silent if told or not answers else [])
    workers = [WorkerInfo(*row) for row in ask_scheduler(client, shape) if row[1] in answers]
    if not workers:
        raise NoWorkers(f"the scheduler at {client.scheduler.address} has no workers: start some with `dask worker`")
    return sorted(workers, key=lambda worker: (str(worker.name).zfill(8), worker.address))


def make_groups(partitions: int, blocks: int | None, workers: Sequence[WorkerInfo]) -> list[list[int]]:
    """Which partitions make up each block: neighbouring ones; by default a block for each thread of the cluster."""
    count = min(blocks or sum(worker.threads for worker in workers), partitions)
    return [list(range(partitions * k // count, partitions * (k + 1) // count)) for k in range(count)]


@dataclass(frozen=True)
class Share:
    """The blocks that one worker is to hold."""

    worker: WorkerInfo
    groups: list[list[int]]


@dataclass(frozen=True)
class Placement(Share):
    """And how."""

    residency: str


class NoRoom(UserError):
    """The blocks do not fit into the memory of these workers."""


def share_out(
    groups: Sequence[list[int]],
    workers: Sequence[WorkerInfo],
    costs: Sequence[float] | None = None,
    speeds: Mapping[str, float] | None = None,
) -> list[Share]:
    """Deal the blocks out. costs: of each block, alike if not known. speeds: of a worker's thread, by its id."""
    if costs is None or speeds is None:
        ends = deal_evenly(len(groups), workers)
    else:
        ends = deal(np.asarray(costs), [worker.threads for worker in workers], [speeds[one.id] for one in workers])
    cuts = zip(workers, [0, *ends], ends, strict=False)
    return [Share(worker, list(groups[first:last])) for worker, first, last in cuts if last > first]


def place(
    dataset: Dataset, shares: Sequence[Share], residency: str, held: Mapping[str, int] | None = None
) -> list[Placement]:
    """Say for each worker whether it holds its blocks in memory or streams them, by its memory if that is left open.

    held: bytes that blocks take there already, by the worker's id; they count as free. NoRoom if there is not enough.
    """
    placements = []
    for one in shares:
        sharing = sum(other.worker.host == one.worker.host for other in shares)
        free = (held or {}).get(one.worker.id, 0)
        chosen = choose_residency(dataset, one.groups, one.worker, sharing, residency, free)
        placements.append(Placement(one.worker, one.groups, chosen))
    return placements


def deal_evenly(blocks: int, workers: Sequence[WorkerInfo]) -> list[int]:
    """Where each worker's share of the blocks ends: by its threads."""
    threads = np.cumsum([worker.threads for worker in workers])
    ends: list[int] = (blocks * threads // threads[-1]).tolist()
    return ends


def deal(costs: np.ndarray, threads: Sequence[int], speeds: Sequence[float]) -> list[int]:
    """Where each worker's share of the blocks ends, so that the slowest is done as soon as can be.

    Of the ways to do that, the one whose shares are the most even.
    """
    done = np.concatenate([[0.0], np.cumsum(costs)])
    load = done[None, :] - done[:, None]  # of the blocks from one cut to another
    count = np.arange(done.size)[None, :] - np.arange(done.size)[:, None]
    usable = [speed * np.clip(count, 1, most) for most, speed in zip(threads, speeds, strict=True)]
    seconds = [np.where(count >= 0, load / power, np.inf) for power in usable]
    fastest = np.full(done.size, np.inf)
    fastest[0] = 0.0
    for one in seconds:
        fastest = np.maximum(fastest[:, None], one).min(axis=0)
    limit = fastest[-1] * (1 + 1e-9)
    uneven = np.full(done.size, np.inf)
    uneven[0], cuts = 0.0, []
    for one in seconds:
        ways = uneven[:, None] + np.where(one <= limit, one**2, np.inf)
        cuts.append(ways.argmin(axis=0))
        uneven = ways.min(axis=0)
    ends = [len(costs)]
    for cut in reversed(cuts[1:]):
        ends.append(int(cut[ends[-1]]))
    return ends[::-1]


def makespan(shares: Sequence[Share], costs: Sequence[float], speeds: Mapping[str, float]) -> float:
    """How long the slowest worker takes. costs: of the blocks, in their order."""
    longest, first = 0.0, 0
    for one in shares:
        last = first + len(one.groups)
        power = speeds[one.worker.id] * min(one.worker.threads, len(one.groups))
        longest, first = max(longest, sum(costs[first:last]) / power), last
    return longest


@dataclass(frozen=True)
class Need:
    """The bytes that some blocks take on a worker."""

    columns: int  # in memory
    streamed: int  # of columns that are streamed
    vectors: int

    @classmethod
    def of(cls, dataset: Dataset, groups: Sequence[list[int]]) -> Need:
        infos = [dataset.partitions[k].info for group in groups for k in group]
        columns = sum(_column_bytes(info, dataset.n) + 24 * info.features for info in infos)
        features = sum(info.features for info in infos)
        streamed = max(STREAM_BYTES, STREAM_EXAMPLE_BYTES * dataset.n) * len(groups) + STREAM_FEATURE_BYTES * features
        vectors = EXAMPLE_BYTES * dataset.n * len(groups) + 8 * features
        return cls(columns, min(columns, streamed), vectors)

    def total(self, residency: str) -> int:
        return self.vectors + (self.columns if residency == "memory" else self.streamed)


def _column_bytes(info: PartInfo, n: int) -> int:
    """As a whole. A dense column takes no more than its positions and values; of ones, well filled ones are bits."""
    if info.values:
        return 8 * info.nnz
    return info.features * n // 8 if info.nnz >= BITS_BETWEEN[0] * info.features * n else 4 * info.nnz


def choose_residency(
    dataset: Dataset,
    groups: Sequence[list[int]],
    worker: WorkerInfo,
    sharing: int,
    residency: str = "auto",
    held: int = 0,
) -> str:
    """Memory if the columns fit beside what the worker uses already, or else stream. What cannot fit is refused.

    sharing: workers on the same host, where they have no limit of their own.
    """
    need = Need.of(dataset, groups)
    if worker.memory_limit:
        limit = worker.memory_limit
        left = max(limit - max(worker.memory_used - held, PROCESS_BYTES), 0)
    else:
        left = limit = psutil.virtual_memory().available // sharing + held
    if residency == "auto":
        residency = "memory" if need.total("memory") <= left - (1 - SAFE_SHARE) * limit else "stream"
    wanted = need.total(residency)
    if wanted > left - (1 - MOST_SHARE) * limit:
        raise NoRoom(_too_much(need, wanted, worker, left, len(groups), residency))
    return residency


def _too_much(need: Need, wanted: int, worker: WorkerInfo, left: float, blocks: int, residency: str) -> str:
    parts = f"{_bytes(need.vectors)} for vectors over examples, {blocks} block{'s' if blocks > 1 else ''}"
    if residency == "memory":
        parts = f"{_bytes(need.columns)} for columns, {parts}"
    remedy = "" if residency == "stream" else "use --residency stream, "
    fewer = "fewer --blocks, " if blocks > 1 else ""
    return (
        f"worker {worker.name} at {worker.address} would need {_bytes(wanted)} ({parts}) and has {_bytes(left)} left, "
        f"beside {_bytes(PROCESS_BYTES)} for the process: {remedy}{fewer}give workers more memory (--memory-limit), or "
        "start more"
    )


def check_rows(dataset: Dataset, workers: Sequence[WorkerInfo]) -> None:
    """Refuse data that do not fit into the workers' memory by example, when each takes a share by its threads."""
    threads = sum(worker.threads for worker in workers)
    for worker in workers:
        sharing = sum(other.host == worker.host for other in workers)
        wanted = ROW_BYTES * dataset.nnz * worker.threads // threads
        limit = worker.memory_limit or psutil.virtual_memory().available // sharing
        if wanted > MOST_SHARE * limit - PROCESS_BYTES * bool(worker.memory_limit):
            raise NoRoom(
                f"worker {worker.name} at {worker.address} would need {_bytes(wanted)} for its share of the "
                f"{dataset.nnz:,} nonzeros by example, and has {_bytes(limit)}: give workers more memory "
                "(--memory-limit), or start more"
            )


def check_driver(dataset: Dataset) -> None:
    """Refuse data whose vectors over examples and features do not fit into the memory of this process."""
    wanted = DRIVER_EXAMPLE_BYTES * dataset.n + DRIVER_FEATURE_BYTES * dataset.p
    try:
        manager = get_worker().memory_manager
        left = (manager.memory_limit or psutil.virtual_memory().total) - psutil.Process().memory_info().rss
    except ValueError:  # it is no worker's
        left = psutil.virtual_memory().available
    if wanted > left:
        raise NoRoom(
            f"{dataset.name}: the driver would need {_bytes(wanted)} for vectors over {dataset.n:,} examples and "
            f"{dataset.p:,} features, and has {_bytes(left)} left: run it where there is more memory "
            "(--driver local or cluster)"
        )


def _bytes(size: float) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 0.1 * 2**power:
            return f"{size / 2**power:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"
