"""The examinations in their order. A scheduler that is not there, or goes away meanwhile, ends them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from distributed import Client

from pipeline.cluster import open_scheduler
from pipeline.doctor.machine import check_kernel_here, check_kernels, check_machine_here, check_machines
from pipeline.doctor.network import check_network
from pipeline.doctor.row import WRONG, Row
from pipeline.doctor.scheduler import check_security, find_workers
from pipeline.doctor.storage import check_storage
from pipeline.doctor.versions import check_versions, check_versions_here
from pipeline.tls import TlsFiles
from transforms import UserError
from transforms.errors import ClusterLost

logger = logging.getLogger("dglmnet")
CHECKS = {
    "versions": check_versions,
    "kernels": check_kernels,
    "memory and disk": check_machines,
    "clocks and network": check_network,
}


def examine(
    scheduler: str | None, tls: TlsFiles, storage: str | None, storage_options: dict[str, Any] | None
) -> Iterator[Row]:
    """Rows as they are found, of the cluster or, without a scheduler, of this machine."""
    if scheduler is None:
        if tls.given():
            raise UserError(f"{tls.given()[0]} needs --scheduler: an embedded cluster does not leave this machine")
        yield from _examine_here(storage, storage_options)
        return
    try:
        with open_scheduler(scheduler, tls) as client:
            yield from _examine_cluster(client, storage, storage_options)
    except UserError as error:
        yield Row("scheduler", "scheduler", str(error), WRONG, "nothing else could be looked at")
    except ClusterLost as error:
        yield Row("scheduler", "scheduler", error.what, WRONG, "restart it; nothing else could be looked at")


def _examine_here(storage: str | None, options: dict[str, Any] | None) -> Iterator[Row]:
    yield from _look("versions", check_versions_here)
    yield from _look("kernels", check_kernel_here)
    yield from _look("memory and disk", check_machine_here)
    if storage is not None:
        yield from _look("storage", lambda: check_storage(storage, options, None))


def _examine_cluster(client: Client, storage: str | None, options: dict[str, Any] | None) -> Iterator[Row]:
    cluster, rows = find_workers(client)
    yield from _look("scheduler", lambda: check_security(cluster, client.scheduler.address))
    yield from rows
    for name, check in CHECKS.items():
        yield from _look(name, partial(check, cluster))
    if storage is not None:
        yield from _look("storage", lambda: check_storage(storage, options, cluster))


def _look(name: str, check: Callable[[], list[Row]]) -> Iterator[Row]:
    logger.info("looking at %s", name)
    yield from check()
