"""The driver's part of a path's CPU seconds, when workers share the search and when they do not.

    python -m benchmarks.bench_share [--names epsilon,webspam,dna] [--scale 0.05] [--workers 4] [--folder F]

Look-alikes of the paper's data sets (benchmarks/paper_sizes) are made, converted and fitted on worker processes. What
the driver does is what remains when machines are added; its share of the CPU seconds is the figure. With one machine
for all, clock time says nothing of that. Loading, placing and compiling are left out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import click
import numpy as np
import psutil
from distributed import Client

from benchmarks.paper_sizes.published import PUBLISHED
from benchmarks.paper_sizes.stages import Experiment
from pipeline.blocks import DaskBlocks
from pipeline.cluster import ClusterOptions, open_client
from pipeline.placement import list_workers, make_groups
from pipeline.resident import ExampleOptions
from solver import Blocks, DefaultOptions, Penalty, Problem, Solution, lambda_grid, null_model, solve_path
from solver.algorithms.certified import sharing
from solver.algorithms.certified.tuning import SHARING
from transforms import Dataset, open_dataset

NOBODY = replace(SHARING, call=np.inf)


@dataclass(frozen=True)
class Spent:
    """CPU seconds of a path, and its last objective."""

    driver: float
    workers: float
    last: Solution

    def __str__(self) -> str:
        total = self.driver + self.workers
        return f"{self.driver:.1f} of {total:.1f} ({100 * self.driver / total:.0f} %)"


def spent(processes: list[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def measure(blocks: Blocks, dataset: Dataset, workers: list[psutil.Process], length: int) -> Spent:
    """A path of this length; a short one before it compiles what it needs."""
    problem = Problem(ExampleOptions().examples(dataset), Penalty(dataset.p), intercept=True)
    null = null_model(blocks, problem)
    lambdas = lambda_grid(null.lambda_max, length)
    list(solve_path(blocks, problem, lambdas[: length // 2], DefaultOptions(), null=null))
    before = spent([psutil.Process()]), spent(workers)
    *_, last = solve_path(blocks, problem, lambdas, DefaultOptions(), null=null)
    return Spent(spent([psutil.Process()]) - before[0], spent(workers) - before[1], last)


def compare(client: Client, name: str, folder: Path, length: int) -> str:
    """One row of the table."""
    dataset, there = open_dataset(str(folder / "data")), list_workers(client)
    groups = make_groups(len(dataset.partitions), len(there), there)
    workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
    with DaskBlocks(client, dataset, groups, "memory", workers=there) as blocks:
        together = measure(blocks, dataset, workers, length)
        with patch.object(sharing, "SHARING", NOBODY):
            alone = measure(blocks, dataset, workers, length)
    difference = abs(together.last.objective / alone.last.objective - 1.0)
    return f"| {name}, {dataset.n:,} × {dataset.p:,} | {alone} | {together} | {difference:.0e} |"


@click.command()
@click.option("--names", default=",".join(PUBLISHED), show_default=True, help="Data sets, separated by commas.")
@click.option("--scale", default=0.05, show_default=True, help="Share of their rows.")
@click.option("--workers", default=4, show_default=True, help="Worker processes.")
@click.option("--length", default=12, show_default=True, help="λ in the path: λmax/2 … λmax/2^LENGTH.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where data are kept; by default nowhere.")
def main(names: str, scale: float, workers: int, length: int, folder: Path | None) -> None:
    """Print the table."""
    click.echo("| data | CPU s of the driver, alone | with the workers | difference of f |\n|---|---|---|---|")
    with TemporaryDirectory(prefix="dglmnet-share-") as scratch:
        for name in names.split(","):
            made = Experiment(name, scale, (folder or Path(scratch)) / f"{name}-{scale:g}")
            made.run(["text", "convert"])
            with open_client(ClusterOptions(workers=workers, processes=True)) as client:
                click.echo(compare(client, name, made.folder, length))


if __name__ == "__main__":
    main()
