"""What one cycle of coordinate descent costs beside the plainest pass over the same data, in one run.

    python benchmarks/bench_kernel.py [--quick]

Listed columns are measured against scipy's X.T @ r on the same CSC arrays, with data in r's type so that nothing
is converted. Dense columns are measured against a loop that sums x·r in float64, as a cycle must, and against
BLAS, which sums in float32; one thread each. A cycle is measured where no column moves, where about a tenth do,
as the path meets it, and where all do. It includes working out residual and weights from the margins.

A second table has the slopes Xᵀr of columns of ones, by density, as lists and as bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import click
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from solver import Block, Columns, Examples
from solver.arrays import Float32, Float64
from solver.columns import BITS, ONES, read_only, slopes
from solver.kernels import columns as kernels
from solver.kernels.compiled import kernel
from solver.layout import WORD

NU = 1e-6
REPEATS = 25
LISTED_AIM, DENSE_AIM = 3.0, 1.5


@dataclass(frozen=True)
class Case:
    name: str
    columns: Columns
    examples: Examples
    plain: Callable[[], object]
    size: int
    entries: int
    aim: float


def one_hot(rng: np.random.Generator, n: int, groups: int) -> sparse.csc_matrix:
    """Like splice sites: groups of four columns, one of which is 1 in each row."""
    rows, ends = [], [0]
    for _ in range(groups):
        letter = rng.integers(0, 4, n)
        for value in range(4):
            rows.append(np.flatnonzero(letter == value))
            ends.append(ends[-1] + rows[-1].size)
    indices = np.concatenate(rows).astype(np.int32)
    return sparse.csc_matrix((np.ones(indices.size), indices, ends), shape=(n, 4 * groups))


def power_law(rng: np.random.Generator, n: int, p: int, nnz: int) -> sparse.csc_matrix:
    """Like words: column j has a share of the nonzeros that falls as j^-0.8, columns in no order."""
    share = np.arange(1, p + 1) ** -0.8
    counts = rng.permutation(np.clip(share / share.sum() * nnz, 1, n // 3).astype(np.int64))
    columns = np.repeat(np.arange(p), counts)
    X = sparse.coo_matrix((np.ones(columns.size), (rng.integers(0, n, columns.size), columns)), shape=(n, p)).tocsc()
    X.sort_indices()
    X.data[:] = 1.0  # a pair drawn twice is one nonzero
    return X


def listed(name: str, X: sparse.csc_matrix, rng: np.random.Generator, *, ones: bool) -> Case:
    if not ones:
        X = X.copy()
        X.data = rng.normal(size=X.nnz).astype(np.float32).astype(np.float64)
    n, p = X.shape
    examples = Examples.of(rng.choice([-1, 1], n))
    columns = Columns.from_csc(X.indptr, X.indices, None if ones else X.data.astype(np.float32), n)
    transposed, r = X.T, rng.normal(size=n)
    return Case(name, columns, examples, lambda: transposed @ r, p, X.nnz, LISTED_AIM)


@kernel  # compiled as the cycle is
def plain_pass(matrix: Float32, r: Float64, out: Float64) -> None:
    for j in range(matrix.shape[0]):
        total = 0.0
        for i in range(r.size):
            total += matrix[j, i] * r[i]
        out[j] = total


def dense(rng: np.random.Generator, n: int, p: int) -> list[Case]:
    matrix: Float32 = rng.normal(size=(p, n)).astype(np.float32)
    examples = Examples.of(rng.choice([-1, 1], n))
    rows = np.tile(np.arange(n, dtype=np.int32), p)
    columns = Columns.from_csc(np.arange(p + 1) * n, rows, matrix.ravel(), n)
    r, out = rng.normal(size=n), np.empty(p)
    single = r.astype(np.float32)
    return [
        Case("dense", columns, examples, lambda: plain_pass(matrix, r, out), p, n * p, DENSE_AIM),
        Case("dense, BLAS", columns, examples, lambda: matrix @ single, p, n * p, DENSE_AIM),
    ]


def cases(quick: bool) -> list[Case]:
    rng = np.random.default_rng(0)
    k = 10 if quick else 1
    splice = one_hot(rng, 100_000 // k, 200)
    text = power_law(rng, 25_000 // k, 500_000 // k, 5_000_000 // k)
    return [
        listed("one-hot, ones", splice, rng, ones=True),
        listed("one-hot, valued", splice, rng, ones=False),
        listed("text, ones", text, rng, ones=True),
        listed("text, valued", text, rng, ones=False),
        *dense(rng, 20_000 // k, 500),
    ]


def fastest(*runs: Callable[[], object]) -> list[float]:
    """The least time of each, taken by turns, so that a disturbance meets all."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(REPEATS + 1):
        for run, mine in zip(runs, times, strict=True):
            began = perf_counter()
            run()
            if turn:  # the first compiles
                mine.append(perf_counter() - began)
    return [min(mine) for mine in times]


def lambda_at(slopes: Float64, share: float) -> float:
    """λ that this share of the columns exceeds at β = 0."""
    return float(np.quantile(slopes, 1.0 - share)) if share > 0 else 2.0 * float(slopes.max()) + 1.0


def slopes_at_zero(case: Case) -> Float64:
    working, slopes = np.empty((2, case.examples.n)), np.empty(case.size)
    case.examples.residuals(np.zeros(case.examples.n), working)
    case.columns.slopes(working[0], slopes)
    return np.abs(slopes)


def measure(case: Case) -> str:
    block = Block([case.columns], case.size, case.examples)
    slopes = slopes_at_zero(case)
    lambdas = [lambda_at(slopes, share) for share in (0.0, 0.1, 1.0)]
    cycles = [partial(block.cycle, None, lam, NU) for lam in lambdas]
    with threadpool_limits(1):
        plain, *seconds = fastest(case.plain, *cycles)
    cells = [f"{case.name:<16}", f"{case.entries / 1e6:8.1f}", f"{plain * 1e3:9.2f}"]
    for one, cycle in zip(seconds, cycles, strict=True):
        cells.append(f"{one / plain:6.2f}x ({cycle().dbeta.position.size / case.size:4.0%})")
    return "  ".join([*cells, f"{case.aim:4.1f}x"])


def as_list_and_as_bits(n: int, density: float) -> str:
    """The same sixteen columns of ones in both forms."""
    rng = np.random.default_rng(0)
    rows = [np.flatnonzero(rng.random(n) < density).astype(np.int32) for _ in range(16)]
    ends = np.cumsum([0, *(one.size for one in rows)])
    r, out, every = rng.normal(size=n), np.empty(16), np.arange(16)
    bits = np.zeros((16, -(-n // WORD)), np.uint64)
    for one, row in zip(rows, bits, strict=True):
        kernels.set_bits(one, row)
    lists, nothing = (np.concatenate(rows), np.empty(0, np.float32), np.empty((0, n), np.float32)), every * 0
    forms = [
        read_only(np.full(16, ONES, np.uint8), ends[:-1], ends[1:], nothing, *lists, bits),
        read_only(np.full(16, BITS, np.uint8), nothing, nothing, every, *lists, bits),
    ]
    listed, as_bits = fastest(*(partial(slopes, every, form, r, out) for form in forms))
    one = 1e9 / ends[-1]
    return f"{n:10,}  {density:7.4f}  {listed * one:9.2f}  {as_bits * one:9.2f}"


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the data.")
def main(quick: bool) -> None:
    """Measure one cycle against a plain pass."""
    sys.stdout.write("data              entries/M  plain/ms  cycle, by share of columns that move        aim\n")
    for case in cases(quick):
        sys.stdout.write(measure(case) + "\n")
        sys.stdout.flush()
    sys.stdout.write("\n  examples  density  ns a nonzero: list  bits\n")
    for n in (25_000, 1_000_000 if quick else 10_000_000):
        for density in (1 / 4, 1 / 10, 1 / 16):
            sys.stdout.write(as_list_and_as_bits(n, density) + "\n")


if __name__ == "__main__":
    main()
