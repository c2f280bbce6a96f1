"""Quadratic models minimised on their columns: cycles in parts, and the stiffest columns together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver import DefaultOptions
from solver.algorithms.certified import model as models
from solver.algorithms.certified import stiff
from solver.algorithms.certified import store as stores
from solver.algorithms.certified.cycles import Cycles, ThreadParts
from solver.algorithms.certified.gram import form_gram
from solver.algorithms.certified.model import Model
from solver.algorithms.certified.quadratic import Quadratic, shortened
from solver.algorithms.certified.stiff import StiffBlock, StiffGram
from solver.algorithms.certified.store import Gram
from solver.algorithms.certified.tuning import GRAM_CHOICE, NEWTON, STIFF, STORE
from solver.penalty import Penalty, Terms
from solver.threads import Threads
from tests.solver.algorithms.test_gram import filled_store, mixed
from tests.solver.algorithms.test_resumed import CASES, assert_same
from tests.solver.test_problems import MODES as MODES_OF_FIT
from tests.solver.test_problems import STATED, best, fit, stated, value

PENALTIES = {
    "L1": Penalty(20),
    "elastic net": Penalty(20, l1_ratio=0.6),
    "non-negative": Penalty(20, nonnegative=True),
    "with unpenalised features": Penalty(
        20, l1_factor=np.where(np.arange(20) % 7, 1.0, 0.0), l2_factor=np.where(np.arange(20) % 7, 1.0, 0.0)
    ),
}


@pytest.fixture
def on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it costs: no Gram matrix of all columns, a stiff block of four, cycles in parts."""
    monkeypatch.setattr(models, "GRAM_CHOICE", replace(GRAM_CHOICE, cycles_spared=0))
    free = replace(STIFF, max_stiff=4, least_stiff=2, solve_cost=0.0, solve_cost_cubed=0.0, matrix_cycles=np.inf)
    monkeypatch.setattr(stiff, "STIFF", free)
    monkeypatch.setattr(stores, "STORE", replace(STORE, entries_per_thread=1))


def quadratic(X: Any, terms: Terms, seed: int = 0, threads: int = 2) -> Quadratic:
    """A model at some β, a few of its coefficients not zero."""
    (n, p), rng = X.shape, np.random.default_rng(seed)
    store = filled_store(X)
    store.threads = Threads(threads)
    w = rng.random(n) + 0.1
    beta = np.where(rng.random(p) < 0.3, rng.random(p), 0.0)
    r = rng.normal(size=n)
    X64 = X.astype(np.float64)
    return Quadratic(store, np.arange(p), np.arange(p), beta, terms, r, w, X64.T @ r, (X64**2).T @ w)


def fall(quad: Quadratic, X: Any, first: Any, d: Any) -> float:
    """What the model falls by from 0 to d, by its definition."""
    image = X.astype(np.float64) @ d
    rise = quad.terms.value(quad.beta + d) - quad.terms.value(quad.beta)
    return float(first @ image - 0.5 * quad.w @ image**2 - rise)


def exact_gram(quad: Quadratic, X: Any, w: Any) -> Gram:
    X64 = X.astype(np.float64)
    return Gram(quad.position, X64.T @ (w[:, None] * X64), w)


@pytest.mark.parametrize("name", PENALTIES)
def test_a_stiff_block_is_at_its_minimum_after_a_step(name: str) -> None:
    X = mixed()
    quad = quadratic(X, PENALTIES[name].at(2.0))
    first, d, order = quad.r.copy(), np.zeros(20), np.array([0, 2, 3, 5, 7, 8, 14])
    block = StiffBlock(quad, order, d, exact_gram(quad, X, quad.w))
    (gain, _), _ = block.minimise(1e-9, 0.0)
    assert gain == pytest.approx(fall(quad, X, first, d), rel=1e-6) and gain > 0.0
    np.testing.assert_allclose(quad.r, first - quad.w * (X.astype(np.float64) @ d), atol=1e-9)
    assert set(np.flatnonzero(d)) <= set(order)
    single = quad.terms.gains(X.astype(np.float64).T @ quad.r, quad.h, quad.beta + d)
    assert single[order].max() <= 1e-8 * gain


@pytest.mark.parametrize("scale", [0.2, 5.0])
def test_a_matrix_of_other_weights_gains_in_every_step_and_ends_at_the_minimum(scale: float) -> None:
    X = mixed()
    quad = quadratic(X, PENALTIES["L1"].at(2.0))
    first, d, order = quad.r.copy(), np.zeros(20), np.arange(0, 20, 2)
    block = StiffBlock(quad, order, d, exact_gram(quad, X, scale * quad.w))
    before = 0.0
    for _ in range(200):
        (gain, promise), _ = block.minimise(1e-9, 0.0)
        assert promise >= gain
        now = fall(quad, X, first, d)
        assert now - before >= gain - 1e-9 and gain >= 0.0
        before = now
    single = quad.terms.gains(X.astype(np.float64).T @ quad.r, quad.h, quad.beta + d)
    assert single[order].max() <= 1e-9 * before


@pytest.mark.parametrize("seed", range(20))
def test_columns_that_cancel_out_leave_the_block_in_order(seed: int) -> None:
    """A step over a column, its copy and its negative may have no image at all."""
    rng = np.random.default_rng(seed)
    B = rng.integers(-1, 2, (40, 4)).astype(np.float32)
    X = np.hstack([B, B, -B])
    quad = quadratic(X, Penalty(12).at(0.5), seed)
    first, d = quad.r.copy(), np.zeros(12)
    block = StiffBlock(quad, np.flatnonzero(quad.h), d, exact_gram(quad, X, quad.w))
    for _ in range(30):
        (gain, _), change = block.minimise(1e-9, 0.0)
        assert gain >= 0.0 and np.isfinite(change)
    np.testing.assert_allclose(quad.r, first - quad.w * (X.astype(np.float64) @ d), atol=1e-9)


def test_a_shortened_step_promises_more_than_it_gains() -> None:
    assert shortened(1.0, 1.0) == (1.0, (0.5, 0.5))
    assert shortened(1.0, 100.0) == (0.01, (0.005, 0.5))
    assert [shortened(fall, 0.0)[0] for fall in (1.0, 0.0, -4.4e-16, -np.inf, np.nan)] == [1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("copies", [1, 4])
def test_parts_of_a_cycle_never_overshoot(copies: int, on_columns: None) -> None:
    """Columns that stand several times are stepped on by every part: whole steps would move too far."""
    X = np.tile(mixed(p=20), copies)
    quad = quadratic(X, Penalty(20 * copies).at(2.0), threads=4)
    first, d = quad.r.copy(), np.zeros(20 * copies)
    cycles = Cycles(quad, np.flatnonzero(quad.h), d, side_by_side=True)
    assert isinstance(cycles._parts, ThreadParts)
    before = 0.0
    for _ in range(300):
        gain, promise = cycles.run()
        assert promise >= gain
        now = fall(quad, X, first, d)
        assert now - before >= gain - 1e-9 and gain >= 0.0
        before = now
    np.testing.assert_allclose(quad.r, first - quad.w * (X.astype(np.float64) @ d), atol=1e-8)
    assert quad.terms.gains(X.astype(np.float64).T @ quad.r, quad.h, quad.beta + d).max() <= 1e-6 * before


def test_a_model_on_columns_ends_where_its_gram_matrix_leads(on_columns: None, monkeypatch: pytest.MonkeyPatch) -> None:
    X = mixed()
    found = []
    for spared in (0, 10**9):
        monkeypatch.setattr(models, "GRAM_CHOICE", replace(GRAM_CHOICE, cycles_spared=spared))
        quad = quadratic(X, PENALTIES["L1"].at(2.0))
        model = Model(quad, 0.01, StiffGram())
        model.descend(1000, 0.0, 1e-9)
        assert model.used_gram == bool(spared)
        found.append(model.d)
    np.testing.assert_allclose(found[0], found[1], atol=2e-4)


def test_the_matrix_of_the_stiffest_serves_while_weights_stay_and_takes_columns_in() -> None:
    X, gram = mixed(), StiffGram()
    store, w, position = filled_store(X), np.linspace(0.1, 1.0, 300), np.arange(12)
    first = gram.of(store, position, w)
    assert gram.of(store, position[1:], 1.1 * w) is first
    more = gram.of(store, np.arange(2, 15), 1.1 * w)
    np.testing.assert_array_equal(more.position, np.arange(15))
    np.testing.assert_allclose(more.G, form_gram(store, np.arange(15), w, NEWTON.stale_weights).G, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(gram.of(store, np.arange(12, 20), w).position, np.arange(12, 20))  # too many others
    assert gram.of(store, np.arange(12, 20), 1.3 * w).w.sum() > 1.25 * w.sum()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("intercept", [False, True])
def test_every_problem_is_solved_on_columns(loss: str, intercept: bool, on_columns: None) -> None:
    options = replace(MODES_OF_FIT["certified"], threads=2)
    for k in (k for k in range(len(STATED)) if STATED[k][:2] == (loss, intercept)):
        for found in fit(stated(k), options):
            optimum = best(k, found.lam)
            assert found.objective == pytest.approx(value(stated(k), found), rel=1e-9), STATED[k]
            assert found.objective == pytest.approx(optimum, rel=1e-6), STATED[k]
            assert found.objective - optimum <= found.gap + 1e-9 * optimum, STATED[k]
            assert found.converged, STATED[k]


@pytest.mark.parametrize("name", ["plain", "intercept", "unpenalised features"])
def test_a_path_on_columns_has_the_same_bits_when_it_is_cut_and_for_any_blocks(name: str, on_columns: None) -> None:
    case = replace(CASES[name], options=DefaultOptions(threads=2), states={}, rounds=[])
    whole = case.solve()
    for M in (1, 5):
        assert_same(case.solve(M=M), whole)
    for done in (1, 4, len(whole) - 1):
        assert_same(case.solve(case.start(whole, done)), whole[done:])
