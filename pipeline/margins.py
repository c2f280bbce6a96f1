"""Margins of the rows of a matrix: numpy, scipy sparse, or a dask array of either, which gives a lazy result."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit, log_ndtr, ndtr

from transforms import UserError
from transforms.matrices import as_block, is_dask_array


def margins_of(X: Any, columns: np.ndarray, weights: np.ndarray, intercept: float = 0.0) -> Any:
    """X β + intercept, where β has these weights in these columns. Columns that X does not have count as 0.

    Of a dask array, a dask array with the chunks of its rows; the weights are one task of the graph, sent once.
    """
    if not is_dask_array(X):
        return _margins(X, columns, weights, intercept)
    if X.ndim != 2:
        raise UserError(f"X must be a matrix, a row for each example; got {X.ndim} dimensions")
    from dask import delayed

    model = delayed((columns, weights, intercept), traverse=False)
    return whole_rows(X).map_blocks(_block_margins, model=model, drop_axis=1, dtype=np.float64, meta=np.empty(0))


def whole_rows(X: Any) -> Any:
    """The dask array with every row in one chunk."""
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


# The probability of +1 at a margin, and its logarithm, by loss.
PROBABILITIES: dict[str, tuple[Any, Any]] = {"logistic": (expit, log_expit), "probit": (ndtr, log_ndtr)}


def probabilities_of(margins: Any, loss: str = "logistic", *, log: bool = False) -> Any:
    """Probabilities or their logarithms: of the class that negative margins speak for, and of the other."""
    if is_dask_array(margins):
        chunks = (*margins.chunks, (2,))
        return margins.map_blocks(probabilities_of, loss, log=log, new_axis=1, chunks=chunks, dtype=np.float64)
    of = PROBABILITIES[loss][int(log)]
    return np.column_stack([of(-margins), of(margins)])


def labels_of(margins: Any, labels: np.ndarray) -> Any:
    """labels[1] where the margin is positive, labels[0] elsewhere."""
    if is_dask_array(margins):
        return margins.map_blocks(labels_of, labels, dtype=labels.dtype)
    return labels[(margins > 0).astype(np.intp)]


def _block_margins(block: Any, model: tuple[np.ndarray, np.ndarray, float]) -> np.ndarray:
    return _margins(block, *model)


def _margins(X: Any, columns: np.ndarray, weights: np.ndarray, intercept: float) -> np.ndarray:
    X = as_block(X)
    if X.ndim != 2:
        raise UserError(f"X must be a matrix, a row for each example; got {X.ndim} dimensions")
    known = columns < X.shape[1]
    columns, weights = columns[known], weights[known]
    if not sp.issparse(X):
        margins: np.ndarray = X[:, columns].astype(np.float64) @ weights + intercept
        return margins
    beta = np.zeros(X.shape[1])
    beta[columns] = weights
    return np.asarray(X @ beta, dtype=np.float64) + intercept
