"""Data sets from arrays: the same as scipy says, through the same writer as a conversion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import files_of, read_back
from transforms import OutputExists, UserError, check_dataset, convert_libsvm, from_arrays

Y = [0, 1, 1, 0]
X = np.array([[0, 2.0, 0], [1, 0, 0], [0, -3.5, 0], [4, 0, 0]], dtype=np.float32)
COLUMNS = {0: {1: 1.0, 3: 4.0}, 1: {0: 2.0, 2: -3.5}}

FORMS: dict[str, Any] = {
    "dense": X,
    "list": X.tolist(),
    "float64": X.astype(np.float64),
    "fortran": np.asfortranarray(X),
    "csr_matrix": sp.csr_matrix(X),
    "csc_matrix": sp.csc_matrix(X),
    "coo_array": sp.coo_array(X),
    "lil_array": sp.lil_array(X),
    "csr, 64-bit": sp.csr_array((X[X != 0], *np.nonzero(X)[1:], np.array([0, 1, 2, 3, 4])), shape=X.shape),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_every_form_of_a_matrix_gives_the_same(tmp_path: Path, form: Any, partitions: int) -> None:
    dataset = from_arrays(form, Y, str(tmp_path / "data"), partitions=partitions)
    assert (dataset.n, dataset.p, dataset.nnz) == (4, 2, 4)
    assert len(dataset.partitions) == partitions
    got = read_back(dataset)
    assert (got.columns, got.labels) == (COLUMNS, [0.0, 1.0, 1.0, 0.0])
    assert check_dataset(dataset) == []


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(1, 40), st.floats(0, 1), st.booleans())
@settings(max_examples=25)
def test_random_matrices_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, p: int, density: float, ones: bool
) -> None:
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((n, p), density=density, rng=rng, format="csr", dtype=np.float64)
    if ones:
        matrix.data[:] = 1
    y = np.concatenate(([0, 1], rng.integers(0, 2, n - 2)))
    weights = rng.random(n) if seed % 2 else None
    dataset = from_arrays(
        matrix, y, str(tmp_path_factory.mktemp("arrays") / "data"), sample_weight=weights, partitions=3
    )
    expected = sp.coo_array(matrix.astype(np.float32))
    columns: dict[int, dict[int, float]] = {}
    for row, column, value in zip(*expected.coords, expected.data, strict=True):
        if value:
            columns.setdefault(int(column), {})[int(row)] = float(value)
    got = read_back(dataset)
    assert got.columns == columns
    assert got.labels == y.tolist()
    assert got.weights == ([None] * n if weights is None else weights.astype(np.float32).tolist())
    assert check_dataset(dataset) == []


@pytest.mark.parametrize("strategy", ["spread", "neighbours"])
def test_arrays_and_text_give_the_same_parts(client: Client, tmp_path: Path, strategy: str) -> None:
    rng = np.random.default_rng(3)
    matrix = sp.random_array((50, 40), density=0.2, rng=rng, format="csr", dtype=np.float32)
    y = rng.integers(0, 2, 50)
    rows = np.split(matrix.indices, matrix.indptr[1:-1]), np.split(matrix.data, matrix.indptr[1:-1])
    text = "".join(
        f"{label} {' '.join(f'{j}:{float(v)!r}' for j, v in zip(ids, values, strict=True))}\n"
        for label, ids, values in zip(y, *rows, strict=True)
    )
    (tmp_path / "in.svm").write_text(text)
    from_arrays(matrix, y, str(tmp_path / "arrays"), partitions=3, strategy=strategy)
    convert_libsvm(
        str(tmp_path / "in.svm"),
        str(tmp_path / "text"),
        partitions=3,
        strategy=strategy,
        zero_based=True,
        client=client,
    )
    arrays, converted = files_of(tmp_path / "arrays"), files_of(tmp_path / "text")
    arrays.pop("dataset.json"), converted.pop("dataset.json")
    assert arrays == converted


def test_duplicates_are_summed_and_zeros_dropped(tmp_path: Path) -> None:
    matrix = sp.coo_array(([1.0, 2.0, 5.0, -5.0, 0.0], ([0, 0, 1, 1, 1], [3, 3, 2, 2, 0])), shape=(2, 9))
    dataset = from_arrays(matrix, [0, 1], str(tmp_path / "data"))
    assert read_back(dataset).columns == {3: {0: 3.0}}


def test_values_too_small_for_float32_are_zeros(tmp_path: Path) -> None:
    dataset = from_arrays(np.array([[1e-60, 1.0], [0, 1.0]]), [0, 1], str(tmp_path / "data"))
    assert read_back(dataset).columns == {1: {0: 1.0, 1: 1.0}}
    assert not any(part.info.values for part in dataset.partitions)


def test_a_matrix_of_zeros_is_a_data_set_without_features(tmp_path: Path) -> None:
    dataset = from_arrays(np.zeros((3, 2)), [0, 1, 1], str(tmp_path / "data"))
    assert (dataset.n, dataset.p, dataset.nnz) == (3, 0, 0)
    assert check_dataset(dataset) == []


def test_the_matrix_given_is_not_changed(tmp_path: Path) -> None:
    matrix = sp.csc_array(([1.0, 0.0, 2.0], [1, 0, 0], [0, 2, 3]), shape=(2, 2), dtype=np.float32)
    before = matrix.data.copy(), matrix.indices.copy()
    from_arrays(matrix, [0, 1], str(tmp_path / "data"))
    assert np.array_equal(matrix.data, before[0])
    assert np.array_equal(matrix.indices, before[1])


@pytest.mark.parametrize(
    ("y", "positive", "labels"),
    [
        ([0, 1, 1], None, [-1, 1, 1]),
        ([2, 1, 1], None, [1, -1, -1]),
        ([2, 1, 1], 1, [-1, 1, 1]),
        ([True, False, True], None, [1, -1, 1]),
        (np.array([[1.5], [-0.5], [1.5]]), None, [1, -1, 1]),
    ],
)
def test_labels_are_mapped_by_order_or_choice(tmp_path: Path, y: Any, positive: float | None, labels: Any) -> None:
    dataset = from_arrays(np.eye(3), y, str(tmp_path / "data"), positive_label=positive)
    assert dataset.labels()[0].tolist() == labels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 1]}, "3 rows but y has 2"),
        ({"y": [0, 1, 2]}, "found 3: 0, 1, 2"),
        ({"y": [1, 1, 1]}, "found 1: 1"),
        ({"y": [1, 1, np.nan]}, "label|nan"),
        ({"y": [1, 1, np.inf]}, "label|inf"),
        ({"y": ["a", "b", "a"]}, "label|number"),
        ({"X": np.array([[np.nan], [0], [1]])}, "nan, inf"),
        ({"X": np.array([[np.inf], [0], [1]])}, "nan, inf"),
        ({"X": np.array([[1e39], [0], [1]])}, "float32"),
        ({"sample_weight": [1, 2]}, "3 finite numbers"),
        ({"sample_weight": [1, 2, -1]}, "3 finite numbers"),
        ({"sample_weight": [1, 2, np.nan]}, "3 finite numbers"),
        ({"positive_label": 7}, "positive label 7"),
        ({"strategy": "best"}, "strategy"),
        ({"partitions": 0}, "partitions"),
        ({"partitions": -1}, "partitions"),
    ],
)
def test_bad_arrays_are_refused_and_nothing_is_left(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"X": np.eye(3), "y": [0, 1, 1]} | changes
    with pytest.raises(UserError, match=message):
        from_arrays(url=str(tmp_path / "data"), **arguments)
    assert not (tmp_path / "data").exists()


def test_an_existing_data_set_is_refused_or_replaced(tmp_path: Path) -> None:
    from_arrays(np.eye(2), [0, 1], str(tmp_path / "data"))
    with pytest.raises(OutputExists, match="overwrite"):
        from_arrays(np.eye(3), [0, 1, 1], str(tmp_path / "data"))
    assert from_arrays(np.eye(3), [0, 1, 1], str(tmp_path / "data"), overwrite=True).n == 3
