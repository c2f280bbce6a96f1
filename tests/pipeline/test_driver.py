"""A run whose driver is on the cluster: it outlives its terminal, can be found again and cancelled, and is not lost
in silence. Real schedulers, workers and terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline import PathOptions
from pipeline import cluster as pipeline_cluster
from pipeline.commands.fit_work import driver_job
from pipeline.commands.shared import Terminated
from pipeline.display import SilentDisplay
from pipeline.driver.events import EventDisplay, Replay, topic
from pipeline.driver.follow import Follower
from pipeline.driver.options import runs_on_cluster
from pipeline.driver.record import (
    CANCELLED,
    CUT_OFF,
    FINISHED,
    MOST_STARTS,
    RUNNING,
    DriverRecord,
    RunFolder,
    is_trusted,
    now,
)
from pipeline.driver.status import read_status, status_lines
from pipeline.driver.submission import kept_events, standing, submit_driver
from pipeline.driver.task import Job, Outcome, drive
from pipeline.driver.terminal import cancel, choose
from pipeline.events import Event
from pipeline.placement import Placement, WorkerInfo
from solver import Coefficients, RoundRecord, Solution, SolverOptions
from tests.pipeline.hand_made import HandMade, soon, two_workers
from tests.pipeline.runs import driver_of, make_rows, to_text
from tests.services.s3 import SECRET as BUCKET_SECRET
from tests.services.s3 import Bucket
from transforms import OutputExists, UserError

SECRET = "not-for-the-log"
LONG = ("--algorithm", "paper", "--tol", "1e-13", "--max-rounds", "2000")
WORKER_SECONDS = 10  # within which a worker that has run a driver ends after its scheduler; it takes about one
FEW_EVENTS = {"DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "10"}
pytestmark = pytest.mark.timeout(180)  # a hang is what these tests guard against


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    """Two workers, and a scheduler that forgets events soon."""
    with two_workers(tmp_path_factory.mktemp("cluster"), FEW_EVENTS) as made:
        yield made


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from pipeline.commands.submit import main; main()", *words]


def submit(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # From another folder, the package is found as from this one.
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    return subprocess.run(
        command(*words), capture_output=True, text=True, check=False, timeout=90, cwd=cwd, env=environment
    )


def start(
    cluster: HandMade, dataset: str, run: Path | str, length: int, *, resume: bool = False, **storage: Any
) -> Follower:
    """Put a long fit on the cluster, as the command does, and return its follower."""
    folder = RunFolder.of(str(run), storage)
    options = {"algorithm": "paper", "options": SolverOptions.paper(tol=1e-13, max_rounds=2000)}
    arguments = options | {"path": PathOptions(length), "resume": resume, "overwrite": False}
    where = {"dataset": dataset, "output": folder.url, "storage_options": folder.storage}
    record, future = submit_driver(cluster.client, driver_job(where | arguments), folder, cluster.address)
    return Follower(cluster.client, folder, record, future)


def actors(client: Client) -> list[str]:
    return [
        str(key) for keys in client.run(lambda dask_worker: list(dask_worker.state.actors)).values() for key in keys
    ]


def end(cluster: HandMade, run: Path) -> Outcome:
    """Cancel a run, and see that it leaves nothing behind."""
    folder, record = RunFolder.of(str(run), None), driver_of(run)
    outcome = cancel(cluster.client, folder, record, Follower(cluster.client, folder, record, None))
    soon(lambda: not actors(cluster.client))
    assert not (run / "claim.json").exists()
    assert folder.name not in cluster.client.list_datasets()
    return outcome


class Recorder(SilentDisplay):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def tell(self, event: Event) -> None:
        self.calls.append((event.name, tuple(getattr(event, one.name) for one in fields(event))))


def test_driver_on_the_cluster_gives_the_path_of_one_in_this_process(
    cluster: HandMade, dataset: str, tmp_path: Path
) -> None:
    words = (
        "fit",
        dataset,
        "--scheduler",
        cluster.address,
        "--path-length",
        "3",
        "--max-rounds",
        "2",
        "--algorithm",
        "paper",
    )
    remote = submit(*words, "--output", str(tmp_path / "remote"))
    local = submit(*words, "--output", str(tmp_path / "local"), "--driver", "local")
    assert (remote.returncode, local.returncode) == (0, 0), remote.stderr + local.stderr
    for name in ("coefficients", "path"):
        there, here = (pq.read_table(tmp_path / run / f"{name}.parquet") for run in ("remote", "local"))
        times = [column for column in here.column_names if column.endswith("seconds")]
        assert there.drop_columns(times).equals(here.drop_columns(times))
    # All that a terminal says of a driver of its own, it says of one on the cluster; times and their order aside.
    assert "2 blocks on 2 workers" in remote.stderr
    assert "warning: λ = " in remote.stderr
    assert remote.stderr.count("\n") == local.stderr.count("\n")
    assert "3 models" in remote.stdout
    assert driver_of(tmp_path / "remote").state == "finished"
    assert not (tmp_path / "local" / "driver.json").exists()
    assert not actors(cluster.client)
    assert not cluster.client.list_datasets()


def test_run_outlives_its_terminal_and_is_found_again(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder = RunFolder.of(str(run), None)
    words = ("fit", dataset, "--output", str(run), "--scheduler", cluster.address, "--path-length", "12", *LONG)
    terminal = subprocess.Popen(command(*words), stderr=subprocess.DEVNULL)
    try:
        soon(lambda: (record := folder.read()) and record.state == "running")
        attached = subprocess.Popen(
            command("attach", str(run)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        soon(lambda: (run / "path.parquet").exists() and read_status(folder)["done"] >= 2)
    finally:
        terminal.kill()
        terminal.wait()
    status = read_status(folder)
    assert status["state"] == "running", status
    assert 2 <= status["done"] < status["lambdas"] == 12
    assert "tcp://" in status["worker"]
    with pytest.raises(OutputExists, match=r"a run is at work on it: attach with `dask-submit attach"):
        start(cluster, dataset, run, 12)
    late = Recorder()  # the scheduler has forgotten the first events by now
    Follower(cluster.client, folder, driver_of(run), None).follow(late, seconds=0.1)
    assert [name for name, _ in late.calls][:4] == ["stage", "placed", "begin", "solution"]
    output, errors = attached.communicate(timeout=120)
    assert attached.returncode == 0, errors
    assert "λ 12/12" in errors
    assert "12 models" in output
    assert pq.read_table(run / "path.parquet")["index"].to_pylist() == list(range(12))
    told = json.loads(submit("status", str(run), "--json").stdout)
    assert (told["state"], told["done"]) == ("finished", 12)


def test_detached_pipeline_is_attached_to(cluster: HandMade, tmp_path: Path) -> None:
    X, y = make_rows()
    (tmp_path / "train.svm").write_bytes(to_text(X, y))
    words = ("--train", "train.svm", "--output", "run", "--scheduler", cluster.address, "--path-length", "3")
    submitted = submit("pipeline", *words, "--detach", cwd=tmp_path)
    assert submitted.returncode == 0, submitted.stderr
    assert f"dask-submit attach {tmp_path / 'run'}" in submitted.stderr
    attached = submit("attach", "run", cwd=tmp_path)
    assert attached.returncode == 0, attached.stderr
    assert "report.html" in attached.stdout
    assert (tmp_path / "run" / "report.html").exists()
    assert "auprc" in pq.read_table(tmp_path / "run" / "path.parquet").column_names
    assert driver_of(tmp_path / "run").command == "pipeline"


def test_interrupted_script_cancels_the_run(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = command("fit", dataset, "--output", str(run), "--scheduler", cluster.address, "--path-length", "20", *LONG)
    ignoring = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background may be deaf to it
    terminal = subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    signal.signal(signal.SIGINT, ignoring)
    soon((run / "path.parquet").exists)
    terminal.send_signal(signal.SIGINT)
    _, errors = terminal.communicate(timeout=60)
    assert terminal.returncode == 130, errors
    assert re.search(r"error: interrupted: \d+ of 20 λ are kept in .*: continue with --resume\n$", errors)
    assert driver_of(run).state == CANCELLED
    assert not (run / "claim.json").exists()
    soon(lambda: not actors(cluster.client))


def test_cancelled_run_is_kept_and_can_be_resumed(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(cluster, dataset, run, 7).close()
    soon((run / "path.parquet").exists)
    assert end(cluster, run).state == CANCELLED
    assert "cancelled" in status_lines(read_status(RunFolder.of(str(run), None)))[0]
    done = pq.read_table(run / "path.parquet").num_rows
    assert 1 <= done < 7
    outcome = start(cluster, dataset, run, 7, resume=True).follow(SilentDisplay(), seconds=90)
    assert outcome == Outcome("finished")
    assert pq.read_table(run / "path.parquet").num_rows == 7


def test_driver_that_the_scheduler_was_told_to_forget_ends(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(cluster, dataset, run, 20).close()
    soon((run / "path.parquet").exists)
    cluster.client.unpublish_dataset(RunFolder.of(str(run), None).name)
    soon(lambda: driver_of(run).state == CANCELLED)
    soon(lambda: not actors(cluster.client))


def test_ctrl_c_on_a_terminal_asks_and_detaches(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = command("fit", dataset, "--output", str(run), "--scheduler", cluster.address, "--path-length", "20", *LONG)
    child, master = pty.fork()
    if child == 0:  # pragma: no cover - another process
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execv(words[0], words)
    try:
        soon((run / "path.parquet").exists)
        seen = _read_until(master, "")
        os.write(master, b"\x03")
        seen += _read_until(master, "detach, cancel, or go on")
        os.write(master, b"d\n")
        seen += _read_until(master, "dask-submit status")
        _, code = os.waitpid(child, 0)
    finally:
        os.close(master)
    assert os.waitstatus_to_exitcode(code) == 0, seen
    found = standing(cluster.client, driver_of(run).key)
    assert found is not None
    assert found.started
    assert end(cluster, run).state == CANCELLED


def _read_until(master: int, text: str, seconds: float = 30) -> str:
    """What a terminal shows until `text` is there."""
    seen, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 65536).decode(errors="replace")
        if text in seen:
            return seen
    raise AssertionError(f"{text!r} is not in {seen[-500:]!r}")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (RUNNING, CUT_OFF, r"lost with its worker z at tcp:.*, as it was 3 times before\..* --resume"),
        (FINISHED, FINISHED, ""),  # the worker went with the result
    ],
)
def test_driver_is_started_again_a_few_times_only_and_not_when_it_is_over(
    cluster: HandMade, dataset: str, tmp_path: Path, before: str, after: str, message: str
) -> None:
    folder, where = RunFolder.of(str(tmp_path / "run"), None), "z at tcp://127.0.0.1:1"
    key = f"driver-{before}"
    folder.write(DriverRecord("fit", cluster.address, key, now(), before, now(), worker=where, starts=MOST_STARTS))
    job = driver_job({"dataset": dataset, "output": folder.url, "storage_options": None})
    outcome = cluster.client.submit(drive, job, folder, key=key, pure=False).result()
    assert outcome.state == after
    assert re.search(message, outcome.message or "")
    assert (driver_of(tmp_path / "run").state, driver_of(tmp_path / "run").starts) == (after, MOST_STARTS)


def test_start_that_was_given_up_leaves_the_run_to_the_later_one(cluster: HandMade, tmp_path: Path) -> None:
    """As when a worker that was stopped comes back: its driver ends without a word."""
    folder = RunFolder.of(str(tmp_path / "run"), None)

    def fail_after_another_started(folder: RunFolder, **rest: Any) -> None:
        record = folder.read()
        assert record is not None
        folder.write(record.start("b at tcp://127.0.0.1:1"))
        raise ZeroDivisionError

    job = Job("fit", fail_after_another_started, {"folder": folder})
    record, future = submit_driver(cluster.client, job, folder, cluster.address)
    assert future.result().state == "failed"
    later = driver_of(tmp_path / "run")
    assert (later.key, later.state, later.starts, later.worker) == (record.key, RUNNING, 2, "b at tcp://127.0.0.1:1")
    assert folder.name in cluster.client.list_datasets()
    assert [event["call"] for _, event in kept_events(cluster.client, topic(record.key))] == []
    cluster.client.unpublish_dataset(folder.name)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_driver_whose_scheduler_goes_is_cut_off_and_its_worker_ends(dataset: str, tmp_path: Path, how: int) -> None:
    cluster = HandMade(tmp_path)
    try:
        worker = cluster.worker("a")
        run = tmp_path / "run"
        start(cluster, dataset, run, 9).close()
        soon((run / "path.parquet").exists)
        cluster.processes["scheduler"].send_signal(how)
        worker.wait(timeout=WORKER_SECONDS)
    finally:
        cluster.close()
    record = driver_of(run)
    assert record.state == CUT_OFF, record
    assert "continue with --resume" in str(record.message)
    assert not (run / "claim.json").exists()
    (tmp_path / "another").mkdir()
    another = HandMade(tmp_path / "another")
    try:
        another.worker("a")
        outcome = start(another, dataset, run, 9, resume=True).follow(SilentDisplay(), seconds=90)
    finally:
        another.close()
    assert outcome == Outcome("finished")
    assert pq.read_table(run / "path.parquet").num_rows == 9


def test_worker_whose_driver_has_finished_ends_after_its_scheduler(dataset: str, tmp_path: Path) -> None:
    cluster = HandMade(tmp_path)
    try:
        worker = cluster.worker("a")
        outcome = start(cluster, dataset, tmp_path / "run", 2).follow(SilentDisplay(), seconds=90)
        cluster.processes["scheduler"].kill()
        worker.wait(timeout=WORKER_SECONDS)
    finally:
        cluster.close()
    assert outcome == Outcome("finished")


def test_status_without_a_scheduler_is_told_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_cluster, "CONNECT_SECONDS", 1)
    folder = RunFolder.of(str(tmp_path), None)
    folder.write(DriverRecord("fit", "tcp://127.0.0.1:1", "key", "2026-01-01T00:00:00+00:00", state="running"))
    line = status_lines(read_status(folder))[0]
    assert "cut off: the scheduler at tcp://127.0.0.1:1 does not answer" in line


def test_folder_that_the_workers_do_not_see_is_refused(
    cluster: HandMade, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = Path("/proc/self/cwd/run")  # a path that each process sees as its own
    outcome = start(cluster, dataset, elsewhere, 2).follow(SilentDisplay(), seconds=30)
    assert outcome is not None
    assert outcome.usage
    assert "is a local path that the cluster does not share: use shared storage, or --driver local" in str(
        outcome.message
    )


def test_bad_input_is_the_terminals_own_error(cluster: HandMade, dataset: str, tmp_path: Path) -> None:
    done = submit("fit", f"{dataset}-not", "--output", str(tmp_path / "run"), "--scheduler", cluster.address)
    assert done.returncode == 2
    remedy = "Make one of LIBSVM text with convert-libsvm TEXT FOLDER"
    assert done.stderr == f"dask-submit: error: {dataset}-not: not a data set: no such folder. {remedy}\n"
    assert "failed: " in status_lines(read_status(RunFolder.of(str(tmp_path / "run"), None)))[0]


def test_run_in_a_bucket_tells_no_secret(cluster: HandMade, dataset: str, bucket: Bucket) -> None:
    url = f"{bucket.url}/run"
    outcome = start(cluster, dataset, url, 2, **bucket.options).follow(SilentDisplay(), seconds=60)
    assert outcome == Outcome("finished")
    status = read_status(RunFolder.of(url, bucket.options))
    assert (status["run"], status["state"], status["done"]) == (url, "finished", 2)
    files = bucket.files("run")
    assert {"driver.json", "path.parquet", "run.json"} <= set(files)
    told = json.dumps(cluster.client.get_events(), default=str).encode()
    assert not [name for name, content in (files | {"events": told}).items() if BUCKET_SECRET.encode() in content]


def test_storage_options_are_taken_out_of_errors(cluster: HandMade, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = start(cluster, f"/nowhere/{SECRET}", run, 2, secret=SECRET).follow(SilentDisplay(), seconds=30)
    assert outcome is not None
    assert "/nowhere/***: not a data set" in str(outcome.message)
    told = json.dumps(cluster.client.get_events(), default=str) + (run / "driver.json").read_text()
    assert "dglmnet-driver" in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("scheduler", "driver", "detach", "message"),
    [
        (None, None, True, "--detach needs --scheduler"),
        (None, "cluster", False, "--driver cluster needs --scheduler"),
        ("tcp://127.0.0.1:1", "local", True, "--detach does not go with --driver local"),
    ],
)
def test_what_does_not_go_together_is_refused(
    scheduler: str | None, driver: str | None, detach: bool, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        runs_on_cluster(scheduler, driver, detach)


def test_interrupt_means_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(KeyboardInterrupt()) == "cancel", "nobody to ask"
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert [choose(KeyboardInterrupt(), lambda a=a: a) for a in "dcg"] == ["detach", "cancel", "go on"]  # type: ignore[misc]
    assert choose(Terminated()) == "cancel", "SIGTERM does not wait for an answer"

    def again() -> str:
        raise KeyboardInterrupt

    assert choose(KeyboardInterrupt(), again) == "detach"


def test_events_carry_every_call_and_their_summary_what_matters() -> None:
    events: list[dict[str, Any]] = []
    display = EventDisplay(lambda event: events.append(json.loads(json.dumps(event))), lambda event: None)
    worker = WorkerInfo("a", "tcp://127.0.0.1:1", 1, 0, 0, "host")
    first, second = (RoundRecord(0, 2.0, k, np.float64(9.0), 0.1, 1.0, 3, 0.5, 0.1, None) for k in (1, 2))
    three = Coefficients(np.arange(3), np.ones(3))
    calls: list[tuple[str, Any]] = [
        ("stage", ("convert",)),
        ("phase", ("read", 10, "B")),
        ("advance", (4,)),
        ("stage", ("fit",)),
        ("placed", ([Placement(worker, [[0, 1]], "memory")],)),
        ("begin", ([2.0, 1.0], 0, 4.0)),
        ("round", (first,)),
        ("solution", (Solution(0, 2.0, three, 9.0, 0.1, 1, "tolerance", 0.5, 0.1),)),
        ("round", (second,)),
    ]
    for name, args in calls:
        getattr(display, name)(*args)
    replayed, late, lost = Recorder(), Recorder(), Recorder()
    for seen, told in ((replayed, events), (late, display.summary()[1]), (lost, [*events[2:4], *events[6:]])):
        replay = Replay(seen)
        for event in told:
            replay.show(event)
    assert [name for name, _ in replayed.calls] == [name for name, _ in calls]
    assert [args for name, args in replayed.calls if name != "solution"] == [a for n, a in calls if n != "solution"]
    assert replayed.calls[7][1][0].nonzeros == 3
    assert [name for name, _ in late.calls] == ["stage", "placed", "begin", "solution", "round"]
    assert late.calls[-1] == ("round", (second,))
    assert [name for name, _ in lost.calls] == ["stage"], "nothing of a phase or path whose beginning was lost"


def test_scheduler_that_only_driver_json_names_is_not_asked(
    tmp_path: Path, submit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Whoever may write the folder of a run may not choose whom its reader's Dask client obeys."""
    folder = RunFolder.of(str(tmp_path), {})
    folder.write(DriverRecord("fit", "tcp://192.0.2.1:8786", "key", now()))
    status = submit("status", str(tmp_path))
    assert status.returncode == 0
    assert "was not asked: add --scheduler tcp://192.0.2.1:8786 if you trust it" in status.stdout
    for command in ("attach", "cancel"):
        refused = submit(command, str(tmp_path))
        assert refused.returncode == 2
        assert "if you trust this one, add --scheduler tcp://192.0.2.1:8786" in refused.stderr


@pytest.mark.parametrize(
    ("address", "trusted"),
    [
        ("tcp://127.0.0.1:8786", True),
        ("tcp://localhost:8786", True),
        ("tcp://[::1]:8786", True),
        ("tls://192.0.2.1:8786", True),
        ("tcp://192.0.2.1:8786", False),
        ("tcp://127.0.0.1.example.org:8786", False),
        ("tcp://127.0.0.1@192.0.2.1:8786", False),
        ("192.0.2.1:8786", False),
        ("tcp://127.0.0.1:1\x1b[31m", False),
    ],
)
def test_addresses_that_may_be_asked_unasked(address: str, trusted: bool) -> None:
    assert is_trusted(address) is trusted
