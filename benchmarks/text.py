"""A matrix as text, for peers that read nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp


def write_svm(path: Path, X: sp.csr_matrix, labels: np.ndarray) -> None:
    """LIBSVM text, ids from 1."""
    _write(path, X, labels, "{} ", 1)


def write_vw(path: Path, X: sp.csr_matrix, labels: np.ndarray) -> None:
    """Vowpal Wabbit's text, ids from 0."""
    _write(path, X, labels, "{} | ", 0)


def _write(path: Path, X: sp.csr_matrix, labels: np.ndarray, head: str, base: int) -> None:
    with path.open("w") as file:
        for i, label in enumerate(labels.tolist()):
            span = slice(X.indptr[i], X.indptr[i + 1])
            ids, values = X.indices[span] + base, X.data[span].astype(np.float64)
            pairs = (f"{j}:{value!r}" for j, value in zip(ids.tolist(), values.tolist(), strict=True))
            file.write(head.format(label) + " ".join(pairs) + "\n")
