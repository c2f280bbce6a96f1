"""The kernels over chosen columns against what their comments say, on columns of every kind in any order."""

from __future__ import annotations

import numpy as np
import pytest

from solver import Penalty
from solver.algorithms.certified.store import Store
from solver.arrays import Float32, Float64, Int64
from solver.columns import BITS, DENSE, ONES, VALUED, Columns
from solver.kernels import descent
from solver.layout import WORD
from solver.stretches import Part

N, LAM = 137, 0.6


def mixed(rng: np.random.Generator, kind: list[int], shelves: int = 3) -> tuple[Store, Float64, Int64]:
    """A store of such columns, the same as a matrix, and their slots in an order that is not the store's.

    On three shelves some columns are copied and some viewed.
    """
    X = np.zeros((N, len(kind)), np.float32)
    for j, one in enumerate(kind):
        rows = np.arange(N) if one == DENSE else np.flatnonzero(rng.random(N) < (0.4 if one == BITS else 0.05))
        X[rows, j] = 1.0 if one in (ONES, BITS) else rng.normal(size=rows.size)
    store = Store(N, len(kind), budget=10**9)
    split = np.array_split(np.arange(len(kind)), shelves)
    parts = [columns_of(X[:, here], [kind[j] for j in here]) for here in split]
    taken = [part.view(np.arange(part.count)) if k else part for k, part in enumerate(parts)]
    store.add(np.arange(len(kind)), [Part(k, part) for k, part in enumerate(taken)])
    slots = rng.permutation(len(kind))
    return store, X[:, slots].astype(float), store.slots(slots)


def columns_of(X: Float32, kind: list[int]) -> Columns:
    """The columns of X, each of the kind given, whatever its density."""
    listed = [
        np.flatnonzero(X[:, j]).astype(np.int32) if one in (ONES, VALUED) else np.empty(0, np.int32)
        for j, one in enumerate(kind)
    ]
    data = [X[rows, j] for j, rows in enumerate(listed)]
    ends = np.cumsum([rows.size for rows in listed])
    is_dense, is_bits = np.array(kind) == DENSE, np.array(kind) == BITS
    lo = ends - [rows.size for rows in listed]
    at = np.select([is_dense, is_bits], [np.cumsum(is_dense) - 1, np.cumsum(is_bits) - 1], lo)
    padded = np.zeros((int(is_bits.sum()), -(-N // WORD) * WORD), np.bool_)
    padded[:, :N] = X[:, is_bits].T
    bits = np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
    lists = np.concatenate(listed), np.concatenate(data), np.ascontiguousarray(X[:, is_dense].T), bits
    return Columns(N, np.array(kind, np.uint8), lo, ends, at, *lists)


KINDS = [
    [DENSE] * 9,
    [DENSE] * 3,
    [ONES, DENSE, DENSE, VALUED, DENSE, DENSE, DENSE, DENSE, DENSE, ONES, DENSE, DENSE],
    [ONES, VALUED] * 5,
    [BITS] * 21,
    [BITS, DENSE, BITS, BITS, BITS, BITS, ONES, BITS, BITS, BITS, BITS, VALUED, DENSE, BITS, BITS],
]
NAMES = ["nine dense", "three dense", "mixed", "listed", "bits", "bits and others"]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
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


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_a_cycle_is_coordinate_descent(kind: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    store, X, slots = mixed(rng, kind, shelves=1)
    (run,) = store.runs(slots)
    w, beta = rng.random(N), rng.normal(size=slots.size) * (rng.random(slots.size) < 0.5)
    r, d, h, terms = rng.normal(size=N), np.zeros(slots.size), w @ X**2, Penalty(slots.size).at(LAM)
    exact_r, exact_d = r.copy(), d.copy()
    order, count, slack = rng.permutation(slots.size), slots.size, np.inf
    for _ in range(4):
        kept = one_cycle(X, beta, exact_r, w, exact_d, order[:count].copy(), slack)
        before = count
        count, slack, _ = descent.descend(slots, *run.arrays, beta, h, *terms, r, w, d, order, count, slack)
        np.testing.assert_array_equal(order[:count], kept)
        assert sorted(order) == list(range(slots.size))
        np.testing.assert_allclose(d, exact_d, atol=1e-10)
        np.testing.assert_allclose(r, exact_r, atol=1e-10)
        assert count <= before
