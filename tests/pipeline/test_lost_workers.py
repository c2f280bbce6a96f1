"""Fits that lose workers: they go on by themselves, and end with the models of an undisturbed fit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client, Future, wait

from pipeline import L1LogisticRegressionPath, PathOptions, Watcher, fit_path, placement
from pipeline import blocks as pipeline_blocks
from pipeline.blocks import DaskBlocks
from pipeline.cluster import ClusterOptions, open_client
from pipeline.placement import NoRoom, Placement, WorkerInfo, list_workers
from solver import DefaultOptions, RoundRecord, Solution, SolverOptions
from solver.algorithms.certified import sharing
from solver.algorithms.certified.tuning import SHARING
from tests.pipeline.hand_made import HandMade
from transforms import Dataset, UserError, from_arrays, liveness
from transforms.errors import TooFewWorkers, WorkerLost

PAPER = SolverOptions.paper(tol=1e-10, max_rounds=200)
OPTIONS = {"paper": PAPER, "certified": DefaultOptions(), "beyond the budget": DefaultOptions(subspace_memory=0)}
LENGTH = 5
pytestmark = pytest.mark.timeout(180)  # a hang is what many of these guard against


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rng = np.random.default_rng(0)
    X = sp.random_array((600, 80), density=0.3, rng=rng, format="csc", dtype=np.float32)
    y = np.where(X @ rng.normal(size=80) + 0.5 * rng.normal(size=600) > 0, 1, -1)
    return from_arrays(X, y, str(tmp_path_factory.mktemp("data") / "dataset"), partitions=6)


Path_ = list[dict[str, Any]]


@pytest.fixture(scope="module")
def undisturbed(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path_]:
    """The paths of both modes, by workers that live."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with open_client(ClusterOptions(workers=3)) as client:
        return {name: fitted(dataset, folder / name, options, client) for name, options in OPTIONS.items()}


def fitted(
    dataset: Dataset, run: Path, options: Any, client: Client, watcher: Watcher | None = None, **how: Any
) -> Path_:
    path = PathOptions(length=LENGTH)
    fit_path(dataset, str(run), options=options, path=path, blocks=6, client=client, watcher=watcher, **how)
    found: Path_ = pq.read_table(run / "path.parquet").to_pylist()
    return found


def assert_same(found: Path_, expected: Path_, rtol: float = 1e-9) -> None:
    assert [row["index"] for row in found] == [row["index"] for row in expected]
    np.testing.assert_allclose([row["objective"] for row in found], [row["objective"] for row in expected], rtol=rtol)


class At(Watcher):
    """Does something after a round, and keeps what is told of placements."""

    def __init__(self, action: Callable[[], object], lambda_index: int = 2, round: int = 1) -> None:
        self._action, self._when = action, (lambda_index, round)
        self.placements: list[Sequence[Placement]] = []

    def round(self, record: RoundRecord) -> None:
        if (record.lambda_index, record.round) == self._when:
            self._action()

    def placed(self, placements: Sequence[Placement]) -> None:
        self.placements.append(placements)

    @property
    def names(self) -> list[list[Any]]:
        return [[one.worker.name for one in placements] for placements in self.placements]


def test_killed_workers_are_done_without(
    cluster: HandMade,
    dataset: Dataset,
    undisturbed: dict[str, Path_],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One, then two at once, so that one is left; in every mode."""
    workers = {name: cluster.worker(name) for name in "abcde"}

    def kill(names: str) -> None:
        for name in names:
            workers[name].kill()

    for mode, victims, left in (("paper", "a", "bcde"), ("beyond the budget", "b", "cde"), ("certified", "de", "c")):
        watcher = At(partial(kill, victims))
        found = fitted(dataset, tmp_path / mode, OPTIONS[mode], cluster.client, watcher)
        # Beyond the budget, directions are joined by worker: certified, but not the same.
        assert_same(found, undisturbed[mode], 1e-6 if mode == "beyond the budget" else 1e-9)
        assert set(watcher.names[-1]) <= set(left)
        told = [record.message for record in caplog.records if "was lost" in record.message]
        assert len(told) == len(victims)
        assert "The fit goes on without it" in told[0]
        caplog.clear()


def test_workers_whose_blocks_have_no_features_share_the_search(
    cluster: HandMade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    X = sp.random_array((700, 5), density=0.5, rng=rng, format="csc", dtype=np.float32)
    y = np.where(X @ rng.normal(size=5) + 0.5 * rng.normal(size=700) > 0, 1, -1)
    narrow = from_arrays(X, y, str(tmp_path / "data"), partitions=8)
    with open_client(ClusterOptions(workers=1)) as client:
        expected = fitted(narrow, tmp_path / "alone", DefaultOptions(), client)
    monkeypatch.setattr(sharing, "SHARING", replace(SHARING, call=0.0, entry=1.0, multiplication=1.0))
    for name in "abc":
        cluster.worker(name)
    assert_same(fitted(narrow, tmp_path / "shared", DefaultOptions(), cluster.client), expected, 1e-6)


@pytest.mark.parametrize("most_by_example", [0, 3000], ids=["by feature", "by example"])
def test_killed_workers_that_share_the_search_are_done_without(
    cluster: HandMade,
    dataset: Dataset,
    undisturbed: dict[str, Path_],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most_by_example: int,
) -> None:
    slow = replace(SHARING, call=0.0, entry=1.0, multiplication=1.0, most_by_example=most_by_example)
    monkeypatch.setattr(sharing, "SHARING", slow)  # whatever others can do is worth asking them for
    workers = {name: cluster.worker(name) for name in "abc"}
    asked: list[str] = []
    ask = DaskBlocks.ask

    def noted(self: DaskBlocks, name: str, *shared: Any, each: Any = None) -> list[Any]:
        asked.append(name)
        if asked.count(name) == 3 and name in ("chosen_product", "rows_product"):
            workers["b"].kill()
        return ask(self, name, *shared, each=each)

    monkeypatch.setattr(DaskBlocks, "ask", noted)
    watcher = At(lambda: None)
    found = fitted(dataset, tmp_path / "run", OPTIONS["certified"], cluster.client, watcher)
    assert_same(found, undisturbed["certified"], 1e-6)
    assert set(watcher.names[-1]) == {"a", "c"}
    assert ("rows_gram" in asked) == (most_by_example > 0)


@pytest.mark.parametrize(("residency", "mebibytes"), [("auto", 170), ("memory", 320)])
def test_what_no_longer_fits_on_those_that_remain_is_streamed(
    cluster: HandMade,
    dataset: Dataset,
    undisturbed: dict[str, Path_],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    residency: str,
    mebibytes: int,
) -> None:
    """Each of the six partitions counts as so large that a worker has room for three, and not for six."""
    monkeypatch.setattr(placement, "_column_bytes", lambda info, n: mebibytes << 20)
    workers = {name: cluster.worker(name, more=("--no-nanny", "--memory-limit", "2GiB")) for name in "ab"}
    watcher = At(workers["a"].kill)
    found = fitted(dataset, tmp_path / "run", PAPER, cluster.client, watcher, residency=residency)
    assert [one.residency for one in watcher.placements[0]] == ["memory", "memory"]
    assert [(one.worker.name, one.residency) for one in watcher.placements[-1]] == [("b", "stream")]
    assert_same(found, undisturbed["paper"])


def test_stopped_worker_is_done_without_and_taken_up_again(
    cluster: HandMade,
    dataset: Dataset,
    undisturbed: dict[str, Path_],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays registered. When it comes back, its part of a fit that went on without it is not used."""
    monkeypatch.setattr(liveness, "SILENCE_SECONDS", 4.0)
    monkeypatch.setattr(liveness, "ANSWER_SECONDS", 1.0)
    cluster.worker("a")
    ghost = cluster.worker("b")
    stopped = At(lambda: ghost.send_signal(signal.SIGSTOP))
    assert_same(fitted(dataset, tmp_path / "stopped", PAPER, cluster.client, stopped), undisturbed["paper"])
    assert stopped.names[0] == ["a", "b"]
    assert stopped.names[-1] == ["a"]
    ghost.send_signal(signal.SIGCONT)
    back = At(lambda: None)
    assert_same(fitted(dataset, tmp_path / "back", PAPER, cluster.client, back), undisturbed["paper"])
    assert back.names == [["a", "b"]]


def test_worker_that_stops_for_a_while_when_its_actor_is_made_is_waited_for(
    cluster: HandMade,
    dataset: Dataset,
    undisturbed: dict[str, Path_],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The actor is there, but not what is to be fetched of it: that takes longer than a turn of waiting."""
    monkeypatch.setattr(liveness, "TURN_SECONDS", 0.2)
    cluster.worker("a")
    ghost = cluster.worker("b")
    gather, check = DaskBlocks._gather, DaskBlocks._check
    checks: list[Any] = []

    def stop(self: DaskBlocks, calls: Sequence[Any], holders: Any) -> list[Any]:
        if not checks and isinstance(calls[0], Future):
            wait(calls, timeout=60)
            ghost.send_signal(signal.SIGSTOP)
        return gather(self, calls, holders)

    def check_and_wake(self: DaskBlocks, holders: Any) -> None:
        checks.append(holders)
        check(self, holders)
        ghost.send_signal(signal.SIGCONT)

    monkeypatch.setattr(DaskBlocks, "_gather", stop)
    monkeypatch.setattr(DaskBlocks, "_check", check_and_wake)
    watcher = At(lambda: None)
    assert_same(fitted(dataset, tmp_path / "run", PAPER, cluster.client, watcher), undisturbed["paper"])
    assert checks
    assert watcher.names == [["a", "b"]]
    assert "was lost" not in caplog.text


def test_worker_that_joins_gets_its_share_at_the_next_lambda(
    cluster: HandMade,
    dataset: Dataset,
    undisturbed: dict[str, Path_],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_blocks, "WORTHWHILE", 0.0)
    cluster.worker("a")
    for mode in ("certified", "paper"):
        watcher = At(partial(cluster.worker, mode), lambda_index=1)
        assert_same(fitted(dataset, tmp_path / mode, OPTIONS[mode], cluster.client, watcher), undisturbed[mode])
        assert mode in watcher.names[-1]
        assert mode not in watcher.names[0]


def test_last_worker_is_waited_for_until_its_nanny_has_restarted_it(
    cluster: HandMade, dataset: Dataset, undisturbed: dict[str, Path_], tmp_path: Path
) -> None:
    cluster.worker("a", more=["--nanny"])

    def kill() -> None:
        (pid,) = cluster.client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)

    watcher = At(kill)
    assert_same(fitted(dataset, tmp_path / "run", PAPER, cluster.client, watcher), undisturbed["paper"])
    assert watcher.names == [["a"], ["a"]]
    assert watcher.placements[0][0].worker.id != watcher.placements[1][0].worker.id


def test_fit_ends_when_no_worker_is_left_and_keeps_what_is_done(
    cluster: HandMade, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_blocks, "NOWHERE_SECONDS", 2.0)
    victim = cluster.worker("a")
    with pytest.raises(TooFewWorkers, match=r"the fit cannot go on: no worker is left.*--resume"):
        fitted(dataset, tmp_path / "run", PAPER, cluster.client, At(victim.kill))
    assert pq.read_table(tmp_path / "run" / "path.parquet")["index"].to_pylist() == [0, 1]


def test_fit_of_an_estimator_goes_on(
    cluster: HandMade, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.worker("a")
    victim = cluster.worker("b")
    expected = L1LogisticRegressionPath(path_length=LENGTH, client=cluster.client).fit(dataset)
    watched = partial(fit_path, watcher=At(victim.kill))
    monkeypatch.setattr("pipeline.estimators.fit_dask.fit_path", watched)
    found = L1LogisticRegressionPath(path_length=LENGTH, client=cluster.client).fit(dataset)
    assert victim.poll() is not None
    np.testing.assert_allclose(found.coefs_.toarray(), expected.coefs_.toarray(), rtol=1e-9)


DIES = """
import os, signal
from pipeline.resident import ResidentBlocks
ResidentBlocks.hold = lambda self, *arguments: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_worker_that_dies_of_every_block_is_left_out(
    cluster: HandMade, dataset: Dataset, undisturbed: dict[str, Path_], tmp_path: Path
) -> None:
    """As one does that is out of memory. Alone, it ends the fit by a line that says what to do, and not in a loop."""
    preload = tmp_path / "dies.py"
    preload.write_text(DIES)
    cluster.worker("a", more=["--nanny", "--preload", str(preload)])
    with pytest.raises(
        UserError, match=r"^a: lost 3 times each as soon as blocks were loaded there.*--residency stream"
    ):
        fitted(dataset, tmp_path / "alone", PAPER, cluster.client)
    cluster.worker("b")
    watcher = At(lambda: None)
    assert_same(fitted(dataset, tmp_path / "both", PAPER, cluster.client, watcher), undisturbed["paper"])
    assert watcher.names[-1] == ["b"]


def test_blocks_are_moved_away_from_a_slow_worker(
    dataset: Dataset, undisturbed: dict[str, Path_], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_blocks, "WORTHWHILE", 0.0)
    measure = DaskBlocks._measure

    def as_if_slow(self: DaskBlocks) -> tuple[list[float], dict[str, float], float]:
        costs, _, slowest = measure(self)
        return (
            [1.0] * len(costs),
            {one.worker.id: 9.0 if one.worker.name == 1 else 1.0 for one in self._holders},
            slowest,
        )

    monkeypatch.setattr(DaskBlocks, "_measure", as_if_slow)
    watcher = At(lambda: None)
    with open_client(ClusterOptions(workers=3)) as client:
        found = fitted(dataset, tmp_path / "run", PAPER, client, watcher)
    assert_same(found, undisturbed["paper"])
    assert watcher.names[0] == [0, 1, 2]
    assert 1 not in watcher.names[-1]
    assert len(watcher.names) == 2  # and not back and forth


def test_holder_that_is_lost_while_workers_are_compared_is_done_without(
    dataset: Dataset, undisturbed: dict[str, Path_], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_blocks, "WORTHWHILE", 0.0)

    def without_one(client: Client, **how: Any) -> list[WorkerInfo]:
        return [worker for worker in list_workers(client, **how) if worker.name != 1]

    def as_if_one_had_joined(self: DaskBlocks) -> None:
        self._known.popitem()
        rebalance(self)

    rebalance = DaskBlocks._rebalance
    monkeypatch.setattr(DaskBlocks, "_rebalance", as_if_one_had_joined)
    monkeypatch.setattr(pipeline_blocks, "list_workers", without_one)
    watcher = At(lambda: None)
    with open_client(ClusterOptions(workers=3)) as client:
        assert_same(fitted(dataset, tmp_path / "run", PAPER, client, watcher), undisturbed["paper"])
    assert watcher.names[0] == [0, 1, 2]
    assert 1 not in watcher.names[-1]


def test_blocks_stay_where_there_is_no_room_elsewhere(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that works is not ended by a wish to make it faster."""

    def no_room(*arguments: Any) -> list[Placement]:
        raise NoRoom("worker 0 is full")

    monkeypatch.setattr(pipeline_blocks, "WORTHWHILE", 0.0)
    monkeypatch.setattr(pipeline_blocks, "GAIN", 2.0)  # always worth it
    with (
        open_client(ClusterOptions(workers=2)) as client,
        DaskBlocks(client, dataset, [[0, 1, 2], [3, 4, 5]]) as blocks,
    ):
        expected = blocks.violation(None, 1.0)
        monkeypatch.setattr(pipeline_blocks, "place", no_room)
        with pytest.raises(NoRoom):
            blocks._rebalance()
        blocks.rebalance()
        assert blocks.violation(None, 1.0) == expected


def test_times_of_blocks_are_measured(dataset: Dataset) -> None:
    with (
        open_client(ClusterOptions(workers=2)) as client,
        DaskBlocks(client, dataset, [[0, 1, 2], [3, 4, 5]]) as blocks,
    ):
        blocks.violation(None, 1.0)
        costs, slowness, slowest = blocks._measure()
        assert slowest > 0
        assert len(costs) == 2
        assert min(costs) > 0
        assert set(slowness) == {worker.id for worker in list_workers(client)}
        assert min(slowness.values()) >= 1.0


def test_restarted_worker_is_not_taken_for_the_old_one(dataset: Dataset) -> None:
    """One of the same address has a new object, at β = 0; its answers must not be used."""
    with (
        open_client(ClusterOptions(workers=1)) as client,
        DaskBlocks(client, dataset, [[0, 1], [2, 3, 4, 5]]) as blocks,
    ):
        expected = blocks.violation(None, 1.0)
        blocks._holders[0].token = "another object's token"
        with pytest.raises(WorkerLost, match=r"worker 0 .* was lost"):
            blocks._call("features")
        assert blocks.violation(None, 1.0) == expected
        assert blocks._holders[0].token != "another object's token"


def test_kills_at_random_moments(
    cluster: HandMade, dataset: Dataset, undisturbed: dict[str, Path_], tmp_path: Path
) -> None:
    """Of workers whose nannies restart them, while blocks are loaded, asked, moved and restored."""
    rng = np.random.default_rng(1)
    for name in "ab":
        cluster.worker(name, more=["--nanny"])
    nannies = [cluster.processes[name].pid for name in "ab"]
    kills = 0

    class Killer(Watcher):
        def round(self, record: RoundRecord) -> None:
            nonlocal kills
            if rng.random() < 0.04:
                children = psutil.Process(rng.choice(nannies)).children()
                kills += sum(_kill(child) for child in children)

        def solution(self, solution: Solution) -> None:
            time.sleep(rng.random())

    assert_same(fitted(dataset, tmp_path / "run", PAPER, cluster.client, Killer()), undisturbed["paper"])
    assert kills >= 3


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True
