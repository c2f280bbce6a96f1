"""The work of dask-submit fit: on a cluster of its own, or by a driver on a running one; and the table of its path.

Apart from the command, which declares options: --help and refusals need not wait for Dask and numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Client
from rich.table import Table

from pipeline.cluster import ClusterOptions, open_client
from pipeline.commands.shared import print_table, printable
from pipeline.display import Display, open_display, relative_gap
from pipeline.driver.launch import run_on_cluster, shared_location
from pipeline.driver.record import RunFolder
from pipeline.driver.task import Job
from pipeline.driver.terminal import interrupts_told
from pipeline.evaluation import evaluate_new
from pipeline.fit import fit_path
from pipeline.run import Run, check_output, read_path
from solver.compiling import working_seconds
from transforms import Dataset, UserError, open_dataset
from transforms.storage import StorageOptions


def fit_here(
    dataset: str,
    output: str,
    cluster: ClusterOptions,
    storage_options: dict[str, Any] | None,
    arguments: dict[str, Any],
    *,
    quiet: bool,
    log_json: bool,
) -> None:
    """Fit with the driver in this process."""
    opened = open_dataset(dataset, storage_options)
    flags = {name: arguments[name] for name in ("resume", "overwrite")}
    check_output(output, StorageOptions(storage_options or {}), **flags)
    started = working_seconds()
    with (
        interrupts_told(output, storage_options, "fit"),
        open_client(cluster) as client,
        open_display(quiet=quiet, log_json=log_json) as display,
    ):
        run = fit_job(client, display, opened, output, storage_options, **arguments)
    if not quiet:
        print_table(_summary(run.path, output, working_seconds() - started))


def fit_there(
    dataset: str,
    output: str,
    cluster: ClusterOptions,
    storage_options: dict[str, Any] | None,
    arguments: dict[str, Any],
    *,
    detach: bool,
    quiet: bool,
    log_json: bool,
) -> None:
    """Hand the work to the cluster, and stay with it unless told to detach."""
    folder = RunFolder.of(output, storage_options)
    flags = {name: arguments[name] for name in ("resume", "overwrite")}
    where = {"dataset": shared_location(dataset, storage_options), "output": folder.url}
    job = driver_job(where | {"storage_options": folder.storage} | arguments)
    how = {"detach": detach, "quiet": quiet, "log_json": log_json}
    with interrupts_told(output, storage_options, "fit"):
        finished = run_on_cluster(
            job, folder, cluster, lambda: check_output(folder.url, folder.storage, **flags), **how
        )
    if finished and not quiet:
        print_path(folder, output)


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
    run = fit_path(dataset, output, client=client, storage_options=storage_options, watcher=display, **arguments)
    try:
        evaluate_new(output, client=client, storage_options=storage_options, progress=display)
    except UserError as error:
        display.note(f"the new models are not judged ({error}): judge them with dask-submit evaluate")
    return run


def driver_job(arguments: dict[str, Any]) -> Job:
    """The work of the command as that of a driver on the cluster: started again, it resumes."""
    return Job("fit", fit_job, arguments, further={"resume": True, "overwrite": False})


def print_path(folder: RunFolder, output: str) -> None:
    """The table of a run whose driver was on the cluster."""
    record = folder.read()
    print_table(_summary(read_path(folder.url, folder.storage), output, record.seconds if record else 0.0))


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
