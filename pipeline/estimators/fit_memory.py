"""Fit a path to a matrix in memory, by threads of this process: no cluster, no files."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from dask.system import CPU_COUNT

from pipeline.choice import Bic
from pipeline.fit_options import refuse_vanishing_grid
from pipeline.run import path_row
from solver import (
    Block,
    Coefficients,
    Columns,
    Examples,
    PathStart,
    ProblemOptions,
    Solution,
    ThreadBlocks,
    falling,
    lambda_grid,
    make_problem,
    null_model,
    solve_path,
    with_intercept,
)
from solver.columns import DENSE_AT
from solver.threads import blas
from transforms import UserError
from transforms.matrices import TOO_LARGE, to_float32

WORTH_A_THREAD = 250_000  # nonzeros
# Up to so many, BLAS works on matrices so small that its threads cost more than they give, and where others use the
# cores, as in GridSearchCV, very much more.
ONE_BLAS_THREAD = 5_000_000


@dataclass(frozen=True)
class Ask:
    """Which λ to solve for (a list, or a grid down from λmax), and how.

    factors: of the penalty, by column. start: coefficients and intercept to begin at, in memory only.
    """

    options: Any  # an algorithm's own
    problem: ProblemOptions
    lambdas: tuple[float, ...] | None
    length: int = 20
    ratio: float = 0.5
    blocks: int | None = None
    factors: np.ndarray | None = None
    start: tuple[np.ndarray, float] | None = None

    def grid(self, largest: float) -> list[float]:
        if self.lambdas is not None:
            return falling(self.lambdas)
        refuse_vanishing_grid(largest, self.length, self.ratio)
        return lambda_grid(largest, self.length, self.ratio)


@dataclass(frozen=True)
class Fitted:
    """A path: rows as those of path.parquet, and coefficients, λ × columns. Intercepts are in the rows."""

    rows: list[dict[str, Any]]
    coefs: sp.csr_array
    lambda_max: float


def fit_in_memory(X: Any, targets: np.ndarray, weights: np.ndarray | None, ask: Ask) -> Fitted:
    """Solve for labels -1/+1, or for numbers. X: numpy or scipy sparse; its values are rounded to float32."""
    examples = Examples.of(targets, weights, ask.problem.loss)
    with _calm_blas(X), _blocks(X, examples, ask.blocks) as blocks:
        problem = make_problem(blocks, examples, ask.problem, factors=ask.factors)
        null = null_model(blocks, problem)
        start = PathStart()
        if ask.start is not None:
            start = PathStart(betas=(with_intercept(problem, Coefficients.from_dense(ask.start[0]), ask.start[1]),))
        solutions = list(solve_path(blocks, problem, ask.grid(null.lambda_max), ask.options, null=null, start=start))
    bic = Bic(problem)
    rows = [path_row(one, bic.of(one)) for one in solutions]
    return Fitted(rows, _stacked(solutions, X.shape[1]), null.lambda_max)


def _calm_blas(X: Any) -> Any:
    nnz = X.nnz if sp.issparse(X) else X.size
    return blas().limit(limits=1, user_api="blas") if nnz <= ONE_BLAS_THREAD else nullcontext()


def _stacked(solutions: list[Solution], width: int) -> sp.csr_array:
    ends = np.cumsum([0, *(one.beta.position.size for one in solutions)])
    position = np.concatenate([one.beta.position for one in solutions])
    value = np.concatenate([one.beta.value for one in solutions])
    return sp.csr_array((value, position, ends), shape=(len(solutions), width))


def _blocks(X: Any, examples: Examples, count: int | None) -> ThreadBlocks:
    """Contiguous blocks of columns: as many as asked for, or one for each core that has enough to do."""
    if sp.issparse(X) or np.count_nonzero(X) < DENSE_AT * X.size:
        matrix = to_float32(X, sp.csc_array)
        return ThreadBlocks.from_csc(matrix, examples, _count(count, matrix.nnz, X.shape[1]))
    rows = _transposed(X)
    cuts = np.linspace(0, len(rows), _count(count, rows.size, len(rows)) + 1).astype(int).tolist()
    return ThreadBlocks([Block([Columns.from_rows(rows[lo:hi])], hi - lo, examples) for lo, hi in pairwise(cuts)])


def _count(asked: int | None, nnz: int, width: int) -> int:
    if asked is None:
        return int(min(CPU_COUNT, max(1, nnz // WORTH_A_THREAD), width))
    if not 1 <= asked <= width:
        raise ValueError(f"blocks must lie in 1..{width}, the number of features, got {asked}")
    return asked


def _transposed(X: np.ndarray) -> np.ndarray:
    """A row for each column of X, float32; a copy."""
    with np.errstate(over="ignore"):
        rows = np.array(X.T, dtype=np.float32, order="C")
    if not np.isfinite(rows).all():
        raise UserError(TOO_LARGE)
    return rows
