"""dask-submit attach, status, cancel: find a run on the cluster again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.shared import (
    Decorator,
    LocationArgument,
    apply_options,
    common_options,
    printable,
    set_up_logging,
    take_tls,
    tls_options,
)
from transforms.errors import UserError

if TYPE_CHECKING:
    from pipeline.driver.record import RunFolder

EXAMPLES = {
    "attach": """
\b
Examples:
  dask-submit attach runs/first
  dask-submit attach s3://bucket/run --storage-options @s3.json
""",
    "status": """
\b
Examples:
  dask-submit status runs/first
  dask-submit status s3://bucket/run --json
""",
    "cancel": """
\b
Examples:
  dask-submit cancel runs/first
  dask-submit cancel s3://bucket/run --scheduler tcp://10.0.0.5:8786
""",
}


def _run_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    options: list[Decorator] = [
        click.argument("run", cls=LocationArgument),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Ask there. [default: where the run was submitted, if that is this machine or tls://]",
        ),
        *tls_options(),
        common_options,
    ]
    return apply_options(options, command)


@click.command("attach", epilog=EXAMPLES["attach"])
@_run_argument
def attach_command(
    run: str,
    scheduler: str | None,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    **options: Any,
) -> int:
    """Follow the run on the cluster that writes RUN, to its end.

    As if the terminal had stayed with it: the same display, the same table, the same exit code. Ctrl-C asks whether to
    detach again, cancel the run, or go on; in a script, where nobody can be asked, it cancels.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    from pipeline.cluster import open_scheduler  # here and below, as --help and the tab key need not wait for Dask
    from pipeline.driver.record import RunFolder
    from pipeline.driver.submission import find_future, recorded, scheduler_of
    from pipeline.driver.task import Outcome
    from pipeline.driver.terminal import conclude, interrupts_told, stay

    folder = RunFolder.of(run, storage_options)
    record = recorded(folder)
    if record.over:
        finished = conclude(Outcome(record.state, record.message, record.usage))
    else:
        where, tls = scheduler_of(folder, record, scheduler), take_tls(options)
        with interrupts_told(run, storage_options, record.command), open_scheduler(where, tls) as client:
            future = find_future(client, folder, record)
            finished = stay(client, folder, record, future, quiet=quiet, log_json=log_json)
    if finished and not quiet:
        _print_result(record.command, folder, run)
    return 0


def _print_result(command: str, folder: RunFolder, output: str) -> None:
    """What the command that submitted the run prints at its end."""
    from pipeline.commands.fit_work import print_path
    from pipeline.summary import summary_lines

    if command == "pipeline":
        click.echo("\n".join(summary_lines(output, folder.storage)))
    else:
        print_path(folder, output)


@click.command("status", epilog=EXAMPLES["status"])
@_run_argument
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for machines.")
def status_command(
    run: str,
    scheduler: str | None,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Say how a run stands.

    Running, finished, failed, cancelled or cut off; how many λ are done; the round at work; where the driver is. A run
    whose scheduler is gone is told from the files of RUN.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    from pipeline.driver.record import RunFolder
    from pipeline.driver.status import read_status, status_lines

    status = read_status(RunFolder.of(run, storage_options), scheduler, take_tls(options))
    click.echo(json.dumps(status, ensure_ascii=False) if as_json else "\n".join(map(_plain, status_lines(status))))
    return 0


def _plain(line: str) -> str:
    """The line, its margin kept, without what a terminal would obey: driver.json may say anything."""
    return " " * (len(line) - len(line.lstrip(" "))) + printable(line)


@click.command("cancel", epilog=EXAMPLES["cancel"])
@_run_argument
def cancel_command(
    run: str,
    scheduler: str | None,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    **options: Any,
) -> int:
    """End the run on the cluster that writes RUN.

    It ends at its next round. What is done is kept: a fit is continued with --resume, a pipeline by the same command.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    from pipeline.cluster import open_scheduler
    from pipeline.driver.follow import Follower
    from pipeline.driver.record import CANCELLED, RunFolder
    from pipeline.driver.status import kept_line
    from pipeline.driver.submission import find_future, recorded, scheduler_of
    from pipeline.driver.terminal import cancel

    folder = RunFolder.of(run, storage_options)
    record = recorded(folder)
    if record.over:
        raise UserError(f"{folder.shown}: nothing to cancel: the run is {record.state}")
    with open_scheduler(scheduler_of(folder, record, scheduler), take_tls(options)) as client:
        follower = Follower(client, folder, record, find_future(client, folder, record))
        outcome = cancel(client, folder, record, follower)
    kept = f": {kept_line(folder, record.command)}" if outcome.state == CANCELLED else ""
    click.echo(f"{folder.shown}: {outcome.state}{kept}", err=True)
    return 0
