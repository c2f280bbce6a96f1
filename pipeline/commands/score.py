"""dask-submit predict and evaluate: use and judge the models of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.convert import bad_line_option, max_line_option
from pipeline.commands.early import refuse_existing, refuse_missing_inputs, refuse_missing_run
from pipeline.commands.shared import (
    Decorator,
    Location,
    LocationArgument,
    cluster_options,
    common_options,
    print_table,
    say,
    set_up_logging,
)
from pipeline.metrics import BINARY, NUMBER, find_metric, metric_names, metrics_for, metrics_in, shown
from pipeline.prediction_files import STDOUT, kind_of

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.cluster import ClusterOptions
    from pipeline.evaluation import Evaluation
    from pipeline.scoring import Tally

PREDICT_EXAMPLES = """
\b
Examples:
  dask-submit predict runs/first data/new.svm.gz --output new.csv
  dask-submit predict runs/first data/new.svm --output - | head
  dask-submit predict s3://bucket/run 's3://bucket/day=*/part-*.gz' --output s3://bucket/scores.parquet --lambda-index 7
"""
EVALUATE_EXAMPLES = """
\b
Examples:
  dask-submit evaluate runs/first data/test.svm
  dask-submit evaluate runs/first data/train.svm --held-out
  zcat test-*.gz | dask-submit evaluate runs/first -
  dask-submit evaluate s3://bucket/run s3://bucket/test.dglmnet --metric log_loss --scheduler tcp://10.0.0.5:8786
"""


@contextmanager
def _at_work(
    stage: str,
    *,
    quiet: bool,
    log_json: bool,
    cluster: ClusterOptions,
) -> Iterator[dict[str, Any]]:
    """The cluster, which is started when it is needed, and the display that the options ask for."""
    from pipeline.display import open_display  # here, as --help and the tab key need not wait for it

    with open_display(quiet=quiet, log_json=log_json) as display:
        display.stage(stage)
        yield {"client": cluster, "progress": display}


def _arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.argument("inputs", cls=LocationArgument, nargs=-1, required=True, metavar="INPUT...")(command)
    return click.argument("run", cls=LocationArgument)(command)


@click.command("predict", epilog=PREDICT_EXAMPLES)
@_arguments
@click.option(
    "--output",
    type=Location(),
    required=True,
    metavar="FILE",
    help="The file to write: .csv, .csv.gz, .jsonl or .parquet by its name, Parquet if it has no suffix; - is standard "
    "output, as CSV.",
)
@click.option(
    "--lambda-index",
    type=int,
    metavar="K",
    help="The model: 0 has the largest λ, -1 the smallest. [default: the best found by evaluate, or else the one with "
    "the lowest BIC on the training data]",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE once the new one is complete.")
@max_line_option
@cluster_options
@common_options
def predict_command(
    run: str,
    inputs: tuple[str, ...],
    output: str,
    lambda_index: int | None,
    overwrite: bool,
    max_line_bytes: int,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    cluster: ClusterOptions,
) -> int:
    """Predict the probability of the label +1, or the number, for each example of INPUT by a model of RUN.

    INPUT: LIBSVM text (files, globs, folders, plain or .gz .bz2 .xz .zst; - is standard input), or data sets made by
    convert-libsvm. A line starts with a label; 0 will do where it is not known. FILE gets a row for each example, in
    the order of the input: example (counted from 0), margin, probability (of the label that is +1), label (the likelier
    one, as it was in training), true_label (the input's, if it is one of training); of a model with squared loss
    example, prediction, true_label. Features that the model does not know are ignored.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    kind_of(output)  # refused before anything slow is loaded
    refuse_missing_run(run)
    refuse_missing_inputs(inputs, storage_options)
    if not overwrite and output not in inputs:
        refuse_existing(output, "", "is there already")
    from pipeline.prediction import predict
    from transforms.streams import spooled

    started = time.monotonic()
    with (
        spooled(inputs, cluster.scheduler) as files,
        _at_work("predict", quiet=quiet, log_json=log_json, cluster=cluster) as work,
    ):
        done = predict(
            run,
            files,
            output,
            lambda_index=lambda_index,
            overwrite=overwrite,
            max_line_bytes=max_line_bytes,
            storage_options=storage_options,
            **work,
        )
    if not quiet:
        where = "" if output == STDOUT else f" in {done.output}"
        lines = [
            f"{done.tally.examples:,} examples{where}: {time.monotonic() - started:.1f} s. {unseen_line(done.tally)}",
            f"Predicted by model {done.lambda_index} (λ = {done.lam:.5g}): {done.why}.",
        ]
        for line in lines:
            (say if output == STDOUT else click.echo)(line)
    return 0


def _choices(kind: str) -> str:
    """The metrics of a kind of labels, in words."""
    first, *others = metrics_for(kind)
    labels = "numbers" if kind == NUMBER else "two labels"
    return f"for {labels} {first.meaning} (the default), {', '.join(metric.meaning for metric in others)}"


metric_option: Decorator = click.option(
    "--metric",
    type=click.Choice(metric_names()),
    help=f"What the best model is best by: {'; '.join(_choices(kind) for kind in (BINARY, NUMBER))}.",
)


@click.command("evaluate", epilog=EVALUATE_EXAMPLES)
@_arguments
@metric_option
@click.option(
    "--held-out",
    is_flag=True,
    help="INPUT is the text that training was converted from: judge by what convert-libsvm --hold-out left out of it.",
)
@click.option(
    "--choose/--no-choose",
    default=None,
    help="Choose the best model by these data, or only judge by them. [default: choose, unless it was chosen by "
    "held-out examples and these are others]",
)
@bad_line_option
@max_line_option
@cluster_options
@common_options
def evaluate_command(
    run: str,
    inputs: tuple[str, ...],
    metric: str | None,
    held_out: bool,
    choose: bool | None,
    on_bad_line: str,
    max_line_bytes: int,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    cluster: ClusterOptions,
) -> int:
    """Judge every model of RUN by test data, and keep the metrics in RUN.

    INPUT: LIBSVM text (files, globs, folders, plain or .gz .bz2 .xz .zst; - is standard input), or data sets made by
    convert-libsvm, with the labels of the training data. Features that training did not see are ignored and counted.
    predict takes the best. Where that was chosen by held-out examples, other data judge it, and leave it as it is; data
    with one label only never choose.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    refuse_missing_run(run)
    refuse_missing_inputs(inputs, storage_options)
    from pipeline.evaluation import evaluate
    from pipeline.run import old_report
    from transforms.streams import spooled

    started = time.monotonic()
    with (
        spooled(inputs, cluster.scheduler) as files,
        _at_work("evaluate", quiet=quiet, log_json=log_json, cluster=cluster) as work,
    ):
        work |= {"metric": metric, "held_out": held_out, "choose": choose}
        work |= {"on_bad_line": on_bad_line, "max_line_bytes": max_line_bytes}
        done = evaluate(run, files, storage_options=storage_options, **work)
    if not quiet:
        print_table(summary(done, time.monotonic() - started))
        click.echo(unseen_line(done.tally))
        for line in _what_it_means_for_the_best(done):
            click.echo(line)
        if done.tally.bad_lines:
            click.echo(f"{done.tally.bad_lines:,} bad lines were left out.")
        old = old_report(run, storage_options)
        if old is not None:
            click.echo(f"{old}.")
    return 0


def _what_it_means_for_the_best(done: Evaluation) -> list[str]:
    """Whether the run's best model is another now, or why it is not."""
    if not done.chose or done.best is None:
        stays = "none is chosen yet" if done.before is None else f"the best stays model {done.before}"
        why = "pass --choose to choose by them" if done.best is not None else "all examples have one label"
        return [f"These data judge the models and do not choose one ({why}): {stays}."]
    if done.before not in (None, done.best):
        return [f"The best is model {done.best} now; by the evaluation before it was model {done.before}."]
    return []


def summary(done: Evaluation, seconds: float) -> Table:
    """A row per λ, the best marked."""
    from rich.table import Table

    weighted = ", weighted" if done.weighted else ""
    judged = metrics_in(done.path)
    examples = f"{done.tally.examples:,} test examples{weighted}"
    best = "none is best" if done.best is None else f"← is best by {find_metric(done.metric).label}"
    title = f"{len(done.path)} models, {examples}, {seconds:.1f} s; {best}"
    table = Table(title=title, title_justify="left")
    for name in ("", "λ", "nonzeros", *(metric.label for metric in judged), ""):
        table.add_column(name, justify="right", no_wrap=True)
    for k, row in enumerate(done.path):
        metrics = ["-" if row[one.name] is None else shown(row[one.name], 5) for one in judged]
        mark = "←" if k == done.best else ""
        style = "bold" if k == done.best else None
        table.add_row(str(row["index"]), f"{row['lambda']:.5g}", f"{row['nonzeros']:,}", *metrics, mark, style=style)
    return table


def unseen_line(tally: Tally) -> str:
    """How much of the data the model could not use."""
    if tally.unseen is None:
        from pipeline.scoring import KNOWN_FEATURES

        reason = f"the training data set is not where it was, or has more than {KNOWN_FEATURES:,} features"
        return f"Features unseen in training were ignored and not counted: {reason}."
    share = 100 * tally.unseen / tally.nonzeros if tally.nonzeros else 0.0
    return f"{tally.unseen:,} of {tally.nonzeros:,} nonzeros ({share:.1f} %) belong to features unseen in training."
