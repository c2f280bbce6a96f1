"""Which worker gets which blocks, how, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from pipeline.placement import (
    Need,
    NoRoom,
    Share,
    WorkerInfo,
    check_driver,
    choose_residency,
    deal,
    deal_evenly,
    make_groups,
    makespan,
    place,
    share_out,
)
from transforms import Dataset, from_arrays


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    X = sp.random_array((500, 40), density=0.5, rng=np.random.default_rng(0), format="csc", dtype=np.float32)
    labels = np.where(np.arange(500) % 2, 1, -1)
    return from_arrays(X, labels, str(Path(tmp_path_factory.mktemp("data")) / "dataset"), partitions=8)


@pytest.fixture(autouse=True)
def small_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small as the data here."""
    monkeypatch.setattr("pipeline.placement.PROCESS_BYTES", 0)


def worker(name: int, threads: int = 1, limit: int = 0, used: int = 0) -> WorkerInfo:
    return WorkerInfo(name, f"tcp://w{name}", threads, limit, used, "host", f"id{name}")


@pytest.mark.parametrize(("blocks", "threads"), [(None, 4), (None, 3), (2, 3), (5, 1)])
def test_every_partition_is_placed_once(dataset: Dataset, blocks: int | None, threads: int) -> None:
    workers = [worker(k, threads=1 + k % 2) for k in range(threads)]
    groups = make_groups(8, blocks, workers)
    assert [k for group in groups for k in group] == list(range(8))
    speeds = {one.id: 1.0 + k for k, one in enumerate(workers)}
    for shares in (share_out(groups, workers), share_out(groups, workers, list(range(len(groups))), speeds)):
        placed = place(dataset, shares, "memory")
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

        def shares(ends: list[int], workers: list[WorkerInfo] = workers) -> list[Share]:
            cuts = zip(workers, [0, *ends], ends, strict=False)
            return [Share(one, [[k] for k in range(lo, hi)]) for one, lo, hi in cuts if hi > lo]

        found = makespan(shares(deal(costs, threads, list(speeds.values()))), costs.tolist(), speeds)
        every = [[a, b, 6] for a in range(7) for b in range(a, 7)]
        assert found == pytest.approx(min(makespan(shares(ends), costs.tolist(), speeds) for ends in every))


def test_even_shares_follow_the_threads() -> None:
    assert deal_evenly(6, [worker(0, 1), worker(1, 2)]) == [2, 6]


def test_auto_streams_what_does_not_fit(dataset: Dataset) -> None:
    roomy, tight = worker(0, limit=1 << 30), worker(1, limit=1 << 30, used=(1 << 30) * 6 // 10)
    assert choose_residency(dataset, [[0]], roomy, 1) == "memory"
    assert choose_residency(dataset, [[0]], tight, 1) == "stream"


def test_what_cannot_fit_is_refused_with_numbers_and_remedy(dataset: Dataset) -> None:
    need = Need.of(dataset, [[0, 1], [2, 3]])
    small = worker(0, limit=int(1.5 * need.columns))
    with pytest.raises(NoRoom, match=r"worker 0 .* would need .* KiB for columns, .*2 blocks.*--residency stream"):
        choose_residency(dataset, [[0, 1], [2, 3]], small, 1, "memory")
    tiny = worker(0, limit=need.vectors)
    with pytest.raises(NoRoom, match=r"vectors over examples, 2 blocks.* fewer --blocks, give workers more memory"):
        choose_residency(dataset, [[0, 1], [2, 3]], tiny, 1, "auto")


def test_blocks_that_are_there_take_no_room_twice(dataset: Dataset) -> None:
    """A worker's memory in use holds them already."""
    need = Need.of(dataset, [[0], [1]]).total("memory")
    full = worker(0, limit=4 * need, used=int(1.9 * need))
    shares = [Share(full, [[0], [1]])]
    assert [one.residency for one in place(dataset, shares, "auto")] == ["stream"]
    assert [one.residency for one in place(dataset, shares, "auto", {full.id: need})] == ["memory"]


def test_driver_without_room_is_refused(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    check_driver(dataset)
    monkeypatch.setattr("pipeline.placement.DRIVER_EXAMPLE_BYTES", 1 << 40)
    with pytest.raises(NoRoom, match=r"the driver would need .* GiB .* 500 examples and 40 features"):
        check_driver(dataset)


def test_worker_too_small_for_its_process_is_refused(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.placement.PROCESS_BYTES", 256 << 20)
    with pytest.raises(NoRoom, match=r"has 0.0 KiB left, beside 0.2 GiB for the process"):
        choose_residency(dataset, [[0]], worker(0, limit=200 << 20, used=90 << 20), 1)
