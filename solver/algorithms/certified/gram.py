"""Gram matrices XᵀWX of columns in the store, formed once and updated along the path.

Along a path the weights change little, or all in proportion, and soon few examples hold most of their sum. So a Gram
matrix remembers the weights it was formed for. An update adds X_SᵀD X_S over the examples S with the largest changes D
of weights. A new matrix takes the heaviest examples only.

Where there are far more examples than columns, a sample of them is enough: each is taken with a chance in proportion to
its weight, and weighed by the inverse of that chance. Slopes stay exact, so only the number of Newton steps depends on
the sample, never what they converge to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from solver.algorithms.certified.store import Gram, Rows, Store
from solver.algorithms.certified.tuning import GRAM_MATRIX, ROUNDING
from solver.arrays import Float32, Float64, Int64
from solver.columns import BITS, DENSE, ONES
from solver.kernels import columns as kernels
from solver.kernels import vectors


def gram_for(store: Store, position: Int64, w: Float64, stale: float, likely: Int64 | None = None) -> Gram:
    """XᵀWX over at least these features, for weights whose relative distance from w is at most `stale`.

    The matrix is kept in the store. likely: features that may be wanted soon, these among them. When the matrix must be
    extended anyway, they are added too, if they are few.
    """
    if position.size**2 * w.size <= GRAM_MATRIX.always_fresh:
        store.gram = Gram(position, weighted_gram(store, position, Rows.of(w)), w.copy())
    else:
        store.gram = _update(store, position, w, stale, likely) or form_gram(store, position, w, stale)
    return store.gram


def form_gram(store: Store, position: Int64, w: Float64, stale: float) -> Gram:
    """A new matrix: of a sample of the examples, or without the lightest."""
    size = examples_needed(w.size, position.size, stale)
    if size < w.size:
        rows = sample(w, size)
        return Gram(position, weighted_gram(store, position, rows), w.copy(), rows, size)
    weights = heaviest(w, GRAM_MATRIX.fresh_left_out * stale * float(w.sum()))
    return Gram(position, weighted_gram(store, position, Rows.of(weights)), weights)


def examples_needed(n: int, columns: int, stale: float) -> float:
    """How many of the n examples a matrix is formed of: those of a sample, or all if it would not be much smaller.

    The relative error of a sample is about √(columns / examples). It may be a share of `stale`.
    """
    size = columns / (GRAM_MATRIX.sample_error_share * stale) ** 2
    return size if GRAM_MATRIX.sample_worth * size <= n else n


def sample(w: Float64, size: float) -> Rows:
    """About so many examples, fewer where single ones hold much of the weight. The same at every call."""
    rate = size / float(w.sum())
    example = np.empty(vectors.sample(w, rate, None), np.int64)
    vectors.sample(w, rate, example)
    return Rows(example, np.maximum(w[example], 1.0 / rate))


def _update(store: Store, position: Int64, w: Float64, stale: float, likely: Int64 | None) -> Gram | None:
    """The last matrix, with missing features and the largest changes of weights added. None if a new one is cheaper."""
    last, total = store.gram, float(w.sum())
    if last is None:
        return None
    scale, distance = _closest_scale(last.w, w)
    change = None
    if distance > stale * total:
        if last.sample is not None:
            return None
        change = heaviest(w - scale * last.w, GRAM_MATRIX.update_left_out * stale * total)
        if np.count_nonzero(change) >= np.count_nonzero(heaviest(w, GRAM_MATRIX.fresh_left_out * stale * total)):
            return None
        if last.position.size > GRAM_MATRIX.crowded * position.size:
            likely = None
            store.gram = last.among(np.intersect1d(last.position, position, assume_unique=True))
    elif GRAM_MATRIX.sample_worth * last.drawn < examples_needed(w.size, position.size, stale):
        return None
    last = extend_gram(store, position, likely)
    if last is None or (scale == 1.0 and change is None):
        return last
    last = last.scaled(scale)
    if change is None:
        return last
    return Gram(last.position, last.G + weighted_gram(store, last.position, Rows.of(change)), last.w + change)


def _closest_scale(old: Float64, w: Float64) -> tuple[float, float]:
    """A scale s and Σ|w − s·old|. s is 1, or the ratio of the sums if that leaves the smaller change."""
    scale = float(w.sum()) / float(old.sum())
    unscaled, scaled = vectors.distance(w, old, 1.0), vectors.distance(w, old, scale)
    return (scale, scaled) if scaled < unscaled else (1.0, unscaled)


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
    store.gram = append_features(store, last, new)
    return store.gram


def append_features(store: Store, last: Gram, new: Int64) -> Gram:
    """Rows and columns for new features, for the weights that the matrix was formed for."""
    position, k = np.concatenate((last.position, new)), last.position.size
    rows = weighted_gram(store, position, last.rows, first_row=k)
    G = np.empty((position.size, position.size))
    G[:k, :k] = last.G
    G[k:], G[:k, k:] = rows, rows[:, :k].T
    order = np.argsort(position)
    return replace(last, position=position[order], G=G[np.ix_(order, order)])


def _drop_missing(store: Store) -> None:
    """Drop features from the Gram matrix whose columns have left the store: they cannot be multiplied any more."""
    last = store.gram
    if last is not None and store.missing(last.position).size:
        store.gram = last.among(np.setdiff1d(last.position, store.missing(last.position), assume_unique=True))


def weighted_gram(store: Store, position: Int64, rows: Rows, first_row: int = 0) -> Float64:
    """XᵀWX over these features, from row `first_row` on, W being the weights of these examples, of any sign.

    Products are in float32, some thousand examples at a time, and sums in float64.
    """
    shared = store.shared_gram(position, rows, first_row)
    if shared is not None:
        return shared
    slots, k = store.slots(position), position.size
    units = Float32Units.of(store, slots, rows)
    root = np.sqrt(np.abs(rows.weight) / units.weight).astype(np.float32)
    nowhere = min(GRAM_MATRIX.examples_at_a_time, rows.example.size)
    place = np.full(store.n, nowhere, np.int32)
    runs = list(store.runs(slots))

    def part(begin: int, end: int) -> Float64:
        G, room = np.zeros((k - first_row, k)), np.empty((k, nowhere + 1), np.float32)
        cursor, scaled = np.empty(k, np.int64), np.zeros(nowhere + 1, np.float32)
        for run in runs if begin < end else []:
            _, lo, hi, _, indices, *_ = run.arrays
            kernels.seek(run.slots, lo, hi, indices, rows.example[begin], cursor[run.here])
        for first in range(begin, end, GRAM_MATRIX.examples_at_a_time):
            here = slice(first, min(first + GRAM_MATRIX.examples_at_a_time, end))
            falling = rows.weight[here] < 0.0
            order, more = np.argsort(falling, kind="stable"), int((~falling).sum())
            examples = rows.example[here][order]
            scaled[: order.size] = root[here][order]
            place[examples] = np.arange(order.size)
            for run in runs:
                at = run.here
                kernels.spread_scaled(
                    run.slots,
                    *run.arrays,
                    cursor[at],
                    units.mean[at],
                    units.unit[at],
                    examples,
                    scaled,
                    place,
                    room[at],
                )
            for columns, sign in ((room[:, :more], 1.0), (room[:, more : order.size], -1.0)):
                if columns.shape[1]:
                    G += sign * (columns[first_row:] @ columns.T)
        return G

    G, *others = store.threads.map(part, store.threads.even_cuts(rows.example.size, GRAM_MATRIX.examples_per_thread))
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
    def of(cls, store: Store, slots: Int64, rows: Rows) -> Float32Units:
        weights = np.abs(rows.weight)
        weight, total = float(weights.max(initial=0.0)) or 1.0, float(weights.sum()) or 1.0
        kinds = store.kinds(slots)
        mean, unit, sums = np.zeros(slots.size, np.float32), np.ones(slots.size, np.float32), np.zeros(slots.size)
        only_ones = (kinds == ONES) | (kinds == BITS)
        if only_ones.all():
            return cls(weight, mean, unit, sums, 0.0, np.empty(0, np.int64))
        size, squares = rows._replace(weight=weights).spread(store.n), np.empty(slots.size)
        store.sums(slots, size, size, sums, squares)
        dense = kinds == DENSE
        mean[dense] = (sums[dense] / total).astype(np.float32)
        spread = np.sqrt(np.maximum(squares - 2.0 * mean * sums + np.square(mean, dtype=float) * total, 0.0) / total)
        uneven = ~only_ones & (spread > 0.0)
        unit[uneven] = 1.0 / np.clip(spread[uneven], *ROUNDING.column_sizes)
        if dense.any() and (rows.weight < 0.0).any():
            store.slopes(slots, rows.spread(store.n), sums)
        return cls(weight, mean, unit, sums, float(rows.weight.sum()), np.flatnonzero(store.is_constant(slots)))

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
