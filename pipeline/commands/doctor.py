"""dask-submit doctor: what is wrong with a cluster, before a long job finds out."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.shared import (
    OUTPUT,
    Location,
    apply_options,
    common_options,
    print_table,
    printable,
    set_up_logging,
    take_tls,
    tls_options,
)
from pipeline.doctor import OK, WARN, WRONG, Row

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = """
\b
Examples:
  dask-submit doctor --scheduler tcp://10.0.0.5:8786
  dask-submit doctor --scheduler tcp://10.0.0.5:8786 --storage s3://bucket/runs --storage-options @s3.json
  dask-submit doctor --scheduler tls://10.0.0.5:8786 --tls-ca-file ca.pem --tls-cert me.pem --tls-key me-key.pem
  dask-submit doctor --quiet || exit     # in a script: prints what is not well
  dask-submit doctor --storage runs      # this machine alone
"""
STYLES = {OK: "green", WARN: "yellow", WRONG: "bold red"}
MANY = 8  # workers that are well have one row together when they are more
WIDTH = 200  # characters, where the table goes into a file


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    scheduler = click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="The Dask cluster to examine (tcp://host:8786). [default: this machine, as an embedded cluster uses it]",
    )
    storage = click.option(
        "--storage",
        type=Location(),
        metavar="URL",
        help="Also try this folder: small files are written and read from here and by every worker, and deleted again.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for machines.")
    return apply_options([scheduler, storage, *tls_options(), as_json, common_options], command)


@click.command("doctor", epilog=EXAMPLES)
@_options
def doctor_command(
    scheduler: str | None,
    storage: str | None,
    as_json: bool,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    **options: Any,
) -> int:
    """Examine a cluster, or this machine, before a long job does.

    Scheduler, workers, versions, kernels, memory, disks, clocks, network and storage: each gets a row with what was
    found, and what to do if it is not well. Every question has a time limit. With --quiet, only what is not well is
    printed. Exit code 0: nothing is wrong, though there may be warnings; 2: something is.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    from pipeline.doctor.examination import examine  # here, as --help and the tab key need not wait for Dask

    rows = [_clean(row) for row in examine(scheduler, take_tls(options), storage, storage_options)]
    wrong = any(row.verdict == WRONG for row in rows)
    shown = [row for row in rows if not quiet or row.verdict != OK]
    if as_json:
        click.echo(json.dumps({"well": not wrong, "rows": [asdict(row) for row in shown]}, ensure_ascii=False))
    elif shown:
        print_table(_table(shown), width=None if sys.stdout.isatty() else WIDTH)
    if not (as_json or quiet):
        click.echo(_summary(rows))
    return 2 if wrong else 0


def _clean(row: Row) -> Row:
    """Without secrets, and without what a terminal would obey: workers and stores may say anything."""
    return Row(**{name: printable(OUTPUT.scrub(value)) for name, value in asdict(row).items()})


def _summary(rows: Sequence[Row]) -> str:
    counts = Counter(row.verdict for row in rows)
    if not counts[WARN] and not counts[WRONG]:
        return "All is well."
    return f"{counts[WRONG]} wrong, {counts[WARN]} warnings, {counts[OK]} well."


def _table(rows: Sequence[Row]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("what", "where", "", "found", "what to do"):
        table.add_column(name)
    for row in _gathered(rows):
        table.add_row(row.what, row.where, Text(row.verdict, STYLES[row.verdict]), row.found, row.remedy)
    return table


def _gathered(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows; many that are well in the same way are one, with the first for an example."""
    for (_, verdict), group in groupby(rows, key=lambda row: (row.what, row.verdict)):
        alike = list(group)
        if verdict == OK and len(alike) > MANY:
            yield replace(alike[0], where=f"{len(alike)} workers", found=f"{alike[0].where}: {alike[0].found}")
        else:
            yield from alike
