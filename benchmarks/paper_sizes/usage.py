"""The time a piece of work takes, and the memory and disk at its peak, sampled while it runs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.measure import cpu_seconds

INTERVAL = 0.5  # seconds between samples


@dataclass
class Usage:
    """Seconds of wall and CPU time, and peaks in bytes. On a busy machine CPU time says more."""

    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    disk: int = 0


class Watch:
    """Samples the resident memory of this process and all below it, and the disk that a folder takes."""

    def __init__(self, folder: Path) -> None:
        self.usage = Usage()
        self._folder, self._began, self._cpu_before = folder, time.perf_counter(), cpu_seconds()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_on, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()
        self.usage.seconds = time.perf_counter() - self._began
        self.usage.cpu = cpu_seconds() - self._cpu_before

    def _sample_on(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._sample()

    def _sample(self) -> None:
        self.usage.memory = max(self.usage.memory, resident_memory())
        self.usage.disk = max(self.usage.disk, disk_used(self._folder))


def resident_memory() -> int:
    """Of this process and all that it started."""
    own = psutil.Process()
    total: int = own.memory_info().rss
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            total += child.memory_info().rss
    return total


def disk_used(folder: Path) -> int:
    """Bytes on the disk of all files in a folder and below."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # moved or removed meanwhile
                total += 512 * os.lstat(f"{place}/{name}").st_blocks
    return total
