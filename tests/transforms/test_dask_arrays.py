"""Dask arrays as data sets: the same data set as from arrays in memory, whatever the blocks are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

from tests.reference import files_of, read_back
from transforms import UserError, from_arrays


@pytest.fixture
def current(client: Client) -> Iterator[Client]:
    with client.as_current():
        yield client


def make(n: int = 300, p: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Float64 values, some of them zero, some rows and columns empty."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, p)) < 0.3, rng.normal(size=(n, p)), 0.0)
    X[5:9], X[:, 7] = 0.0, 0.0
    return X, np.where(rng.random(n) < 0.4, 3, 1), rng.integers(0, 5, n) / 4


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_array, sp.coo_array])
@pytest.mark.parametrize("columns", [40, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_data_set_is_that_of_arrays_in_memory(
    current: Client, tmp_path: Path, form: Callable[[Any], Any], columns: int, weighted: bool
) -> None:
    X, y, weights = make()
    given = weights if weighted else None
    expected = from_arrays(X, y, str(tmp_path / "memory"), sample_weight=given, partitions=3)
    blocks = da.from_array(X, chunks=(77, columns)).map_blocks(form)
    labels = da.from_array(y, chunks=110)
    made = from_arrays(blocks, labels, str(tmp_path / "dask"), sample_weight=given, partitions=3)
    assert files_of(tmp_path / "dask") == files_of(tmp_path / "memory")
    assert read_back(made) == read_back(expected)


def test_blocks_of_the_package_sparse_are_taken(current: Client, tmp_path: Path) -> None:
    sparse = pytest.importorskip("sparse", reason="pip install sparse")
    X, y, _ = make()
    from_arrays(X, y, str(tmp_path / "memory"), partitions=3)
    blocks = da.from_array(X, chunks=(77, 9)).map_blocks(sparse.COO.from_numpy)
    from_arrays(blocks, y, str(tmp_path / "dask"), partitions=3)
    assert files_of(tmp_path / "dask") == files_of(tmp_path / "memory")


def test_columns_of_ones_have_no_values(current: Client, tmp_path: Path) -> None:
    X, y, _ = make()
    made = from_arrays(da.from_array(X != 0, chunks=(100, 40)), y, str(tmp_path / "ones"))
    assert all(part.read().data is None for part in made.partitions)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y[:-1]), "X has 300 rows but y has 299"),
        (lambda X, y: (X, da.from_array(y[:-1], chunks=50)), "X has 300 rows but y has 299"),
        (lambda X, y: (X, np.arange(300)), "y, chunk .: expected exactly two distinct labels, found 100"),
        (lambda X, y: (X, np.ones(300)), "y: expected exactly two distinct labels, found 1: 1"),
        (lambda X, y: (X, np.full(300, "a")), "y, chunk .: must hold numbers"),
        (lambda X, y: (X, y[:, None]), "y must be a vector, got 2 dimensions"),
        (lambda X, y: (X * 1e39, y), "do not fit float32"),
        (lambda X, y: (X[:, 0], y), "X must be a matrix"),
        (lambda X, y: (X[X[:, 0] > 0], y), "row counts of X's chunks are not known"),
        (lambda X, y: (X[X[:, 0] > 0], da.from_array(y, chunks=50)[X[:, 0] > 0]), "X has 3 row chunks but y has 6"),
        (lambda X, y: (X[X[:, 0] > 0], da.from_array(y, chunks=100)), "y, chunk .: 100 values for .* rows of X"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_leave_nothing(
    current: Client, tmp_path: Path, change: Callable[[Any, Any], tuple[Any, Any]], message: str
) -> None:
    X, y, _ = make()
    with pytest.raises(UserError, match=message):
        from_arrays(*change(da.from_array(X, chunks=(100, 40)), y), str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_negative_weights_are_refused(current: Client, tmp_path: Path) -> None:
    X, y, weights = make()
    with pytest.raises(UserError, match="sample_weight, chunk 0: weights must be >= 0, found -1"):
        from_arrays(da.from_array(X, chunks=(300, 40)), y, str(tmp_path / "out"), sample_weight=weights - 1)
