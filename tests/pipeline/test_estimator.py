"""The estimators: scikit-learn's rules, LIBLINEAR's coefficients, awkward data, arrays of every kind."""

from __future__ import annotations

import doctest
import fcntl
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from dask import delayed
from distributed import Client
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import solver
from pipeline import L1LinearRegression, L1LogisticRegression, L1LogisticRegressionPath
from pipeline.estimators import linear
from pipeline.estimators import path as estimator_path
from pipeline.estimators import single as estimator
from pipeline.export import sklearn_penalty
from tests.pipeline.runs import make_rows, to_text
from transforms import UserError, convert_libsvm, from_arrays, open_dataset


def broken_checks(estimator: Any) -> dict[str, str]:
    """In scikit-learn 1.6 two checks of weights give the compared fits of two-class estimators different labels."""
    if isinstance(estimator, L1LinearRegression) or tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 7):
        return {}
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": "the check shuffles classes" for kind in kinds}


@parametrize_with_checks(
    [L1LogisticRegression(), L1LogisticRegressionPath(path_length=4, gap=1e-10), L1LinearRegression()],
    expected_failed_checks=broken_checks,
)
def test_scikit_learn_finds_its_rules_kept(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("module", [estimator, estimator_path, linear])
def test_the_examples_in_the_docs_are_true(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


# --- exactness ------------------------------------------------------------------------------------------------------


def liblinear(X: Any, y: np.ndarray, lam: float, weights: Any = None) -> np.ndarray:
    """Coefficients without an intercept: LIBLINEAR would penalise it."""
    reference = LogisticRegression(
        **sklearn_penalty(1.0), C=1 / lam, solver="liblinear", fit_intercept=False, tol=1e-8, max_iter=20_000
    )
    coefficients: np.ndarray = reference.fit(X, y, sample_weight=weights).coef_
    return coefficients


def without_intercept(*args: Any, **how: Any) -> L1LogisticRegression:
    return L1LogisticRegression(*args, fit_intercept=False, **how)


def objective(X: Any, y: np.ndarray, lam: float, coef: np.ndarray, weights: Any = None) -> float:
    losses = np.logaddexp(0.0, -np.where(y > 0, 1, -1) * (X @ coef.ravel()))
    return float(losses @ (np.ones(y.size) if weights is None else weights) + lam * np.abs(coef).sum())


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, sp.coo_array, lambda X: X.toarray()])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [0.3, 3.0])
def test_coefficients_are_those_of_liblinear(form: Callable[[Any], Any], weighted: bool, lam: float) -> None:
    X, y = make_rows()
    weights = np.random.default_rng(1).integers(0, 4, y.size) / 2 if weighted else None
    model = without_intercept(lam, gap=1e-8).fit(form(X), y, sample_weight=weights)
    expected = liblinear(sp.csr_matrix(X), y, lam, weights)
    np.testing.assert_allclose(model.coef_, expected, atol=1e-4)
    assert model.objective_ == pytest.approx(objective(X, y, lam, model.coef_, weights), rel=1e-12)
    assert model.objective_ - model.gap_ <= objective(X, y, lam, expected, weights) + 1e-9
    assert model.converged_
    assert model.relative_gap_ <= 1e-8


def test_dense_data_give_what_sparse_ones_give() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20)).astype(np.float32)
    y = X[:, 0] - X[:, 1] + rng.normal(size=300) > 0
    dense, sparse = (without_intercept(2.0, gap=1e-8).fit(form, y) for form in (X, sp.csr_array(X)))
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-7)
    np.testing.assert_allclose(dense.coef_, liblinear(X, y, 2.0), atol=1e-4)


def test_class_weights_are_those_of_scikit_learn() -> None:
    X, y = make_rows()
    y[:60] = 1
    for weight in ("balanced", {1: 0.5, -1: 3.0}):
        reference = LogisticRegression(
            **sklearn_penalty(1.0),
            solver="liblinear",
            fit_intercept=False,
            tol=1e-8,
            max_iter=20_000,
            class_weight=weight,
        )
        model = without_intercept(gap=1e-8, class_weight=weight)
        coefficients = model.fit(X, y).coef_
        np.testing.assert_allclose(coefficients, reference.fit(sp.csr_matrix(X), y).coef_, atol=1e-4)
    with pytest.raises(ValueError, match=r"class_weight names \{7\}"):
        L1LogisticRegression(class_weight={7: 1}).fit(X, y)


def test_the_paper_s_algorithm_gives_the_same_minimum() -> None:
    X, y = make_rows()
    paper = L1LogisticRegression(algorithm="paper", tol=1e-10, max_rounds=5000, blocks=2).fit(X, y)
    assert paper.objective_ == pytest.approx(L1LogisticRegression(gap=1e-8).fit(X, y).objective_, rel=1e-7)
    with pytest.raises(ValueError, match="gap does not go with algorithm='paper'"):
        L1LogisticRegression(algorithm="paper", gap=0.1).fit(X, y)
    with pytest.raises(ValueError, match="algorithm must be one of default, paper, truncated-gradient, got 'best'"):
        L1LogisticRegression(algorithm="best").fit(X, y)
    with pytest.raises(ValueError, match="learns by example, which estimators do not: use fit_path"):
        L1LogisticRegression(algorithm="truncated-gradient").fit(X, y)


@pytest.mark.parametrize("ratio", [1.0, 0.6])
@pytest.mark.parametrize("weight", [None, "balanced"])
def test_with_an_intercept_it_is_scikit_learn_s_minimum(ratio: float, weight: str | None) -> None:
    X, y = make_rows()
    y[:60] = 1
    model = L1LogisticRegression(2.0, l1_ratio=ratio, class_weight=weight, gap=1e-9).fit(X, y)
    reference = LogisticRegression(
        C=0.5, **sklearn_penalty(ratio), solver="saga", class_weight=weight, tol=1e-9, max_iter=200_000, random_state=0
    ).fit(sp.csr_matrix(X, dtype=np.float64), y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-4)


def test_rare_positives_come_out_calibrated() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10)).astype(np.float32)
    y = rng.random(20_000) < 0.01 * np.exp(0.5 * X[:, 0])
    model = L1LogisticRegression(5.0).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-6)


def test_c_is_the_inverse_of_lambda() -> None:
    X, y = make_rows()
    by_c, by_lambda = L1LogisticRegression(C=0.5, gap=1e-9).fit(X, y), L1LogisticRegression(2.0, gap=1e-9).fit(X, y)
    np.testing.assert_array_equal(by_c.coef_, by_lambda.coef_)
    for wrong in (L1LogisticRegression(1.0, C=1.0), L1LogisticRegression(C=0.0)):
        with pytest.raises(ValueError, match="C"):
            wrong.fit(X, y)


def test_a_warm_start_ends_at_the_same_minimum() -> None:
    X, y = make_rows()
    model = L1LogisticRegression(4.0, gap=1e-9, warm_start=True).fit(X, y)
    model.set_params(lam=2.0).fit(X, y)
    cold = L1LogisticRegression(2.0, gap=1e-9).fit(X, y)
    np.testing.assert_allclose(model.coef_, cold.coef_, atol=1e-5)


@pytest.mark.parametrize(
    "change", [{"positive": True}, {"standardize": True}, {"penalty_factors": np.full(12, np.inf)}]
)
def test_a_warm_start_that_is_not_allowed_any_more_is_made_so(change: dict[str, Any]) -> None:
    """It used to go on for ever: f is infinite at a negative coefficient that may not be one."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 12))
    X[:, 5] += 100.0
    y = rng.random(400) < 1 / (1 + np.exp(-(2 * X[:, 0] - X[:, 1] + 1)))
    model = L1LogisticRegression(0.5, warm_start=True, gap=1e-8).fit(X, y)
    X[:, 5] = 1.0
    warm = model.set_params(**change).fit(X, y)
    cold = L1LogisticRegression(0.5, gap=1e-8, **change).fit(X, y)
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-7)


def test_the_paper_s_rounds_that_crawl_are_not_taken_for_the_end() -> None:
    """As they do beside an unpenalised feature that all others go along with. An intercept is no such feature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10)) + 100.0
    y = X[:, 0] - X[:, 1] + rng.normal(size=200) > 0
    X[:, 9] = 1.0
    own = L1LogisticRegression(1.0, algorithm="paper", fit_intercept=False, penalty_factors=[1.0] * 9 + [0.0])
    with pytest.warns(ConvergenceWarning, match="rounds the relative duality gap is"):
        assert not own.fit(X, y).converged_
    model = L1LogisticRegression(1.0, algorithm="paper").fit(X, y)
    assert model.converged_
    assert model.objective_ == pytest.approx(L1LogisticRegression(1.0).fit(X, y).objective_, rel=1e-2)


def test_penalty_factors_free_and_exclude_features(client: Client) -> None:
    X, y = make_rows()
    factors = np.ones(X.shape[1])
    factors[0], factors[1] = 0.0, np.inf
    model = L1LogisticRegression(1e6, penalty_factors=factors).fit(X, y)
    assert np.flatnonzero(model.coef_[0]).tolist() == [0]
    small = L1LogisticRegression(0.5, penalty_factors=factors, gap=1e-9).fit(X, y)
    assert small.coef_[0, 1] == 0.0
    there = L1LogisticRegression(0.5, penalty_factors=factors, gap=1e-9, client=client).fit(X, y)
    np.testing.assert_allclose(there.coef_, small.coef_, atol=1e-5)
    with pytest.raises(ValueError, match="penalty_factors has 3 entries, but there are 30 features"):
        L1LogisticRegression(penalty_factors=[1, 1, 1]).fit(X, y)


def test_standardised_features_are_those_of_a_scaler(client: Client) -> None:
    X = make_rows()[0].toarray() * np.geomspace(0.1, 10, 30)
    y = make_rows()[1]
    model = L1LogisticRegression(3.0, standardize=True, gap=1e-10).fit(X, y)
    scaled = make_pipeline(StandardScaler(), L1LogisticRegression(3.0, gap=1e-10)).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), scaled.predict_proba(X), atol=1e-5)
    there = L1LogisticRegression(3.0, standardize=True, gap=1e-10, client=client).fit(X, y)
    np.testing.assert_allclose(there.coef_, model.coef_, atol=1e-5)


def test_no_coefficient_is_negative_where_none_may_be() -> None:
    X, y = make_rows()
    model = L1LogisticRegression(0.5, positive=True, gap=1e-8).fit(X, y)
    free = L1LogisticRegression(0.5, gap=1e-8).fit(X, y)
    assert (model.coef_ >= 0).all()
    assert (free.coef_ < 0).any()
    assert model.relative_gap_ <= 1e-8


def test_probit_probabilities_are_those_of_the_normal_distribution() -> None:
    X, y = make_rows()
    model = L1LogisticRegression(1.0, loss="probit", gap=1e-8).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], norm.cdf(model.decision_function(X)), atol=1e-12)
    with pytest.raises(ValueError, match="loss must be one of logistic, probit"):
        L1LogisticRegression(loss="squared").fit(X, y)


# --- awkward data ---------------------------------------------------------------------------------------------------


def test_a_constant_column_does_what_a_penalised_intercept_does() -> None:
    X, y = make_rows()
    wide = sp.hstack([X, np.ones((y.size, 1))])
    model = without_intercept(gap=1e-8).fit(wide, y)
    np.testing.assert_allclose(model.coef_, liblinear(sp.csr_matrix(wide), y, 1.0), atol=1e-4)


def test_equal_columns_cost_no_more_than_one() -> None:
    X, y = make_rows()
    once = L1LogisticRegression(gap=1e-8).fit(X, y)
    twice = L1LogisticRegression(gap=1e-8).fit(sp.hstack([X, X]), y)
    assert twice.objective_ == pytest.approx(once.objective_, rel=1e-7)


def test_empty_rows_and_columns_change_no_coefficient() -> None:
    X, y = make_rows()
    more = sp.block_diag([X, sp.csr_array((2, 3))], format="csr")
    full, some = without_intercept(gap=1e-9).fit(more, [*y, 1, -1]), without_intercept(gap=1e-9).fit(X, y)
    np.testing.assert_allclose(full.coef_[0, :-3], some.coef_[0], atol=1e-5)
    assert not full.coef_[0, -3:].any()


def test_few_examples_and_many_features() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3000)).astype(np.float32), np.arange(12) % 2
    model = without_intercept(0.1, gap=1e-6).fit(X, y)
    assert model.score(X, y) == 1.0
    assert model.objective_ <= objective(X, y, 0.1, liblinear(X, y, 0.1)) * (1 + 1e-6)


def test_from_lambda_max_on_everything_is_zero() -> None:
    X, y = make_rows()
    largest = L1LogisticRegression().fit(X, y).lambda_max_
    assert not L1LogisticRegression(largest).fit(X, y).coef_.any()
    assert L1LogisticRegression(0.99 * largest, gap=1e-8).fit(X, y).sparse_coef_.nnz == 1
    nothing = L1LogisticRegression().fit(np.zeros((4, 2)), [0, 1, 0, 1])
    assert not nothing.coef_.any()
    assert nothing.predict_proba(np.ones((1, 2))).tolist() == [[0.5, 0.5]]


def test_a_path_so_long_that_its_last_penalty_is_0_names_length_and_ratio() -> None:
    X, y = make_rows()
    with pytest.raises(ValueError, match=r"path length 400 and path ratio 0\.1 .* a length of at most 307, or a ratio"):
        L1LogisticRegressionPath(path_length=400, path_ratio=0.1).fit(X, y)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_values_beyond_float32_are_refused(form: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="do not fit float32"):
        L1LogisticRegression().fit(form([[1e39, 1.0], [1.0, 2.0]]), [0, 1])


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({}, [1, 1, 1], r"y has one class only \(1\); two classes are needed"),
        ({}, [0.0, 0.0, 0.0], r"y has one class only \(0\.0\); two classes are needed"),
        ({}, [1, 2, 3], "Only binary classification is supported"),
        ({"lam": 0.0}, [0, 1, 1], "λ must be > 0"),
        ({"tol": 2.0}, [0, 1, 1], "tol must lie between 0 and 1"),
        ({"blocks": 3}, [0, 1, 1], "blocks must lie in 1..2"),
        ({"class_weight": "even"}, [0, 1, 1], "class_weight must be None, 'balanced' or a dict"),
    ],
)
def test_what_cannot_be_fitted_is_told(parameters: dict[str, Any], y: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        L1LogisticRegression(**parameters).fit(np.arange(6.0).reshape(3, 2), y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"gap": 1e-16, "max_rounds": 2}, "after 2 rounds the relative duality gap is .*e-1.; a relative gap of 1e-16"),
        ({"algorithm": "paper", "max_rounds": 2}, r"after 2 rounds the relative duality gap is 0\.9.; tol = 0\.0001"),
    ],
)
def test_a_fit_that_ends_early_warns_and_says_how_far_it_came(parameters: dict[str, Any], message: str) -> None:
    X, y = make_rows()
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        model = L1LogisticRegression(0.01, **parameters).fit(X, y)
    assert not model.converged_
    assert [issubclass(one.category, solver.ConvergenceWarning) for one in caught] == [True]
    assert caught[0].filename == __file__


def test_a_fit_that_is_done_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        L1LogisticRegression().fit(*make_rows())


# --- scikit-learn's tools -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_grid_search_finds_what_a_loop_finds(n_jobs: int) -> None:
    X, y = make_rows()
    grid, halves = {"lam": [20.0, 1.0]}, [(np.arange(100), np.arange(100, 200))]
    search = GridSearchCV(L1LogisticRegression(), grid, n_jobs=n_jobs, cv=halves).fit(X, y)
    scores = [L1LogisticRegression(lam).fit(X[:100], y[:100]).score(X[100:], y[100:]) for lam in grid["lam"]]
    assert search.cv_results_["mean_test_score"].tolist() == scores
    assert search.best_params_ == {"lam": grid["lam"][int(np.argmax(scores))]}
    again = clone(search.best_estimator_).fit(X, y)
    assert search.best_estimator_.coef_.tolist() == again.coef_.tolist()


def test_pipelines_scale_first() -> None:
    X, y = make_rows()
    for scaler in (MaxAbsScaler(), StandardScaler(with_mean=False)):
        both = make_pipeline(scaler, L1LogisticRegression()).fit(X, y)
        alone = L1LogisticRegression().fit(clone(scaler).fit_transform(X), y)
        np.testing.assert_array_equal(both.predict_proba(X), alone.predict_proba(scaler.transform(X)))


def test_two_fits_give_the_same_bits() -> None:
    X, y = make_rows()
    model = L1LogisticRegression(0.5)
    first = model.fit(X, y).coef_
    assert first.tolist() == model.fit(X, y).coef_.tolist() == clone(model).fit(X, y).coef_.tolist()
    assert model.set_params(lam=50.0).fit(X, y).coef_.tolist() != first.tolist()


def test_a_clone_has_the_same_client_and_what_is_stored_has_none(client: Client, tmp_path: Path) -> None:
    X, y = make_rows()
    model = L1LogisticRegression(client=client).fit(X, y)
    assert clone(model).client is client
    joblib.dump(model, tmp_path / "model")
    for stored in (joblib.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert stored.client is None
        np.testing.assert_array_equal(stored.predict_proba(X), model.predict_proba(X))


def test_coefficients_can_be_sparse() -> None:
    X, y = make_rows()
    model = L1LogisticRegression(5.0).fit(X, y)
    dense, expected = model.coef_, model.predict_proba(X)
    assert sp.issparse(model.sparsify().coef_)
    assert model.coef_.nnz == np.count_nonzero(dense) < dense.size
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    np.testing.assert_array_equal(model.densify().coef_, dense)


def test_logarithms_stay_finite_where_probabilities_vanish() -> None:
    model = L1LogisticRegression(0.01).fit([[-1.0], [1.0]], [0, 1])
    assert model.predict_proba([[1e4]])[0, 0] == 0.0
    assert model.predict_log_proba([[1e4]])[0, 0] == pytest.approx(-1e4 * model.coef_[0, 0])


# --- the path -------------------------------------------------------------------------------------------------------


def test_each_point_of_a_path_is_the_minimum_at_its_lambda() -> None:
    X, y = make_rows()
    path = L1LogisticRegressionPath(path_length=6, gap=1e-8, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(path.lambdas_, path.lambda_max_ * 0.5 ** np.arange(1, 7))
    for k, lam in enumerate(path.lambdas_):
        np.testing.assert_allclose(path.coefs_[[k]].toarray(), liblinear(sp.csr_matrix(X), y, lam), atol=1e-4)
    np.testing.assert_array_equal(path.n_nonzeros_, np.diff(path.coefs_.indptr))
    assert (path.relative_gaps_ <= 1e-8).all()
    assert [row["objective"] for row in path.path_] == path.objectives_.tolist()


def test_the_lowest_bic_predicts_until_another_is_chosen() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 20))
    y = X[:, 0] - X[:, 1] + rng.normal(size=300) > 0
    path = L1LogisticRegressionPath(path_length=10).fit(X, y)
    losses = [log_loss(y, path.at(k).predict_proba(X), normalize=False) for k in range(10)]
    bic = 2 * np.array(losses) + path.n_nonzeros_ * np.log(300)
    assert path.lambda_index_ == np.argmin(bic) not in (0, 9)
    np.testing.assert_allclose([row["bic"] for row in path.path_], bic, rtol=1e-5)


def test_a_path_predicts_by_the_lambda_chosen() -> None:
    X, y = make_rows()
    path = L1LogisticRegressionPath([1.0, 20.0, 5.0, 5.0], lambda_index=1).fit(X, y)
    assert path.lambdas_.tolist() == [20.0, 5.0, 1.0]
    one = path.at(1)
    assert (one.lam, one.n_iter_.tolist(), one.gap_) == (5.0, [path.n_iter_[1]], path.gaps_[1])
    np.testing.assert_array_equal(path.predict_proba(X), one.predict_proba(X))
    np.testing.assert_array_equal(path.at(-1).coef_, path.coefs_[[2]].toarray())
    with pytest.raises(ValueError, match="λ index 3, but the path has 3: 0 to 2"):
        path.at(3)
    with pytest.raises(ValueError, match="λ index -4, but the path has 3"):
        L1LogisticRegressionPath([1.0, 20.0, 5.0], lambda_index=-4).fit(X, y)


@pytest.mark.parametrize("metric", ["auprc", "auc", "log_loss", "accuracy"])
def test_select_takes_the_best_on_other_data(metric: str) -> None:
    X, y = make_rows()
    new, truth = make_rows(seed=1)
    path = L1LogisticRegressionPath(path_length=6).fit(X, y).select(new, truth, metric=metric)
    values = [row[metric] for row in path.path_]
    assert path.lambda_index_ == values.index(min(values) if metric == "log_loss" else max(values))
    assert path.path_[path.lambda_index_]["accuracy"] == pytest.approx(path.score(new, truth))
    np.testing.assert_array_equal(path.coef_, path.at(path.lambda_index_).coef_)


def test_select_refuses_labels_that_are_no_classes() -> None:
    X, y = make_rows()
    path = L1LogisticRegressionPath(path_length=2).fit(X, y)
    with pytest.raises(ValueError, match="labels \\[0\\], but the classes are \\[-1, 1\\]"):
        path.select(X, np.maximum(y, 0))
    with pytest.raises(ValueError, match="auc is not defined on these data"):
        path.select(X, np.ones_like(y), metric="auc")


# --- on Dask --------------------------------------------------------------------------------------------------------


@pytest.fixture
def current(client: Client) -> Iterator[Client]:
    with client.as_current():
        yield client


def names(y: np.ndarray) -> np.ndarray:
    return np.where(y > 0, "yes", "no")


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, np.asarray])
@pytest.mark.parametrize("columns", [30, 11])
def test_dask_arrays_give_what_arrays_in_memory_give(
    current: Client, form: Callable[[Any], Any], columns: int, tmp_path: Path
) -> None:
    X, y = make_rows()
    weights = np.random.default_rng(1).integers(1, 4, y.size) / 2
    blocks = da.from_array(X.toarray(), chunks=(70, columns)).map_blocks(form)
    model = L1LogisticRegression(gap=1e-8, class_weight="balanced", scratch=str(tmp_path))
    model.fit(blocks, da.from_array(names(y), chunks=45), da.from_array(weights, chunks=200))
    expected = L1LogisticRegression(gap=1e-8, class_weight="balanced").fit(X, names(y), weights)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    assert model.classes_.tolist() == ["no", "yes"]
    assert list(tmp_path.iterdir()) == []


def test_chunks_of_unknown_size_work_when_y_has_the_same(current: Client) -> None:
    X, y = make_rows()
    rows, labels = da.from_array(X.toarray(), chunks=(70, 30)), da.from_array(y, chunks=70)
    kept = np.asarray(X.sum(axis=1)) > 0
    mask = da.from_array(kept, chunks=70)
    model = L1LogisticRegression(gap=1e-8).fit(rows[mask], labels[mask])
    expected = L1LogisticRegression(gap=1e-8).fit(X[kept], y[kept])
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    with pytest.raises(UserError, match="row counts of X's chunks are not known"):
        model.fit(rows[mask], y[kept])


def test_predictions_of_dask_arrays_are_lazy_and_the_same(current: Client) -> None:
    X, y = make_rows()
    model = L1LogisticRegression().fit(X, names(y))
    blocks = da.from_array(X.toarray(), chunks=(70, 11)).map_blocks(sp.csr_matrix)
    for method in ("decision_function", "predict_proba", "predict_log_proba", "predict"):
        lazy, expected = getattr(model, method)(blocks), getattr(model, method)(X)
        assert isinstance(lazy, da.Array)
        assert (lazy.dtype, lazy.shape, lazy.chunks[0]) == (expected.dtype, expected.shape, (70, 70, 60))
        if method == "predict":
            assert lazy.compute().tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(lazy.compute(), expected, atol=1e-12)
    assert model.score(blocks, da.from_array(names(y), chunks=50)) == model.score(X, names(y))
    path = L1LogisticRegressionPath(path_length=3).fit(X, y)
    chosen = path.select(blocks, da.from_array(y, chunks=50)).lambda_index_
    assert path.select(X, y).lambda_index_ == chosen
    with pytest.raises(ValueError, match="X has 11 features, but L1LogisticRegression is expecting 30"):
        model.predict(blocks[:, :11])


@pytest.mark.parametrize("positive", [1.0, -1.0])
@pytest.mark.parametrize("base", [0, 1])
def test_a_data_set_gives_what_its_arrays_give(current: Client, tmp_path: Path, positive: float, base: int) -> None:
    X, y = make_rows()
    (tmp_path / "text.svm").write_bytes(to_text(X, y, base))
    url = str(tmp_path / "data")
    convert_libsvm(str(tmp_path / "text.svm"), url, partitions=2, zero_based=base == 0, positive_label=positive)
    model = L1LogisticRegressionPath([8.0, 1.0], gap=1e-10).fit(url)
    expected = L1LogisticRegressionPath([8.0, 1.0], gap=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coefs_.toarray(), expected.coefs_.toarray(), atol=1e-5)
    assert model.classes_.tolist() == [-1.0, 1.0]
    for source in (url, open_dataset(url), tmp_path / "text.svm"):
        np.testing.assert_allclose(model.decision_function(source), model.decision_function(X), atol=1e-9)
        assert model.score(source) == model.score(X, y)
        assert model.select(source, metric="log_loss").lambda_index_ == 1
    np.testing.assert_allclose(model.at(0).predict_proba(url), model.at(0).predict_proba(X), atol=1e-9)
    stored = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(stored.predict(url), model.predict(X))


def test_a_data_set_has_its_own_labels_and_ids(current: Client, tmp_path: Path) -> None:
    X, y = make_rows()
    url = str(tmp_path / "data")
    from_arrays(X, y, url)
    with pytest.raises(UserError, match="labels and weights are in the data set"):
        L1LogisticRegression().fit(url, y)
    with pytest.raises(UserError, match="fitted to arrays, whose columns have no feature ids"):
        L1LogisticRegression().fit(X, y).predict(url)


def test_other_collections_are_not_gathered_in_silence() -> None:
    X, y = make_rows()
    with pytest.raises(TypeError, match=r"X is a Delayed.*: make it a dask array"):
        L1LogisticRegression().fit(delayed(X), y)
    with pytest.raises(TypeError, match=r"X is a Delayed.*: make it a dask array"):
        L1LogisticRegression().fit(X, y).predict(delayed(X))


def test_no_cluster_is_left_behind() -> None:
    X, y = make_rows()
    L1LogisticRegression().fit(da.from_array(X.toarray(), chunks=(100, 30)), y)
    with pytest.raises(ValueError, match=r"No (global )?clients? found"):
        Client.current()


def test_worker_processes_share_the_scratch_folder(process_client: Client) -> None:
    X, y = make_rows()
    blocks = da.from_array(X.toarray(), chunks=(70, 30)).map_blocks(sp.csr_array)
    model = L1LogisticRegression(gap=1e-8, client=process_client).fit(blocks, y)
    np.testing.assert_allclose(model.coef_, L1LogisticRegression(gap=1e-8).fit(X, y).coef_, atol=1e-5)


def test_workers_that_do_not_see_this_machine_s_files_are_noticed(
    process_client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X, y = make_rows()
    folder = os.open(tmp_path, os.O_RDONLY)
    own = fcntl.fcntl(folder, fcntl.F_DUPFD, 800)  # a number that the workers have no file under
    monkeypatch.setattr(tempfile, "tempdir", f"/proc/self/fd/{own}")
    try:
        with pytest.raises(
            UserError, match=r"worker tcp.* does not see the temporary files of this machine: give scra"
        ):
            L1LogisticRegression(client=process_client).fit(da.from_array(X.toarray(), chunks=(100, 30)), y)
    finally:
        os.close(own)
        os.close(folder)
    assert list(tmp_path.iterdir()) == []
