"""The duality gap as a certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import entr, expit

from solver import Coefficients, Examples, Penalty, Problem, SolverOptions
from tests.solver.plain import lambda_max, solve

NAMES = ["tall", "wide", "sparse", "one_hot", "dense", "mixed"]


def gap_at(X: Any, examples: Examples, lam: float, beta: Any, f: Callable[..., float]) -> float:
    margins = X.astype(np.float64) @ beta
    s, y = np.abs(examples.encoded), np.sign(examples.encoded)
    r = s * y * expit(-y * margins)
    at = Problem(examples, Penalty(X.shape[1])).at(lam)
    violation = at.terms.violation(X.T.astype(np.float64) @ r)
    return f(X, examples, lam, Coefficients.from_dense(beta)) - at.dual_value(margins, violation)


@given(
    seed=st.integers(0, 1000),
    name=st.sampled_from(NAMES),
    lam=st.floats(0.01, 20.0),
    size=st.floats(0.0, 5.0),
)
@settings(max_examples=40, deadline=None)
def test_the_gap_is_the_objective_less_a_feasible_dual_value_and_never_negative(
    make: Callable[..., Any], objective: Callable[..., float], seed: int, name: str, lam: float, size: float
) -> None:
    X, plain = make(name)
    rng = np.random.default_rng(seed)
    examples = Examples.of(plain.encoded, rng.exponential(size=plain.n))
    beta = size * rng.normal(size=X.shape[1])
    gap = gap_at(X, examples, lam, beta, objective)
    s, y = np.abs(examples.encoded), np.sign(examples.encoded)
    u = expit(-y * (X.astype(np.float64) @ beta))
    u *= min(1.0, lam / np.abs(X.T.astype(np.float64) @ (s * y * u)).max())
    f = objective(X, examples, lam, Coefficients.from_dense(beta))
    assert gap == pytest.approx(f - (s * (entr(u) + entr(1.0 - u))).sum(), rel=1e-9, abs=1e-9 * f)
    assert gap >= -1e-12 * f


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 4, 8])
def test_the_gap_bounds_the_distance_to_the_optimum(
    make: Callable[..., Any], blocks_of: Callable[..., Any], tight: SolverOptions, name: str, k: int
) -> None:
    X, examples = make(name)
    with blocks_of(X, examples, 2) as blocks:
        lam = lambda_max(blocks, examples) / 2**k
        best = solve(blocks, examples, lam, tight)
        rough = solve(blocks, examples, lam, SolverOptions(tol=1e-2))
    assert -1e-12 * best.objective <= best.gap <= 1e-5 * best.objective
    assert rough.objective - best.objective <= rough.gap


def test_at_zero_and_lambda_max_the_gap_is_nothing(
    make: Callable[..., Any], blocks_of: Callable[..., Any], objective: Callable[..., float]
) -> None:
    X, examples = make("sparse")
    with blocks_of(X, examples, 1) as blocks:
        lam = lambda_max(blocks, examples)
    assert abs(gap_at(X, examples, lam, np.zeros(X.shape[1]), objective)) < 1e-10 * examples.n
