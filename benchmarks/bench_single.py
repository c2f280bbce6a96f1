"""One λ alone, from β = 0, as a user with a single model in mind asks for it: ours, and scikit-learn's LIBLINEAR.

    python -m benchmarks.bench_single [--data DIR] [--names imdb,news20] [--powers 6,10,14]

For λmax/2^k: our seconds and passes over the data at the default tolerance, what the path of k models to it takes, and
LIBLINEAR's seconds at the loosest tolerance, of 1e-1 … 1e-6, that comes within 1e-4 of our objective. Loading and
compiling are left out.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import click
import numpy as np

from benchmarks import bench_dglmnet, bench_sklearn
from benchmarks.compare import default_names
from benchmarks.measure import timed, tolerances
from benchmarks.problem import Problem
from benchmarks.reference import read_data
from solver import lambda_grid

NEAR = 1e-4


def liblinear(problem: Problem, lam: float, enough: float) -> str:
    """Seconds at the loosest tolerance that is near enough."""
    data, last = bench_sklearn.prepare(problem), 0.0
    for rung in tolerances(1, 6):
        (beta,), last, _ = timed(partial(list, bench_sklearn.path(data, [lam], rung)))
        if problem.objective(beta, lam) <= enough:
            return f"{last:.2f} (tol {rung['tol']:g})"
    return f"> {last:.2f}"


def rows(name: str, data: Path | None, powers: list[int]) -> list[str]:
    X, y = read_data(name, data)
    largest = float(np.abs(X.T.astype(np.float64) @ y).max()) / 2
    nothing, found = np.full(1, np.nan), []
    for k in powers:
        lam = largest / 2.0**k
        problem = Problem(X.tocsr(), y, largest, np.array([lam]), nothing, nothing, False)
        ready = bench_dglmnet.prepare(problem)
        with ready.blocks:
            grid = lambda_grid(largest, k)
            list(bench_dglmnet.path(ready, grid, {}))  # compiled
            (beta,), alone, _ = timed(partial(list, bench_dglmnet.path(ready, [lam], {})))
            passes = bench_dglmnet.about(ready)["rounds"]
            _, path, _ = timed(partial(list, bench_dglmnet.path(ready, grid, {})))
        peer = liblinear(problem, lam, problem.objective(beta, lam) * (1.0 + NEAR))
        found.append(f"| {name} | λmax/2^{k} | {alone:.2f} | {passes} | {path:.2f} | {peer} |")
    return found


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm.")
@click.option("--names", help="Data sets, separated by commas; by default those of --data, or look-alikes.")
@click.option("--powers", default="6,10,14", show_default=True, help="The k of λmax/2^k.")
def main(data: Path | None, names: str | None, powers: str) -> None:
    """Print a table."""
    warnings.simplefilter("ignore")  # that a loose tolerance was not reached; objectives are what counts
    click.echo("| data | λ | ours, s | passes | path to it, s | LIBLINEAR, s |\n|---|---|---|---|---|---|")
    for name in names.split(",") if names else default_names(data):
        for row in rows(name, data, [int(k) for k in powers.split(",")]):
            click.echo(row)


if __name__ == "__main__":
    main()
