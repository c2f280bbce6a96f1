"""Hard data for the default mode: does the whole path end well, and what does it cost?

    python -m benchmarks.check_hard [--names factors,separable,...] [--quick]

For each data set the 20-point path with two blocks, tol 1e-4: models that met it, passes over the data (in all, and for
the worst λ), the largest relative gap, seconds, nonzeros at the end. `--quick` takes a tenth of the sizes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import click
import numpy as np
from scipy import sparse

from benchmarks.two_blocks import TwoBlocks
from solver import DefaultOptions

Data = tuple[sparse.csc_matrix, np.ndarray]


def labels_of(margins: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(margins.size) < 1.0 / (1.0 + np.exp(-margins)), 1.0, -1.0)


def factors(rng: np.random.Generator, k: int) -> Data:
    """Every feature is a mix of the same five factors and a little noise: all columns are strongly correlated."""
    n, p = 20_000 // k, 2_000 // k
    shared = rng.normal(size=(n, 5))
    X = shared @ rng.normal(size=(5, p)) + 0.1 * rng.normal(size=(n, p))
    return sparse.csc_matrix(X.astype(np.float32)), labels_of(X[:, :20] @ rng.normal(size=20) / 5, rng)


def separable(rng: np.random.Generator, k: int) -> Data:
    """A plane parts the classes, with room to spare: as λ falls, coefficients grow without bound."""
    n, p = 10_000 // k, 1_000 // k
    X = sparse.random(n, p, 0.1, format="csc", random_state=rng, data_rvs=rng.standard_normal, dtype=np.float32)
    margins = X @ rng.normal(size=p)
    return X, np.where(margins > 0, 1.0, -1.0)


def duplicates(rng: np.random.Generator, k: int) -> Data:
    """Every column ten times, and half of the copies with the opposite sign."""
    n, p = 20_000 // k, 300
    X = sparse.random(n, p, 0.05, format="csc", random_state=rng, dtype=np.float32)
    signs = sparse.diags(rng.choice([-1.0, 1.0], 10 * p).astype(np.float32))
    many = sparse.csc_matrix(sparse.hstack([X] * 10) @ signs, dtype=np.float32)
    return many, labels_of(X @ (4 * rng.normal(size=p)), rng)


def dominating(rng: np.random.Generator, k: int) -> Data:
    """One dense column a thousand times as large as the rest, which nearly decides the label."""
    n, p = 20_000 // k, 5_000 // k
    X = sparse.random(n, p, 0.01, format="csc", random_state=rng, dtype=np.float32)
    big = 1000.0 * rng.normal(size=(n, 1)).astype(np.float32)
    margins = 0.004 * big[:, 0] + X @ rng.normal(size=p)
    return sparse.csc_matrix(sparse.hstack([X, big]), dtype=np.float32), labels_of(margins, rng)


def wide(rng: np.random.Generator, k: int) -> Data:
    """Three million features, 10^7 nonzeros."""
    n, p, nnz = 100_000 // k, 3_000_000 // k, 10_000_000 // k
    share = np.arange(1, p + 1) ** -0.9
    columns = rng.choice(p, nnz, p=share / share.sum())
    X = sparse.csc_matrix((np.ones(nnz, np.float32), (rng.integers(0, n, nnz), columns)), shape=(n, p))
    X.data[:] = 1.0
    beta = np.zeros(p)
    beta[:2000] = rng.normal(size=2000)
    return X, labels_of(X @ beta, rng)


def tall(rng: np.random.Generator, k: int) -> Data:
    """Half a million examples, 800 features, a quarter of the entries filled."""
    n, p = 500_000 // k, max(800 // k, 80)
    X = sparse.random(n, p, 0.25, format="csc", random_state=rng, dtype=np.float32)
    return X, labels_of(X @ (0.3 * rng.normal(size=p)), rng)


def scales(rng: np.random.Generator, k: int) -> Data:
    """Columns in units from 1e-6 to 1e6."""
    n, p = 20_000 // k, 2_000 // k
    X = sparse.random(n, p, 0.1, format="csc", random_state=rng, dtype=np.float32)
    unit = 10.0 ** rng.uniform(-6, 6, p)
    margins = X @ (2 * rng.normal(size=p))
    return sparse.csc_matrix(X @ sparse.diags(unit.astype(np.float32)), dtype=np.float32), labels_of(margins, rng)


SETS: dict[str, Callable[[np.random.Generator, int], Data]] = {
    make.__name__: make for make in (factors, separable, duplicates, dominating, wide, tall, scales)
}


def report(name: str, k: int, length: int) -> str:
    X, y = SETS[name](np.random.default_rng(0), k)
    X.sort_indices()
    both = TwoBlocks(X, y, length)
    with both.blocks:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # counted below
            path = both.path(DefaultOptions())
        seconds = time.perf_counter() - began
    met = sum(one.converged for one in path)
    gap = max(one.gap / one.objective for one in path)
    rounds = [one.rounds for one in path]
    size = f"{X.shape[0]:,} × {X.shape[1]:,}, {X.nnz / 1e6:.1f} M"
    return (
        f"| {name} | {size} | {met} of {length} | {sum(rounds)} ({max(rounds)}) | {gap:.1e} | {seconds:.1f} "
        f"| {path[-1].nonzeros:,} |"
    )


@click.command()
@click.option("--names", default=",".join(SETS), show_default=True, help="Data sets, separated by commas.")
@click.option("--length", default=20, show_default=True, help="λ in the path.")
@click.option("--quick", is_flag=True, help="A tenth of the sizes.")
def main(names: str, length: int, quick: bool) -> None:
    """Print a table."""
    click.echo("| data | n × p, nonzeros | met tol | passes (worst λ) | largest gap | seconds | nonzeros at the end |")
    click.echo("|---|---|---|---|---|---|---|")
    for name in names.split(","):
        click.echo(report(name, 10 if quick else 1, length))


if __name__ == "__main__":
    main()
