"""What the soak notices: processes that grow, and results that are not what they were."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from benchmarks.soak.growth import Growth
from benchmarks.soak.results import dataset_parts, flip_bit, write_examples
from transforms import convert_libsvm


def _judge(threads: Callable[[float], float], *, minutes: int = 30, memory: float = 0.0) -> tuple[list[str], bool]:
    """What is said of a driver with so many threads, and so many more bytes, at each minute; ten samples a minute."""
    times = [k / 10 for k in range(10 * minutes + 1)]
    return Growth({("driver", 1, 0.0): [(60 * t, 300e6 + memory * t, threads(t), 20) for t in times]}).report()


@pytest.mark.parametrize("leak", [{"threads": lambda t: 10 + t}, {"threads": lambda t: 10, "memory": 10e6}])
def test_growth_is_noticed(leak: dict[str, Any]) -> None:
    lines, flat = _judge(**leak)
    assert not flat
    assert "GROWS" in lines[0]


@pytest.mark.parametrize(
    "threads", [lambda t: 10, lambda t: 10 + min(10 * t, 30), lambda t: 10 + 15 * (int(t) % 5 == 0)]
)
def test_pools_that_fill_and_peaks_are_no_growth(threads: Callable[[float], float]) -> None:
    lines, flat = _judge(threads)
    assert flat
    assert "GROWS" not in lines[0]


def test_minutes_of_warming_up_are_not_judged() -> None:
    lines, flat = _judge(lambda t: 10 + 10 * t, minutes=4)
    assert flat
    assert lines == ["no process was seen for 10 minutes: growth is not judged"]


def test_wrong_result_ends_with_exit_code_1() -> None:
    """The first conversion of the soak finds other bytes than the undisturbed one left."""
    program = """
from benchmarks.soak import __main__ as soak, steps

def spoiled(*args, read=steps.dataset_parts, calls=[]):
    calls.append(args)
    found = read(*args)
    return found if len(calls) == 1 else {name: content[::-1] for name, content in found.items()}

steps.dataset_parts = spoiled
soak.main(["--minutes", "0.001", "--workers", "2"])
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=300)
    folder = re.search(r"logs and files are in (.*)", ended.stdout)
    assert folder is not None, ended.stdout + ended.stderr
    shutil.rmtree(folder[1])
    assert ended.returncode == 1
    assert "WRONG: data set: not what it was undisturbed" in ended.stdout


def test_flipped_bit_is_another_data_set(client: Client, tmp_path: Path) -> None:
    write_examples(tmp_path / "train.svm", n=50, p=20, per_row=5)
    convert_libsvm([str(tmp_path / "train.svm")], str(tmp_path / "data"), partitions=2, client=client)
    before = dataset_parts(str(tmp_path / "data"))
    assert sorted(before) == ["labels.parquet", "part-00000.parquet", "part-00001.parquet"]
    flip_bit(tmp_path / "data" / "part-00001.parquet", random.Random(0))
    after = dataset_parts(str(tmp_path / "data"))
    assert [name for name in before if before[name] != after[name]] == ["part-00001.parquet"]
