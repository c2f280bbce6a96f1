"""Conversion, evaluation and prediction that lose workers: they go on by themselves, and end with the same bytes."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import psutil
import pytest

from pipeline import evaluate, predict
from tests.pipeline.hand_made import HandMade
from tests.pipeline.runs import fit_text, make_rows, to_text
from tests.reference import files_of
from transforms import convert_libsvm, from_arrays, liveness
from transforms.errors import WorkerLost

pytestmark = pytest.mark.timeout(180)  # a hang is what many of these guard against
# Tasks that take a while, so that workers are lost in the middle of them.
SLOW = """
import time
import pipeline.scoring, transforms.dask_arrays, transforms.mapreduce

def slow(module, name):
    function = getattr(module, name)
    def slowly(*arguments):
        time.sleep(0.15)
        return function(*arguments)
    setattr(module, name, slowly)

slow(transforms.mapreduce, "map_block")
slow(transforms.mapreduce, "reduce_partition")
slow(transforms.dask_arrays, "map_rows")
slow(pipeline.scoring, "score_block")
slow(pipeline.scoring, "score_partition")
"""
LOST = r"worker \w+ at tcp://127\.0\.0\.1:\d+ was lost\. .* The work goes on without it"
SILENT = r"worker \w+ at tcp://127\.0\.0\.1:\d+ does not answer .* The work goes on without it"


class Workers(HandMade):
    """Workers whose tasks take a while."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._slow = folder / "slow.py"
        self._slow.write_text(SLOW)

    def start(self, names: str, nanny: str = "--no-nanny") -> None:
        """Start workers side by side."""
        before = len(self.client.nthreads())
        words = ("worker", "--host", "127.0.0.1", "--nthreads", "1", nanny, "--preload", str(self._slow))
        for name in names:
            self.processes[name] = self._start(*words, "--name", name)
        self.client.wait_for_workers(before + len(names), timeout=60)

    def kill(self, names: str) -> None:
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes[name].wait()

    def stop(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGSTOP)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Workers]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Workers(folder)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.scoring.default_block_size", lambda files, resources: 2000)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"TURN_SECONDS": 0.2, "SILENCE_SECONDS": 2.0, "ANSWER_SECONDS": 1.0}.items():
        monkeypatch.setattr(liveness, name, seconds)


class Undisturbed:
    """A run, and the bytes of what is made from the same inputs by workers that live."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.folder = folder
        self.run = fit_text(client, folder, to_text(*make_rows()))
        self.inputs = [str(folder / "train.svm"), str(self.convert(client, folder / "data"))]
        self.files = files_of(folder / "data")
        self.predicted = self.predict(client, folder / "p.parquet")
        self.metrics = self.evaluate(client)

    def convert(self, client: Any, to: Path, progress: Any = None) -> Path:
        how: dict[str, Any] = {"partitions": 6, "block_size": 2000, "client": client, "progress": progress}
        convert_libsvm(str(self.folder / "train.svm"), str(to), **how)
        return to

    def predict(self, client: Any, to: Path, progress: Any = None) -> bytes:
        predict(self.run, self.inputs, str(to), client=client, progress=progress)
        return to.read_bytes()

    def evaluate(self, client: Any, progress: Any = None) -> Any:
        return evaluate(self.run, self.inputs, client=client, progress=progress).path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, process_client: Any) -> Undisturbed:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.scoring.default_block_size", lambda files, resources: 2000)
        return Undisturbed(process_client, tmp_path_factory.mktemp("undisturbed"))


class At:
    """Does something after so many results of a phase."""

    def __init__(self, action: Callable[[], object], phase: str, results: int = 1) -> None:
        self._action, self._phase, self._left = action, phase, results

    def phase(self, name: str, total: int, unit: str) -> None:
        self._now = name

    def advance(self, amount: int) -> None:
        if self._now == self._phase:
            self._left -= 1
            if self._left == 0:
                self._action()


def told(caplog: pytest.LogCaptureFixture, pattern: str) -> int:
    lines = [record.message for record in caplog.records if record.name == "dglmnet"]
    caplog.clear()
    return sum(re.fullmatch(f"warning: {pattern}", line) is not None for line in lines)


def worker_of(cluster: Workers, name: str) -> psutil.Process:
    """The worker under a nanny: the child that is no resource tracker."""
    while True:
        for child in psutil.Process(cluster.processes[name].pid).children():
            with suppress(psutil.NoSuchProcess):
                if "spawn_main" in " ".join(child.cmdline()):
                    return child
        time.sleep(0.05)


def test_killed_workers_are_done_without(
    cluster: Workers, undisturbed: Undisturbed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One by one, then all but one."""
    cluster.start("abcde")
    for phase, victim in (("map", "a"), ("reduce", "b")):
        to = undisturbed.convert(cluster.client, tmp_path / phase, At(partial(cluster.kill, victim), phase))
        assert files_of(to) == undisturbed.files
        assert told(caplog, LOST) == 1
    kill = At(partial(cluster.kill, "cd"), "score", 4)
    assert undisturbed.predict(cluster.client, tmp_path / "p", kill) == undisturbed.predicted
    assert told(caplog, LOST) == 2


def test_data_that_were_lost_with_all_workers_are_sent_again_to_one_that_joins(
    cluster: Workers, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    names = iter("bc")
    cluster.start("a")

    def replace() -> None:
        joins = next(names)
        cluster.kill("ab"["bc".index(joins)])
        while cluster.client.nthreads():
            time.sleep(0.01)
        cluster.start(joins)

    assert files_of(undisturbed.convert(cluster.client, tmp_path / "data", At(replace, "reduce"))) == undisturbed.files
    assert undisturbed.evaluate(cluster.client, At(replace, "score", 3)) == undisturbed.metrics


@pytest.mark.usefixtures("impatient")
def test_stopped_workers_are_done_without_and_spoil_nothing_when_they_come_back(
    cluster: Workers, undisturbed: Undisturbed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a nanny they end when they come back; the nanny of the last one starts it anew."""
    cluster.start("abc")
    cluster.start("d", "--nanny")
    data = undisturbed.convert(cluster.client, tmp_path / "data", At(partial(cluster.stop, "b"), "map"))
    assert told(caplog, SILENT) == 1
    predicted = undisturbed.predict(cluster.client, tmp_path / "p", At(partial(cluster.stop, "c"), "score"))
    assert predicted == undisturbed.predicted
    assert told(caplog, SILENT) == 1
    for name in "bc":
        cluster.processes[name].send_signal(signal.SIGCONT)
        cluster.processes[name].wait(timeout=60)
    assert files_of(data) == undisturbed.files

    before = cluster.client.scheduler_info(n_workers=-1)["workers"]
    worker = worker_of(cluster, "d")
    assert undisturbed.evaluate(cluster.client, At(worker.suspend, "score")) == undisturbed.metrics
    assert told(caplog, SILENT) == 1
    cluster.client.wait_for_workers(2, timeout=60)
    after = cluster.client.scheduler_info(n_workers=-1)["workers"]
    assert {one["name"] for one in after.values()} == {"a", "d"}
    assert set(after) != set(before)


def test_dask_arrays_are_converted_though_workers_that_hold_them_are_killed(cluster: Workers, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = da.from_array(rng.normal(size=(240, 12)), chunks=(20, 12))
    y = da.from_array(np.where(rng.random(240) < 0.5, 1, -1), chunks=20)
    cluster.start("abc")
    how: dict[str, Any] = {"partitions": 4, "client": cluster.client}
    expected = from_arrays(X, y, str(tmp_path / "expected"), **how)
    held, labels = cluster.client.persist([X, y])
    kill = threading.Timer(0.4, partial(cluster.kill, "ab"))
    kill.start()
    found = from_arrays(held, labels, str(tmp_path / "found"), **how)
    kill.join()
    assert len(cluster.client.nthreads()) == 1
    assert [part.info for part in found.partitions] == [part.info for part in expected.partitions]
    scattered = da.from_delayed(cluster.client.scatter(rng.normal(size=(240, 12))), (240, 12), float)
    cluster.start("d")
    cluster.kill("c")
    with pytest.raises(WorkerLost, match="data that the work needs were on workers that are lost"):
        from_arrays(scattered, y.rechunk(240), str(tmp_path / "lost"), **how)


DEADLY = """
import os, signal
import transforms.mapreduce
def map_block(job, block):
    os.kill(os.getpid(), signal.SIGKILL)
transforms.mapreduce.map_block = map_block
"""


def test_task_that_kills_every_worker_ends_the_work_by_a_line_that_says_so(
    cluster: Workers, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does for which no worker has the memory."""
    monkeypatch.setattr(liveness, "NOWHERE_SECONDS", 120.0)  # the nanny starts it four times
    (tmp_path / "deadly.py").write_text(DEADLY)
    cluster.worker("a", more=["--nanny", "--preload", str(tmp_path / "deadly.py")])
    with pytest.raises(WorkerLost) as lost:
        undisturbed.convert(cluster.client, tmp_path / "data")
    line = r"4 workers were lost one after another .*\(map-block-\w+-\d+\), the last one worker a at .*more memory.*"
    assert re.fullmatch(line, str(lost.value))
    assert not (tmp_path / "data").exists()


def test_kills_at_random_moments(cluster: Workers, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Of workers whose nannies restart them."""
    cluster.start("abc", "--nanny")
    rng, over, kills = np.random.default_rng(0), threading.Event(), 0

    def kill_now_and_then() -> None:
        nonlocal kills
        while not over.wait(0.2 + rng.random()):
            if len(cluster.client.nthreads()) > 1:  # else none might be back in time
                worker_of(cluster, "abc"[rng.integers(3)]).kill()
                kills += 1

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    try:
        assert files_of(undisturbed.convert(cluster.client, tmp_path / "data")) == undisturbed.files
        assert undisturbed.predict(cluster.client, tmp_path / "p") == undisturbed.predicted
        assert undisturbed.evaluate(cluster.client) == undisturbed.metrics
    finally:
        over.set()
        killer.join()
    assert kills >= 2
