"""Gram matrices XᵀWX of columns in the store: formed of the examples that matter, and brought up to date cheaply.

Along a path the weights change little, or all in proportion, and most of their sum is soon with few examples. So a Gram
matrix remembers the weights it stands for, and what is added is the part of the change that matters: X_SᵀD X_S over the
examples S with the largest changes D. A fresh one is the same from weights of zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.algorithms.certified.store import Gram, Store
from solver.algorithms.certified.tuning import GRAM_MATRIX, ROUNDING
from solver.arrays import Float32, Float64, Int64
from solver.columns import DENSE, ONES
from solver.kernels import columns as kernels


def gram_for(store: Store, position: Int64, w: Float64, stale: float, likely: Int64 | None = None) -> Gram:
    """XᵀWX over these features, and maybe others, for weights within `stale`, relatively, of w: kept in the store.

    likely: these and others that may be wanted soon; they come in with features that must, if they are few.
    """
    if position.size**2 * w.size <= GRAM_MATRIX.always_fresh:
        store.gram = Gram(position, weighed(store, position, w), w.copy())
    else:
        store.gram = _brought_up(store, position, w, stale, likely) or _fresh(store, position, w, stale)
    return store.gram


def _fresh(store: Store, position: Int64, w: Float64, stale: float) -> Gram:
    weights = heaviest(w, GRAM_MATRIX.fresh_left_out * stale * float(w.sum()))
    return Gram(position, weighed(store, position, weights), weights)


def _brought_up(store: Store, position: Int64, w: Float64, stale: float, likely: Int64 | None) -> Gram | None:
    """The last Gram matrix with what features it lacks, and the largest changes of weights; None if that costs more."""
    last, total = store.gram, float(w.sum())
    if last is None:
        return None
    scale, change = _change(last.w, w)
    if float(np.abs(change).sum()) <= stale * total:
        change = np.zeros(0)
    else:
        change = heaviest(change, GRAM_MATRIX.update_left_out * stale * total)
        if np.count_nonzero(change) >= np.count_nonzero(heaviest(w, GRAM_MATRIX.fresh_left_out * stale * total)):
            return None
        if last.position.size > GRAM_MATRIX.crowded * position.size:
            kept, likely = np.intersect1d(last.position, position, assume_unique=True), None
            store.gram = Gram(kept, last.of(kept), last.w)
    last = extended(store, position, likely)
    if last is None or (scale == 1.0 and not change.size):
        return last
    G, weights = scale * last.G, scale * last.w
    if change.size:
        G += weighed(store, last.position, change)
        weights += change
    return Gram(last.position, G, weights)


def _change(old: Float64, w: Float64) -> tuple[float, Float64]:
    """s and w − s·old: with s = 1, or, if that leaves less, with s for the same sum."""
    plain, scale = w - old, float(w.sum()) / float(old.sum())
    scaled = w - scale * old
    return (scale, scaled) if np.abs(scaled).sum() < np.abs(plain).sum() else (1.0, plain)


def heaviest(w: Float64, left: float) -> Float64:
    """w without its smallest entries, which sum to no more than `left`."""
    size = np.abs(w)
    rising = np.sort(size)
    dropped = int(np.searchsorted(np.cumsum(rising), left, side="right"))
    least = rising[dropped] if dropped < w.size else np.inf
    return np.where(size >= least, w, 0.0)


def is_near(store: Store, position: Int64) -> bool:
    """Does the store's Gram matrix have all but few of these features?"""
    last = store.gram
    if last is None:
        return False
    known = int(np.isin(position, last.position, assume_unique=True).sum())
    return position.size - known <= GRAM_MATRIX.max_new_share * last.position.size


def extended(store: Store, position: Int64, likely: Int64 | None = None) -> Gram | None:
    """The store's Gram matrix with rows and columns for those of these features that it lacks.

    None if they are too many, or there is no Gram matrix, or no room.
    """
    _drop_missing(store)
    last = store.gram
    if last is None or not is_near(store, position):
        return None
    new = position[~np.isin(position, last.position, assume_unique=True)]
    if new.size == 0:
        return last
    room = store.most_gram - last.position.size
    if new.size > room:
        return None
    if likely is not None:
        more = likely[~np.isin(likely, last.position, assume_unique=True)]
        new = more if more.size <= min(GRAM_MATRIX.max_new_share * last.position.size, room) else new
    both, k = np.concatenate((last.position, new)), last.position.size
    rows = weighed(store, both, last.w, first_row=k)
    G = np.empty((both.size, both.size))
    G[:k, :k] = last.G
    G[k:], G[:k, k:] = rows, rows[:, :k].T
    order = np.argsort(both)
    store.gram = Gram(both[order], G[np.ix_(order, order)], last.w)
    return store.gram


def _drop_missing(store: Store) -> None:
    """A feature that has left the store cannot be multiplied with, and has no part in the working set."""
    last = store.gram
    if last is not None and store.missing(last.position).size:
        kept = last.position[~np.isin(last.position, store.missing(last.position), assume_unique=True)]
        store.gram = Gram(kept, last.of(kept), last.w)


def weighed(store: Store, position: Int64, w: Float64, first_row: int = 0) -> Float64:
    """XᵀWX over these features, w of any sign: products in float32, a stretch of examples at a time, sums in float64.

    Examples with w = 0 cost nothing. first_row: rows before it are left out.
    """
    slots, k = store.slots(position), position.size
    arrays = store.arrays
    _, lo, hi, _, indices, *_ = arrays
    units = Units.of(store, slots, w)
    chosen, root = np.flatnonzero(w), np.sqrt(np.abs(w) / units.weight).astype(np.float32)
    nowhere = min(GRAM_MATRIX.examples_at_a_time, chosen.size)
    place = np.full(w.size, nowhere, np.int32)

    def part(begin: int, end: int) -> Float64:
        G, room = np.zeros((k - first_row, k)), np.empty((k, nowhere + 1), np.float32)
        cursor = np.empty(k, np.int64)
        if begin < end:
            kernels.seek(slots, lo, hi, indices, chosen[begin], cursor)
        for first in range(begin, end, GRAM_MATRIX.examples_at_a_time):
            here = chosen[first : min(first + GRAM_MATRIX.examples_at_a_time, end)]
            rising = w[here] > 0.0
            here, more = np.concatenate((here[rising], here[~rising])), int(rising.sum())
            place[here] = np.arange(here.size)
            kernels.spread_scaled(slots, *arrays, cursor, root, units.mean, units.unit, here, place, room)
            for columns, sign in ((room[:, :more], 1.0), (room[:, more : here.size], -1.0)):
                if columns.shape[1]:
                    G += sign * (columns[first_row:] @ columns.T)
        return G

    G, *others = store.threads.map(part, store.threads.even_cuts(chosen.size, GRAM_MATRIX.examples_per_thread))
    for other in others:
        G += other
    return units.undone(G, first_row)


@dataclass(frozen=True)
class Units:
    """What columns are multiplied in, so that float32 will do: dense ones less their mean, all of much the same size.

    Of a column whose values all lie far from zero, float32 products would hold the mean and little else.
    """

    weight: float  # the largest of the weights
    mean: Float32  # of dense columns; 0 for others
    unit: Float32  # the inverse of a column's size
    sums: Float64  # Σ w x
    total: float  # Σ w

    @classmethod
    def of(cls, store: Store, slots: Int64, w: Float64) -> Units:
        size = np.abs(w)
        weight, total = float(size.max(initial=0.0)) or 1.0, float(size.sum()) or 1.0
        kinds = store.kinds(slots)
        mean, unit, sums = np.zeros(slots.size, np.float32), np.ones(slots.size, np.float32), np.zeros(slots.size)
        if (kinds == ONES).all():
            return cls(weight, mean, unit, sums, 0.0)
        squares = np.empty(slots.size)
        store.sums(slots, size, size, sums, squares)
        dense = kinds == DENSE
        mean[dense] = (sums[dense] / total).astype(np.float32)
        spread = np.sqrt(np.maximum(squares - 2.0 * mean * sums + np.square(mean, dtype=float) * total, 0.0) / total)
        uneven = (kinds != ONES) & (spread > 0.0)
        unit[uneven] = 1.0 / np.clip(spread[uneven], *ROUNDING.column_sizes)
        if dense.any() and (w < 0.0).any():
            store.slopes(slots, w, sums)
        return cls(weight, mean, unit, sums, float(w.sum()))

    def undone(self, G: Float64, first_row: int) -> Float64:
        """XᵀWX, from that of the columns in these units."""
        size, mean = 1.0 / self.unit.astype(float), self.mean.astype(float)
        G *= self.weight * np.outer(size[first_row:], size)
        if mean.any():  # x = c + m, and so Σ w x x' = Σ w c c' + m Σ w x' + m' Σ w c
            G += np.outer(mean[first_row:], self.sums)
            G += np.outer((self.sums - mean * self.total)[first_row:], mean)
        return G
