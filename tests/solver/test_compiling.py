"""Kernels that are compiled are counted and timed by themselves, and no λ pays for them."""

from __future__ import annotations

import fcntl
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

from solver import compiling
from solver.arrays import Coefficients
from solver.compiling import COMPILING, one_process, watched, working_seconds
from solver.records import Log, RoundRecord


def fresh_kernel(module: str) -> Any:
    """A kernel that was never compiled, of such a module."""

    def twice(x: float) -> float:
        return 2.0 * x

    twice.__module__ = module
    return numba.njit(twice)


def test_the_clock_stands_still_while_a_kernel_is_compiled() -> None:
    begun, working, spent, count = perf_counter(), working_seconds(), COMPILING.seconds, COMPILING.count
    assert fresh_kernel("solver.kernels.new")(2.0) == 4.0
    assert COMPILING.count == count + 1
    passed, worked, compiling = perf_counter() - begun, working_seconds() - working, COMPILING.seconds - spent
    assert compiling > 0.0
    assert worked + compiling == pytest.approx(passed, abs=1e-3)


def test_what_a_user_compiles_is_not_ours() -> None:
    before = COMPILING.count, COMPILING.seconds
    fresh_kernel("my_own_script")(2.0)
    assert (COMPILING.count, COMPILING.seconds) == before


def test_a_watcher_is_told_of_each_kernel_while_it_watches() -> None:
    told: list[int] = []
    with watched(lambda: told.append(COMPILING.count)):
        fresh_kernel("solver.one")(1.0)
        fresh_kernel("solver.two")(1.0)
    fresh_kernel("solver.three")(1.0)
    assert len(told) == 2


def test_processes_compile_one_after_the_other(tmp_path: Path) -> None:
    kernel = SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path / "cache")))
    lock, now = tmp_path / "cache" / "compiling.lock", fcntl.LOCK_EX | fcntl.LOCK_NB
    with one_process(kernel), lock.open("w") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, now)
    with lock.open("w") as other:
        fcntl.flock(other, now)


def test_a_process_that_keeps_the_lock_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped."""
    monkeypatch.setattr(compiling, "PATIENCE", 0.2)
    kernel, done = SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path))), False
    with (tmp_path / "compiling.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with one_process(kernel):
            done = True
    assert done


def test_no_lambda_pays_for_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[RoundRecord] = []
    log = Log(0, 1.0, rounds.append)
    log.begin(2.0)
    monkeypatch.setattr(COMPILING, "_seconds", COMPILING.seconds + 1000.0)  # a kernel took this long
    log.end(1.0, 1)
    solution = log.solution(Coefficients(np.array([0]), np.array([1.0])), 0.0, 1.0, 0.0, "tolerance")
    assert solution.seconds < -900.0  # the clock was put back: in earnest it had gone on meanwhile
    assert rounds[0].seconds < -900.0
