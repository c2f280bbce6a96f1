"""Gram matrices of the store's columns: against dense products, as weights and features change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import Columns, Examples
from solver.algorithms.certified import gram
from solver.algorithms.certified.gram import examples_needed, extend_gram, gram_for, heaviest, sample, weighted_gram
from solver.algorithms.certified.store import Rows, Store
from solver.algorithms.certified.tuning import GRAM_MATRIX
from solver.stretches import Part
from tests.solver.plain import subspace


def filled_store(X: Any) -> Store:
    """A store with all columns of X in it."""
    n, p = X.shape
    store, position = Store(n, p, 10**9), np.arange(p)
    store.add(position, [Part(0, columns_of(X, position))])
    return store


def columns_of(X: Any, position: Any) -> Any:
    csc = sparse.csc_matrix(X)
    return Columns.from_csc(csc.indptr, csc.indices, csc.data, len(X)).select(position)


def mixed(n: int = 300, p: int = 20, seed: int = 0) -> Any:
    """Columns of all kinds: ones, valued, dense, bits, and an empty one."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, p), np.float32)
    for j in range(p - 1):
        at = rng.random(n) < (0.04, 0.3, 1.0)[j % 3]
        X[at, j] = 1.0 if j % 2 else rng.normal(size=at.sum())
    return X


@pytest.fixture(autouse=True)
def nothing_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "GRAM_MATRIX", replace(GRAM_MATRIX, always_fresh=0))


def close(found: Any, X: Any, position: Any, w: Any) -> None:
    columns = X[:, position].astype(np.float64)
    np.testing.assert_allclose(found, columns.T @ (w[:, None] * columns), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("n", [3, 300, 10_000])
def test_weights_of_any_sign_and_none(n: int) -> None:
    X, rng = mixed(n), np.random.default_rng(1)
    w = rng.normal(size=n) * (rng.random(n) < 0.5)
    position = np.array([1, 2, 3, 6, 19])
    close(weighted_gram(filled_store(X), position, Rows.of(w)), X, position, w)
    close(weighted_gram(filled_store(X), position, Rows.of(np.zeros(n))), X, position, np.zeros(n))


def test_rows_from_one_on() -> None:
    X, w = mixed(), np.linspace(0.1, 1.0, 300)
    store, position = filled_store(X), np.arange(20)
    rows = weighted_gram(store, position, Rows.of(w), first_row=15)
    np.testing.assert_allclose(rows, weighted_gram(store, position, Rows.of(w))[15:], rtol=1e-5, atol=1e-4)


def test_the_heaviest_leave_no_more_than_they_may() -> None:
    w = np.array([0.5, -0.1, 0.2, 0.0, -3.0])
    np.testing.assert_array_equal(heaviest(w, 0.31), [0.5, 0, 0, 0, -3.0])
    np.testing.assert_array_equal(heaviest(w, 0.29), [0.5, 0, 0.2, 0, -3.0])
    np.testing.assert_array_equal(heaviest(w, 0.0), w)
    np.testing.assert_array_equal(heaviest(w, 10.0), np.zeros(5))


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_it_follows_the_weights(scale: float) -> None:
    """What it holds is XᵀWX for the weights it says, and these are as near as asked."""
    X, rng = mixed(), np.random.default_rng(2)
    store, w = filled_store(X), rng.random(300)
    for _ in range(6):
        position = np.sort(rng.choice(20, 18, replace=False))
        found = gram_for(store, position, w, 0.1)
        assert np.isin(position, found.position).all()
        close(found.G, X, found.position, found.w)
        assert (found.w >= 0).all()
        assert np.abs(found.w - w).sum() <= 0.1 * w.sum()
        w = scale * w * np.exp(0.5 * rng.normal(size=300))


def test_small_changes_cost_nothing_and_those_in_proportion_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    X, w = mixed(), np.linspace(0.1, 1.0, 300)
    store, position = filled_store(X), np.arange(19)
    gram_for(store, position, w, 0.1)
    monkeypatch.setattr(gram, "weighted_gram", None)
    for factor in (1.01, 1e-6):
        w = factor * w
        close(gram_for(store, position, w, 0.1).G, X, position, store.gram.w)  # type: ignore[union-attr]
        assert np.abs(store.gram.w - w).sum() <= 0.1 * w.sum()  # type: ignore[union-attr]


def test_an_update_takes_the_examples_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, w = mixed(), np.linspace(0.1, 1.0, 300)
    store, position, used = filled_store(X), np.arange(19), list[list[int]]()
    gram_for(store, position, w, 0.01)

    def watched(store: Store, position: Any, rows: Rows, first_row: int = 0) -> Any:
        used.append(list(rows.example))
        return weighted_gram(store, position, rows, first_row)

    monkeypatch.setattr(gram, "weighted_gram", watched)
    w = w.copy()
    w[[7, 200]] = [20.0, 0.0]
    found = gram_for(store, position, w, 0.01)
    assert used == [[7, 200]]
    close(found.G, X, position, found.w)


def test_it_is_extended_by_few_features_only() -> None:
    X, w = mixed(), np.linspace(0.1, 1.0, 300)
    store = filled_store(X)
    assert extend_gram(store, np.arange(3)) is None
    gram_for(store, np.arange(2, 18), w, 0.1)
    many = np.arange(int(2 + 16 + GRAM_MATRIX.max_new_share * 16) + 1)
    assert extend_gram(store, many) is None
    found = extend_gram(store, np.array([0, 3, 18]))
    assert found is not None
    assert list(found.position) == [0, *range(2, 19)]
    close(found.G, X, found.position, found.w)


def test_features_that_left_the_store_are_dropped_when_it_is_extended() -> None:
    X, w = mixed(), np.linspace(0.1, 1.0, 300)
    store = filled_store(X)
    gram_for(store, np.arange(10), w, 0.1)
    store.keep(np.arange(5, 15))
    found = extend_gram(store, np.arange(5, 11))
    assert found is not None
    assert list(found.position) == list(range(5, 11))
    close(found.G, X, found.position, found.w)


def test_a_feature_that_left_the_store_is_not_kept_up_with_another_column() -> None:
    X, w = mixed(), np.linspace(0.1, 1.0, 300)
    store = filled_store(X)
    gram_for(store, np.arange(10), w, 0.01)
    store.keep(np.arange(2, 20))
    changed = w.copy()
    changed[[7, 100, 150, 200]] = [20.0, 3.0, 5.0, 0.0]
    gram_for(store, np.arange(2, 10), changed, 0.01)
    store.add(np.arange(2), [Part(0, columns_of(X, np.arange(2)))])
    found = gram_for(store, np.arange(10), changed, 0.01)
    close(found.G, X, found.position, found.w)


def test_a_sample_stands_for_all_examples() -> None:
    """Each is drawn with a chance in proportion to its weight. What one draw misses, the weights of others make up."""
    rng = np.random.default_rng(0)
    w = rng.random(200_000) ** 4
    w[:50] = 500.0
    rows = sample(w, 20_000)
    assert 0.3 * 20_000 < rows.example.size < 20_000  # heavy ones are drawn once, and count for several
    assert (np.diff(rows.example) > 0).all()
    assert set(range(50)) <= set(rows.example.tolist())
    np.testing.assert_array_equal(rows.weight[:50], w[:50])
    values = rng.random(w.size)
    assert rows.weight[50:] @ values[rows.example[50:]] == pytest.approx(w[50:] @ values[50:], rel=0.5)
    light = sample(w[50:], 20_000)
    assert light.weight @ values[50:][light.example] == pytest.approx(w[50:] @ values[50:], rel=0.02)
    again = sample(w, 20_000)
    np.testing.assert_array_equal(again.example, rows.example)


def test_a_matrix_of_a_sample_is_near_the_true_one_and_serves_while_weights_stay() -> None:
    rng = np.random.default_rng(0)
    X = (rng.random((60_000, 8)) < 0.3).astype(np.float32)
    store, w, position = filled_store(X), rng.random(60_000), np.arange(6)
    assert examples_needed(60_000, 6, 0.05) < 60_000 == examples_needed(60_000, 6, 1e-3)
    found = gram_for(store, position, w, 0.05)
    assert found.sample is not None
    assert found.error == pytest.approx(0.05 * GRAM_MATRIX.sample_error_share)
    exact = X[:, :6].T @ (w[:, None] * X[:, :6].astype(np.float64))
    values = np.linalg.eigvalsh(np.linalg.solve(exact, found.G))
    assert np.abs(values - 1.0).max() < 3.0 * found.error
    assert gram_for(store, position, 1.01 * w, 0.05).sample is not None
    more = gram_for(store, np.arange(7), w, 0.05)  # the same examples, one more feature
    np.testing.assert_array_equal(more.rows.example, found.rows.example)
    np.testing.assert_allclose(more.G[:6, :6], found.G, rtol=0.02)
    other = gram_for(store, position, np.sqrt(w), 0.05)
    assert other.rows.example.size != found.rows.example.size or (other.rows.example != found.rows.example).any()
    np.testing.assert_array_equal(other.w, np.sqrt(w))
    assert gram_for(store, position, np.sqrt(w), 1e-3).sample is None


@pytest.mark.parametrize("factor", [1e-25, 1e-6, 1e25])
def test_units_of_columns_and_weights_do_not_matter(factor: float) -> None:
    """In float32 alone their squares would be nothing, or infinite."""
    X, w = mixed(), np.linspace(-0.1, 1.0, 300)
    scaled = X.copy()
    scaled[:, :10] *= np.float32(factor)
    plain = weighted_gram(filled_store(X), np.arange(19), Rows.of(w))
    unit = np.where(np.arange(19) < 10, factor, 1.0)
    for weight in (1.0, 1e30):
        found = weighted_gram(filled_store(scaled), np.arange(19), Rows.of(weight * w)) / weight
        np.testing.assert_allclose(found / np.outer(unit, unit), plain, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_columns_far_from_zero_keep_what_they_are_about_their_mean(sign: float) -> None:
    rng = np.random.default_rng(0)
    X = np.float32(rng.normal([0.0, 10.0, 100.0, 1e3, 1e4, 1e4], size=(3000, 6)))
    w = rng.random(3000) - (0.3 if sign < 0 else 0.0)
    columns, total = X.astype(np.float64), w.sum()
    G, sums = weighted_gram(filled_store(X), np.arange(6), Rows.of(w)), columns.T @ w
    about = columns - columns.mean(axis=0)
    m = columns.mean(axis=0)
    found = G - np.outer(m, sums) - np.outer(sums, m) + total * np.outer(m, m)
    np.testing.assert_allclose(found, about.T @ (w[:, None] * about), rtol=1e-3, atol=0.5)


@pytest.mark.parametrize("first_row", [0, 3, 6])
@pytest.mark.parametrize("lightest", [0.0, -0.3])
def test_beside_columns_far_from_zero_the_row_of_an_intercept_does_not_round(first_row: int, lightest: float) -> None:
    """Eliminating the intercept leaves the columns less their means, whatever the means are."""
    rng = np.random.default_rng(0)
    X = np.float32(rng.normal([0.0, 10.0, 100.0, 1e3, 1e4, 1e5], size=(3000, 6)))
    w = rng.random(3000) + lightest
    store = Store(3000, 7, 10**9)
    store.add(np.arange(6), [Part(0, columns_of(X, np.arange(6)))])
    store.add(np.array([6]), [Part(99, Columns.all_ones(3000))])
    G, columns = weighted_gram(store, np.arange(7), Rows.of(w), first_row), np.c_[X, np.ones(3000)].astype(np.float64)
    np.testing.assert_allclose(G[-1], columns.T @ w, rtol=1e-12)
    np.testing.assert_allclose(G[:, -1], (columns.T @ w)[first_row:], rtol=1e-12)
    if first_row == 0:
        about = X.astype(np.float64) - np.average(X.astype(np.float64), axis=0, weights=w)
        found = G[:6, :6] - np.outer(G[:6, 6], G[:6, 6]) / G[6, 6]
        np.testing.assert_allclose(found, about.T @ (w[:, None] * about), rtol=2e-3, atol=0.5)


def test_beside_columns_of_ones_an_intercept_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.float32(rng.random((500, 9)) < 0.2)
    store, w = Store(500, 10, 10**9), rng.random(500)
    store.add(np.arange(9), [Part(0, columns_of(X, np.arange(9)))])
    store.add(np.array([9]), [Part(99, Columns.all_ones(500))])
    monkeypatch.setattr(store, "sums", None)
    monkeypatch.setattr(store, "slopes", None)
    close(weighted_gram(store, np.arange(10), Rows.of(w)), np.c_[X, np.ones(500)], np.arange(10), w)


def test_a_feature_of_light_examples_alone_spoils_no_step() -> None:
    """Examples far on the wrong side weigh next to nothing, and pull all the same."""
    X = np.hstack([mixed(n=200, p=9), np.zeros((200, 1), np.float32)])
    X[:2, 9] = [1.0, -1.0]
    store, margins = filled_store(X), np.zeros(200)
    examples = Examples.of(np.resize([1, -1], 200))
    margins[:2] = [-40.0, 40.0]  # both wrong, both pulling the last feature upwards
    search = subspace(store, 10, margins, examples, 0.3)
    search._expand()
    model = search._model(search.margins, search.beta, search.f.terms, search.g, 0.15)
    model.descend(3, 0.0, 0.1)
    assert np.isfinite(model.d).all()
    assert model.d[9] > 0.0
    assert np.count_nonzero(model.d) > 3


def test_a_cheap_one_is_formed_anew_of_all_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram, "GRAM_MATRIX", GRAM_MATRIX)
    X, w = mixed(), np.linspace(0.0, 1.0, 300)
    store, position = filled_store(X), np.arange(19)
    for weights in (w, 1.001 * w, w[::-1].copy()):
        np.testing.assert_array_equal(gram_for(store, position, weights, 0.15).w, weights)
        close(store.gram.G, X, position, weights)  # type: ignore[union-attr]


@pytest.mark.parametrize(("budget", "columns"), [(0, 256), (48 * 1000**2, 1000), (10**12, 3000)])
def test_matrices_take_no_more_than_the_budget_again(budget: int, columns: int) -> None:
    assert Store(10, 10, budget).max_gram_columns == columns


@pytest.mark.parametrize("most", [19, 5])
def test_a_model_of_more_columns_than_that_does_without(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    sizes: list[int] = []

    def formed(store: Store, position: Any, *rest: Any, **named: Any) -> Any:
        sizes.append(position.size)
        return weighted_gram(store, position, *rest, **named)

    store = filled_store(mixed())
    store.max_gram_columns = most
    monkeypatch.setattr(gram, "weighted_gram", formed)
    examples = Examples.of(np.where(np.arange(300) % 3, 1, -1))
    search = subspace(store, 20, np.zeros(300), examples, 1.0)
    search.minimise(1e-6, np.inf)
    assert bool(sizes) == (most == 19)
    assert max(sizes, default=0) <= most
    assert search.remaining <= 1e-6 * search.objective
