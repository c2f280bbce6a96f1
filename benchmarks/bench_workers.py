"""Two workers against one, on threads of one process and on processes under Dask, and where the rest of the time goes.

    python -m benchmarks.bench_workers [--data DIR] [--names imdb,splice] [--length 10]

Workers sweep the data and hand out columns; the subspace search is the driver's own. So the speed-up of the path is
bounded by the share of the sweeps, which the table shows. Loading, placing and compiling are left out.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import scipy.sparse as sp

from benchmarks.reference import read_data
from benchmarks.timed_blocks import TimedBlocks
from pipeline.blocks import DaskBlocks
from pipeline.cluster import ClusterOptions, open_client
from pipeline.placement import list_workers, make_groups
from solver import Blocks, DefaultOptions, Examples, Penalty, Problem, ThreadBlocks, lambda_grid, null_model, solve_path
from transforms import Dataset, from_arrays


@dataclass(frozen=True)
class Spent:
    """Seconds of a path, and their parts."""

    total: float
    sweeps: float
    columns: float
    search: float

    @property
    def rest(self) -> float:
        return self.total - self.sweeps - self.columns - self.search


def measure(blocks: Blocks, examples: Examples, length: int, repeat: int) -> Spent:
    """The fastest of several paths; the first one, in which code is compiled, does not count."""
    problem = Problem(examples, Penalty(blocks.layout.size))
    lambdas = lambda_grid(null_model(blocks, problem).lambda_max, length)
    spent = [one_path(blocks, problem, lambdas) for _ in range(repeat + 1)]
    return min(spent[1:], key=lambda one: one.total)


def one_path(blocks: Blocks, problem: Problem, lambdas: list[float]) -> Spent:
    clock, began = TimedBlocks(blocks), time.perf_counter()
    path = list(solve_path(clock, problem, lambdas, DefaultOptions()))
    total = time.perf_counter() - began
    search = sum(solution.line_search_seconds for solution in path)
    return Spent(total, clock.seconds["sweep"], clock.seconds["columns"], search)


@contextmanager
def on_threads(X: sp.csr_matrix, examples: Examples, dataset: Dataset, workers: int) -> Iterator[Blocks]:
    order = np.concatenate([np.arange(first, X.shape[1], 2) for first in range(2)])
    with ThreadBlocks.from_csc(X.tocsc()[:, order], examples, workers, threads=workers) as blocks:
        yield blocks


@contextmanager
def on_processes(X: sp.csr_matrix, examples: Examples, dataset: Dataset, workers: int) -> Iterator[Blocks]:
    with open_client(ClusterOptions(workers=workers, processes=True)) as client:
        there = list_workers(client)
        groups = make_groups(len(dataset.partitions), workers, there)
        with DaskBlocks(client, dataset, groups, "memory", workers=there) as blocks:
            yield blocks


PLACES = {"threads": on_threads, "processes, Dask": on_processes}


def compare(name: str, X: sp.csr_matrix, y: np.ndarray, scratch: Path, length: int, repeat: int) -> None:
    """One row for each place."""
    examples = Examples.of(y)
    dataset = from_arrays(X, y, str(scratch / name), partitions=2)
    for where, opened in PLACES.items():
        found = []
        for workers in (1, 2):
            with opened(X, examples, dataset, workers) as blocks:
                found.append(measure(blocks, examples, length, repeat))
        click.echo(f"| {name} | {where} | {row(*found)} |")


def row(one: Spent, two: Spent) -> str:
    parts = ("total", "sweeps", "columns", "search", "rest")
    cells = [f"{getattr(one, part):.2f} → {getattr(two, part):.2f}" for part in parts]
    bound = one.total / (one.total - one.sweeps / 2)
    return " | ".join([*cells, f"{one.total / two.total:.2f}", f"{one.sweeps / two.sweeps:.2f}", f"{bound:.2f}"])


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm; else look-alikes."
)
@click.option("--names", help="Data sets, separated by commas; by default imdb,splice, or their look-alikes.")
@click.option("--length", default=10, show_default=True, help="λ in the path: λmax/2 … λmax/2^LENGTH.")
@click.option("--repeat", default=3, show_default=True, help="Paths; the fastest counts.")
def main(data: Path | None, names: str | None, length: int, repeat: int) -> None:
    """Print the table."""
    click.echo(
        "| data | workers are | path, s, 1 → 2 | sweeps | columns | subspace search | rest | speed-up | of the sweeps "
        "| if sweeps halved |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    try:
        for name in (names or ("imdb,splice" if data else "webspam,dna")).split(","):
            compare(name, *read_data(name, data), scratch, length, repeat)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
