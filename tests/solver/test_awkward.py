"""Data that a solver trips over."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from solver import (
    Coefficients,
    Examples,
    Solution,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
)
from tests.solver import plain
from tests.solver.plain import lambda_max, solve

OPTIONS = SolverOptions.paper(tol=1e-10, max_rounds=3000)


def path(X: Any, y: Any, M: int, length: int = 12, options: SolverOptions = OPTIONS) -> list[Solution]:
    examples = Examples.of(y)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X, dtype=np.float32), examples, M, threads=2) as blocks:
        largest = lambda_max(blocks, examples)
        return plain.path(blocks, examples, lambda_grid(largest, length), options)


def sound(path: list[Solution]) -> bool:
    return all(
        np.isfinite(s.objective) and np.isfinite(s.beta.value).all() and -1e-9 * s.objective <= s.gap <= s.objective
        for s in path
    )


def labelled(seed: int, n: int = 60, p: int = 7) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)


@pytest.mark.parametrize("M", [1, 3])
def test_empty_rows_and_columns_change_nothing(M: int) -> None:
    X, y = labelled(0)
    padded = np.zeros((70, 10))
    padded[:60, 1:8] = X
    half = path(X, y, 1)
    full = path(padded, np.concatenate((y, np.ones(10, int))), M)
    for a, b in zip(half, full, strict=True):
        assert b.objective == pytest.approx(a.objective + 10 * np.log(2.0), rel=1e-6)
        assert not set(b.beta.position.tolist()) & {0, 8, 9}


@pytest.mark.parametrize("label", [-1, 1])
def test_one_class_only_is_fitted_without_end_or_overflow(label: int) -> None:
    X, _ = labelled(1)
    found = path(np.abs(X), np.full(60, label), 2)
    assert sound(found)
    assert all(np.sign(s.beta.value).tolist() == [label] * s.nonzeros for s in found)


@pytest.mark.parametrize("M", [1, 2, 4])
def test_duplicate_columns_share_the_weight_of_one(M: int) -> None:
    X, y = labelled(2, p=4)
    alone, twice = path(X, y, 1, 6), path(np.hstack([X, X]), y, M, 6)
    for a, b in zip(alone, twice, strict=True):
        assert b.objective == pytest.approx(a.objective, rel=1e-6)
        together = b.beta.dense(8)[:4] + b.beta.dense(8)[4:]
        assert np.allclose(together, a.beta.dense(4), atol=1e-3)


def test_a_constant_column_is_a_feature_like_any_other() -> None:
    X, y = labelled(3)
    y[:20] = 1
    with_constant = np.hstack([X, np.full((60, 1), 2.0)])
    found = path(with_constant, y, 2)
    assert sound(found)
    assert found[-1].objective < path(X, y, 2)[-1].objective


@pytest.mark.parametrize("M", [1, 3])
def test_separable_data_at_tiny_lambda_ends_and_stays_finite(M: int) -> None:
    X, _ = labelled(4, n=40, p=6)
    y = np.where(X @ np.arange(1.0, 7.0) > 0, 1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = path(X, y, M, 40, SolverOptions.paper(max_rounds=200))
    assert sound(found)
    assert found[-1].objective < 1e-3 * found[0].objective
    assert all(b.objective < a.objective for a, b in pairwise(found))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("M", [1, 3])
def test_huge_and_tiny_values_neither_overflow_nor_stall(scale: float, M: int) -> None:
    X, y = labelled(5)
    scaled = X.copy()
    scaled[:, ::2] *= scale
    with np.errstate(all="raise"):
        found = path(scaled, y, M, 8, SolverOptions.paper(max_rounds=2000))
    assert sound(found)
    assert found[-1].objective < 60 * np.log(2.0)


def test_scaling_every_value_scales_lambda_and_nothing_else() -> None:
    X, y = labelled(6)
    plain, large = path(X, y, 2, 6), path(X * 1024.0, y, 2, 6)
    for a, b in zip(plain, large, strict=True):
        assert b.lam == pytest.approx(1024.0 * a.lam, rel=1e-9)
        assert b.objective == pytest.approx(a.objective, rel=1e-6)


def test_margins_far_out_where_every_weight_underflows_still_lead_back() -> None:
    X, y = labelled(7)
    examples = Examples.of(y)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X, dtype=np.float32), examples, 2) as blocks:
        lam = lambda_max(blocks, examples) / 4
        far = Coefficients.from_dense(np.full(7, -1e4))
        start, best = solve(blocks, examples, lam, OPTIONS, far), solve(blocks, examples, lam, OPTIONS)
    assert start.objective == pytest.approx(best.objective, rel=1e-6)


def test_no_feature_that_tells_anything_leaves_no_path() -> None:
    with pytest.raises(ValueError, match="λmax must be > 0"):
        path(np.zeros((10, 3)), np.ones(10, int), 1)


@given(
    X=arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=st.integers(-3, 3)),
    seed=st.integers(0, 99),
    M=st.integers(1, 6),
)
@settings(max_examples=40, deadline=None)
def test_any_small_matrix_gives_a_certified_solution(
    objective: Callable[..., float], X: Any, seed: int, M: int
) -> None:
    n, p = X.shape
    examples = Examples.of(np.random.default_rng(seed).choice([-1, 1], n))
    matrix = sparse.csc_matrix(X)
    with ThreadBlocks.from_csc(matrix, examples, min(M, p), threads=1) as blocks:
        largest = lambda_max(blocks, examples)
        if largest == 0.0:
            return
        solution = solve(blocks, examples, largest / 5, SolverOptions.paper(tol=1e-13, max_rounds=20_000))
    assert solution.objective == pytest.approx(objective(matrix, examples, largest / 5, solution.beta), rel=1e-9)
    assert -1e-10 <= solution.gap <= 1e-3 * solution.objective
