"""A scheduler and workers with nannies, each a process of its own, that can be killed and stopped by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from distributed import Client

from transforms.liveness import ask_workers, registered_workers

START_SECONDS = 120.0  # for workers to be there (again)
END_SECONDS = 30.0


@contextmanager
def soak_cluster(folder: Path, workers: int) -> Iterator[SoakCluster]:
    """The cluster; whatever ends it, all its processes end with it."""
    cluster = SoakCluster(folder, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


class SoakCluster:
    """`dask scheduler` and `dask worker --nanny` on loopback, logs in the folder."""

    client: Client
    address: str

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder, self._count = folder, workers
        self._file = folder / "scheduler.json"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._seen: set[psutil.Process] = set()
        self.left: list[int] = []  # processes that did not end, which none should be

    def start(self) -> None:
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
        for k in range(self._count):
            where = ("--host", "127.0.0.1", "--nthreads", "1", "--memory-limit", "2GB", "--name", f"w{k}")
            self._start("worker", *where, "--local-directory", str(self._folder))
        self.client = Client(scheduler_file=str(self._file), set_as_default=False, timeout=60)
        self.address = self.client.scheduler.address
        self.wait()

    def _start(self, *words: str) -> None:
        log = (self._folder / f"{words[0]}-{time.monotonic_ns()}.log").open("wb")
        command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(self._file)]
        self._processes.append(subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log))
        log.close()

    def wait(self) -> None:
        """Until every worker is there and answers: nannies start those that were killed again."""
        deadline = time.monotonic() + START_SECONDS
        while len(self.workers()) < self._count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"workers did not come back within {START_SECONDS:.0f} s: see {self._folder}")
            time.sleep(0.5)

    def workers(self) -> dict[str, psutil.Process]:
        """Name -> process of each worker that answers."""
        answers, _ = ask_workers(self.client, os.getpid, patience=5.0)
        names = {address: str(worker.name) for address, worker in registered_workers(self.client).items()}
        found = {}
        for address, pid in answers.items():
            if isinstance(pid, int) and address in names and psutil.pid_exists(pid):
                found[names[address]] = psutil.Process(pid)
        self._seen.update(found.values())
        return found

    def end(self) -> None:
        """End all processes, workers before the scheduler."""
        for process in self._processes:
            if process.poll() is None:
                self._seen.update(psutil.Process(process.pid).children(recursive=True))
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for one in self._seen:
            if one.is_running():
                one.kill()
        deadline = time.monotonic() + END_SECONDS
        while self._running() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.left = [one.pid for one in self._running()]

    def _running(self) -> list[psutil.Process]:
        """Of all processes that were seen. Not by psutil's wait: it fails where a number has become a thread's."""
        found = []
        for one in self._seen:
            with suppress(psutil.NoSuchProcess):
                if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
        return found


class Disturbance:
    """A worker is killed, or stopped for a while, some seconds after the start; not if the work is done before."""

    def __init__(self, victim: psutil.Process, delay: float, stop_seconds: float | None) -> None:
        self._victim, self._delay, self._stop_seconds = victim, delay, stop_seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-disturbance")
        self.struck = False

    @property
    def kind(self) -> str:
        return "killed" if self._stop_seconds is None else "stopped"

    def __enter__(self) -> Disturbance:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        if self._over.wait(self._delay) or not self._victim.is_running():
            return
        self.struck = True
        if self._stop_seconds is None:
            self._victim.send_signal(signal.SIGKILL)
            return
        self._victim.send_signal(signal.SIGSTOP)
        time.sleep(self._stop_seconds)
        self._victim.send_signal(signal.SIGCONT)
