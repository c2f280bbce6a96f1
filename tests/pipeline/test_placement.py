"""Which worker gets which blocks, how, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from pipeline.placement import (
    Need,
    Placement,
    WorkerInfo,
    choose_residency,
    deal,
    deal_evenly,
    make_groups,
    makespan,
    place,
)
from transforms import Dataset, UserError, from_arrays


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    X = sp.random_array((500, 40), density=0.5, rng=np.random.default_rng(0), format="csc", dtype=np.float32)
    labels = np.where(np.arange(500) % 2, 1, -1)
    return from_arrays(X, labels, str(Path(tmp_path_factory.mktemp("data")) / "dataset"), partitions=8)


def worker(name: int, threads: int = 1, limit: int = 0, used: int = 0) -> WorkerInfo:
    return WorkerInfo(name, f"tcp://w{name}", threads, limit, used, "host", f"id{name}")


@pytest.mark.parametrize(("blocks", "threads"), [(None, 4), (None, 3), (2, 3), (5, 1)])
def test_every_partition_is_placed_once(dataset: Dataset, blocks: int | None, threads: int) -> None:
    workers = [worker(k, threads=1 + k % 2) for k in range(threads)]
    groups = make_groups(8, blocks, workers)
    assert [k for group in groups for k in group] == list(range(8))
    speeds = {one.id: 1.0 + k for k, one in enumerate(workers)}
    for placed in (
        place(dataset, groups, workers, "memory"),
        place(dataset, groups, workers, "memory", list(range(len(groups))), speeds),
    ):
        assert [group for one in placed for group in one.groups] == groups


@pytest.mark.parametrize(
    ("costs", "threads", "speeds", "expected"),
    [
        ([1, 1, 1, 1], [1, 1], [1, 1], [2, 4]),
        ([1, 1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 2, 4]),  # as even as can be, and nobody without work
        ([1, 1, 1, 1], [1, 3], [1, 1], [1, 4]),
        ([1, 1, 1], [1, 1, 1], [1, 0.1, 1], [1, 1, 3]),  # nothing for the slow one
        ([1, 1, 1], [1, 1, 1], [1, 0.6, 1], [1, 2, 3]),
        ([5, 1, 1, 1], [1, 1], [1, 1], [1, 4]),
        ([1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 2]),
    ],
)
def test_blocks_are_dealt_out_by_cost_and_speed(
    costs: list[float], threads: list[int], speeds: list[float], expected: list[int]
) -> None:
    assert deal(np.array(costs, float), threads, speeds) == expected


def test_no_other_deal_is_faster() -> None:
    """Against all of them."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        costs, threads = rng.random(6), rng.integers(1, 3, 3).tolist()
        workers = [worker(k, threads[k]) for k in range(3)]
        speeds = {one.id: rng.random() + 0.1 for one in workers}

        def slowest(ends: list[int], workers: list[WorkerInfo] = workers) -> list[Placement]:
            starts = [0, *ends]
            pairs = zip(workers, starts, ends, strict=False)
            return [Placement(one, [[k] for k in range(lo, hi)], "memory") for one, lo, hi in pairs if hi > lo]

        found = makespan(slowest(deal(costs, threads, list(speeds.values()))), _by_order(costs), speeds)
        every = [[a, b, 6] for a in range(7) for b in range(a, 7)]
        assert found == pytest.approx(min(makespan(slowest(ends), _by_order(costs), speeds) for ends in every))


def _by_order(costs: np.ndarray) -> list[float]:
    return list(costs)


def test_even_shares_follow_the_threads() -> None:
    assert deal_evenly(6, [worker(0, 1), worker(1, 2)]) == [2, 6]


def test_auto_streams_what_does_not_fit(dataset: Dataset) -> None:
    roomy, tight = worker(0, limit=1 << 30), worker(1, limit=1 << 30, used=(1 << 30) * 6 // 10)
    assert choose_residency(dataset, [[0]], roomy, 1) == "memory"
    assert choose_residency(dataset, [[0]], tight, 1) == "stream"


def test_what_cannot_fit_is_refused_with_numbers_and_remedy(dataset: Dataset) -> None:
    need = Need.of(dataset, [[0, 1], [2, 3]])
    small = worker(0, limit=int(1.5 * need.columns))
    with pytest.raises(UserError, match=r"worker 0 .* would need .* KiB for columns, .*2 blocks.*--residency stream"):
        choose_residency(dataset, [[0, 1], [2, 3]], small, 1, "memory")
    tiny = worker(0, limit=need.vectors)
    with pytest.raises(UserError, match=r"vectors over examples, 2 blocks.* fewer --blocks, give workers more memory"):
        choose_residency(dataset, [[0, 1], [2, 3]], tiny, 1, "auto")
