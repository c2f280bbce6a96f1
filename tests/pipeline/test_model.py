"""A run read back: its models give the margins of their coefficients, and what is wrong with a folder is said."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import PathModel, PathOptions, fit_path
from tests.damage import unsealed
from tests.pipeline.runs import beta_of, fit_text, make_rows, to_text
from transforms import UserError, from_arrays


@pytest.fixture(scope="module")
def run(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fit_text(client, tmp_path_factory.mktemp("run"), to_text(*make_rows()))


def test_a_run_is_read_back_as_it_was_stored(run: str) -> None:
    model = PathModel.load(run)
    path = pq.read_table(Path(run) / "path.parquet").to_pylist()
    assert model.path == path
    assert model.lambdas.tolist() == [row["lambda"] for row in path]
    assert [model.coef(k).nnz for k in range(len(model))] == [row["nonzeros"] for row in path]
    assert (model.index_base, model.label_map) == (1, {"-1": -1.0, "+1": 1.0})
    assert [model.intercept(k) for k in range(len(model))] == [row["intercept"] for row in path]
    assert all(row["intercept"] for row in path)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix, sp.coo_array])
def test_margins_are_those_of_the_coefficients(run: str, form: Callable[[np.ndarray], object]) -> None:
    model = PathModel.load(run)
    X = make_rows(seed=1)[0].toarray()
    for k in range(len(model)):
        expected = X.astype(np.float64) @ beta_of(model, k, X.shape[1]) + model.intercept(k)
        np.testing.assert_allclose(model.decision_function(form(X), k), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(model.predict_proba(form(X), k)[:, 1], 1 / (1 + np.exp(-expected)), atol=1e-12)
        assert model.predict(form(X), k).tolist() == np.where(expected > 0, 1.0, -1.0).tolist()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("positive", [1.0, -1.0])
def test_dask_arrays_give_lazy_predictions_block_by_block(
    client: Client, tmp_path: Path, form: Callable[[np.ndarray], object], positive: float
) -> None:
    model = PathModel.load(fit_text(client, tmp_path, to_text(*make_rows()), length=2, positive=positive))
    X = make_rows(seed=1)[0].toarray()
    blocks = da.from_array(X, chunks=(90, 13)).map_blocks(form)
    for method in (model.decision_function, model.predict_proba, model.predict):
        lazy, expected = method(blocks, 1), method(X, 1)
        assert isinstance(lazy, da.Array)
        assert (lazy.dtype, lazy.shape, lazy.chunks[0]) == (expected.dtype, expected.shape, (90, 90, 20))
        np.testing.assert_allclose(client.compute(lazy).result(), expected, atol=1e-12)


def test_weights_are_in_a_dask_graph_once(run: str) -> None:
    model = PathModel.load(run)
    lazy = model.decision_function(da.zeros((1000, 30), chunks=(10, 30)), -1)
    weights = model.coefficients(-1)[1]
    graph = {key: pickle.dumps(task) for key, task in dict(lazy.__dask_graph__()).items()}
    assert len(graph) >= 200
    assert sum(weights.tobytes() in task for task in graph.values()) == 1


def test_chunks_of_unknown_size_are_predicted_too(run: str) -> None:
    model = PathModel.load(run)
    X = make_rows(seed=1)[0].toarray()
    blocks = da.from_array(X, chunks=(90, 30))
    some = X[:, 0] > 0
    lazy = model.predict_proba(blocks[da.from_array(some, chunks=90)], -1)
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), model.predict_proba(X[some], -1), atol=1e-12)


def test_columns_of_zero_based_data_are_their_ids(client: Client, tmp_path: Path) -> None:
    X, y = make_rows()
    fit_path(from_arrays(X, y, str(tmp_path / "d")), str(tmp_path / "run"), path=PathOptions(length=3), client=client)
    model = PathModel.load(str(tmp_path / "run"))
    assert model.index_base == 0
    expected = X.toarray().astype(np.float64) @ beta_of(model, 2, X.shape[1]) + model.intercept(2)
    np.testing.assert_allclose(model.decision_function(X, 2), expected, atol=1e-12)
    np.testing.assert_array_equal(model.coef(2).indices, model.coefficients(2)[0])


def test_matrices_may_be_narrower_or_wider_than_the_model(run: str) -> None:
    model = PathModel.load(run)
    X = make_rows(seed=1)[0].toarray()
    wide = np.hstack([X, np.ones((X.shape[0], 5), np.float32)])
    cut = X.copy()
    cut[:, 10:] = 0
    for form in (np.asarray, sp.csr_array):
        np.testing.assert_array_equal(model.decision_function(form(wide), -1), model.decision_function(form(X), -1))
        np.testing.assert_allclose(
            model.decision_function(form(X[:, :10]), -1), model.decision_function(form(cut), -1), atol=1e-12
        )


def test_ids_beyond_any_memory_work(client: Client, tmp_path: Path) -> None:
    far = 2**61
    text = f"1 1:1 {far}:2\n-1 1:1 7:1\n1 {far}:1\n-1 7:2\n".encode() * 5
    model = PathModel.load(fit_text(client, tmp_path, text, length=2))
    assert model.coef(1).shape == (1, far)
    assert model.coef(1)[0, far - 1] > 0


def test_an_index_outside_the_path_is_refused(run: str) -> None:
    model = PathModel.load(run)
    assert model.coef(-1).nnz == model.coef(len(model) - 1).nnz
    with pytest.raises(UserError, match="λ index 4, but the run has 4: 0 to 3"):
        model.coef(4)


def edit_version(folder: Path) -> None:
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(unsealed(about) | {"run_version": 99}))


def forget_labels(folder: Path) -> None:
    about = json.loads((folder / "run.json").read_text())
    del about["dataset"]["label_map"]
    (folder / "run.json").write_text(json.dumps(unsealed(about)))


def lose_coefficients(folder: Path) -> None:
    table = pq.read_table(folder / "coefficients.parquet")
    pq.write_table(table.slice(1), folder / "coefficients.parquet")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "not a run: no such folder"),
        (lambda folder: (folder / "run.json").unlink(), "not a run: there is no run.json in it"),
        (lambda folder: (folder / "run.json").write_text("{"), "run.json: damaged"),
        (edit_version, "run version 99, but this dglmnet reads 1"),
        (forget_labels, r"run.json: damaged \(dataset.label_map is missing\)"),
        (lambda folder: (folder / "path.parquet").unlink(), "path.parquet: missing"),
        (lambda folder: (folder / "path.parquet").write_bytes(b"PAR1"), "path.parquet: damaged"),
        (lose_coefficients, "coefficients.parquet and path.parquet do not agree"),
    ],
)
def test_a_folder_that_is_no_run_is_told(
    run: str, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    shutil.copytree(run, tmp_path / "copy")
    damage(tmp_path / "copy")
    with pytest.raises(UserError, match=message):
        PathModel.load(str(tmp_path / "copy"))
