"""Coordinates without a penalty, the intercept among them: fitted exactly, or told to have no fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from solver import (
    Coefficients,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    SolverOptions,
    ThreadBlocks,
    null_model,
    solve_path,
)
from solver.free import MOST, FreeCoordinates, NoMinimum
from solver.start import free_coordinates

LOSSES = ["logistic", "squared", "probit"]


def columns(seed: int = 0, n: int = 80, p: int = 5) -> Any:
    return np.random.default_rng(seed).normal(size=(n, p)).astype(np.float32)


def targets(X: Any, loss: str, seed: int = 0) -> Any:
    score = X[:, 0] - 0.5 * X[:, 1] + 0.7 + np.random.default_rng(seed + 1).normal(size=len(X))
    return score if loss == "squared" else np.where(score > 0, 1.0, -1.0)


def free_of(X: Any, examples: Examples) -> FreeCoordinates:
    """All columns of X, none of them penalised."""
    p = X.shape[1]
    problem = Problem(examples, Penalty.scaled(p, 1.0, False, np.zeros(p), None))
    return FreeCoordinates(problem, problem.free, np.ascontiguousarray(X.T))


def slopes_at(X: Any, examples: Examples, margins: Any) -> Any:
    working = np.empty((2, examples.n))
    examples.residuals(margins, working)
    return X.T.astype(float) @ working[0], np.abs(X.T.astype(float)) @ np.abs(working[0])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("start", [0.0, 3.0, 100.0, 1e3, 1e5])
def test_after_a_refit_the_residual_is_orthogonal_to_every_column(loss: str, start: float) -> None:
    X = columns()
    examples = Examples.of(targets(X, loss), np.random.default_rng(3).exponential(size=80), loss)
    margins = start * np.random.default_rng(2).normal(size=80)
    begin = margins.copy()
    moved = free_of(X, examples).refit(margins)
    np.testing.assert_allclose(margins, begin + X.astype(float) @ moved, rtol=1e-9, atol=1e-9 * (1 + start))
    slopes, scale = slopes_at(X, examples, margins)
    assert (np.abs(slopes) <= 1e-11 * scale).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [1500, 100_000])
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_many_examples_whose_sums_round_end_in_few_steps(
    monkeypatch: pytest.MonkeyPatch, loss: str, n: int, share: float
) -> None:
    """f no longer shows what the last steps gain, long before slopes are at their rounding."""
    X = np.ones((n, 1), np.float32)  # all terms alike: their sum rounds the same way each time
    score = np.random.default_rng(9).normal(size=n)
    y = score + 5.0 if loss == "squared" else np.where(score > np.quantile(score, 1.0 - share), 1.0, -1.0)
    examples, margins, steps = Examples.of(y, None, loss), np.zeros(n), list[int]()
    free = free_of(X, examples)
    expand = free._expand

    def counted(*at: Any) -> Any:
        steps.append(1)
        return expand(*at)

    monkeypatch.setattr(free, "_expand", counted)
    free.refit(margins)
    slopes, scale = slopes_at(X, examples, margins)
    assert (np.abs(slopes) <= 1e-11 * scale).all()
    assert len(steps) <= 12


@pytest.mark.parametrize("loss", LOSSES)
def test_near_the_minimum_slopes_alone_say_that_a_step_is_good(monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    """Values of f would cost as much again."""
    X = columns()
    free, margins = free_of(X, Examples.of(targets(X, loss), None, loss)), np.zeros(80)
    free.refit(margins)
    monkeypatch.setattr(free, "_search", None)
    near = margins + X.astype(float) @ np.full(5, 1e-3)
    np.testing.assert_allclose(free.refit(near), np.full(5, -1e-3), rtol=1e-6)
    np.testing.assert_allclose(near, margins, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_refit_at_the_minimum_moves_nothing(loss: str) -> None:
    X = columns()
    free, margins = free_of(X, Examples.of(targets(X, loss), None, loss)), np.zeros(80)
    free.refit(margins)
    again = margins.copy()
    assert not free.refit(again).any()
    np.testing.assert_array_equal(again, margins)


def test_all_features_unpenalised_is_maximum_likelihood_as_scikit_learn_finds_it() -> None:
    X = columns()
    y, weights = targets(X, "logistic"), np.random.default_rng(4).exponential(size=80)
    examples = Examples.of(y, weights)
    problem = Problem(examples, Penalty.scaled(5, 1.0, False, np.zeros(5), None), intercept=True)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 2) as blocks:
        null = null_model(blocks, problem)
    expected = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(X.astype(float), y, weights)
    beta = null.beta.dense(6)
    np.testing.assert_allclose(beta, [*expected.coef_[0], expected.intercept_[0]], rtol=1e-6, atol=1e-8)
    assert null.lambda_max == 0.0


@pytest.mark.parametrize("loss", LOSSES)
def test_duplicate_constant_and_empty_columns_share_what_one_explains(loss: str) -> None:
    X = columns(p=3)
    many = np.hstack([X, X[:, :1], np.full((80, 2), 2.0, np.float32), np.zeros((80, 1), np.float32)])
    examples = Examples.of(targets(X, loss), None, loss)
    fewer, more = np.zeros(80), np.zeros(80)
    free_of(np.hstack([X, np.ones((80, 1), np.float32)]), examples).refit(fewer)
    moved = free_of(many, examples).refit(more)
    np.testing.assert_allclose(more, fewer, rtol=1e-6, atol=1e-8)
    assert moved[6] == 0.0
    assert moved[4] == pytest.approx(moved[5], rel=1e-6)
    assert np.isfinite(moved).all()


@pytest.mark.parametrize("loss", ["logistic", "probit"])
def test_features_that_separate_the_examples_have_no_minimum(loss: str) -> None:
    X = columns()
    examples = Examples.of(np.where(X[:, 0] > 0, 1.0, -1.0), None, loss)
    with pytest.raises(NoMinimum, match=r"they separate the examples\. Give these features a penalty factor above 0"):
        free_of(X, examples).refit(np.zeros(80))


@pytest.mark.parametrize("loss", ["logistic", "probit"])
@pytest.mark.parametrize("label", [-1.0, 1.0])
@pytest.mark.parametrize("weighed", [False, True])
def test_an_intercept_of_one_class_has_no_minimum(loss: str, label: float, weighed: bool) -> None:
    """Nor where the other class weighs nothing."""
    X = columns()
    y, weights = np.full(80, label), np.ones(80)
    if weighed:
        y[:20], weights[:20] = -label, 0.0
    examples = Examples.of(y, weights, loss)
    with (
        ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 1) as blocks,
        pytest.raises(NoMinimum, match="separate"),
    ):
        null_model(blocks, Problem(examples, Penalty(5), intercept=True))


def test_of_numbers_an_intercept_alone_is_the_weighted_mean() -> None:
    X, weights = columns(), np.random.default_rng(4).exponential(size=80)
    y = targets(X, "squared")
    examples = Examples.of(y, weights, "squared")
    with ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 1) as blocks:
        null = null_model(blocks, Problem(examples, Penalty(5), intercept=True))
    assert null.beta.value.tolist() == pytest.approx([np.average(y, weights=weights)], rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_their_part_of_the_margins_is_the_product(loss: str) -> None:
    X = columns()
    free = free_of(X, Examples.of(targets(X, loss), None, loss))
    beta = Coefficients(np.array([1, 4, 9]), np.array([2.0, -1.0, 5.0]))  # the last is not among them
    margins = np.ones(len(X))
    free.add_product(beta, margins)
    np.testing.assert_allclose(margins - 1.0, X.astype(float) @ [0.0, 2.0, 0.0, 0.0, -1.0], rtol=1e-12)


@pytest.mark.parametrize("options", [DefaultOptions(gap=1e-7), SolverOptions(tol=1e-12, max_rounds=5000)])
@pytest.mark.parametrize("loss", LOSSES)
def test_along_a_path_they_stay_at_their_minimum(loss: str, options: Any) -> None:
    X = columns()
    examples = Examples.of(targets(X, loss), None, loss)
    problem = Problem(examples, Penalty.scaled(5, 0.9, False, np.array([1.0, 0.0, 1.0, 1.0, 0.0]), None), True)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 3) as blocks:
        null = null_model(blocks, problem)
        found = list(solve_path(blocks, problem, [null.lambda_max / 2**k for k in range(4)], options, null=null))
    free = np.hstack([X[:, [1, 4]], np.ones((80, 1), np.float32)])
    for solution in found:
        margins = X.astype(float) @ solution.beta.dense(5) + solution.intercept
        slopes, scale = slopes_at(free, examples, margins)
        assert (np.abs(slopes) <= 1e-8 * scale).all()
        assert solution.beta.dense(5)[[1, 4]].all()


def test_more_of_them_than_the_driver_can_hold_are_refused() -> None:
    p = MOST + 1
    examples = Examples.of([1.0, -1.0])
    problem = Problem(examples, Penalty.scaled(p, 1.0, False, np.zeros(p), None))
    X = sparse.csc_matrix((2, p), dtype=np.float32)
    with (
        ThreadBlocks.from_csc(X, examples, 1) as blocks,
        pytest.raises(ValueError, match="1001 features are not penalised: at most 1000 can be"),
    ):
        free_coordinates(blocks, problem)


def test_unpenalised_and_non_negative_do_not_go_together() -> None:
    examples = Examples.of([1.0, -1.0])
    problem = Problem(examples, Penalty.scaled(2, 1.0, True, np.array([0.0, 1.0]), None))
    with (
        ThreadBlocks.from_csc(sparse.csc_matrix(np.eye(2, dtype=np.float32)), examples, 1) as blocks,
        pytest.raises(ValueError, match="does not go with non-negative coefficients: give a small factor"),
    ):
        free_coordinates(blocks, problem)
