"""dask-submit fit: compute the regularisation path of a data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from pipeline.cluster_options import ClusterOptions
from pipeline.commands.early import refuse_existing, refuse_missing_dataset
from pipeline.commands.options import options_from, options_from_all
from pipeline.commands.shared import (
    Decorator,
    Location,
    LocationArgument,
    apply_options,
    cluster_options,
    common_options,
    set_up_logging,
)
from pipeline.driver.options import driver_options, runs_on_cluster
from pipeline.fit_options import DEFAULT, RESIDENCIES, PathOptions
from solver.algorithms import OPTIONS
from solver.losses import LOSSES
from solver.options import ProblemOptions, options_of
from transforms.errors import UserError

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
            type=click.Choice(list(OPTIONS)),
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
        *options_from_all(OPTIONS),
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
            "penalty_factors": _factors(penalty_factors, storage_options),
            "path": PathOptions(**path),
            "blocks": blocks,
            "residency": residency,
        }
    except ValueError as error:
        raise UserError(str(error)) from None


def _factors(url: str | None, storage_options: dict[str, Any] | None) -> dict[int, float] | None:
    if not url:
        return None
    from pipeline.factors import read_factors

    return read_factors(url, storage_options)


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
    on_cluster = runs_on_cluster(cluster.scheduler, driver, detach)
    if not on_cluster:  # or else the folders may be the cluster's
        refuse_missing_dataset(dataset, storage_options)
        if not (resume or overwrite):
            remedy = "continue it with --resume or replace it with --overwrite"
            refuse_existing(output, "run.json", "a run is there already", remedy)
    from pipeline.commands.fit_work import fit_here, fit_there  # here, as --help and refusals need not wait for them

    if on_cluster:
        how = {"detach": detach, "quiet": quiet, "log_json": log_json}
        fit_there(dataset, output, cluster, storage_options, arguments, **how)
    else:
        fit_here(dataset, output, cluster, storage_options, arguments, quiet=quiet, log_json=log_json)
    return 0


def _path_is_given() -> bool:
    """Does the command line, or the configuration, say which λ?"""
    source = click.get_current_context().get_parameter_source
    names = ("path_length", "path_ratio", "lambdas", "extra_lambdas")
    return any(source(name) is not ParameterSource.DEFAULT for name in names)


def _solver_options(algorithm: str, chosen: dict[str, Any]) -> Any:
    """The algorithm's options; one that it does not have is refused."""
    kind = OPTIONS[algorithm]
    known = {field.name for field in options_of(kind)}
    for name in chosen:
        if name not in known:
            raise UserError(f"--{name.replace('_', '-')} does not go with --algorithm {algorithm}")
    return kind(**chosen)
