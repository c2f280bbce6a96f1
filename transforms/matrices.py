"""What X may be: numpy, scipy sparse, pydata sparse, or a dask array of such blocks. Values become float32."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import scipy.sparse as sp

from transforms.errors import UserError

TOO_LARGE = "X has nan, inf, or values that do not fit float32 (largest 3.4e38)"


def is_dask_array(X: Any) -> bool:
    """Is it one? Without loading dask.array: where nobody has loaded it, nothing is."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(X, module.Array)


def as_block(X: Any) -> Any:
    """A matrix in memory as scipy sparse or numpy."""
    if hasattr(X, "to_scipy_sparse"):  # of the package `sparse`
        X = X.to_scipy_sparse()
    return X if sp.issparse(X) else np.asarray(X)


def to_float32(X: Any, form: Any) -> Any:
    """X as a sparse matrix of this form (sp.csr_array, sp.csc_array), of float32, without explicit zeros; a copy."""
    X = as_block(X)
    with np.errstate(over="ignore"):
        matrix = form(X, dtype=np.float32, copy=True) if sp.issparse(X) else form(X.astype(np.float32))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise UserError(TOO_LARGE)
    return matrix
