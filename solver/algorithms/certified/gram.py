"""Gram matrices XᵀWX of columns in the store, formed once and updated along the path.

Along a path the weights change little, or all in proportion, and soon few examples hold most of their sum. So a Gram
matrix remembers the weights it was formed for. An update adds X_SᵀD X_S over the examples S with the largest changes D
of weights. A new matrix takes the heaviest examples only.
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
    """XᵀWX over at least these features, for weights whose relative distance from w is at most `stale`.

    The matrix is kept in the store. likely: features that may be wanted soon, these among them. When the matrix must be
    extended anyway, they are added too, if they are few.
    """
    if position.size**2 * w.size <= GRAM_MATRIX.always_fresh:
        store.gram = Gram(position, weighted_gram(store, position, w), w.copy())
    else:
        store.gram = _update(store, position, w, stale, likely) or _form(store, position, w, stale)
    return store.gram


def _form(store: Store, position: Int64, w: Float64, stale: float) -> Gram:
    """A new matrix, without the lightest examples."""
    weights = heaviest(w, GRAM_MATRIX.fresh_left_out * stale * float(w.sum()))
    return Gram(position, weighted_gram(store, position, weights), weights)


def _update(store: Store, position: Int64, w: Float64, stale: float, likely: Int64 | None) -> Gram | None:
    """The last matrix, with missing features and the largest changes of weights added. None if a new one is cheaper."""
    last, total = store.gram, float(w.sum())
    if last is None:
        return None
    scale, change = _weights_change(last.w, w)
    if float(np.abs(change).sum()) <= stale * total:
        change = np.zeros(0)
    else:
        change = heaviest(change, GRAM_MATRIX.update_left_out * stale * total)
        if np.count_nonzero(change) >= np.count_nonzero(heaviest(w, GRAM_MATRIX.fresh_left_out * stale * total)):
            return None
        if last.position.size > GRAM_MATRIX.crowded * position.size:
            kept, likely = np.intersect1d(last.position, position, assume_unique=True), None
            store.gram = Gram(kept, last.of(kept), last.w)
    last = extend_gram(store, position, likely)
    if last is None or (scale == 1.0 and not change.size):
        return last
    G, weights = scale * last.G, scale * last.w
    if change.size:
        G += weighted_gram(store, last.position, change)
        weights += change
    return Gram(last.position, G, weights)


def _weights_change(old: Float64, w: Float64) -> tuple[float, Float64]:
    """A scale s and w − s·old. s is 1, or the ratio of the sums if that leaves the smaller change."""
    unscaled, scale = w - old, float(w.sum()) / float(old.sum())
    scaled = w - scale * old
    return (scale, scaled) if np.abs(scaled).sum() < np.abs(unscaled).sum() else (1.0, unscaled)


def heaviest(w: Float64, left_out: float) -> Float64:
    """w with its smallest entries set to 0, as many as sum to at most `left_out`."""
    size = np.abs(w)
    rising = np.sort(size)
    dropped = int(np.searchsorted(np.cumsum(rising), left_out, side="right"))
    least = rising[dropped] if dropped < w.size else np.inf
    return np.where(size >= least, w, 0.0)


def has_most_features(store: Store, position: Int64) -> bool:
    """Does the store's Gram matrix lack few enough of these features to be extended by them?"""
    last = store.gram
    if last is None:
        return False
    known = int(np.isin(position, last.position, assume_unique=True).sum())
    return position.size - known <= GRAM_MATRIX.max_new_share * last.position.size


def extend_gram(store: Store, position: Int64, likely: Int64 | None = None) -> Gram | None:
    """Add the features that it lacks to the store's Gram matrix.

    None when they are too many, when there is no Gram matrix, or when it has no room.
    """
    _drop_missing(store)
    last = store.gram
    if last is None or not has_most_features(store, position):
        return None
    new = position[~np.isin(position, last.position, assume_unique=True)]
    if new.size == 0:
        return last
    room = store.max_gram_columns - last.position.size
    if new.size > room:
        return None
    if likely is not None:
        more = likely[~np.isin(likely, last.position, assume_unique=True)]
        new = more if more.size <= min(GRAM_MATRIX.max_new_share * last.position.size, room) else new
    return _append_features(store, last, new)


def _append_features(store: Store, last: Gram, new: Int64) -> Gram:
    """Rows and columns for new features, for the weights that the matrix was formed for."""
    position, k = np.concatenate((last.position, new)), last.position.size
    rows = weighted_gram(store, position, last.w, first_row=k)
    G = np.empty((position.size, position.size))
    G[:k, :k] = last.G
    G[k:], G[:k, k:] = rows, rows[:, :k].T
    order = np.argsort(position)
    store.gram = Gram(position[order], G[np.ix_(order, order)], last.w)
    return store.gram


def _drop_missing(store: Store) -> None:
    """Drop features from the Gram matrix whose columns have left the store: they cannot be multiplied any more."""
    last = store.gram
    if last is not None and store.missing(last.position).size:
        kept = last.position[~np.isin(last.position, store.missing(last.position), assume_unique=True)]
        store.gram = Gram(kept, last.of(kept), last.w)


def weighted_gram(store: Store, position: Int64, w: Float64, first_row: int = 0) -> Float64:
    """XᵀWX over these features, from row `first_row` on. w may have any sign.

    Products are in float32, some thousand examples at a time, and sums in float64. Examples with w = 0 cost nothing.
    """
    slots, k = store.slots(position), position.size
    arrays = store.arrays
    _, lo, hi, _, indices, *_ = arrays
    units = Float32Units.of(store, slots, w)
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
    return units.unscaled(G, first_row)


@dataclass(frozen=True)
class Float32Units:
    """Shifts and scales that make columns fit for float32 products: dense ones less their mean, all of similar size.

    Without the shift, products of a column far from zero would hold its mean and little else.
    """

    weight: float  # the largest weight
    mean: Float32  # of dense columns; 0 for others
    unit: Float32  # the inverse of a column's size
    sums: Float64  # Σ w x
    total: float  # Σ w
    constant: Int64  # columns of nothing but ones

    @classmethod
    def of(cls, store: Store, slots: Int64, w: Float64) -> Float32Units:
        size = np.abs(w)
        weight, total = float(size.max(initial=0.0)) or 1.0, float(size.sum()) or 1.0
        kinds = store.kinds(slots)
        mean, unit, sums = np.zeros(slots.size, np.float32), np.ones(slots.size, np.float32), np.zeros(slots.size)
        if (kinds == ONES).all():
            return cls(weight, mean, unit, sums, 0.0, np.empty(0, np.int64))
        squares = np.empty(slots.size)
        store.sums(slots, size, size, sums, squares)
        dense = kinds == DENSE
        mean[dense] = (sums[dense] / total).astype(np.float32)
        spread = np.sqrt(np.maximum(squares - 2.0 * mean * sums + np.square(mean, dtype=float) * total, 0.0) / total)
        uneven = (kinds != ONES) & (spread > 0.0)
        unit[uneven] = 1.0 / np.clip(spread[uneven], *ROUNDING.column_sizes)
        if dense.any() and (w < 0.0).any():
            store.slopes(slots, w, sums)
        return cls(weight, mean, unit, sums, float(w.sum()), np.flatnonzero(store.is_constant(slots)))

    def unscaled(self, G: Float64, first_row: int) -> Float64:
        """XᵀWX of the columns themselves, from G of the shifted and scaled columns."""
        size, mean = 1.0 / self.unit.astype(float), self.mean.astype(float)
        G *= self.weight * np.outer(size[first_row:], size)
        if mean.any():  # x = c + m, and so Σ w x x' = Σ w c c' + m Σ w x' + m' Σ w c
            G += np.outer(mean[first_row:], self.sums)
            G += np.outer((self.sums - mean * self.total)[first_row:], mean)
            for j in self.constant:  # eliminating the intercept takes the means away: its row must not round
                G[:, j] = self.sums[first_row:]
                if j >= first_row:
                    G[j - first_row] = self.sums
        return G
