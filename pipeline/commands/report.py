"""dask-submit report: a run as a page to look at."""

from __future__ import annotations

from typing import Any

import click

from pipeline.commands.early import refuse_missing_run
from pipeline.commands.shared import Decorator, Location, LocationArgument, common_options, set_up_logging

EXAMPLES = """
\b
Examples:
  dask-submit report runs/first
  dask-submit report s3://bucket/run --feature-names vocabulary.txt --output report.html
"""


names_option: Decorator = click.option(
    "--feature-names",
    type=Location(),
    metavar="FILE",
    help="Names of features, UTF-8 text: line k names feature k, counted as the data set counts them, or each line is "
    "an id, a tab and a name.",
)


@click.command("report", epilog=EXAMPLES)
@click.argument("run", cls=LocationArgument)
@click.option("--output", type=Location(), metavar="FILE", help="The file to write. [default: RUN/report.html]")
@names_option
@common_options
def report_command(
    run: str,
    output: str | None,
    feature_names: str | None,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
) -> int:
    """Write RUN as a page to look at: plots, a table per λ, and a summary in plain words.

    The page is one file that works without a network. A run that is unfinished or not evaluated gets one too, which
    says so.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    refuse_missing_run(run)
    from pipeline.report.write import write_report  # here, as --help need not wait for bokeh

    written = write_report(run, output, feature_names=feature_names, storage_options=storage_options)
    if not quiet:
        click.echo(f"Report: {written}")
    return 0
