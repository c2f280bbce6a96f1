"""convert-libsvm: LIBSVM text -> a feature-partitioned data set, or a look at one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from pipeline.commands.early import refuse_existing, refuse_missing_inputs
from pipeline.commands.shared import (
    Decorator,
    Location,
    LocationArgument,
    Size,
    apply_options,
    cluster_options,
    common_options,
    print_table,
    printable,
    run_command,
    set_up_logging,
    version_option,
)
from transforms.errors import DatasetError
from transforms.strategies import STRATEGIES

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.cluster import ClusterOptions
    from transforms import Dataset
    from transforms.labels import LabelsInfo

EXAMPLES = """
\b
Examples:
  convert-libsvm train.svm.xz data/train
  convert-libsvm 's3://bucket/day=*/part-*.gz' s3://bucket/dataset --workers 8
  zcat day-*.gz | convert-libsvm - data/days
  convert-libsvm logs/ data/logs --zero-based --on-bad-line skip --overwrite
  convert-libsvm prices.svm data/prices --numeric-labels
  convert-libsvm --inspect data/train
"""


bad_line_option: Decorator = click.option(
    "--on-bad-line",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="Stop at a line that is not LIBSVM, or leave it out and count it.",
)
max_line_option: Decorator = click.option(
    "--max-line",
    "max_line_bytes",
    type=Size(),
    metavar="SIZE",
    default="1GiB",
    show_default=True,
    help="The longest line of text that is read; a longer one is a bad line.",
)


def convert_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How text is read, and how features go to partitions: arguments of convert_libsvm."""
    options: list[Decorator] = [
        click.option("--partitions", type=click.IntRange(1), help="Feature partitions. [default: by size and workers]"),
        click.option(
            "--strategy",
            type=click.Choice(STRATEGIES),
            default="spread",
            show_default=True,
            help="How features go to partitions: spread evenly, or neighbouring ids together.",
        ),
        click.option("--zero-based", is_flag=True, help="Feature ids count from 0, not from 1."),
        click.option(
            "--positive-label", type=float, metavar="L", help="The label that becomes +1. [default: the larger]"
        ),
        bad_line_option,
        max_line_option,
        click.option(
            "--block-size", type=Size(), metavar="SIZE", help="Text that one task reads. [default: 1MiB to 32MiB]"
        ),
    ]
    return apply_options(options, command)


@click.command("convert-libsvm", epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", cls=LocationArgument, nargs=-1, metavar="INPUT... OUTPUT")
@click.option(
    "--inspect", type=Location(), metavar="DATASET", help="Describe an existing data set and check that it is whole."
)
@convert_options
@click.option("--numeric-labels", is_flag=True, help="Labels are numbers, for --loss squared, not two classes.")
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="F",
    help="Leave this share of the examples out, to judge models by them: evaluate --held-out. [default: 0]",
)
@click.option("--resume", is_flag=True, help="Continue a conversion that was cut off; keep fragments if cut off again.")
@click.option("--overwrite", is_flag=True, help="Replace a data set at OUTPUT once the new one is complete.")
@cluster_options
@common_options
@version_option
def command(
    paths: tuple[str, ...],
    inspect: str | None,
    storage_options: dict[str, Any] | None,
    quiet: bool,
    log_json: bool,
    log_level: str,
    **options: Any,
) -> int:
    """Convert LIBSVM text into a data set split by features, which dask-submit trains on.

    INPUT: files, globs, folders, plain or .gz .bz2 .xz .zst, on any storage that fsspec knows (s3://, hdfs://, ...);
    - is standard input, and pipes will do, too: they are copied to a temporary file first (TMPDIR says where).
    OUTPUT: the folder of the data set. It is complete when it holds dataset.json, and not before.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    if inspect is not None:
        if paths:
            raise click.UsageError("--inspect takes one data set and nothing else")
        return _inspect(inspect, storage_options, quiet=quiet, log_json=log_json)
    if len(paths) < 2:
        raise click.UsageError("expected INPUT... OUTPUT: at least one input and the output folder")
    return _convert(list(paths[:-1]), paths[-1], storage_options, quiet=quiet, log_json=log_json, **options)


def _convert(
    inputs: list[str],
    output: str,
    storage_options: dict[str, Any] | None,
    *,
    quiet: bool,
    log_json: bool,
    cluster: ClusterOptions,
    **options: Any,
) -> int:
    refuse_missing_inputs(inputs, storage_options)
    if not (options["resume"] or options["overwrite"]):
        refuse_existing(output, "dataset.json", "a data set is there already")
    from transforms.convert import (
        check_places,
        convert_libsvm,
    )  # here, as --help and the tab key need not wait for them
    from transforms.storage import StorageOptions
    from transforms.streams import spooled

    started = time.monotonic()
    with ExitStack() as stack:
        inputs = stack.enter_context(spooled(inputs, cluster.scheduler))
        flags = {name: options[name] for name in ("resume", "overwrite")}
        check_places(inputs, output, StorageOptions(storage_options or {}), **flags)  # before a cluster is started
        from pipeline.cluster import open_client
        from pipeline.display import amount, open_display
        from solver.compiling import COMPILING, working_seconds

        client = stack.enter_context(open_client(cluster))
        to_start = time.monotonic() - started
        begun, compiled = working_seconds(), COMPILING.seconds
        with open_display(quiet=quiet, log_json=log_json) as display:
            display.stage("convert")
            dataset = convert_libsvm(
                inputs, output, storage_options=storage_options, client=client, progress=display, **options
            )
        took, compiled = working_seconds() - begun, COMPILING.seconds - compiled
    if not quiet:
        size = sum(one["size"] for one in dataset.record.inputs)
        once = f", {compiled:.1f} s to compile kernels, once" if compiled else ""
        seconds = f"{took:.1f} s, {amount(size / took, 'B')}/s (and {to_start:.1f} s to start{once})"
        print_table(_summary(dataset, [("Time", seconds)]))
    return 0


def _inspect(url: str, storage_options: dict[str, Any] | None, *, quiet: bool, log_json: bool) -> int:
    from transforms import check_dataset, open_dataset

    dataset = open_dataset(url, storage_options)
    from pipeline.display import open_display

    with open_display(quiet=quiet, log_json=log_json) as display:
        display.stage("check")
        problems = check_dataset(dataset, display)
    if problems:
        more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
        raise DatasetError(f"{problems[0]}{more}: convert again")
    if not quiet:
        print_table(_summary(dataset, [("Integrity", "checksums, order and counts are right")]))
    return 0


def _summary(dataset: Dataset, more: list[tuple[str, str]]) -> Table:
    """What a data set holds, for people."""
    from rich.table import Table

    from pipeline.display import amount

    about = dataset.record
    labels, parts = about.labels, about.partitions
    n, p, nnz = dataset.n, dataset.p, dataset.nnz
    nonzeros = [part.nnz for part in parts]
    balance = max(nonzeros) / (sum(nonzeros) / len(parts)) if sum(nonzeros) else 1.0
    rows = [
        ("Examples", f"{n:,}"),
        ("Features", f"{p:,}"),
        ("Nonzeros", f"{nnz:,} ({nnz / n if n else 0:.1f} per example)"),
        ("Density", f"{100 * nnz / (n * p) if n and p else 0:.3g} %"),
        ("Labels", _labels(dataset)),
        ("Values", "all 1, not stored" if not any(part.values for part in parts) else "float32"),
        ("Partitions", f"{len(parts)}, the largest {100 * (balance - 1):.1f} % above the mean in nonzeros"),
        ("Size", amount(sum(part.bytes for part in parts) + labels.bytes, "B")),
    ]
    if labels.weighted:
        rows.append(("Weights", _weights(labels)))
    if about.hold_out:
        rows.append(("Held out", f"{100 * about.hold_out:g} % of the examples, which are not counted here"))
    if about.bad_lines.count:
        rows.append(
            (
                "Skipped",
                f"{about.bad_lines.count:,} bad lines; the first: {about.bad_lines.first[0]}",
            )
        )
    table = Table(title=f"Data set {printable(dataset.name)}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for row in rows + more:
        table.add_row(*map(printable, row))
    return table


def _labels(dataset: Dataset) -> str:
    labels, names = dataset.record.labels, dataset.record.label_map
    if names is None:
        return f"numbers from {labels.smallest:g} to {labels.largest:g}"
    positives, negatives = labels.positives or 0, labels.negatives or 0
    share = f"{100 * positives / dataset.n:.1f} %"
    return f"{names.positive:g} → +1: {positives:,} ({share}); {names.negative:g} → −1: {negatives:,}"


def _weights(labels: LabelsInfo) -> str:
    if labels.numeric:
        return f"{labels.weight:g} in all"
    return f"+1: {labels.weight_of_positives:g}; −1: {labels.weight_of_negatives:g} in all"


def main() -> None:
    """The entry point."""
    run_command(command)
