"""A worker, or the scheduler, that is stopped but registered: nobody waits for it for ever, and it is named."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline.cluster import ClusterOptions, open_client
from pipeline.commands.fit_work import fit_job
from pipeline.driver.follow import Follower
from pipeline.driver.record import CANCELLED, RunFolder
from pipeline.driver.status import read_status
from pipeline.driver.submission import submit_driver
from pipeline.driver.task import Job
from pipeline.driver.terminal import DriverFailed, cancel
from pipeline.fit_options import PathOptions
from pipeline.placement import list_workers
from solver import SolverOptions
from tests.pipeline.hand_made import HandMade, soon
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import UserError, convert_libsvm, liveness
from transforms.convert import as_they_finish, cluster_resources
from transforms.errors import ClusterLost, WorkerLost
from transforms.liveness import ask_workers
from transforms.tasks import as_finished, attended, share

pytestmark = pytest.mark.timeout(240)  # a hang is what these tests guard against
NAMED = r"worker b at tcp://127\.0\.0\.1:\d+ does not answer \(last heard of \d+ s ago\)\. .*Restart it or end it"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process. The commands that tests start have their own, long patience."""
    for name, seconds in {"TURN_SECONDS": 0.2, "SILENCE_SECONDS": 2.0, "ANSWER_SECONDS": 4.0}.items():
        monkeypatch.setattr(liveness, name, seconds)


@pytest.fixture(autouse=True)
def both_there(cluster: HandMade) -> None:
    """A worker that was given up for lost ends when it comes back."""
    if len(cluster.client.nthreads()) < 2:
        _restart_worker(cluster)


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def worker_of(cluster: HandMade, name: str) -> str:
    return next(one.address for one in list_workers(cluster.client) if one.name == name)


def command(*words: str, program: str = "submit") -> list[str]:
    return [sys.executable, "-c", f"from pipeline.commands.{program} import main; main()", *words]


def done(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=200)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """A task that ends with the test."""
    path = str(tmp_path / "go on")
    Path(path).touch()

    def wait() -> None:
        import os
        import time

        while os.path.exists(path):  # noqa: PTH110 - it travels by value, with what it imports itself
            time.sleep(0.05)

    yield wait
    Path(path).unlink()


def test_predict_goes_on_without_a_stopped_worker(cluster: HandMade, tmp_path: Path) -> None:
    run = fit_text(cluster.client, tmp_path, to_text(*make_rows()))
    with stopped(cluster.processes["b"]):
        out = tmp_path / "p.parquet"
        ended = done("predict", run, str(tmp_path / "train.svm"), "--output", str(out), "--scheduler", cluster.address)
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall(NAMED + r"\. The work goes on without it", ended.stderr)) == 1
    assert pq.read_table(out).num_rows == 200


def test_driver_and_blocks_go_to_workers_that_answer(cluster: HandMade, tmp_path: Path) -> None:
    run = Path(fit_text(cluster.client, tmp_path, to_text(*make_rows())))
    words = ("fit", str(tmp_path / "train"), "--output", str(tmp_path / "again"), "--path-length", "4")
    with stopped(cluster.processes["b"]):
        ended = done(*words, "--scheduler", cluster.address)
    assert ended.returncode == 0, ended.stderr
    assert re.search(NAMED, ended.stderr)
    one, other = (pq.read_table(where / "path.parquet")["objective"] for where in (run, tmp_path / "again"))
    np.testing.assert_allclose(one, other, rtol=1e-3)


def test_conversion_goes_on_without_a_stopped_worker(
    cluster: HandMade, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "train.svm").write_bytes(to_text(*make_rows()))
    with stopped(cluster.processes["b"]):
        dataset = convert_libsvm(
            str(tmp_path / "train.svm"), str(tmp_path / "data"), partitions=3, block_size=2000, client=cluster.client
        )
    assert dataset.n == 200
    assert re.search(NAMED, caplog.text)


def test_no_worker_that_answers_is_an_error_at_the_start(tmp_path: Path) -> None:
    cluster = HandMade(tmp_path)
    try:
        alone = cluster.worker("b")
        with stopped(alone):
            with pytest.raises(UserError, match=NAMED + ": there is no other"), attended(cluster.client):
                pass
            options = ClusterOptions(scheduler=cluster.address)
            with pytest.raises(UserError, match=NAMED), open_client(options):
                pass
    finally:
        cluster.close()


def test_task_on_a_worker_that_is_stopped_is_done_by_another(
    cluster: HandMade, caplog: pytest.LogCaptureFixture
) -> None:
    futures = [cluster.client.submit(time.sleep, 1, pure=False) for _ in range(2)]
    soon(lambda: all(cluster.client.processing().values()))
    with stopped(cluster.processes["b"]):
        assert sorted(k for k, _ in as_finished(cluster.client, futures)) == [0, 1]
    assert len(re.findall(NAMED + r"\. The work goes on without it", caplog.text)) == 1


def test_result_on_a_worker_that_is_stopped_is_made_again(cluster: HandMade) -> None:
    client = cluster.client
    future = client.submit(np.ones, 1000, workers=[worker_of(cluster, "b")], allow_other_workers=True, pure=False)
    soon(lambda: future.status == "finished")
    needs_it = client.submit(np.sum, future, workers=[worker_of(cluster, "a")], pure=False)
    with stopped(cluster.processes["b"]):
        assert dict(as_finished(client, [needs_it])) == {0: 1000.0}
        assert dict(as_finished(client, [future]))[0].sum() == 1000.0


def test_data_are_shared_without_a_worker_that_is_stopped(cluster: HandMade) -> None:
    with stopped(cluster.processes["b"]):
        assert share(cluster.client, np.ones(10)).result().sum() == 10.0


def test_worker_that_is_silent_and_answers_is_not_lost(cluster: HandMade, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a pause of the whole machine, or in a very large cluster: no clock alone ends a long task."""
    monkeypatch.setattr(liveness, "SILENCE_SECONDS", -1.0)
    futures = [cluster.client.submit(time.sleep, 3, pure=False) for _ in range(2)]
    assert dict(as_finished(cluster.client, futures)) == {0: None, 1: None}
    assert cluster_resources(cluster.client).threads == 2


def test_tasks_that_no_worker_is_left_for_end_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: Callable[[], None]
) -> None:
    monkeypatch.setattr(liveness, "NOWHERE_SECONDS", 1.0)
    cluster = HandMade(tmp_path)
    try:
        alone = cluster.worker("b")
        future = cluster.client.submit(endless, pure=False)
        soon(lambda: any(cluster.client.processing().values()))
        alone.kill()
        with pytest.raises(WorkerLost, match="no worker is left"):
            list(as_finished(cluster.client, [future]))
    finally:
        cluster.close()


def test_scheduler_that_is_stopped_ends_every_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: Callable[[], None]
) -> None:
    monkeypatch.setattr(liveness, "SCHEDULER_SECONDS", 1.0)
    cluster = HandMade(tmp_path)
    try:
        cluster.worker("a")
        future = cluster.client.submit(endless, pure=False)
        lost = pytest.raises(ClusterLost, match=rf"the scheduler at {cluster.address} does not answer")
        with stopped(cluster.processes["scheduler"]):
            with lost:
                list(as_finished(cluster.client, [future]))
            with lost:
                share(cluster.client, 1)
            with lost:
                list_workers(cluster.client)
    finally:
        cluster.close()


WAITING = """
import sys, time
from distributed import Client
from pipeline.commands.shared import errors_as_exit_codes
from transforms.convert import as_they_finish
with errors_as_exit_codes("waiting"), Client(sys.argv[1], set_as_default=False) as client:
    with as_they_finish(client, [client.submit(time.sleep, 600, workers=[sys.argv[2]], pure=False)]) as results:
        print("waiting", flush=True)
        next(results)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_the_wait_for_a_stopped_worker(cluster: HandMade, signum: int) -> None:
    words = [sys.executable, "-c", WAITING, cluster.address, worker_of(cluster, "b")]
    ignoring = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background may be deaf to it
    waiting = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, ignoring)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "waiting\n"
    soon(lambda: any(cluster.client.processing().values()))
    with stopped(cluster.processes["b"]):
        waiting.send_signal(signum)
        _, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, errors) == (130, "waiting: error: interrupted\n")
    _restart_worker(cluster)


def _restart_worker(cluster: HandMade) -> None:
    """A task that sleeps cannot be taken back."""
    cluster.processes["b"].kill()
    cluster.processes["b"].wait()
    soon(lambda: len(cluster.client.nthreads()) == 1)
    cluster.worker("b")


def test_work_that_is_given_up_does_not_wait_for_a_stopped_worker(cluster: HandMade) -> None:
    future = cluster.client.submit(np.ones, 3, workers=[worker_of(cluster, "b")], pure=False)
    with (
        stopped(cluster.processes["b"]),
        pytest.raises(ZeroDivisionError),
        as_they_finish(cluster.client, [future]),
    ):
        raise ZeroDivisionError


def start_driver(cluster: HandMade, tmp_path: Path) -> tuple[Client, RunFolder, Follower, str]:
    """A long fit on the cluster; returns the name of the driver's worker, too."""
    fit_text(cluster.client, tmp_path, to_text(*make_rows()), length=1)
    folder = RunFolder.of(str(tmp_path / "long"), None)
    where = {"dataset": str(tmp_path / "train"), "output": folder.url, "storage_options": None}
    long = {"algorithm": "paper", "options": SolverOptions.paper(tol=1e-13, max_rounds=20000), "path": PathOptions(20)}
    record, future = submit_driver(cluster.client, Job("fit", fit_job, where | long), folder, cluster.address)
    soon((tmp_path / "long" / "path.parquet").exists)
    latest = folder.read()
    assert latest is not None
    return cluster.client, folder, Follower(cluster.client, folder, record, future), str(latest.worker).split()[0]


def test_driver_on_a_stopped_worker_is_cancelled_and_ends_when_that_comes_back(
    cluster: HandMade, tmp_path: Path
) -> None:
    client, folder, follower, name = start_driver(cluster, tmp_path)
    record = folder.read()
    assert record is not None
    with stopped(cluster.processes[name]):
        outcome = cancel(client, folder, record, follower)
        assert outcome.state == CANCELLED
        assert "does not answer" in str(outcome.message)
        assert read_status(folder)["state"] == CANCELLED
    soon(lambda: not (tmp_path / "long" / "claim.json").exists())
    assert folder.name not in client.list_datasets()


def test_cancelling_by_a_stopped_scheduler_ends(tmp_path: Path) -> None:
    cluster = HandMade(tmp_path)
    try:
        cluster.worker("a")
        client, folder, follower, _ = start_driver(cluster, tmp_path)
        record = folder.read()
        assert record is not None
        with (
            stopped(cluster.processes["scheduler"]),
            pytest.raises(DriverFailed, match="does not answer, so the run could not be cancelled"),
        ):
            cancel(client, folder, record, follower)
    finally:
        cluster.close()


def test_workers_are_asked_side_by_side_and_their_errors_are_answers(cluster: HandMade) -> None:
    answers, silent = ask_workers(cluster.client, int, "no number")
    assert silent == []
    assert {type(one) for one in answers.values()} == {ValueError}
    assert set(answers) == set(cluster.client.nthreads())
