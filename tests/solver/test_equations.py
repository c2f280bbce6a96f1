"""The paper's claims about the quadratic model, each checked from first principles."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from solver import Block, Columns, Examples, SolverOptions
from solver.arrays import Coefficients
from tests.solver.plain import state_at

NU = 1e-6
NAMES = ["tall", "wide", "sparse", "one_hot", "dense", "mixed"]


def irls(X: Any, y: Any, beta: Any, intercept: float = 0.0) -> tuple[Any, Any, Any]:
    """p, w and z of eq. (IRLS)."""
    p = 1.0 / (1.0 + np.exp(-X @ beta - intercept))
    w = p * (1.0 - p)
    return p, w, ((y + 1.0) / 2.0 - p) / w


def problem(seed: int, n: int = 25, p: int = 6) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)).astype(np.float32).astype(np.float64)
    y = rng.choice([-1.0, 1.0], n)
    return X, y, 0.5 * rng.normal(size=p), rng.normal(size=p)


def one_block(X: Any, y: Any, beta: Any) -> Block:
    n, p = X.shape
    columns = Columns.from_csc(np.arange(p + 1) * n, np.tile(np.arange(n), p), X.T.ravel(), n)
    block = Block([columns], p, Examples.of(y))
    block.start(Coefficients.from_dense(beta))
    block.set_margins(X @ beta)
    return block


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_eq_irls_is_the_taylor_expansion_up_to_a_constant(seed: int) -> None:
    X, y, beta, step = problem(seed)
    p, w, z = irls(X, y, beta)
    gradient = -X.T @ ((y + 1.0) / 2.0 - p)
    hessian = X.T @ (w[:, None] * X)

    def taylor(d: Any) -> Any:
        return gradient @ d + 0.5 * d @ hessian @ d

    def weighted_squares(d: Any) -> Any:
        return 0.5 * (w * (z - X @ d) ** 2).sum()

    constant = weighted_squares(0.0 * step)
    assert weighted_squares(step) - constant == pytest.approx(taylor(step), rel=1e-9, abs=1e-9)


def paper_cycle(X: Any, w: Any, z: Any, beta: Any, lam: float, nu: float = NU) -> Any:
    """Algorithm 2 in the paper's own terms, z and q, with ν on the diagonal."""
    delta = np.zeros_like(beta)
    for j in range(beta.size):
        x = X[:, j]
        q = z - X @ delta + (beta[j] + delta[j]) * x
        h = (w * x * x).sum()
        target = (w * x * q).sum() + nu * beta[j]
        delta[j] = np.sign(target) * max(abs(target) - lam, 0.0) / (h + nu) - beta[j]
    return delta


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lam", [0.01, 1.0, 5.0])
def test_residual_form_is_the_papers_z_and_q_form(make: Callable[..., Any], name: str, lam: float) -> None:
    X, examples = make(name)
    dense = X.toarray().astype(np.float64)
    beta = 0.2 * np.random.default_rng(1).normal(size=dense.shape[1])
    beta[::3] = 0.0
    block = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], beta.size, examples)
    block.start(Coefficients.from_dense(beta))
    block.set_margins(dense @ beta)

    update = block.cycle(None, lam, NU)

    _, w, z = irls(dense, examples.encoded, beta)
    expected = paper_cycle(dense, w, z, beta, lam)
    assert np.allclose(update.dbeta.dense(beta.size), expected, rtol=1e-8, atol=1e-11)
    assert np.allclose(update.dmargins, dense @ expected, rtol=1e-8, atol=1e-10)
    assert update.dintercept == 0.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lam", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_where_an_intercept_follows_every_step_columns_count_less_their_means(
    make: Callable[..., Any], name: str, lam: float, mean: float
) -> None:
    X, examples = make(name)
    X.data += np.float32(mean)
    dense, y = X.toarray().astype(np.float64), examples.encoded
    beta = 0.2 * np.random.default_rng(1).normal(size=dense.shape[1]) / (1.0 + mean)
    beta[::3] = 0.0
    b = brentq(lambda b: (irls(dense, y, beta, b)[0] - (y + 1.0) / 2.0).sum(), -20.0, 20.0, xtol=1e-13)
    block = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], beta.size, examples)
    block.start(Coefficients.from_dense(beta))
    block.set_margins(dense @ beta + b)

    update = block.cycle(None, lam, NU, intercept=True)

    _, w, z = irls(dense, y, beta, b)
    means = w @ dense / w.sum()
    expected = paper_cycle(dense - means, w, z, beta, lam)
    assert np.allclose(update.dbeta.dense(beta.size), expected, rtol=1e-6, atol=1e-8)
    assert update.dintercept == pytest.approx(-means @ expected, rel=1e-6, abs=1e-6)
    assert np.allclose(update.dmargins, (dense - means) @ expected, rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 10_000), lam=st.floats(0.01, 5.0))
@settings(max_examples=25, deadline=None)
def test_closed_form_minimises_along_the_coordinate(seed: int, lam: float) -> None:
    X, y, beta, _ = problem(seed, p=1)
    _, w, z = irls(X, y, beta)
    x = X[:, 0]

    def model(d: float) -> float:
        quadratic = 0.5 * (w * (z - d * x) ** 2).sum() + 0.5 * NU * d * d
        return float(quadratic + lam * abs(beta[0] + d))

    d = float(one_block(X, y, beta).cycle(None, lam, NU).dbeta.dense(1)[0])
    for away in (1e-3, 1e-2, 1.0):
        assert model(d) < model(d + away)
        assert model(d) < model(d - away)


@given(seed=st.integers(0, 10_000), lam=st.floats(0.01, 3.0))
@settings(max_examples=25, deadline=None)
def test_sub_problems_sum_to_the_block_diagonal_model(seed: int, lam: float) -> None:
    X, y, beta, step = problem(seed)
    p, w, _ = irls(X, y, beta)
    loss = np.logaddexp(0.0, -y * (X @ beta)).sum()
    gradient = -X.T @ ((y + 1.0) / 2.0 - p)
    hessian = X.T @ (w[:, None] * X)
    sets = np.array([0, 0, 1, 2, 2, 2])
    block_diagonal = np.where(sets[:, None] == sets, hessian, 0.0)

    def sub_problem(m: int) -> Any:
        d = np.where(sets == m, step, 0.0)
        model = loss + gradient @ d + 0.5 * d @ hessian @ d
        return model + lam * np.abs((beta + d)[sets == m]).sum()

    together = 3 * loss + gradient @ step + 0.5 * step @ block_diagonal @ step + lam * np.abs(beta + step).sum()
    assert sum(sub_problem(m) for m in range(3)) == pytest.approx(together, rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("M", [1, 2, 5])
def test_d_is_negative_away_from_the_optimum(
    make: Callable[..., Any], blocks_of: Callable[..., Any], name: str, M: int
) -> None:
    X, examples = make(name)
    rng = np.random.default_rng(3)
    with blocks_of(X, examples, M) as blocks:
        for lam in (0.05, 0.5, 3.0):
            beta = np.where(rng.random(X.shape[1]) < 0.5, rng.normal(size=X.shape[1]), 0.0)
            state = state_at(blocks, examples, lam, Coefficients.from_dense(beta))
            direction = state.direction(SolverOptions.paper().nu)
            ray = state.ray(direction)
            assert ray.descent(0.0) < 0.0
            # One cycle gives D at most -ΔᵀH̃Δ/2, so that D stays negative up to γ = 1/2.
            assert ray.descent(0.5) < 1e-9 * abs(ray.descent(0.0))


def test_d_is_the_papers_formula(make: Callable[..., Any], blocks_of: Callable[..., Any]) -> None:
    X, examples = make("mixed")
    dense, y = X.toarray().astype(np.float64), examples.encoded
    lam, M = 0.7, 3
    beta = 0.3 * np.random.default_rng(5).normal(size=X.shape[1])
    with blocks_of(X, examples, M) as blocks:
        state = state_at(blocks, examples, lam, Coefficients.from_dense(beta))
        direction = state.direction(NU)
        found = state.ray(direction).descent(0.25)
    delta = direction.dbeta.dense(beta.size)
    p, w, _ = irls(dense, y, beta)
    hessian = dense.T @ (w[:, None] * dense)
    cuts = np.linspace(0, beta.size, M + 1).astype(int)
    sets = np.searchsorted(cuts[1:], np.arange(beta.size), side="right")
    hessian = np.where(sets[:, None] == sets, hessian, 0.0)
    slope = -((y + 1.0) / 2.0 - p) @ (dense @ delta)
    l1 = np.abs(beta + delta).sum() - np.abs(beta).sum()
    assert found == pytest.approx(slope + 0.25 * delta @ hessian @ delta + lam * l1, rel=1e-10)


@pytest.mark.parametrize("name", ["sparse", "mixed", "tall"])
@pytest.mark.parametrize("M", ["1", "2", "p"])
def test_a_round_is_glmnets_pass_in_each_block_and_jacobi_with_one_feature_each(
    make: Callable[..., Any], blocks_of: Callable[..., Any], name: str, M: str
) -> None:
    X, examples = make(name)
    dense, y = X.toarray().astype(np.float64), examples.encoded
    count = X.shape[1] if M == "p" else int(M)
    beta = 0.1 * np.random.default_rng(8).normal(size=X.shape[1])
    cuts = np.linspace(0, X.shape[1], count + 1).astype(int)
    expected = np.zeros(X.shape[1])
    p = 1.0 / (1.0 + np.exp(-dense @ beta))
    w, r = p * (1.0 - p), (y + 1.0) / 2.0 - p
    for lo, hi in pairwise(cuts):
        residual = r.copy()  # every block begins at the same iterate
        for j in range(lo, hi):
            h = (w * dense[:, j] ** 2).sum() + NU
            target = dense[:, j] @ residual + h * beta[j]
            expected[j] = np.sign(target) * max(abs(target) - 0.3, 0.0) / h - beta[j]
            residual -= w * dense[:, j] * expected[j]
    with blocks_of(X, examples, count) as blocks:
        direction = state_at(blocks, examples, 0.3, Coefficients.from_dense(beta)).direction(NU)
    assert np.allclose(direction.dbeta.dense(X.shape[1]), expected, rtol=1e-9, atol=1e-12)
    assert np.allclose(direction.dmargins, dense @ expected, rtol=1e-9, atol=1e-11)
