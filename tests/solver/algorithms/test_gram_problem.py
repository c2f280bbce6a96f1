"""Quadratic problems with an L1 term by their Gram matrix: solved to optimality, on awkward matrices too."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from solver import Penalty
from solver.algorithms.certified import gram_problem
from solver.algorithms.certified.gram_problem import GramProblem
from solver.algorithms.certified.tuning import GRAM_PROBLEM


def columns(kind: str, k: int = 60, n: int = 400) -> Any:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, k))
    if kind == "factors":
        X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, k)) + 0.05 * X
    if kind == "duplicates":
        X[:, k // 2 :] = X[:, : k // 2]
    if kind == "mean":
        X += 100.0 * rng.uniform(0.3, 1.0, k)
    if kind == "scales":
        X *= 10.0 ** rng.uniform(-6, 6, k)
    return X


def problem(kind: str, lam: float, begin: float = 0.0) -> tuple[GramProblem, Any, Any, Any]:
    rng, X = np.random.default_rng(4), columns(kind)
    G = X.T @ X
    G.flat[:: G.shape[0] + 1] += 1e-6 * (X - X.mean(axis=0)).var(axis=0) * X.shape[0]
    r = X[:, 0] / np.linalg.norm(X[:, 0]) * 5 + rng.normal(size=X.shape[0])
    g = X.T @ r
    beta = begin * rng.normal(size=G.shape[0]) / np.sqrt(G.diagonal())
    return GramProblem(G, g, beta, Penalty(g.size).at(lam), float(r @ r)), G, g, beta


def violation(G: Any, g: Any, beta: Any, lam: float, d: Any) -> float:
    """By how much the optimality conditions fail, in units of λ."""
    slope, now = g - G @ d, beta + d
    at_zero = np.maximum(np.abs(slope) - lam, 0.0)
    return float(np.where(now == 0.0, at_zero, np.abs(slope - lam * np.sign(now))).max()) / lam


@pytest.mark.parametrize("kind", ["plain", "factors", "duplicates", "mean"])
@pytest.mark.parametrize("lam", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("begin", [0.0, 1.0])
def test_the_minimum_is_found(kind: str, lam: float, begin: float) -> None:
    found, G, g, beta = problem(kind, lam, begin)
    for _ in range(20):  # as Newton steps would
        if found.minimise(1e-12, 0.0)[0]:
            break
    # Copies of a column may still hold opposite signs that all but cancel: in units of f that is nothing.
    assert violation(G, g, beta, lam, found.d) < (0.1 if kind == "duplicates" else 1e-3)


def test_units_do_not_matter() -> None:
    """λ is of no use to columns of other units, but the objective falls with each step."""
    found, *_ = problem("scales", 1e-6, 1.0)
    values = []
    for _ in range(3):
        found.minimise(1e-12, 0.0)
        values.append(found.value())
    assert values[0] < 0.0
    assert all(b <= a + 1e-9 * abs(a) for a, b in pairwise(values))


def test_alternating_directions_end_what_faces_alone_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns share three factors, and many coefficients must change sign."""
    lam = 0.05
    few = replace(GRAM_PROBLEM, face_limits=(10, 10))
    monkeypatch.setattr(gram_problem, "GRAM_PROBLEM", few)
    found, G, g, beta = problem("factors", lam, 2.0)
    found.minimise(1e-12, 0.0)
    without_admm = replace(few, slow_turns=100, sign_change_share=1.0)
    monkeypatch.setattr(gram_problem, "GRAM_PROBLEM", without_admm)
    alone, *_ = problem("factors", lam, 2.0)
    alone.minimise(1e-12, 0.0)
    assert found.value() < alone.value()
    assert violation(G, g, beta, lam, found.d) < 0.1 * violation(G, g, beta, lam, alone.d)


@pytest.mark.parametrize("kind", ["plain", "factors", "mean"])
@pytest.mark.parametrize("share", [0.5, 1e-1, 1e-3])
@pytest.mark.parametrize("lam", [0.3, 20.0, 1000.0])
def test_what_is_left_is_no_more_than_it_says(kind: str, share: float, lam: float) -> None:
    """Columns far from zero creep in cycles of coordinate descent: the last gain is no measure of what is left."""
    exact, *_ = problem(kind, lam, 1.0)
    exact.minimise(1e-12, 0.0)
    found, *_ = problem(kind, lam, 1.0)
    assert found.value() - exact.value() <= found.gap() * (1.0 + 1e-6)
    ended, left = found.minimise(share, 0.0)
    assert found.value() - exact.value() <= left + 1e-9 * abs(exact.value())
    assert not ended or left <= -share * found.value()


def test_nothing_to_do() -> None:
    found, *_ = problem("plain", 1e9)
    ended, left = found.minimise(1e-3, 0.0)
    assert ended
    assert left == 0.0
    assert not found.d.any()
