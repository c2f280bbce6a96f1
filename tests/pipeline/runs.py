"""Small data as LIBSVM text, and runs fitted on them, for the tests of what is done with a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from distributed import Client

from pipeline import PathModel, PathOptions, fit_path
from pipeline.driver.record import DriverRecord, RunFolder
from transforms import convert_libsvm


def make_rows(n: int = 200, p: int = 30, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """A matrix of float32 values with some empty rows, and labels -1/+1 that depend on it."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=0.2, rng=rng, format="csr", dtype=np.float32)
    X.data = rng.normal(size=X.nnz).astype(np.float32)
    truth = 2 * np.cos(np.arange(p))  # the same whatever the seed, so that one sample is a test of another
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(X @ truth))), 1, -1)
    X.data[X.indptr[3] : X.indptr[5]] = 0
    X.eliminate_zeros()
    return X, y


def to_text(X: sp.csr_array, labels: np.ndarray, base: int = 1, weights: np.ndarray | None = None) -> bytes:
    lines = []
    for i in range(X.shape[0]):
        row = slice(X.indptr[i], X.indptr[i + 1])
        pairs = [f"{j + base}:{v!r}" for j, v in zip(X.indices[row], X.data[row].tolist(), strict=True)]
        head = f"{labels[i]:g}" if weights is None else f"{labels[i]:g}:{weights[i]}"
        lines.append(" ".join([head, *pairs]) + "\n")
    return "".join(lines).encode()


def fit_text(
    client: Client,
    folder: Path,
    text: bytes,
    *,
    length: int = 4,
    zero_based: bool = False,
    positive: float | None = None,
) -> str:
    """Convert and fit; returns the run's path."""
    (folder / "train.svm").write_bytes(text)
    dataset = convert_libsvm(
        str(folder / "train.svm"),
        str(folder / "train"),
        partitions=2,
        zero_based=zero_based,
        positive_label=positive,
        client=client,
    )
    fit_path(dataset, str(folder / "run"), path=PathOptions(length=length), client=client)
    return str(folder / "run")


def beta_of(model: PathModel, k: int, p: int) -> np.ndarray:
    """Dense coefficients by column, from the ids themselves."""
    features, weights = model.coefficients(k)
    beta = np.zeros(p)
    beta[features - model.index_base] = weights
    return beta


def driver_of(run: Path) -> DriverRecord:
    """What driver.json says."""
    record = RunFolder.of(str(run), None).read()
    assert record is not None
    return record
