"""Put the driver of a command on the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.cluster import ClusterOptions, check_workers, open_scheduler
from pipeline.driver.record import RunFolder
from pipeline.driver.submission import submit_driver
from pipeline.driver.task import Job
from pipeline.driver.terminal import stay, tell_where
from pipeline.tls import complete_address


def run_on_cluster(
    job: Job,
    folder: RunFolder,
    cluster: ClusterOptions,
    check: Callable[[], object] = lambda: None,
    *,
    detach: bool,
    quiet: bool,
    log_json: bool,
) -> bool:
    """Submit the job, unless `check` raises, and stay with it. True when it finished, False if the user detached."""
    assert cluster.scheduler is not None
    with open_scheduler(cluster.scheduler, cluster.tls) as client:
        check_workers(client)
        record, future = submit_driver(client, job, folder, complete_address(cluster.scheduler, cluster.tls), check)
        if detach:
            if not quiet:
                tell_where(folder)
            return False
        return stay(client, folder, record, future, quiet=quiet, log_json=log_json)


def shared_location(url: str, storage_options: dict[str, Any] | None) -> str:
    """The same place for a process that runs elsewhere: a local path becomes absolute."""
    return RunFolder.of(url, storage_options).url
