"""dask-submit show: a run in the terminal."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.early import refuse_missing_run
from pipeline.commands.report import names_option
from pipeline.commands.shared import LocationArgument, common_options, print_table, printable, set_up_logging

if TYPE_CHECKING:
    from pipeline.choice import Choice
    from pipeline.model import PathModel

EXAMPLES = """
\b
Examples:
  dask-submit show runs/first
  dask-submit show runs/first --features 30 --feature-names vocabulary.txt
  dask-submit show runs/first --lambda-index 3
  dask-submit show runs/first --csv > path.csv                       # the models
  dask-submit show runs/first --csv --lambda-index 3 > weights.csv   # the features of one
"""
FEATURES = 10
NOTHING = "–"
FORMULA = ("=", "+", "-", "@")  # text that begins so is a formula to a spreadsheet
SPACES, CONTROLS = re.compile(r"[\t\n\v\f\r\u2028\u2029]"), re.compile(r"[\x00-\x1f\x7f-\x9f]")


@click.command("show", epilog=EXAMPLES)
@click.argument("run", cls=LocationArgument)
@click.option(
    "--lambda-index",
    type=int,
    metavar="K",
    help="Show the features of this model: 0 has the largest λ, -1 the smallest. [default: the one that predict takes]",
)
@click.option(
    "--features",
    type=click.IntRange(0),
    metavar="K",
    help=f"How many of its features, the strongest first. [default: {FEATURES}; with --csv all]",
)
@names_option
@click.option(
    "--csv",
    "as_csv",
    is_flag=True,
    help="Print CSV: the models, a line for each; with --lambda-index or --features the features of one model instead.",
)
@common_options
def show_command(
    run: str,
    lambda_index: int | None,
    features: int | None,
    feature_names: str | None,
    as_csv: bool,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
) -> int:
    """Print RUN: its models, the best of them, and the features with the largest weights in it.

    Features have the ids of the data; --feature-names gives them names. A run that is unfinished or at work is shown as
    far as it is.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    refuse_missing_run(run)
    from pipeline.choice import choose_model
    from pipeline.model import PathModel

    model = PathModel.load(run, storage_options)
    if as_csv and lambda_index is None and features is None and feature_names is None:
        _write_csv(_columns(model), [list(row.values()) for row in _rows(model)])
        return 0
    choice = choose_model(model, lambda_index)
    count = FEATURES if features is None and not as_csv else features
    strongest = _strongest(model, choice.index, count, _names(model, feature_names, storage_options))
    if as_csv:
        _write_csv(["feature", "name", "weight"], strongest)
    elif not quiet:
        _print_run(model, choice, strongest, _at_work(run, storage_options))
    return 0


def _at_work(run: str, storage_options: dict[str, Any] | None) -> str | None:
    """The process that writes the run."""
    from pipeline.stored import CLAIM
    from transforms.claim import process_at_work
    from transforms.storage import open_storage

    fs, path = open_storage(run, storage_options)
    return process_at_work(fs, f"{path}/{CLAIM}")


def _columns(model: PathModel) -> list[str]:
    return list(_rows(model)[0])


def _rows(model: PathModel) -> list[dict[str, Any]]:
    """path.parquet as it is, with the relative gap."""
    from pipeline.report.data import relative_gap

    return [{**row, "relative_gap": relative_gap(row)} for row in model.path]


def _write_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    """A value for CSV. Text loses control characters, and gets an apostrophe where it would be a formula.

    cell() in report.js does so in the report.
    """
    if not isinstance(value, str):
        return value
    text = CONTROLS.sub("\N{REPLACEMENT CHARACTER}", SPACES.sub(" ", value))
    return f"'{text}" if text.startswith(FORMULA) else text


def _names(model: PathModel, url: str | None, storage_options: dict[str, Any] | None) -> dict[int, str]:
    if url is None:
        return {}
    from pipeline.report.names import read_names
    from transforms.storage import StorageOptions

    return read_names(url, StorageOptions(storage_options or {}), model.features, model.index_base)


def _strongest(model: PathModel, index: int, count: int | None, names: dict[int, str]) -> list[tuple[int, str, float]]:
    """Feature ids, names and weights of a model, the largest weights first."""
    features, weights = model.coefficients(index)
    order = sorted(range(features.size), key=lambda k: (-abs(weights[k]), features[k]))[:count]
    return [(int(features[k]), names.get(int(features[k]), ""), float(weights[k])) for k in order]


def _print_run(
    model: PathModel, choice: Choice, strongest: Sequence[tuple[int, str, float]], at_work: str | None
) -> None:
    from pipeline.summary import judged_lines, made_lines

    click.echo("\n".join(map(printable, made_lines(model, at_work))))
    print_table(_path_table(model, choice.index))
    for line in judged_lines(model):
        click.echo(line)
    row = model.path[choice.index]
    intercept = f", intercept {row['intercept']:.5g}" if model.has_intercept else ""
    click.echo(f"Shown: model {choice.index} (λ = {row['lambda']:.5g}), {choice.why}{intercept}.")
    if strongest:
        count = row["nonzeros"]
        click.echo(
            f"{'All' if len(strongest) == count else f'The strongest {len(strongest):,} of'} {count:,} features:"
        )
        print_table(_feature_table(strongest))


def _path_table(model: PathModel, shown: int) -> Any:
    """A row for each λ; ← marks the model whose features follow."""
    from rich import box
    from rich.table import Table

    from pipeline.metrics import find_metric, metric_names
    from pipeline.metrics import shown as figure
    from pipeline.report.data import relative_gap

    judged = [name for name in metric_names(model.label_kind) if any(row.get(name) is not None for row in model.path)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    figures = [find_metric(one).label for one in judged] if judged else ["objective"]
    for name in ("", "λ", "nonzeros", "rel. gap", *figures, ""):
        table.add_column(name, justify="right", no_wrap=True)
    for k, row in enumerate(model.path):
        gap = relative_gap(row)
        limit = "" if row.get("converged") is not False else " (limit)"
        cells = [f"{row['lambda']:.5g}", f"{row['nonzeros']:,}", f"{NOTHING if gap is None else f'{gap:.1e}'}{limit}"]
        cells += [NOTHING if row.get(one) is None else figure(row[one]) for one in judged]
        cells += [] if judged else [f"{row['objective']:.6g}"]
        mark = ("←", "bold") if k == shown else ("", None)
        table.add_row(str(row["index"]), *cells, mark[0], style=mark[1])
    return table


def _feature_table(strongest: Sequence[tuple[int, str, float]]) -> Any:
    from rich import box
    from rich.table import Table

    named = any(name for _, name, _ in strongest)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("feature", justify="right")
    if named:
        table.add_column("name")
    table.add_column("weight", justify="right")
    for feature, name, weight in strongest:
        table.add_row(str(feature), *([printable(name)] if named else []), f"{weight:+.5g}")
    return table
