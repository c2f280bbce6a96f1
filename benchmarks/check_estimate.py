"""Is the default mode's estimate of what is left on the safe side? Runs at several tol against runs to tightness.

    python -m benchmarks.check_estimate [--data DIR] [--kinds words,topics,...] [--sets 12] [--subspace-memory BYTES]

For each kind of data, `--sets` random ones: the path of 14 λ, two blocks, at tol 1e-3, 1e-4 and 1e-5, and how far each
objective is above the optimum, as a share of tol: 1 and less keeps the promise. The optimum comes from a path with a
relative gap of 1e-8. With --data, rows of real data (news20, imdb, splice, a9a) are drawn as well.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import click
import numpy as np
from scipy import sparse

from benchmarks.lookalikes import make_arrays
from benchmarks.reference import read_data
from benchmarks.two_blocks import TwoBlocks, filled_columns
from solver import DefaultOptions

Data = tuple[sparse.csc_matrix, np.ndarray]
TOLS = (1e-3, 1e-4, 1e-5)
LENGTH = 14
REAL = ("news20", "imdb", "splice", "a9a")


def dense(
    n: int, p: int, rng: np.random.Generator, *, factors: int = 0, copies: bool = False, mean: float = 0.0
) -> Data:
    """Normal values; all features share a few factors; every column is there twice; or most are far from zero."""
    X = rng.normal(size=(n, p))
    if factors:
        X = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, p)) + 0.1 * X
    if copies:
        X[:, p // 2 :] = X[:, : p // 2]
    labels = np.where(X[:, :3].sum(axis=1) + rng.normal(size=n) > 0, 1.0, -1.0)
    X += mean * (rng.random(p) < 0.7) * rng.uniform(0.3, 1.0, p)
    return sparse.csc_matrix(X.astype(np.float32)), labels


def topics(rng: np.random.Generator) -> Data:
    """Documents that mix thirty topics: groups of words that come together."""
    n, p, k = int(rng.choice([600, 2000])), 20_000, 30
    share, words = rng.dirichlet(np.full(k, 0.2), n), rng.dirichlet(np.full(p, 0.05), k)
    X = sparse.csc_matrix(rng.poisson(150 * (share @ words)).astype(np.float32))
    X.data = 1.0 + np.log(X.data)
    margins = X @ np.where(rng.random(p) < 0.05, rng.normal(size=p), 0.0)
    noise = 0.5 * margins.std() * rng.normal(size=n)
    return X, np.where(margins - np.median(margins) + noise > 0, 1.0, -1.0)


def lookalike(name: str, scales: tuple[float, ...], rng: np.random.Generator) -> Data:
    """A look-alike of fewer rows, drawn anew for each."""
    return make_arrays(name, float(rng.choice(scales)), rng)


def drawn(name: str, data: Path, rng: np.random.Generator) -> Data:
    """Some rows of a real data set."""
    X, y = _read(name, data)
    rows = np.sort(rng.choice(X.shape[0], int(rng.choice([500, 1500, 4000])), replace=False))
    return X[rows], y[rows]


_read = cache(read_data)
KINDS: dict[str, Callable[[np.random.Generator], Data]] = {
    "factors": partial(dense, 300, 40, factors=3),
    "wide factors": partial(dense, 60, 200, factors=3),
    "duplicates": partial(dense, 300, 40, copies=True),
    "wide": partial(dense, 60, 400),
    "tall": partial(dense, 1000, 12),
    "mean 10": partial(dense, 300, 40, mean=10.0),
    "mean 100": partial(dense, 300, 40, mean=100.0),
    "mean 1000": partial(dense, 300, 40, mean=1000.0),
    "wide mean 100": partial(dense, 60, 200, mean=100.0),
    "topics": topics,
    "words": partial(lookalike, "webspam", (0.03, 0.08, 0.15)),
    "dna": partial(lookalike, "dna", (0.01, 0.03)),
}


def excesses(data: Data, memory: int | None) -> np.ndarray:
    """How far the objectives are above the optima, as a share of tol: a row for each tol."""
    both = TwoBlocks(filled_columns(data[0]), data[1], LENGTH)
    with both.blocks:
        optima = both.optima(gap=1e-8)
        rows = [both.path(DefaultOptions(tol=tol, subspace_memory=memory, max_rounds=1000)) for tol in TOLS]
    found = np.array([[one.objective if one.converged else np.nan for one in row] for row in rows])
    return np.asarray((found / optima - 1.0) / np.array(TOLS)[:, None])


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm.")
@click.option("--kinds", help=f"Separated by commas: {', '.join(KINDS)}; and with --data {', '.join(REAL)}.")
@click.option("--sets", default=12, show_default=True, help="Data sets of each kind.")
@click.option("--subspace-memory", type=int, help="Bytes of the driver's store; 0: rounds split by feature alone.")
def main(data: Path | None, kinds: str | None, sets: int, subspace_memory: int | None) -> None:
    """Print a table: the largest distance from the optimum, as a share of tol."""
    makers = KINDS | ({name: partial(drawn, name, data) for name in REAL} if data else {})
    warnings.simplefilter("ignore")  # λ that did not converge are counted
    click.echo("| data | solutions | not converged | worst at 1e-3 | at 1e-4 | at 1e-5 |\n|---|---|---|---|---|---|")
    for kind in kinds.split(",") if kinds else makers:
        draws = (makers[kind](np.random.default_rng(1000 + seed)) for seed in range(sets))
        found = np.stack([excesses(one, subspace_memory) for one in draws], axis=1)
        worst = " | ".join(f"{np.nanmax(row):.2f}" for row in found)
        click.echo(f"| {kind} | {found.size:,} | {np.isnan(found).sum()} | {worst} |")


if __name__ == "__main__":
    main()
