"""What this process compiles: how many kernels, how long it takes, and a clock that stands still meanwhile.

numba compiles under one lock, so that one kernel at a time is compiled, with the functions that are part of it. Kernels
of the whole package are counted, and nothing else that a user's program may compile.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import IO, Any

from numba.core import event

PACKAGES = ("pipeline", "solver", "transforms")
PATIENCE = 20.0  # seconds to wait for another process that compiles; all kernels of a sweep take less


class Compiling(event.Listener):  # type: ignore[misc]
    """The kernels that were compiled, and the seconds that it took. watchers: called as one begins."""

    def __init__(self) -> None:
        self.count, self._seconds = 0, 0.0
        self.watchers: list[Callable[[], None]] = []
        self._depth, self._began = 0, 0.0

    def on_start(self, one: Any) -> None:
        if not self._depth:
            if one.data["dispatcher"].py_func.__module__.split(".")[0] not in PACKAGES:
                return
            self._began = perf_counter()
            for watcher in self.watchers:
                watcher()
        self._depth += 1

    def on_end(self, one: Any) -> None:
        if not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            self._seconds += perf_counter() - self._began
            self.count += 1

    @property
    def is_at_work(self) -> bool:
        return self._depth > 0

    @property
    def seconds(self) -> float:
        """So far."""
        return self._seconds + (perf_counter() - self._began if self._depth else 0.0)


COMPILING = Compiling()
event.register("numba:compile", COMPILING)


def working_seconds() -> float:
    """A clock that stands still while kernels are compiled: what is left is the time of the work itself."""
    return perf_counter() - COMPILING.seconds


@contextmanager
def watched(watcher: Callable[[], None]) -> Iterator[None]:
    """Call `watcher` whenever the compiling of a kernel begins."""
    COMPILING.watchers.append(watcher)
    try:
        yield
    finally:
        COMPILING.watchers.remove(watcher)


def _wait_for(lock: IO[str]) -> None:
    """Until the lock is this process's, but no longer than PATIENCE. In short turns, so that signals are heard."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(0.05)
    return None


@contextmanager
def one_process(kernel: Any) -> Iterator[None]:
    """Wait while another process of this machine compiles kernels: what it compiles need not be compiled here.

    It may be stopped, or someone else's: after a while this process compiles for itself.
    kernel: one of those to be compiled, whose folder of the cache holds the lock. Where there is none, nobody waits.
    """
    lock = None
    with suppress(OSError, AttributeError):
        folder = Path(kernel.stats.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "compiling.lock").open("w")
        _wait_for(lock)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()
