"""Put the driver of a command on the cluster: the options about it, and the way there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pipeline.cluster import ClusterOptions, check_workers, open_scheduler
from pipeline.commands.shared import Decorator, apply_options
from pipeline.driver.record import RunFolder
from pipeline.driver.submission import submit_driver
from pipeline.driver.task import Job
from pipeline.driver.terminal import stay, tell_where
from pipeline.tls import complete_address
from transforms import UserError


def driver_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the driver runs, and whether the terminal stays with it."""
    options: list[Decorator] = [
        click.option(
            "--driver",
            type=click.Choice(["cluster", "local"]),
            help="Where the outer loop runs: on the cluster, where it goes on without this terminal, or in this "
            "process. [default: cluster with --scheduler, local without]",
        ),
        click.option(
            "--detach",
            is_flag=True,
            help="Submit the driver to the cluster and return; find it with attach and status.",
        ),
    ]
    return apply_options(options, command)


def runs_on_cluster(scheduler: str | None, driver: str | None, detach: bool) -> bool:
    """Is the driver to run on the cluster, or in this process? What does not go together is refused."""
    if scheduler is None and (driver == "cluster" or detach):
        what = "--detach" if detach else "--driver cluster"
        raise UserError(f"{what} needs --scheduler: an embedded cluster ends with this process")
    if detach and driver == "local":
        raise UserError("--detach does not go with --driver local, which ends with this process")
    return scheduler is not None and driver != "local"


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
