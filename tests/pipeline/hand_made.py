"""A scheduler and workers started by hand, as on a real cluster, for the tests of what runs there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from pipeline.tls import TlsFiles, make_security
from tests.services.certificates import Certificates


class HandMade:
    """`dask scheduler` and `dask worker` processes on loopback, ended with the test; their logs are in the folder."""

    def __init__(
        self, folder: Path, environment: dict[str, str] | None = None, tls: Certificates | None = None
    ) -> None:
        self.folder = folder
        self._tls = tls.options if tls else ()
        self._file = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}  # by the worker's name, or "scheduler"
        where: tuple[str, ...] = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        where += ("--protocol", "tls") if tls else ()
        self.processes["scheduler"] = self._start("scheduler", *where, environment=environment)
        security = make_security("tls://", TlsFiles(str(tls.ca_file), str(tls.cert), str(tls.key))) if tls else None
        self.client = Client(scheduler_file=str(self._file), set_as_default=False, timeout=60, security=security)
        self.address: str = self.client.scheduler.address

    def worker(
        self, name: str, environment: dict[str, str] | None = None, more: Sequence[str] = ("--no-nanny",)
    ) -> subprocess.Popen[bytes]:
        words = ("worker", "--host", "127.0.0.1", "--nthreads", "1", "--name", name, *more)
        process = self._start(*words, environment=environment)
        running = sum(one.poll() is None for one in self._processes)
        self.client.wait_for_workers(running - 1, timeout=60)
        self.processes[name] = process
        return process

    def _start(self, *words: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{words[0]}-{len(self._processes)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words, "--scheduler-file", str(self._file), *self._tls],
            cwd=self.folder,
            env=os.environ | (environment or {}),
            stdout=log,
            stderr=log,
        )
        log.close()
        self._processes.append(process)
        return process

    def close(self) -> None:
        self.client.close()
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@contextmanager
def two_workers(folder: Path, environment: dict[str, str] | None = None) -> Iterator[HandMade]:
    """A cluster with workers a and b; the environment is the scheduler's."""
    made = HandMade(folder, environment)
    try:
        made.worker("a")
        made.worker("b")
        yield made
    finally:
        made.close()


def soon(what: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until something is so; return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not so within {seconds} s")
