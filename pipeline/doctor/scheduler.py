"""Is the scheduler there, who may reach it, and do its workers answer?"""

from __future__ import annotations

import os
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from distributed import Client

from pipeline.doctor.questions import PATIENCE_SECONDS, Cluster, Failure
from pipeline.doctor.row import OK, WARN, WRONG, Row
from transforms.liveness import ask_workers, registered_workers


def check_security(cluster: Cluster, address: str) -> list[Row]:
    """A scheduler runs what it is sent by whoever reaches its port."""
    found = cluster.ask_scheduler(_listening())
    if isinstance(found, Failure):
        return [Row("scheduler", "scheduler", f"answers at {address}, and then: {found.reason}", WRONG, "see its log")]
    if found.startswith("tls://"):
        return [Row("scheduler", "scheduler", f"answers at {address}, by TLS")]
    if all(_is_loopback(one) for one in (found, address)):
        return [Row("scheduler", "scheduler", f"answers at {address}, not encrypted, for this machine only")]
    said = f"answers at {address}, not encrypted, listens at {found}"
    remedy = "whoever reaches this port can run programs on the workers: use TLS, or a network that is closed to others"
    return [Row("scheduler", "scheduler", said, WARN, remedy)]


def _listening() -> Callable[..., str]:
    def look(scheduler: Any) -> str:
        address: str = scheduler.listen_address
        return address

    return look


def _is_loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def find_workers(client: Client) -> tuple[Cluster, list[Row]]:
    """The workers that answer, and a row for each, with those that do not."""
    known = registered_workers(client)
    if not known:
        remedy = "start some with `dask worker`, and look into their logs if they do not stay"
        return Cluster(client, {}), [Row("workers", "scheduler", "it has no workers", WRONG, remedy)]
    answers, silent = ask_workers(client, os.getpid, patience=PATIENCE_SECONDS)
    rows = []
    for worker in silent:
        said = f"at {worker.address} does not answer, last heard of {worker.seconds:.0f} s ago"
        remedy = "is it stopped, swapping, or cut off from the network? Restart it or end it"
        rows.append(Row("answers", str(worker.name), said, WRONG, remedy))
    names = {address: str(worker.name) for address, worker in known.items() if address in answers}
    cluster = Cluster(client, names)
    for name, found in cluster.ask(_standing()).items():
        rows.append(_standing_row(name, found))
    return cluster, rows


def _standing() -> Callable[..., dict[str, Any]]:
    def look(worker: Any) -> dict[str, Any]:
        return {
            "address": worker.address,
            "threads": worker.state.nthreads,
            "nanny": worker.nanny is not None,
            "status": worker.status.name,
        }

    return look


def _standing_row(name: str, found: dict[str, Any] | Failure) -> Row:
    if isinstance(found, Failure):
        return Row("answers", name, found.reason, WRONG, "see its log; restart it or end it")
    nanny = "" if found["nanny"] else ", no nanny: nobody restarts it, or holds it to its memory limit"
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    said = f"at {found['address']}, {threads}{nanny}"
    if found["status"] == "paused":
        remedy = "it takes no tasks before it has memory: end other jobs, or give it more (--memory-limit)"
        return Row("answers", name, f"{said}; paused, its memory is nearly full", WARN, remedy)
    return Row("answers", name, said, OK)
