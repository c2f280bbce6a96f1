"""Models for other programs: scikit-learn, LIBLINEAR and Vowpal Wabbit give the probabilities that the run gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import PathModel
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import UserError

LABELS = {"-1/+1": (-1, 1, None), "0/1": (0, 1, None), "1/2": (1, 2, None), "2 is -1": (2, 1, 1.0)}


@pytest.fixture(scope="module", params=LABELS)
def model(request: pytest.FixtureRequest, client: Client, tmp_path_factory: pytest.TempPathFactory) -> PathModel:
    negative, positive, chosen = LABELS[request.param]
    X, y = make_rows()
    text = to_text(X, np.where(y > 0, positive, negative))
    return PathModel.load(fit_text(client, tmp_path_factory.mktemp("run"), text, positive=chosen))


def test_sklearn_gives_the_same_probabilities_and_labels(model: PathModel) -> None:
    X, _ = make_rows(seed=1)
    for k in range(len(model)):
        fitted = model.to_sklearn(k, n_features=X.shape[1])
        assert fitted.classes_.tolist() == sorted(model.label_map.values())
        np.testing.assert_allclose(fitted.predict_proba(X), model.predict_proba(X, k), atol=1e-12)
        decided = model.decision_function(X, k) != 0  # what is even falls to either label
        assert fitted.predict(X)[decided].tolist() == model.predict(X, k)[decided].tolist()


def test_sklearn_is_refused_fewer_columns_than_have_weights(model: PathModel) -> None:
    assert model.to_sklearn(-1).n_features_in_ == model.width
    with pytest.raises(UserError, match="n_features is 2, but the path has a weight in column"):
        model.to_sklearn(-1, n_features=2)


def liblinear_answer(path: Path, X: sp.csr_array) -> tuple[list[float], np.ndarray, list[int]]:
    """What LIBLINEAR itself makes of a model file: labels, probabilities, and the labels these belong to."""
    tools = pytest.importorskip("liblinear.liblinearutil", reason="pip install liblinear-official")
    loaded = tools.load_model(str(path))
    labels, _, probabilities = tools.predict([], sp.csr_matrix(X.astype(np.float64)), loaded, "-b 1 -q")
    return labels, np.array(probabilities), loaded.get_labels()


def test_liblinear_reads_the_model_and_predicts_the_same(model: PathModel, tmp_path: Path) -> None:
    X, _ = make_rows(seed=1)
    for k in range(len(model)):
        model.to_liblinear(str(tmp_path / "model"), k)
        labels, probabilities, order = liblinear_answer(tmp_path / "model", X)
        ours = model.predict_proba(X, k)[:, [model.classes.tolist().index(label) for label in order]]
        np.testing.assert_allclose(probabilities, ours, atol=1e-12)
        assert labels == model.predict(X, k).tolist()


def test_the_program_predict_of_liblinear_gives_the_same(model: PathModel, tmp_path: Path) -> None:
    program = shutil.which("liblinear-predict") or pytest.skip("apt-get install liblinear-tools")
    X, _ = make_rows(seed=1)
    (tmp_path / "test").write_bytes(to_text(X, model.predict(X, -1)))
    model.to_liblinear(str(tmp_path / "model"), -1)
    words = [program, "-b", "1", "test", "model", "out"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "Accuracy = 100%" in done.stdout
    header, *rows = (tmp_path / "out").read_text().splitlines()
    order = [model.classes.tolist().index(float(label)) for label in header.split()[1:]]
    found = np.array([[float(word) for word in row.split()[1:]] for row in rows])
    np.testing.assert_allclose(found, model.predict_proba(X, -1)[:, order], rtol=1e-4)  # it prints six digits


def test_liblinear_gets_ids_from_0_one_higher(client: Client, tmp_path: Path) -> None:
    X, y = make_rows()
    model = PathModel.load(fit_text(client, tmp_path, to_text(X, y, base=0), zero_based=True))
    model.to_liblinear(str(tmp_path / "model"), -1)
    _, probabilities, order = liblinear_answer(tmp_path / "model", X)
    assert order == [1, -1]
    np.testing.assert_allclose(probabilities[:, 0], model.predict_proba(X, -1)[:, 1], atol=1e-12)


def test_labels_that_liblinear_cannot_hold_are_refused(client: Client, tmp_path: Path) -> None:
    X, y = make_rows()
    model = PathModel.load(fit_text(client, tmp_path, to_text(X, np.where(y > 0, 0.5, 0.25))))
    with pytest.raises(UserError, match=r"label 0\.5: LIBLINEAR knows whole numbers as labels only"):
        model.to_liblinear(str(tmp_path / "model"), -1)
    assert not (tmp_path / "model").exists()


def vw_answer(path: Path, lines: list[str]) -> np.ndarray:
    """What Vowpal Wabbit itself predicts by a model file."""
    vw = pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit")
    workspace = vw.Workspace(f"-t -i {path} --quiet")
    try:
        return np.array([workspace.predict(line) for line in lines])
    finally:
        workspace.finish()


@pytest.mark.parametrize("base", [0, 1])
def test_vowpal_wabbit_reads_the_model_and_predicts_the_same(client: Client, tmp_path: Path, base: int) -> None:
    X, y = make_rows()
    text = to_text(X, y, base=base)
    model = PathModel.load(fit_text(client, tmp_path, text, zero_based=base == 0))
    lines = ["| " + " ".join(line.split()[1:]) for line in text.decode().splitlines()]
    for k in range(len(model)):
        model.to_vw(str(tmp_path / "model"), k)
        np.testing.assert_allclose(vw_answer(tmp_path / "model", lines), model.predict_proba(X, k)[:, 1], atol=1e-6)


def test_vowpal_wabbit_keeps_ids_below_two_to_the_bits_apart(client: Client, tmp_path: Path) -> None:
    text = b"1 5:1\n-1 70000:1\n1 5:2\n-1 70000:1\n" + b"1 8:1\n-1 8:1\n" * 4
    model = PathModel.load(fit_text(client, tmp_path, text, length=3))
    model.to_vw(str(tmp_path / "model"), -1, bits=20)
    unseen = 5 + 2**19
    alone = 1 / (1 + np.exp(-model.intercept(-1)))  # what the intercept says by itself
    np.testing.assert_allclose(vw_answer(tmp_path / "model", [f"| {unseen}:1", "|"]), [alone, alone], atol=1e-6)
    with pytest.raises(UserError, match=r"feature id 70000, bits 10: bits must lie in 17\.\.30"):
        model.to_vw(str(tmp_path / "model"), -1, bits=10)


def test_ids_that_vowpal_wabbit_cannot_hold_are_refused(client: Client, tmp_path: Path) -> None:
    model = PathModel.load(fit_text(client, tmp_path, f"1 {2**40}:1\n-1 1:1\n".encode() * 3, length=2))
    with pytest.raises(UserError, match=r"Vowpal Wabbit holds ids below 2\^30"):
        model.to_vw(str(tmp_path / "model"), -1)
