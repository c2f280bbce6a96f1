"""A data set in two blocks of this process, and paths over it: what checks of the default mode share."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from solver import (
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    Solution,
    ThreadBlocks,
    lambda_grid,
    null_model,
    solve_path,
)


def filled_columns(X: Any) -> sparse.csc_matrix:
    """X by columns, sorted, as float32, without those that are empty."""
    X = sparse.csc_matrix(X, dtype=np.float32)
    X.sort_indices()
    return X[:, np.flatnonzero(np.diff(X.indptr))]


class TwoBlocks:
    """The first half of the columns and the second, and a grid of `length` λ."""

    def __init__(self, X: sparse.csc_matrix, y: np.ndarray, length: int) -> None:
        examples = Examples.of(y)
        self.blocks = ThreadBlocks.from_csc(X, examples, 2, threads=2)
        self._problem = Problem(examples, Penalty(X.shape[1]))
        self._null = null_model(self.blocks, self._problem)
        self._lambdas = lambda_grid(self._null.lambda_max, length)

    def path(self, options: DefaultOptions) -> list[Solution]:
        return list(solve_path(self.blocks, self._problem, self._lambdas, options, null=self._null))

    def optima(self, gap: float) -> np.ndarray:
        """A lower bound of f at each λ, this relative gap below what was reached."""
        return np.array([one.objective - one.gap for one in self.path(DefaultOptions(gap=gap, max_rounds=500))])
