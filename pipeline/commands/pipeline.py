"""dask-submit pipeline: from text to models, their quality and a report, in one command."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from pipeline.cluster_options import ClusterOptions
from pipeline.commands.convert import convert_options
from pipeline.commands.early import refuse_missing_inputs
from pipeline.commands.fit import fit_arguments, fit_options
from pipeline.commands.score import metric_option
from pipeline.commands.shared import Location, cluster_options, common_options, set_up_logging
from pipeline.driver.options import driver_options, runs_on_cluster
from pipeline.fit_options import HELD_OUT

if TYPE_CHECKING:
    from pipeline.stages import PipelineOptions

EXAMPLES = """
\b
Examples:
  dask-submit pipeline --train data/train.svm --test data/test.svm --output runs/first
  dask-submit pipeline --train data/day-*.svm.gz --output runs/days --validation-fraction 0.1
  dask-submit pipeline --train data/train --test data/test.svm --output runs/exact --gap 1e-4 --path-length 40
  zcat data/day-*.gz | dask-submit pipeline --train - --output runs/days
  dask-submit pipeline --train data/prices.svm --output runs/prices --loss squared
  dask-submit pipeline --train 's3://bucket/train/*.gz' --test s3://bucket/test --output s3://bucket/run \\
      --scheduler tcp://10.0.0.5:8786 --detach

With --scheduler the driver runs on the cluster; see `dask-submit fit --help`, `dask-submit attach --help`.
"""
CONVERT = ("partitions", "strategy", "zero_based", "positive_label", "on_bad_line", "max_line_bytes", "block_size")


class SeveralValues(click.Command):
    """A command whose options that may be repeated also take several values at once, as a shell's glob gives them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        repeated = {name for one in self.params if getattr(one, "multiple", False) for name in one.opts}
        words: list[str] = []
        option = ""  # the one whose values these are
        for word in args:
            if word.startswith("-") and word != "-":
                option = word if word in repeated else ""
            elif option and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


@click.command("pipeline", cls=SeveralValues, epilog=EXAMPLES)
@click.option(
    "--train",
    type=Location(),
    multiple=True,
    required=True,
    metavar="T...",
    help="LIBSVM text to train on (files, globs, folders, plain or compressed; - is standard input), or a data set "
    "made by convert-libsvm.",
)
@click.option(
    "--test",
    type=Location(),
    multiple=True,
    metavar="U...",
    help="LIBSVM text or data sets to judge the models by. They do not choose the best: held-out examples do.",
)
@click.option(
    "--validation-fraction",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="F",
    help="Hold this share of the examples out of training and choose the best model by them; 0: train on all, and "
    f"choose by BIC. [default: {HELD_OUT}]",
)
@click.option(
    "--choose-by-test",
    is_flag=True,
    help="Choose the best model by the test data, and hold nothing out: its figures are then too good.",
)
@click.option(
    "--output",
    type=Location(),
    required=True,
    metavar="RUN",
    help="The folder of the run: data set, path, coefficients, trace, report.html.",
)
@click.option("--feature-names", type=Location(), metavar="FILE", help="Names of features for the report; see report.")
@click.option("--overwrite", is_flag=True, help="Redo the stages whose inputs or options have changed.")
@metric_option
@convert_options
@fit_options
@cluster_options
@driver_options
@common_options
def pipeline_command(
    train: tuple[str, ...],
    test: tuple[str, ...],
    validation_fraction: float | None,
    choose_by_test: bool,
    output: str,
    feature_names: str | None,
    overwrite: bool,
    metric: str | None,
    storage_options: dict[str, Any] | None,
    cluster: ClusterOptions,
    driver: str | None,
    detach: bool,
    quiet: bool,
    log_json: bool,
    log_level: str,
    **chosen: Any,
) -> int:
    """Convert text, fit the whole path, judge its models and write the report, all in RUN.

    A stage that is done already, from the same inputs with the same options, is passed over; after a crash the same
    command goes on where it was. The converted data set stays in RUN/data. With --loss squared the labels of text are
    numbers.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    convert = {name: chosen.pop(name) for name in CONVERT}
    fit = fit_arguments(storage_options, **chosen)
    on_cluster = runs_on_cluster(cluster.scheduler, driver, detach)
    if not on_cluster:  # or else the files may be the cluster's
        refuse_missing_inputs((*train, *test), storage_options)
    # Here, as --help and refusals need not wait for them.
    from pipeline.display import open_display
    from pipeline.driver.terminal import interrupts_told
    from pipeline.stages import PipelineOptions, run_pipeline
    from pipeline.summary import summary_lines
    from transforms.streams import spooled

    options = PipelineOptions(
        train,
        output,
        test,
        validation_fraction,
        choose_by_test,
        convert,
        fit,
        metric,
        feature_names,
        overwrite,
    )
    if on_cluster:
        how = {"detach": detach, "quiet": quiet, "log_json": log_json}
        with interrupts_told(output, storage_options, "pipeline"), spooled((*train, *test), cluster.scheduler):
            finished = _run_on_cluster(options, storage_options, cluster, **how)
        if finished and not quiet:
            click.echo("\n".join(summary_lines(output, storage_options)))
        return 0
    with (
        interrupts_told(output, storage_options, "pipeline"),
        spooled((*train, *test), cluster.scheduler) as files,
        open_display(quiet=quiet, log_json=log_json) as display,
    ):
        options = replace(options, train=tuple(files[: len(train)]), test=tuple(files[len(train) :]))
        run_pipeline(options, client=cluster, display=display, storage_options=storage_options)
    if not quiet:
        click.echo("\n".join(summary_lines(output, storage_options)))
    return 0


def _run_on_cluster(
    options: PipelineOptions, storage_options: dict[str, Any] | None, cluster: ClusterOptions, **how: Any
) -> bool:
    """Hand the work to the cluster, with locations that mean the same there. True when it finished."""
    from pipeline.driver.launch import run_on_cluster, shared_location
    from pipeline.driver.record import RunFolder
    from pipeline.driver.task import Job
    from pipeline.stages import run_pipeline

    folder = RunFolder.of(options.output, storage_options)
    names = options.feature_names
    there = replace(
        options,
        train=tuple(shared_location(one, storage_options) for one in options.train),
        test=tuple(shared_location(one, storage_options) for one in options.test),
        output=folder.url,
        feature_names=None if names is None else shared_location(names, storage_options),
    )
    job = Job("pipeline", run_pipeline, {"options": there, "storage_options": folder.storage})
    return run_on_cluster(job, folder, cluster, **how)
