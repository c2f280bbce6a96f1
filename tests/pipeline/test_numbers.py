"""Labels that are numbers, from text to predictions: the lasso and the elastic net, by commands and from Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client
from sklearn.linear_model import ElasticNet, Lasso
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from pipeline import L1LinearRegression, PathModel, PathOptions, evaluate, fit_path, predict, write_report
from pipeline.commands.convert import command as convert_command
from pipeline.metrics import metrics_of
from pipeline.resident import ExampleOptions
from pipeline.stages import PipelineOptions, run_pipeline
from pipeline.summary import summary_lines
from solver import DefaultOptions, ProblemOptions, SolverOptions
from tests.damage import unsealed
from tests.pipeline.runs import fit_text, make_rows
from transforms import Dataset, UserError, convert_libsvm, from_arrays

Command = Callable[..., subprocess.CompletedProcess[str]]
SQUARED = ProblemOptions(loss="squared")
STRICT = DefaultOptions(gap=1e-9)
N, P = 200, 30


def make_numbers(n: int = N, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """The matrix of other tests, and numbers that depend on it."""
    X = make_rows(n, P, seed)[0].astype(np.float64)
    noise = np.random.default_rng(seed + 100).normal(size=n)
    return X, 10.0 + X @ (3 * np.cos(np.arange(P))) + noise


def to_text(X: sp.csr_array, y: np.ndarray, weights: np.ndarray | None = None) -> bytes:
    rows = []
    for i, label in enumerate(y.tolist()):
        row = slice(X.indptr[i], X.indptr[i + 1])
        pairs = [f"{j + 1}:{v!r}" for j, v in zip(X.indices[row], X.data[row].tolist(), strict=True)]
        rows.append(" ".join([f"{label!r}" if weights is None else f"{label!r}:{weights[i]}", *pairs]) + "\n")
    return "".join(rows).encode()


def objective(model: PathModel, k: int, X: Any, y: np.ndarray, ratio: float, weights: Any = None) -> float:
    """By the formula, from the coefficients that are stored."""
    errors = y - model.decision_function(X, k)
    _, beta = model.coefficients(k)
    s = np.ones(y.size) if weights is None else weights
    return float(0.5 * s @ errors**2 + model.lambdas[k] * (ratio * np.abs(beta).sum() + (1 - ratio) / 2 * beta @ beta))


def best_objective(lam: float, X: Any, y: np.ndarray, ratio: float, weights: Any = None) -> float:
    """The minimum that scikit-learn finds."""
    s = np.ones(y.size) if weights is None else weights
    net = ElasticNet(alpha=lam / s.sum(), l1_ratio=ratio, tol=1e-12, max_iter=100_000)
    net.fit(X.toarray(), y, sample_weight=weights)
    penalty = lam * (ratio * np.abs(net.coef_).sum() + (1 - ratio) / 2 * net.coef_ @ net.coef_)
    return float(0.5 * s @ (y - net.predict(X.toarray())) ** 2 + penalty)


@pytest.fixture(scope="module")
def dataset(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "train.svm").write_bytes(to_text(*make_numbers()))
    return convert_libsvm(
        str(folder / "train.svm"), str(folder / "data"), partitions=3, numeric_labels=True, client=client
    )


@pytest.fixture(scope="module")
def run(client: Client, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fitted and evaluated; tests only read it."""
    folder = tmp_path_factory.mktemp("run")
    fit_path(dataset, str(folder / "run"), problem=SQUARED, path=PathOptions(length=6), client=client)
    (folder / "test.svm").write_bytes(to_text(*make_numbers(seed=1)))
    evaluate(str(folder / "run"), str(folder / "test.svm"), client=client)
    return str(folder / "run")


# --- by commands ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residency", ["memory", "stream"])
@pytest.mark.parametrize("ratio", [1.0, 0.6])
def test_commands_find_the_minimum_that_scikit_learn_finds(
    call: Command, submit: Command, tmp_path: Path, residency: str, ratio: float
) -> None:
    X, y = make_numbers()
    weights = np.random.default_rng(5).integers(1, 4, size=N)
    (tmp_path / "train.svm").write_bytes(to_text(X, y, weights))
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    done = call(convert_command, str(tmp_path / "train.svm"), data, "--numeric-labels", "--partitions", "3")
    assert done.returncode == 0, done.stderr
    assert "numbers from" in done.stdout
    how = ["--loss", "squared", "--l1-ratio", f"{ratio}", "--gap", "1e-8", "--path-length", "8", "--quiet"]
    done = submit("fit", data, "--output", run, "--residency", residency, *how)
    assert done.returncode == 0, done.stderr
    model = PathModel.load(run)
    for k, lam in enumerate(model.lambdas):
        found, best = objective(model, k, X, y, ratio, weights), best_objective(lam, X, y, ratio, weights)
        assert found == pytest.approx(best, rel=1e-6)
        assert found == pytest.approx(model.path[k]["objective"], rel=1e-9)


def test_the_paper_s_algorithm_finds_the_same(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    options = SolverOptions.paper(tol=1e-10, max_rounds=1000)
    problem = replace(SQUARED, intercept=True)
    fit_path(dataset, run, options=options, problem=problem, path=PathOptions(length=4), client=client)
    model, (X, y) = PathModel.load(run), make_numbers()
    for k, lam in enumerate(model.lambdas):
        assert objective(model, k, X, y, 1.0) == pytest.approx(best_objective(lam, X, y, 1.0), rel=1e-6)


@pytest.mark.parametrize("residency", ["memory", "stream"])
def test_a_run_that_was_cut_off_ends_the_same(client: Client, dataset: Dataset, tmp_path: Path, residency: str) -> None:
    how: dict[str, Any] = {"problem": SQUARED, "options": STRICT, "path": PathOptions(length=6), "client": client}
    fit_path(dataset, str(tmp_path / "whole"), residency=residency, **how)
    cut = str(tmp_path / "cut")
    fit_path(dataset, cut, residency=residency, **how)
    _cut_off(Path(cut), 3)
    fit_path(dataset, cut, residency=residency, resume=True, **how)
    whole, resumed = PathModel.load(str(tmp_path / "whole")), PathModel.load(cut)
    assert len(resumed) == 6
    for one, other in zip(whole.path, resumed.path, strict=True):
        assert other["objective"] == pytest.approx(one["objective"], rel=1e-8)


def _cut_off(run: Path, done: int) -> None:
    """As a run is that was killed when so many λ were done."""
    pq.write_table(pq.read_table(run / "path.parquet").slice(0, done), run / "path.parquet")
    about = unsealed(json.loads((run / "run.json").read_text()))
    (run / "run.json").write_text(json.dumps(about | {"complete": False}))


@pytest.mark.parametrize("loss", ["logistic", "probit"])
def test_losses_of_two_classes_refuse_numbers_in_one_line(
    submit: Command, dataset: Dataset, tmp_path: Path, loss: str
) -> None:
    done = submit("fit", dataset.url, "--output", str(tmp_path / "run"), "--loss", loss)
    assert done.returncode == 2
    assert f"its labels are numbers, but {loss} loss is for two classes" in done.stderr
    assert "convert without --numeric-labels" in done.stderr
    assert not (tmp_path / "run").exists()


def test_numbers_have_no_classes_to_weigh(submit: Command, dataset: Dataset, tmp_path: Path) -> None:
    how = ["--loss", "squared", "--class-weight", "balanced"]
    done = submit("fit", dataset.url, "--output", str(tmp_path / "run"), *how)
    assert done.returncode == 2
    assert "its labels are numbers, which have no classes to weigh" in done.stderr


def test_two_labels_are_weighed_by_class_whatever_numbers_they_are(tmp_path: Path) -> None:
    dataset = from_arrays(np.eye(4), [1, 2, 2, 1], str(tmp_path / "data"))
    examples = ExampleOptions("squared", (3.0, 5.0)).examples(dataset)
    assert examples.encoded.tolist() == [[1, 2, 2, 1], [3, 5, 5, 3]]


def test_bounds_of_a_data_set_of_numbers_are_never_used(dataset: Dataset, tmp_path: Path) -> None:
    stored = dataset.partitions[0].read().bounds
    assert ExampleOptions("squared").bounds(dataset, stored) is None
    two = from_arrays(np.eye(4), [1, 2, 2, 1], str(tmp_path / "data"))
    assert ExampleOptions().bounds(two, stored) is stored


# --- judged ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_are_those_of_scikit_learn(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    y, predicted = rng.normal(size=50), rng.normal(size=50)
    weights = rng.random(50) if weighted else None
    assert metrics_of(predicted, y, weights, "number") == pytest.approx(
        {
            "rmse": root_mean_squared_error(y, predicted, sample_weight=weights),
            "mae": mean_absolute_error(y, predicted, sample_weight=weights),
            "r2": r2_score(y, predicted, sample_weight=weights),
        }
    )


def test_r2_is_undefined_where_labels_do_not_vary() -> None:
    assert metrics_of(np.array([1.0, 2.0]), np.array([3.0, 3.0]), None, "number")["r2"] is None


@pytest.mark.parametrize("form", ["text", "data set"])
def test_every_model_is_judged_by_numbers(client: Client, run: str, tmp_path: Path, form: str) -> None:
    X, y = make_numbers(seed=2)
    (tmp_path / "test.svm").write_bytes(to_text(X, y))
    source = str(tmp_path / "test.svm")
    if form == "data set":
        source = convert_libsvm(source, str(tmp_path / "test"), numeric_labels=True, client=client).url
    here = _copy(run, tmp_path)
    found = evaluate(here, source, client=client)
    model = PathModel.load(here)
    errors = [root_mean_squared_error(y, model.predict(X, k)) for k in range(len(model))]
    assert [row["rmse"] for row in model.path] == pytest.approx(errors)
    assert found.metric == "rmse"
    assert found.best == model.best() == int(np.argmin(errors))


def _copy(run: str, tmp_path: Path) -> str:
    return str(shutil.copytree(run, tmp_path / "run"))


def test_metrics_of_two_labels_are_not_asked_of_numbers(client: Client, run: str, tmp_path: Path) -> None:
    (tmp_path / "test.svm").write_bytes(to_text(*make_numbers(seed=2)))
    with pytest.raises(UserError, match="metric must be one of rmse, mae, r2, got 'auc'"):
        evaluate(run, str(tmp_path / "test.svm"), metric="auc", client=client)


def test_a_model_of_two_labels_is_not_judged_by_numbers(client: Client, tmp_path: Path) -> None:
    X, y = make_rows(N, P)
    run = fit_text(client, tmp_path, to_text(X, y), length=2)
    (tmp_path / "test.svm").write_bytes(to_text(X, np.full(N, 0.25)))
    with pytest.raises(UserError, match=r"label 0\.25, but the run was trained on the labels -1 and 1"):
        evaluate(run, str(tmp_path / "test.svm"), client=client)


def test_predictions_are_numbers(client: Client, run: str, tmp_path: Path) -> None:
    X, y = make_numbers(seed=3)
    (tmp_path / "new.svm").write_bytes(to_text(X, y))
    predict(run, str(tmp_path / "new.svm"), str(tmp_path / "p.parquet"), lambda_index=4, client=client)
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["example", "prediction", "true_label"]
    model = PathModel.load(run)
    np.testing.assert_allclose(table["prediction"].to_numpy(), model.predict(X, 4), rtol=1e-10)
    for wrong in (lambda: model.predict_proba(X, 4), lambda: model.classes):
        with pytest.raises(UserError, match="a model with squared loss predicts numbers, not"):
            wrong()


def test_a_report_speaks_of_numbers(run: str, tmp_path: Path) -> None:
    page = Path(write_report(run, output=str(tmp_path / "report.html"))).read_text()
    for words in ("L1-regularised linear regression", "Test RMSE along the path", "Test R² along the path", "MAE"):
        assert words in page
    assert "a feature raises the prediction" in page
    for words in ("AUPRC", "Log-loss", "logistic regression", "label +1"):
        assert words not in page
    lines = "\n".join(summary_lines(run))
    assert "Best by RMSE: model" in lines
    assert "R² 0." in lines


# --- the pipeline ---------------------------------------------------------------------------------------------------


def test_the_pipeline_takes_labels_of_text_for_numbers(submit: Command, tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_bytes(to_text(*make_numbers()))
    run = str(tmp_path / "run")
    words = ["pipeline", "--train", str(tmp_path / "train.svm"), "--output", run, "--loss", "squared"]
    done = submit(*words, "--path-length", "4")
    assert done.returncode == 0, done.stderr
    assert "Best by RMSE" in done.stdout
    model = PathModel.load(run)
    assert {row["rmse"] is None for row in model.path} == {False}
    again = submit(*words, "--path-length", "4")
    assert "evaluate: up to date" in again.stderr
    other = submit(*words, "--path-length", "4", "--metric", "auprc")
    assert other.returncode == 2
    assert "--metric auprc does not go with squared loss: choose one of rmse, mae, r2" in other.stderr


def test_the_pipeline_takes_a_data_set_as_it_is(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "test.svm").write_bytes(to_text(*make_numbers(seed=1)))
    fit = {"problem": SQUARED, "path": PathOptions(length=3)}
    options = PipelineOptions(
        (dataset.url,), str(tmp_path / "run"), (str(tmp_path / "test.svm"),), fit=fit, metric="mae", choose_by_test=True
    )
    run_pipeline(options, client=client)
    assert PathModel.load(str(tmp_path / "run")).metric == "mae"
    two = from_arrays(np.eye(8), [0, 5] * 4, str(tmp_path / "two"))
    options = PipelineOptions((two.url,), str(tmp_path / "other"), fit=fit, validation_fraction=0.0)
    run_pipeline(options, client=client)
    assert PathModel.load(str(tmp_path / "other")).intercept(0) == pytest.approx(2.5)


# --- other programs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_scikit_learn_s_models_predict_the_same(client: Client, dataset: Dataset, tmp_path: Path, ratio: float) -> None:
    problem = replace(SQUARED, l1_ratio=ratio)
    fit_path(dataset, str(tmp_path / "run"), problem=problem, options=STRICT, path=PathOptions(length=3), client=client)
    model, (X, y) = PathModel.load(str(tmp_path / "run")), make_numbers()
    fitted = model.to_sklearn(2, n_features=P)
    assert type(fitted) is (Lasso if ratio == 1.0 else ElasticNet)
    np.testing.assert_allclose(fitted.predict(X), model.predict(X, 2))
    again = fitted.__class__(**fitted.get_params()).set_params(tol=1e-12, max_iter=100_000).fit(X.toarray(), y)
    np.testing.assert_allclose(again.coef_, fitted.coef_, atol=1e-5)
    assert again.intercept_ == pytest.approx(fitted.intercept_, abs=1e-5)


def test_programs_for_two_classes_refuse_numbers(run: str, tmp_path: Path) -> None:
    model = PathModel.load(run)
    for write in (model.to_liblinear, model.to_vw):
        with pytest.raises(UserError, match=r"a model with squared loss; .* knows logistic"):
            write(str(tmp_path / "model"), 0)


# --- the regressor --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_coefficients_are_those_of_scikit_learn(form: Callable[[Any], Any], weighted: bool, ratio: float) -> None:
    X, y = make_numbers()
    weights = np.random.default_rng(1).random(N) + 0.5 if weighted else None
    total = N if weights is None else weights.sum()
    model = L1LinearRegression(5.0, l1_ratio=ratio, gap=1e-10).fit(form(X.toarray()), y, weights)
    net = ElasticNet(alpha=5.0 / total, l1_ratio=ratio, tol=1e-13, max_iter=100_000).fit(X.toarray(), y, weights)
    np.testing.assert_allclose(model.coef_, net.coef_, atol=1e-5)
    assert model.intercept_ == pytest.approx(net.intercept_, abs=1e-5)
    assert model.score(X, y, weights) == pytest.approx(net.score(X.toarray(), y, weights))
    assert model.relative_gap_ <= 1e-10


def test_from_lambda_max_on_the_mean_is_predicted() -> None:
    X, y = make_numbers()
    largest = L1LinearRegression().fit(X, y).lambda_max_
    above = L1LinearRegression(1.01 * largest).fit(X, y)
    assert not above.coef_.any()
    assert above.intercept_ == pytest.approx(y.mean())
    assert L1LinearRegression(0.99 * largest).fit(X, y).coef_.any()


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("how", [{}, {"algorithm": "paper", "tol": 1e-6}, {"subspace_memory": 0}])
def test_the_unit_of_the_labels_changes_nothing(how: dict[str, Any], intercept: bool) -> None:
    X, y = make_numbers()
    here = L1LinearRegression(1.0, fit_intercept=intercept, **how).fit(X, y)
    for unit in (1e-20, 1e8, 1e30):
        there = L1LinearRegression(unit, fit_intercept=intercept, **how).fit(X, unit * y)
        np.testing.assert_allclose(there.coef_ / unit, here.coef_, atol=1e-8)
        assert there.n_iter_ == here.n_iter_


def test_a_warm_start_begins_where_the_last_fit_ended() -> None:
    X, y = make_numbers()
    model = L1LinearRegression(1.0, warm_start=True, gap=1e-8).fit(X, y)
    first = model.coef_.copy()
    np.testing.assert_allclose(model.fit(X, y).coef_, first, atol=1e-6)


def test_labels_that_do_not_vary_are_the_intercept() -> None:
    model = L1LinearRegression().fit(np.eye(4), np.full(4, 7.0))
    assert (model.intercept_, model.coef_.tolist(), model.gap_) == (7.0, [0.0] * 4, 0.0)


def test_dask_arrays_data_sets_and_arrays_give_the_same(client: Client, dataset: Dataset) -> None:
    X, y = make_numbers()
    how: dict[str, Any] = {"lam": 3.0, "gap": 1e-10, "client": client}
    here = L1LinearRegression(3.0, gap=1e-10).fit(X, y)
    chunks = da.from_array(X.toarray(), chunks=(70, 11))
    lazy = L1LinearRegression(**how).fit(chunks, da.from_array(y, chunks=70))
    stored = L1LinearRegression(**how).fit(dataset)
    for other in (lazy, stored, L1LinearRegression(**how).fit(X, y)):
        np.testing.assert_allclose(other.coef_, here.coef_, atol=1e-6)
        assert other.intercept_ == pytest.approx(here.intercept_, abs=1e-6)
    np.testing.assert_allclose(lazy.predict(chunks).compute(scheduler="sync"), here.predict(X), atol=1e-5)
    np.testing.assert_allclose(stored.predict(dataset), here.predict(X), atol=1e-5)
    assert stored.score(dataset) == pytest.approx(here.score(X, y))


@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        ([1.0, 1e39], None, r"beyond 3\.4e38"),
        ([1.0, 2.0], [0.0, 0.0], "the weights of the examples are all zero"),
        ([1.0, 2.0], [1.0], "sample_weight must be a vector of 2 weights"),
    ],
)
def test_what_cannot_be_fitted_is_told(y: list[float], weights: list[float] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        L1LinearRegression().fit(np.eye(2), y, weights)
