"""What a worker, or this machine, has: a kernel cache, memory, room on its disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from dask.system import CPU_COUNT

from pipeline.display import amount
from pipeline.doctor.questions import Cluster, Failure
from pipeline.doctor.row import OK, WARN, WRONG, Row

KERNEL_SECONDS = 40.0  # for a kernel to be compiled, on a machine that is busy
LEAST_MEMORY = 256e6  # bytes that should be free; an idle worker itself takes 190 MB
LEAST_DISK = 1e9  # bytes that should be free


def try_kernel(_: Any) -> dict[str, Any]:
    """Run a kernel of the fit. numba loads it from its cache, or compiles it and keeps it there."""
    import tempfile

    import numpy as np

    from solver.losses.logistic import value

    ready = bool(value.signatures)
    started = time.perf_counter()
    value(np.zeros(8), np.ones(8))
    found = {"seconds": time.perf_counter() - started, "ready": ready, "folder": value.stats.cache_path}
    found["hit"] = bool(value.stats.cache_hits)
    try:
        with tempfile.TemporaryFile(dir=found["folder"]):
            found["failure"] = ""
    except OSError as error:
        found["failure"] = error.strerror or type(error).__name__
    return found


def check_kernels(cluster: Cluster) -> list[Row]:
    answers = cluster.ask(try_kernel, patience=KERNEL_SECONDS, needs_package=True)
    return [kernel_row(name, answer) for name, answer in answers.items()]


def check_kernel_here() -> list[Row]:
    return [kernel_row("here", try_kernel(None))]


def kernel_row(name: str, found: dict[str, Any] | Failure) -> Row:
    if isinstance(found, Failure):
        return Row("kernels", name, found.reason, WRONG, "see its log; is numba installed as it should be?")
    if found["failure"]:
        said = f"the cache {found['folder']} cannot be written: {found['failure']}"
        remedy = "kernels are compiled again in every process, for a minute: set NUMBA_CACHE_DIR to a writable folder"
        return Row("kernels", name, said, WARN, remedy)
    how = f"{'loaded' if found['hit'] else 'compiled'} in {found['seconds']:.2f} s"
    return Row("kernels", name, f"{'there already' if found['ready'] else how}, cache {found['folder']}", OK)


def read_machine() -> Callable[..., dict[str, Any]]:
    """A function that travels by value: memory and disk of a worker, or of this process if there is none."""

    def look(worker: Any) -> dict[str, Any]:
        import shutil
        import socket
        import tempfile

        import psutil
        from distributed.system import MEMORY_LIMIT

        folder = worker.local_directory if worker is not None else tempfile.gettempdir()
        found = {
            "host": socket.gethostname(),
            "machine": MEMORY_LIMIT,  # of the container, where there is one
            "available": psutil.virtual_memory().available,
            "used": psutil.Process().memory_info().rss,
            "limit": worker.memory_manager.memory_limit if worker is not None else None,
            "folder": folder,
            "disk": shutil.disk_usage(folder).free,
            "failure": "",
        }
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(1 << 16))
        except OSError as error:
            found["failure"] = error.strerror or type(error).__name__
        return found

    return look


def check_machines(cluster: Cluster) -> list[Row]:
    answers = cluster.ask(read_machine())
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, Failure)}
    silent = [
        Row("memory", name, answer.reason, WRONG, "see its log; restart it or end it")
        for name, answer in answers.items()
        if isinstance(answer, Failure)
    ]
    memory = [memory_row(name, one) for name, one in found.items()]
    return [*silent, *memory, *crowded_rows(found.values()), *(disk_row(name, one) for name, one in found.items())]


def check_machine_here() -> list[Row]:
    found = read_machine()(None)
    free = min(found["available"], found["machine"])
    said = f"{amount(found['machine'], 'B')}, {amount(free, 'B')} free, for {CPU_COUNT} workers of one thread each"
    low = free < CPU_COUNT * LEAST_MEMORY
    remedy = "end other programs, or use fewer workers (--workers)" if low else ""
    memory = Row("memory", "here", said, WARN if low else OK, remedy)
    return [memory, disk_row("here", found)]


def memory_row(name: str, found: dict[str, Any]) -> Row:
    if not found["limit"]:
        said = f"no limit; {amount(found['available'], 'B')} free on {found['host']}"
        remedy = "the system kills a worker that takes too much, without a word: start workers with --memory-limit"
        return Row("memory", name, said, WARN, remedy)
    free = min(found["limit"] - found["used"], found["available"])
    said = f"limit {amount(found['limit'], 'B')}, {amount(max(free, 0), 'B')} free"
    if free < LEAST_MEMORY:
        remedy = "give it more (--memory-limit), restart it, or end other programs on its machine"
        return Row("memory", name, said, WARN, remedy)
    return Row("memory", name, said, OK)


def crowded_rows(machines: Iterable[dict[str, Any]]) -> list[Row]:
    """Hosts whose workers may take more memory, together, than there is."""
    limits: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for one in machines:
        limits.setdefault(one["host"], []).append(one["limit"] or 0)
        sizes[one["host"]] = one["machine"]
    rows = []
    for host, each in limits.items():
        if sum(each) > 1.01 * sizes[host]:
            said = (
                f"the limits of its {len(each)} workers are {amount(sum(each), 'B')}, it has {amount(sizes[host], 'B')}"
            )
            rows.append(Row("memory", host, said, WARN, "start them with --memory-limit of their share of the machine"))
    return rows


def disk_row(name: str, found: dict[str, Any]) -> Row:
    said = f"{found['folder']}, {amount(found['disk'], 'B')} free"
    if found["failure"]:
        remedy = "make room, or choose another folder: --local-directory of `dask worker`, TMPDIR here"
        return Row("local disk", name, f"{said}; cannot be written: {found['failure']}", WRONG, remedy)
    if found["disk"] < LEAST_DISK:
        return Row(
            "local disk", name, said, WARN, "make room: what is spilled, and files on their way to HDFS, wait there"
        )
    return Row("local disk", name, said, OK)
