"""The worker that carries a run's driver is lost: the driver goes on at another, by itself, and the run ends as if
nothing had happened. Real schedulers and workers."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import PathOptions
from pipeline.commands.fit_work import driver_job
from pipeline.display import SilentDisplay
from pipeline.driver import follow, moving
from pipeline.driver.follow import Follower
from pipeline.driver.record import CANCELLED, CUT_OFF, RunFolder
from pipeline.driver.status import read_status, status_lines
from pipeline.driver.submission import submit_driver
from pipeline.driver.task import Job, Outcome
from pipeline.driver.terminal import cancel
from pipeline.events import Event
from pipeline.stages import PipelineOptions, run_pipeline
from solver import SolverOptions
from tests.pipeline.hand_made import HandMade, soon, two_workers
from tests.pipeline.runs import driver_of, make_rows, to_text
from transforms import liveness

pytestmark = pytest.mark.timeout(180)  # a hang is what these tests guard against
LONG = SolverOptions.paper(tol=1e-13, max_rounds=2000)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    """Two workers."""
    with two_workers(tmp_path) as made:
        yield made


class Told(SilentDisplay):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, event: Event) -> None:
        self.events.append(event)

    def of(self, name: str) -> list[Any]:
        return [event for event in self.events if event.name == name]


def start(cluster: HandMade, job: Job, run: Path) -> Follower:
    folder = RunFolder.of(str(run), None)
    record, future = submit_driver(cluster.client, job, folder, cluster.address)
    return Follower(cluster.client, folder, record, future)


def fit_of(dataset: str, run: Path, length: int, **how: Any) -> Job:
    arguments = {"dataset": dataset, "output": str(run), "storage_options": None, "path": PathOptions(length)}
    return driver_job(arguments | {"options": LONG, "resume": False, "overwrite": False} | how)


def worker_of(cluster: HandMade, run: Path) -> subprocess.Popen[bytes]:
    """The process that carries the run's driver."""
    return cluster.processes[str(driver_of(run).worker).split()[0]]


def end(worker: subprocess.Popen[bytes], how: int = signal.SIGKILL) -> None:
    worker.send_signal(how)
    worker.wait()


def models(run: Path) -> list[Any]:
    """What a run found, without how long it took."""
    path, weights = (pq.read_table(run / f"{name}.parquet") for name in ("path", "coefficients"))
    return [
        path["lambda"].to_numpy(),
        path["objective"].to_numpy(),
        weights["feature"].to_numpy(),
        weights["weight"].to_numpy(),
    ]


def assert_same(run: Path, other: Path) -> None:
    for mine, its in zip(models(run), models(other), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_driver_goes_on_at_another_worker(cluster: HandMade, dataset: str, tmp_path: Path, how: int) -> None:
    run, told = tmp_path / "run", Told()
    follower = start(cluster, fit_of(dataset, run, 7), run)
    soon((run / "path.parquet").exists)
    victim, before = worker_of(cluster, run), driver_of(run).worker
    end(victim, how)
    outcome = follower.follow(told, seconds=120)
    assert outcome == Outcome("finished")
    (again,) = told.of("again")
    assert re.fullmatch(
        rf"the driver was lost with its worker {before}: it goes on at \w at tcp.* \(start 2 of 4\)", again.text
    )
    assert told.of("begin")[-1].done >= 1, "it resumed what was stored"
    shown = [event.solution.lambda_index for event in told.of("solution")]
    assert shown == list(range(7))[-len(shown) :], "each λ once, to the last"
    assert pq.read_table(run / "path.parquet")["index"].to_pylist() == list(range(7))
    record = driver_of(run)
    assert (record.state, record.starts) == ("finished", 2)
    assert not (run / "claim.json").exists()
    assert not cluster.client.list_datasets()
    status = status_lines(read_status(RunFolder.of(str(run), None)))
    assert any("start 2 of 4: it was lost with its worker" in line for line in status)
    undisturbed = tmp_path / "undisturbed"
    assert start(cluster, fit_of(dataset, undisturbed, 7, blocks=2), undisturbed).follow(Told(), 90) == Outcome(
        "finished"
    )
    assert_same(run, undisturbed)


def test_driver_on_a_stopped_worker_is_moved_and_its_ghost_writes_nothing(
    cluster: HandMade, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SILENCE_SECONDS", 3.0)
    run, told = tmp_path / "run", Told()
    follower = start(cluster, fit_of(dataset, run, 12), run)
    soon((run / "path.parquet").exists)
    ghost = worker_of(cluster, run)
    ghost.send_signal(signal.SIGSTOP)
    try:
        soon(lambda: follower.follow(told, seconds=1.0) or driver_of(run).starts == 2)
        soon(lambda: follower.follow(told, seconds=1.0) or told.of("again"))
    finally:
        ghost.send_signal(signal.SIGCONT)  # the old driver wakes up while the new one is at work
    assert follower.follow(told, seconds=120) == Outcome("finished")
    record = driver_of(run)
    assert (record.state, record.starts) == ("finished", 2)
    assert pq.read_table(run / "path.parquet")["index"].to_pylist() == list(range(12))
    soon(lambda: not any(cluster.client.run(lambda dask_worker: list(dask_worker.state.actors)).values()))
    assert not (run / "claim.json").exists()


def test_driver_that_nobody_follows_is_moved_from_a_stopped_worker(
    cluster: HandMade, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SILENCE_SECONDS", 3.0)
    run = tmp_path / "run"
    start(cluster, fit_of(dataset, run, 12), run)
    soon((run / "path.parquet").exists)
    ghost = worker_of(cluster, run)
    ghost.send_signal(signal.SIGSTOP)
    try:
        soon(lambda: driver_of(run).starts == 2)
    finally:
        ghost.send_signal(signal.SIGCONT)
    soon(lambda: driver_of(run).state == "finished", 120)
    assert driver_of(run).starts == 2
    assert pq.read_table(run / "path.parquet")["index"].to_pylist() == list(range(12))
    assert not (run / "claim.json").exists()
    soon(lambda: not watched(cluster))


def test_driver_whose_scheduler_is_stopped_for_a_while_goes_on(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    cluster.client.run(lambda: setattr(liveness, "SCHEDULER_SECONDS", 1.0))
    run = tmp_path / "run"
    start(cluster, fit_of(dataset, run, 12), run)
    soon((run / "path.parquet").exists)
    cluster.processes["scheduler"].send_signal(signal.SIGSTOP)
    try:
        soon(lambda: driver_of(run).state == CUT_OFF)
    finally:
        cluster.processes["scheduler"].send_signal(signal.SIGCONT)
    soon(lambda: driver_of(run).state == "finished")
    assert driver_of(run).starts == 2
    assert pq.read_table(run / "path.parquet")["index"].to_pylist() == list(range(12))


def test_scheduler_that_takes_no_plugin_is_told_of_and_drivers_run_there(
    cluster: HandMade, dataset: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(dask_scheduler: Any) -> None:
        def refused(**_: Any) -> None:
            raise RuntimeError("no plugins here")

        dask_scheduler.handlers["register_scheduler_plugin"] = refused

    cluster.client.run_on_scheduler(refuse)
    run = tmp_path / "run"
    assert start(cluster, fit_of(dataset, run, 2), run).follow(Told(), seconds=90) == Outcome("finished")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "dglmnet"]
    assert line.startswith("warning: the scheduler takes no plugin (RuntimeError): while nobody follows the run")


def watched(cluster: HandMade) -> bool:
    """Is the watch on the scheduler?"""
    name = moving.WATCH
    return bool(cluster.client.run_on_scheduler(lambda dask_scheduler: name in dask_scheduler.plugins))


def test_pipeline_goes_on_at_another_worker(cluster: HandMade, tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_bytes(to_text(*make_rows()))
    run, told = tmp_path / "run", Told()
    fit = {"options": LONG, "path": PathOptions(5)}
    options = PipelineOptions((str(tmp_path / "train.svm"),), str(run), fit=fit)
    follower = start(cluster, Job("pipeline", run_pipeline, {"options": options, "storage_options": None}), run)
    soon((run / "path.parquet").exists)
    end(worker_of(cluster, run))
    assert follower.follow(told, seconds=120) == Outcome("finished")
    assert len(told.of("again")) == 1
    assert (run / "report.html").exists()
    assert "auprc" in pq.read_table(run / "path.parquet").column_names


def test_driver_without_another_worker_waits_for_one_and_can_be_cancelled(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HandMade(tmp_path)
    try:
        victim = cluster.worker("a")
        run = tmp_path / "run"
        follower = start(cluster, fit_of(dataset, run, 7), run)
        soon((run / "path.parquet").exists)
        end(victim)
        soon(lambda: not cluster.client.nthreads())
        assert follower.follow(Told(), seconds=3.0) is None
        assert "it goes on when there is one for it" in status_lines(read_status(RunFolder.of(str(run), None)))[0]
        cluster.worker("b")
        assert follower.follow(Told(), seconds=90) == Outcome("finished")
        monkeypatch.setattr(follow, "NOWHERE_SECONDS", 1.0)
        alone, other = tmp_path / "alone", tmp_path / "other"
        followers = [start(cluster, fit_of(dataset, one, 20), one) for one in (alone, other)]
        soon(lambda: all((one / "path.parquet").exists() for one in (alone, other)))
        end(cluster.processes["b"])
        soon(lambda: not cluster.client.nthreads())
        folder = RunFolder.of(str(other), None)
        assert cancel(cluster.client, folder, driver_of(other), followers[1]).state == CANCELLED
        outcome = followers[0].follow(Told(), seconds=60)
    finally:
        cluster.close()
    assert outcome is not None
    assert outcome.state == driver_of(alone).state == CUT_OFF
    assert re.search(r"lost with its worker \w at tcp.*--resume", str(outcome.message))
