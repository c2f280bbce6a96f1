"""Kernels against their numpy equivalents, and columns of every kind."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from solver import Block, Columns, Examples, Penalty
from solver.columns import BITS, DENSE, ONES, VALUED
from solver.kernels import penalty
from solver.losses import logistic


@nb.njit
def _each(t: Any, exp: Any, log1p: Any) -> None:
    for i in range(t.size):
        exp[i] = logistic.exp_minus(t[i])
        log1p[i] = logistic.log1p_unit(exp[i])


def test_elementary_functions_agree_with_numpy_to_a_few_last_bits() -> None:
    t = np.concatenate((np.geomspace(1e-300, 708.0, 20_000), np.linspace(0.0, 708.0, 20_000)))
    exp, log1p = np.empty_like(t), np.empty_like(t)
    _each(t, exp, log1p)
    assert np.abs(exp / np.exp(-t) - 1.0).max() < 1e-15
    assert np.abs(log1p / np.log1p(np.exp(-t)) - 1.0).max() < 2e-15


@pytest.mark.parametrize("scale", [1.0, 0.999, 0.5, 1e-3, 1e-12])
def test_the_entropy_of_a_dual_point_is_exact_however_small_it_is(scale: float) -> None:
    with localcontext(prec=340):
        for margin in (-700.0, -50.0, -20.0, -3.0, -1e-9, 0.0, 1.0, 5.0, 30.0, 200.0, 600.0):
            u = Decimal(scale) / (1 + Decimal(margin).exp())
            expected = float(-u * u.ln() - (1 - u) * (1 - u).ln())
            found = logistic.dual_value(np.array([margin]), np.ones(1), scale)
            assert found == pytest.approx(expected, rel=1e-14, abs=1e-300)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 50.0, 1e3, 1e12])
def test_loss_residual_and_weights_are_right_at_any_margin(scale: float) -> None:
    rng = np.random.default_rng(0)
    m, y, s = scale * rng.normal(size=1000), rng.choice([-1.0, 1.0], 1000), rng.exponential(size=1000)
    working = np.empty((2, 1000))
    logistic.residuals(m, s * y, 0.0, *working)
    clipped = np.clip(m, -700.0, 700.0)
    p = 1.0 / (1.0 + np.exp(-clipped))
    r = np.where(y > 0, 1.0 / (1.0 + np.exp(clipped)), -p)
    w = 1.0 / (2.0 + np.exp(clipped) + np.exp(-clipped))
    assert np.isfinite(working).all()
    assert np.allclose(working[0], s * r, rtol=1e-13, atol=1e-290)
    assert np.allclose(working[1], s * w, rtol=1e-13, atol=1e-290)
    assert logistic.value(m, s * y) == pytest.approx((s * np.logaddexp(0.0, -y * m)).sum(), rel=1e-13)


@given(
    n=st.sampled_from([1, 2, 7, 511, 512, 513, 1500]),
    alphas=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6),
)
@settings(max_examples=20, deadline=None)
def test_losses_along_a_direction_are_the_losses_there(n: int, alphas: list[float]) -> None:
    rng = np.random.default_rng(n)
    m, dm, signed = rng.normal(size=n), rng.normal(size=n), rng.choice([-2.0, 1.0], n)
    out = np.empty(len(alphas))
    logistic.values_along(m, dm, signed, np.array(alphas), out)
    expected = [(np.abs(signed) * np.logaddexp(0, -np.sign(signed) * (m + a * dm))).sum() for a in alphas]
    assert np.allclose(out, expected, rtol=1e-13)


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_l1_norm_along_a_sparse_direction_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    beta = np.where(rng.random(50) < 0.5, rng.integers(-8, 8, 50), 0) / 4.0
    position = np.sort(rng.choice(50, 12, replace=False)).astype(np.int64)
    dbeta = rng.integers(-8, 8, 12) / 4.0
    alphas = np.array([0.0, 0.25, 0.5, 1.0])
    out = np.empty(4)
    penalty.changes_along(beta, position, dbeta, *Penalty(50).at(1.0), alphas, out)
    full = np.zeros(50)
    full[position] = dbeta
    assert out.tolist() == [np.abs(beta + a * full).sum() - np.abs(beta).sum() for a in alphas]


@pytest.mark.parametrize("name", ["tall", "wide", "sparse", "one_hot", "dense", "mixed"])
def test_gradient_and_product_agree_with_scipy(make: Callable[..., Any], name: str) -> None:
    X, _ = make(name)
    n, p = X.shape
    columns = Columns.from_csc(X.indptr, X.indices, X.data, n)
    rng = np.random.default_rng(0)
    residual, slopes, product = rng.normal(size=n), np.empty(p), np.ones(n)
    beta = np.where(rng.random(p) < 0.5, rng.normal(size=p), 0.0)
    columns.slopes(residual, slopes)
    columns.add_product(beta, product)
    assert np.allclose(slopes, X.T.astype(np.float64) @ residual, rtol=1e-10, atol=1e-12)
    assert np.allclose(product, 1.0 + X.astype(np.float64) @ beta, rtol=1e-10, atol=1e-12)


def test_each_column_gets_its_kind_wherever_a_block_is_cut() -> None:
    n = 130
    X = np.zeros((n, 7), np.float32)
    X[:8, 0] = 1.0
    X[:30, 1] = 2.0
    X[::2, 2] = np.linspace(1.0, 2.0, n // 2)
    X[5::7, 4] = 1.0
    X[1:, 5] = 1.0
    X[3:117, 6] = 1.0
    csc = sparse.csc_matrix(X)
    whole = Columns.from_csc(csc.indptr, csc.indices, csc.data, n)
    assert whole.kind.tolist() == [ONES, VALUED, DENSE, ONES, BITS, DENSE, BITS]
    for j in range(7):
        alone = Columns.from_csc(csc.indptr[j : j + 2], csc.indices, csc.data, n)
        assert alone.kind.tolist() == [whole.kind[j]]
        travelled = pickle.loads(pickle.dumps(whole.view(np.array([j]))))  # noqa: S301
        assert travelled.nbytes < alone.nbytes + 64
        assert travelled.sizes().tolist() == alone.sizes().tolist()
        product = np.zeros(n)
        alone.add_product(np.ones(1), product)
        assert np.array_equal(product, X[:, j])


def test_columns_are_views_where_no_copy_is_needed() -> None:
    indptr = np.array([0, 2, 3], np.int64)
    indices, data = np.array([0, 3, 5], np.int32), np.array([1.5, 2.0, 3.0], np.float32)
    columns = Columns.from_csc(indptr, indices, data, 10)
    assert np.shares_memory(columns.indices, indices)
    assert np.shares_memory(columns.data, data)
    full = np.arange(1.0, 7.0, dtype=np.float32)
    dense = Columns.from_csc([0, 3, 6], np.tile(np.arange(3), 2), full, 3)
    assert np.shares_memory(dense.dense, full)
    assert dense.dense.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


@pytest.mark.parametrize(
    ("indptr", "indices", "data"),
    [
        ([0, 2], [3, 1], [1.0, 2.0]),
        ([0, 2], [1, 1], [1.0, 2.0]),
        ([0, 1], [10], [1.0]),
        ([0, 1], [-1], [1.0]),
        ([0, 2], [1], [1.0]),
        ([1, 0], [1], [1.0]),
        ([0, 2], [1, 2], [1.0, np.nan]),
        ([0, 2], [1, 2], [np.inf, 1.0]),
    ],
)
def test_malformed_columns_are_refused(indptr: list[int], indices: list[int], data: list[float]) -> None:
    with pytest.raises(ValueError, match="column 0"):
        Columns.from_csc(indptr, indices, data, 10)


def test_indices_and_data_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        Columns.from_csc([0, 2], [1, 2], [1.0], 10)


@pytest.mark.parametrize(
    ("labels", "weights", "says"),
    [
        ([1, 0], None, "-1 or \\+1, got 0"),
        ([], None, "at least one"),
        ([1, -1], [1.0], "match"),
        ([1, -1], [1.0, -1.0], ">= 0"),
        ([1, -1], [1.0, np.nan], "finite"),
    ],
)
def test_bad_labels_and_weights_are_refused(labels: list[int], weights: list[float] | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Examples.of(labels, weights)


@pytest.mark.parametrize("name", ["tall", "sparse", "one_hot", "dense", "mixed"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 100.0])
def test_a_cycle_gives_dmargins_to_the_last_digits_however_wrong_the_margins(
    make: Callable[..., Any], name: str, scale: float
) -> None:
    X, examples = make(name)
    n, p = X.shape
    block = Block([Columns.from_csc(X.indptr, X.indices, X.data, n)], p, examples)
    block.set_margins(scale * np.random.default_rng(0).normal(size=n))
    update = block.cycle(None, 1e-3, 1e-6)
    assert update.dbeta.position.size
    beta = np.zeros(p)
    beta[update.dbeta.position] = update.dbeta.value
    exact = X.astype(np.float64) @ beta
    largest = max(1.0, np.abs(X.astype(np.float64)).dot(np.abs(beta)).max())
    assert np.abs(update.dmargins - exact).max() < 1e-10 * largest
