"""Signals: a command that is asked to end does, whatever it is doing in that moment."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipeline.hand_made import HandMade
from tests.pipeline.runs import make_rows, to_text
from transforms import from_arrays

IN_A_CALLBACK = """
import gc, signal, sys, time
from pipeline.commands.shared import errors_as_exit_codes

class Diagnosis:
    def _gc_callback(self, phase, info):  # as Dask's is called
        gc.callbacks.clear()
        signal.raise_signal(int(sys.argv[1]))

class Finalised:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

with errors_as_exit_codes("test"):
    if sys.argv[2] == "gc":
        gc.callbacks.append(Diagnosis()._gc_callback)
        gc.collect()
    else:
        Finalised()
    time.sleep(60)
print("went on")
"""


@pytest.mark.parametrize("where", ["gc", "del"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_garbage_is_collected_is_not_lost(number: int, where: str) -> None:
    """Python drops what is raised there."""
    words = [sys.executable, "-c", IN_A_CALLBACK, str(int(number)), where]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "test: error: interrupted\n")


LONG = ("--algorithm", "paper", "--tol", "1e-13", "--max-rounds", "20000", "--path-length", "12")
KEPT = r"dask-submit: error: interrupted: (\d+) of 12 λ are kept in {}: {}"


def interrupted(run: Path, number: int, *words: str) -> str:
    """The last line of a command that is asked to end once a λ is done."""
    ignoring = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background may be deaf to it
    command = [sys.executable, "-c", "from pipeline.commands.submit import main; main()", *words]
    process = subprocess.Popen(
        [*command, "--output", str(run), *LONG], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, ignoring)
    while not (run / "path.parquet").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    return errors.splitlines()[-1]


def check(line: str, run: Path, how: str) -> None:
    found = re.fullmatch(KEPT.format(re.escape(str(run)), how), line)
    assert found, line
    assert int(found[1]) == pq.read_table(run / "path.parquet").num_rows


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fit_says_what_is_kept_and_how_to_go_on(tmp_path: Path, number: int) -> None:
    from_arrays(*make_rows(), str(tmp_path / "data"), partitions=2)
    run = tmp_path / "run"
    check(interrupted(run, number, "fit", str(tmp_path / "data")), run, "continue with --resume")


@pytest.mark.timeout(180)
def test_an_interrupted_pipeline_says_what_is_kept_and_how_to_go_on(tmp_path: Path) -> None:
    """By a driver of its own, and by one on a cluster."""
    (tmp_path / "train.svm").write_bytes(to_text(*make_rows()))
    words = ("pipeline", "--train", str(tmp_path / "train.svm"))
    check(interrupted(tmp_path / "own", signal.SIGTERM, *words), tmp_path / "own", "run the same command again")
    cluster = HandMade(tmp_path)
    try:
        cluster.worker("a")
        line = interrupted(tmp_path / "on", signal.SIGINT, *words, "--scheduler", cluster.address)
    finally:
        cluster.close()
    check(line, tmp_path / "on", "run the same command again")
