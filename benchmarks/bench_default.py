"""The certified mode against scikit-learn's LIBLINEAR: the path λmax/2 … λmax/2^10, side by side in one process.

    python -m benchmarks.bench_default --data DIR [--names splice,imdb,news20,a9a] [--length 10]

DIR holds NAME.train.svm. Ours runs the path with two blocks, tol 1e-4; LIBLINEAR runs each λ from a cold start, as it
always does, tol 1e-4. For each λ: seconds of wall and of CPU time, objectives, sweeps. Loading and JIT are left out.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import LogisticRegression

from solver import DefaultOptions, Examples, Solution, ThreadBlocks, certified_path, lambda_grid, lambda_max


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, and the wall and CPU seconds it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def ours(X: Any, y: np.ndarray, length: int) -> list[tuple[Solution, float, float]]:
    examples = Examples.of(y)
    with ThreadBlocks.from_csc(X.tocsc(), examples, 2, threads=2) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = lambda_grid(largest, length)
        list(certified_path(blocks, examples, lambdas, DefaultOptions(), largest=largest))  # compiles what it needs
        solutions = certified_path(blocks, examples, lambdas, DefaultOptions(), largest=largest)
        return [timed(lambda: next(solutions)) for _ in lambdas]


def liblinear_objective(X: Any, y: np.ndarray, lam: float) -> tuple[float, float, float]:
    """LIBLINEAR's objective, and its wall and CPU seconds."""
    model = LogisticRegression(
        l1_ratio=1.0, C=1 / lam, solver="liblinear", fit_intercept=False, tol=1e-4, max_iter=1000, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tol may be out of its reach
        _, wall, cpu = timed(lambda: model.fit(X, y))
    beta = model.coef_[0]
    return float(np.logaddexp(0, -y * (X @ beta)).sum() + lam * np.abs(beta).sum()), wall, cpu


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True, help="Folder with NAME.train.svm.")
@click.option("--names", default="a9a,splice,imdb,news20", show_default=True, help="Data sets, separated by commas.")
@click.option("--length", default=10, show_default=True, help="λ in the path.")
def main(data: Path, names: str, length: int) -> None:
    """Print a table for each data set."""
    for name in names.split(","):
        X, labels = load_svmlight_file(str(data / f"{name}.train.svm"), dtype=np.float32)
        y = np.where(labels > labels.min(), 1.0, -1.0)
        found = ours(X, y, length)
        wide = X.astype(np.float64)  # the type LIBLINEAR works in: no conversion in its time
        click.echo(f"\n{name}: {X.shape[0]:,} × {X.shape[1]:,}, {X.nnz:,} nonzeros\n")
        click.echo(
            "| λ | sweeps | nonzeros | gap | ours, s (CPU) | LIBLINEAR, s (CPU) | objective, ours / LIBLINEAR − 1 |"
        )
        click.echo("|---|---|---|---|---|---|---|")
        totals = np.zeros(4)
        for k, (solution, wall, cpu) in enumerate(found):
            peer, *peer_seconds = liblinear_objective(wide, y, solution.lam)
            totals += (wall, cpu, *peer_seconds)
            gap = solution.gap / solution.objective
            click.echo(
                f"| λmax/2^{k + 1} | {solution.rounds} | {solution.nonzeros:,} | {gap:.1e} "
                f"| {wall:.2f} ({cpu:.2f}) | {peer_seconds[0]:.2f} ({peer_seconds[1]:.2f}) "
                f"| {solution.objective / peer - 1:+.1e} |"
            )
        sweeps = sum(solution.rounds for solution, _, _ in found)
        click.echo(
            f"\n{sweeps} sweeps; {totals[0]:.2f} s against {totals[2]:.2f} s: {totals[2] / totals[0]:.1f} times as fast"
            f" (CPU {totals[1]:.2f} against {totals[3]:.2f}: {totals[3] / totals[1]:.1f})"
        )


if __name__ == "__main__":
    main()
