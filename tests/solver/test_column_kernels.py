"""The kernels over chosen columns against what their comments say, on columns of every kind in any order."""

from __future__ import annotations

import numpy as np
import pytest

from solver import Penalty
from solver.algorithms.certified.store import Store
from solver.arrays import Float64, Int64
from solver.columns import DENSE, ONES, VALUED, Columns
from solver.kernels import descent

N, LAM = 37, 0.6


def mixed(rng: np.random.Generator, kind: list[int]) -> tuple[Store, Float64, Int64]:
    """A store of such columns, the same as a matrix, and their slots in an order that is not the store's."""
    X = np.zeros((N, len(kind)), np.float32)
    for j, one in enumerate(kind):
        rows = np.arange(N) if one == DENSE else np.sort(rng.choice(N, 1 + j % 7, replace=False))
        X[rows, j] = 1.0 if one == ONES else rng.normal(size=rows.size)
    listed = [
        np.flatnonzero(X[:, j]).astype(np.int32) if kind[j] != DENSE else np.empty(0, np.int32)
        for j in range(len(kind))
    ]
    data = [X[rows, j] for j, rows in enumerate(listed)]
    ends = np.cumsum([rows.size for rows in listed])
    is_dense = np.array(kind) == DENSE
    lo = ends - [rows.size for rows in listed]
    at = np.where(is_dense, np.cumsum(is_dense) - 1, lo)
    lists = np.concatenate(listed), np.concatenate(data), np.ascontiguousarray(X[:, is_dense].T)
    store = Store(N, len(kind), budget=10**9)
    columns = Columns(N, np.array(kind, np.uint8), lo, ends, at, *lists)
    store.add(np.arange(len(kind)), columns.select(np.arange(len(kind))))
    slots = rng.permutation(len(kind))
    return store, X[:, slots].astype(float), store.slots(slots)


KINDS = [
    [DENSE] * 9,
    [DENSE] * 3,
    [ONES, DENSE, DENSE, VALUED, DENSE, DENSE, DENSE, DENSE, DENSE, ONES, DENSE, DENSE],
    [ONES, VALUED] * 5,
]


@pytest.mark.parametrize("kind", KINDS, ids=["nine dense", "three dense", "mixed", "listed"])
@pytest.mark.parametrize("seed", range(4))
def test_sums_slopes_and_products(kind: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    store, X, slots = mixed(rng, kind)
    r, w = rng.normal(size=N), rng.random(N)
    g, h, slopes = np.empty(slots.size), np.empty(slots.size), np.empty(slots.size)
    store.sums(slots, r, w, g, h)
    store.slopes(slots, r, slopes)
    np.testing.assert_allclose(g, X.T @ r, atol=1e-12)
    np.testing.assert_allclose(slopes, X.T @ r, atol=1e-12)
    np.testing.assert_allclose(h, w @ X**2, atol=1e-12)
    d = rng.normal(size=slots.size) * (rng.random(slots.size) < 0.7)
    np.testing.assert_allclose(store.product(slots, d), X @ d, atol=1e-12)


def one_cycle(X: Float64, beta: Float64, r: Float64, w: Float64, d: Float64, order: Int64, slack: float) -> Int64:
    """Coordinate descent by its definition, d and r changed in place; returned: those that were not skipped."""
    kept = []
    for j in order:
        x, b = X[:, j], beta[j] + d[j]
        if b == 0.0 and abs(x @ r) < LAM - slack:
            continue
        kept.append(j)
        h = float(w @ x**2)
        target = float(x @ r) + h * b
        step = np.sign(target) * max(abs(target) - LAM, 0.0) / h - b
        d[j] += step
        r -= w * x * step
    return np.array(kept, np.int64)


@pytest.mark.parametrize("kind", KINDS, ids=["nine dense", "three dense", "mixed", "listed"])
@pytest.mark.parametrize("seed", range(4))
def test_a_cycle_is_coordinate_descent(kind: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    store, X, slots = mixed(rng, kind)
    w, beta = rng.random(N), rng.normal(size=slots.size) * (rng.random(slots.size) < 0.5)
    r, d, h, terms = rng.normal(size=N), np.zeros(slots.size), w @ X**2, Penalty(slots.size).at(LAM)
    exact_r, exact_d = r.copy(), d.copy()
    order, count, slack = rng.permutation(slots.size), slots.size, np.inf
    for _ in range(4):
        kept = one_cycle(X, beta, exact_r, w, exact_d, order[:count].copy(), slack)
        before = count
        count, slack, _ = descent.descend(slots, *store.arrays, beta, h, *terms, r, w, d, order, count, slack)
        np.testing.assert_array_equal(order[:count], kept)
        assert sorted(order) == list(range(slots.size))
        np.testing.assert_allclose(d, exact_d, atol=1e-10)
        np.testing.assert_allclose(r, exact_r, atol=1e-10)
        assert count <= before
