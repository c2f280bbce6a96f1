"""dask-submit fit: compute the regularisation path of a data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource
from distributed import Client
from rich.table import Table

from pipeline.cluster import ClusterOptions, open_client
from pipeline.commands.options import options_from, options_from_all
from pipeline.commands.shared import (
    Decorator,
    Location,
    LocationArgument,
    apply_options,
    cluster_options,
    common_options,
    print_table,
    printable,
    set_up_logging,
)
from pipeline.display import Display, open_display, relative_gap
from pipeline.driver.launch import driver_options, run_on_cluster, runs_on_cluster, shared_location
from pipeline.driver.record import RunFolder
from pipeline.driver.task import Job
from pipeline.driver.terminal import interrupts_told
from pipeline.evaluation import evaluate_new
from pipeline.factors import read_factors
from pipeline.fit import DEFAULT, RESIDENCIES, PathOptions, fit_path
from pipeline.run import Run, check_output, old_report, read_path
from solver import ALGORITHMS, LOSSES, ProblemOptions
from solver.options import options_of
from transforms import Dataset, UserError, open_dataset
from transforms.storage import StorageOptions

FIT_EXAMPLES = """
\b
Examples:
  dask-submit fit data/train --output runs/first
  dask-submit fit s3://bucket/dataset --output s3://bucket/run --scheduler tcp://10.0.0.5:8786
  dask-submit fit data/train --output runs/fine --path-length 40 --path-ratio 0.7 --tol 1e-6 --max-rounds 1000
  dask-submit fit data/train --output runs/net --l1-ratio 0.9 --standardize --class-weight balanced
  dask-submit fit data/train --output runs/paper --algorithm paper
  dask-submit fit data/train --output runs/online --algorithm truncated-gradient --learning-rate 0.3 --passes 20
  dask-submit fit data/train --output runs/first --resume
  dask-submit fit data/train --output runs/first --path-length 30 --extra-lambdas 5,3 --resume
  dask-submit fit /shared/train --output /shared/run --scheduler tcp://10.0.0.5:8786 --detach
  dask-submit fit data/train --output runs/first --scheduler tcp://10.0.0.5:8786 --driver local

With --scheduler the driver runs on the cluster, and vectors stay in its network. Ctrl-C then asks whether to detach
(the run goes on; `dask-submit attach RUN` finds it), cancel it, or go on; a second Ctrl-C detaches. In a script, where
nobody can be asked, SIGINT and SIGTERM cancel.
"""


def fit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Which λ, which problem, by which algorithm, how exact, and where columns are kept: what fit_arguments takes."""
    options: list[Decorator] = [
        *options_from(PathOptions, names={"length": "path-length", "ratio": "path-ratio", "extra": "extra-lambdas"}),
        click.option(
            "--algorithm",
            type=click.Choice(list(ALGORITHMS)),
            default=DEFAULT,
            show_default=True,
            help="The certified subspace search, d-GLMNET as published, or the online learner it was compared with.",
        ),
        *options_from(ProblemOptions, choices={"loss": list(LOSSES)}),
        click.option(
            "--penalty-factors",
            type=Location(),
            metavar="FILE",
            help="Lines of a feature id and what its penalty is multiplied by: 0 leaves a feature unpenalised, inf "
            "leaves it out. Features that are not named have 1.",
        ),
        *options_from_all({name: algorithm.Options for name, algorithm in ALGORITHMS.items()}),
        click.option("--blocks", type=click.IntRange(1), metavar="M", help="Feature blocks. [default: one a thread]"),
        click.option(
            "--residency",
            type=click.Choice(RESIDENCIES),
            default="auto",
            show_default=True,
            help="Keep columns in the workers' memory, or stream them from Parquet in every round.",
        ),
    ]
    return apply_options(options, command)


def fit_arguments(
    storage_options: dict[str, Any] | None,
    *,
    algorithm: str,
    penalty_factors: str | None,
    blocks: int | None,
    residency: str,
    **chosen: Any,
) -> dict[str, Any]:
    """What fit_options gathered, as arguments of fit_path. Refuses what the algorithm does not have."""
    _refuse_two_grids()
    path = {
        "length": chosen.pop("path_length"),
        "ratio": chosen.pop("path_ratio"),
        "lambdas": chosen.pop("lambdas"),
        "extra": chosen.pop("extra_lambdas") or (),
    }
    problem = {field.name: chosen.pop(field.name) for field in options_of(ProblemOptions)}
    given = {name: value for name, value in chosen.items() if value is not None}
    try:
        return {
            "algorithm": algorithm,
            "options": _solver_options(algorithm, given),
            "problem": ProblemOptions(**problem),
            "penalty_factors": read_factors(penalty_factors, storage_options) if penalty_factors else None,
            "path": PathOptions(**path),
            "blocks": blocks,
            "residency": residency,
        }
    except ValueError as error:
        raise UserError(str(error)) from None


@click.command("fit", epilog=FIT_EXAMPLES)
@click.argument("dataset", cls=LocationArgument)
@click.option(
    "--output", type=Location(), required=True, metavar="RUN", help="The folder of the run: path, coefficients, trace."
)
@fit_options
@click.option(
    "--resume",
    is_flag=True,
    help="Continue a run that was cut off, or add the λ that are asked for to one that is done.",
)
@click.option("--overwrite", is_flag=True, help="Replace a run at RUN.")
@cluster_options
@driver_options
@common_options
def fit_command(
    dataset: str,
    output: str,
    resume: bool,
    overwrite: bool,
    storage_options: dict[str, Any] | None,
    cluster: ClusterOptions,
    driver: str | None,
    detach: bool,
    quiet: bool,
    log_json: bool,
    log_level: str,
    **chosen: Any,
) -> int:
    """Compute the whole regularisation path of DATASET.

    For each λ, falling from λmax, the coefficients, the objective and the duality gap are stored in RUN as soon as they
    are there. A run that was cut off continues with --resume and ends the same; one that is done gets further λ, and is
    judged again by the data of its evaluation if they are where they were.
    """
    set_up_logging(log_level, quiet=quiet, log_json=log_json)
    arguments = fit_arguments(storage_options, **chosen) | {"resume": resume, "overwrite": overwrite}
    if resume and not _path_is_given():
        arguments["path"] = None
    if runs_on_cluster(cluster.scheduler, driver, detach):
        with interrupts_told(output, storage_options, "fit"):
            finished = _fit_on_cluster(
                dataset, output, cluster, storage_options, arguments, detach=detach, quiet=quiet, log_json=log_json
            )
        if finished and not quiet:
            print_path(RunFolder.of(output, storage_options), output)
        return 0
    opened = open_dataset(dataset, storage_options)
    check_output(output, StorageOptions(storage_options or {}), resume=resume, overwrite=overwrite)
    started = time.monotonic()
    with (
        interrupts_told(output, storage_options, "fit"),
        open_client(cluster) as client,
        open_display(quiet=quiet, log_json=log_json) as display,
    ):
        run = fit_job(client, display, opened, output, storage_options, **arguments)
    if not quiet:
        print_table(_summary(run.path, output, time.monotonic() - started))
    return 0


def _refuse_two_grids() -> None:
    """--lambdas are all λ: a grid beside them, from the same place, is a mistake."""
    context = click.get_current_context(silent=True)
    given = context.get_parameter_source("lambdas") if context else ParameterSource.DEFAULT
    if context is None or given is ParameterSource.DEFAULT:
        return
    for name in ("path_length", "path_ratio"):
        if context.get_parameter_source(name) is given:
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} makes a grid of λ, and --lambdas gives them one by one: leave one of them away")


def _path_is_given() -> bool:
    """Does the command line, or the configuration, say which λ?"""
    source = click.get_current_context().get_parameter_source
    names = ("path_length", "path_ratio", "lambdas", "extra_lambdas")
    return any(source(name) is not ParameterSource.DEFAULT for name in names)


def fit_job(
    client: Client,
    display: Display,
    dataset: str | Dataset,
    output: str,
    storage_options: dict[str, Any] | None,
    **arguments: Any,
) -> Run:
    """The work of the command, wherever its driver is."""
    display.stage("fit")
    before = _models_in(output, storage_options)
    run = fit_path(dataset, output, client=client, storage_options=storage_options, watcher=display, **arguments)
    try:
        evaluate_new(output, client=client, storage_options=storage_options, progress=display)
    except UserError as error:
        display.note(f"the new models are not judged ({error}): judge them with dask-submit evaluate")
    old = old_report(output, storage_options)
    if old is not None and run.done > before:
        display.note(old)
    return run


def _models_in(output: str, storage_options: dict[str, Any] | None) -> int:
    """How many models a run has; 0 if there is none, or none that can be read."""
    try:
        return len(read_path(output, storage_options))
    except UserError:
        return 0


def driver_job(arguments: dict[str, Any]) -> Job:
    """The work of the command as that of a driver on the cluster: started again, it resumes."""
    return Job("fit", fit_job, arguments, further={"resume": True, "overwrite": False})


def _fit_on_cluster(
    dataset: str,
    output: str,
    cluster: ClusterOptions,
    storage_options: dict[str, Any] | None,
    arguments: dict[str, Any],
    **how: bool,
) -> bool:
    """Hand the work to the cluster. True when it finished."""
    folder = RunFolder.of(output, storage_options)
    flags = {name: arguments[name] for name in ("resume", "overwrite")}
    where = {"dataset": shared_location(dataset, storage_options), "output": folder.url}
    job = driver_job(where | {"storage_options": folder.storage} | arguments)
    return run_on_cluster(job, folder, cluster, lambda: check_output(folder.url, folder.storage, **flags), **how)


def print_path(folder: RunFolder, output: str) -> None:
    """The table of a run whose driver was on the cluster."""
    record = folder.read()
    print_table(_summary(read_path(folder.url, folder.storage), output, record.seconds if record else 0.0))


def _solver_options(algorithm: str, chosen: dict[str, Any]) -> Any:
    """The algorithm's options; one that it does not have is refused."""
    kind = ALGORITHMS[algorithm].Options
    known = {field.name for field in options_of(kind)}
    for name in chosen:
        if name not in known:
            raise UserError(f"--{name.replace('_', '-')} does not go with --algorithm {algorithm}")
    return kind(**chosen)


def _summary(path: Sequence[dict[str, Any]], output: str, seconds: float) -> Table:
    """The path as a table, as the paper's Table 3 has it."""
    rounds = sum(row["rounds"] for row in path)
    title = f"{len(path)} models in {printable(output)}: {rounds} rounds, {seconds:.1f} s"
    table = Table(title=title, title_justify="left")
    for name in ("λ", "nonzeros", "objective", "rel. gap", "rounds", "seconds", "line search"):
        table.add_column(name, justify="right")
    for row in path:
        share = row["line_search_seconds"] / row["seconds"] if row["seconds"] else 0.0
        table.add_row(
            f"{row['lambda']:.5g}",
            f"{row['nonzeros']:,}",
            f"{row['objective']:.8g}",
            relative_gap(row["gap"], row["objective"]),
            f"{row['rounds']}{'' if row['converged'] else ' (limit)'}",
            f"{row['seconds']:.2f}",
            f"{100 * share:.0f} %",
        )
    return table
