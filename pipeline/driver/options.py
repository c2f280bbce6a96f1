"""Where the driver of a command runs: what a user says about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from pipeline.commands.shared import Decorator, apply_options
from transforms.errors import UserError


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
