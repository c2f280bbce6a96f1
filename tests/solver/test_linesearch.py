"""Algorithm 3, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from solver import Coefficients, Examples, Penalty, Problem, SolverOptions
from solver.linesearch import Direction, Ray, armijo, initial_step, line_search, suffices

PAPER = SolverOptions.paper()


def ray_of(seed: int, stretch: float, lam: float = 0.5) -> Ray:
    """A direction of descent from a random point, `stretch` times as long as a Newton step."""
    rng = np.random.default_rng(seed)
    n, p = 60, 8
    X, y = rng.normal(size=(n, p)), rng.choice([-1.0, 1.0], n)
    beta = np.where(rng.random(p) < 0.6, rng.normal(size=p), 0.0)
    prob = 1.0 / (1.0 + np.exp(-X @ beta))
    gradient = X.T @ (prob - (y + 1.0) / 2.0) + lam * np.sign(beta)
    hessian = X.T @ ((prob * (1.0 - prob))[:, None] * X)
    delta = -stretch * np.where(beta != 0.0, np.linalg.solve(hessian + np.eye(p), gradient), 0.0)
    position = np.flatnonzero(delta).astype(np.int64)
    direction = Direction(Coefficients(position, delta[position]), X @ delta, 0.0)
    f = Problem(Examples.of(y), Penalty(p)).at(lam)
    return Ray(f, X @ beta, beta, f.terms.value(beta), direction)


def at(ray: Ray, alpha: float) -> float:
    return float(ray.objective(alpha)[0])


def test_the_objective_along_a_ray_is_f(make: Callable[..., Any], objective: Callable[..., float]) -> None:
    X, examples = make("sparse")
    rng = np.random.default_rng(0)
    p = X.shape[1]
    beta = np.where(rng.random(p) < 0.5, rng.normal(size=p), 0.0)
    delta = np.where(rng.random(p) < 0.3, -beta + rng.normal(size=p), 0.0)
    dense = X.astype(np.float64)
    position = np.flatnonzero(delta).astype(np.int64)
    direction = Direction(Coefficients(position, delta[position]), dense @ delta, 0.0)
    f = Problem(examples, Penalty(p)).at(0.3)
    ray = Ray(f, dense @ beta, beta, f.terms.value(beta), direction)
    alphas = [0.0, 0.1, 0.7, 1.0]
    expected = [objective(X, examples, 0.3, Coefficients.from_dense(beta + a * delta)) for a in alphas]
    assert np.allclose(ray.objective(alphas), expected, rtol=1e-12)


def test_step_1_takes_alpha_1_on_sufficient_relative_decrease_and_not_otherwise() -> None:
    options = SolverOptions(sufficient_decrease=0.1)
    assert suffices(100.0, 89.0, options)
    assert not suffices(100.0, 91.0, options)
    assert not suffices(100.0, 101.0, options)


def test_no_search_is_made_when_alpha_1_suffices() -> None:
    ray = ray_of(0, stretch=1.0)
    found = line_search(ray, at(ray, 0.0), SolverOptions(sufficient_decrease=1e-6))
    assert found.alpha == 1.0
    assert np.isnan(found.descent)  # D was never needed
    searched = line_search(ray, at(ray, 0.0), SolverOptions(sufficient_decrease=0.99))
    assert searched.descent < 0.0


@given(seed=st.integers(0, 10_000), stretch=st.sampled_from([0.3, 1.0, 3.0, 10.0, 60.0]))
@settings(max_examples=60, deadline=None)
def test_step_2_finds_the_minimum_over_delta_to_1(seed: int, stretch: float) -> None:
    ray = ray_of(seed, stretch)
    alpha, value = initial_step(ray, at(ray, 1.0), PAPER)
    best = minimize_scalar(lambda a: at(ray, a), bounds=(PAPER.delta, 1.0), method="bounded")
    lowest = min(best.fun, at(ray, 1.0), at(ray, PAPER.delta))
    assert PAPER.delta <= alpha <= 1.0
    assert value == at(ray, alpha)
    # Within 3 % of the best step size, hence within a small part of the decrease that is to be had.
    assert value - lowest <= 0.01 * (at(ray, 0.0) - lowest) + 1e-12


def test_step_2_ends_at_delta_when_the_minimum_lies_below_it() -> None:
    ray = ray_of(1, stretch=1e6)
    alpha, _ = initial_step(ray, at(ray, 1.0), PAPER)
    assert alpha == PAPER.delta


@given(
    seed=st.integers(0, 10_000),
    stretch=st.sampled_from([1.0, 10.0, 1e3, 1e6]),
    b=st.sampled_from([0.3, 0.5, 0.9]),
    sigma=st.sampled_from([0.01, 0.4]),
)
@settings(max_examples=60, deadline=None)
def test_step_3_returns_the_first_of_the_sequence_that_satisfies_armijo(
    seed: int, stretch: float, b: float, sigma: float
) -> None:
    ray = ray_of(seed, stretch)
    options = SolverOptions(b=b, sigma=sigma)
    f0, D = at(ray, 0.0), ray.descent(0.0)
    alpha, value = armijo(ray, f0, D, 1.0, at(ray, 1.0), options)
    j = round(np.log(alpha) / np.log(b))
    assert alpha == pytest.approx(b**j, rel=1e-12)
    assert value <= f0 + alpha * sigma * D
    assert all(at(ray, b**k) > f0 + b**k * sigma * D for k in range(j))


def test_no_step_is_said_to_be_none_when_d_is_not_negative() -> None:
    ray = ray_of(2, stretch=-1.0)  # uphill
    found = line_search(ray, at(ray, 0.0), PAPER)
    assert found.descent > 0.0
    assert (found.alpha, found.objective) == (0.0, at(ray, 0.0))


def test_no_step_is_said_to_be_none_when_no_decrease_can_be_seen() -> None:
    ray = ray_of(2, stretch=-1.0)
    assert armijo(ray, at(ray, 0.0), -1e-3, 1.0, at(ray, 1.0), PAPER) == (0.0, at(ray, 0.0))
