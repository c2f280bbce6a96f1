"""Gram matrices XᵀWX of columns in the store: formed of the examples that matter, and brought up to date cheaply.

Along a path the weights change little, or all in proportion, and most of their sum is soon with few examples. So a Gram
matrix remembers the weights it stands for, and what is added is the part of the change that matters: X_SᵀD X_S over the
examples S with the largest changes D. A fresh one is the same from weights of zero.
"""

from __future__ import annotations

import numpy as np

from solver import subspace_kernels
from solver.arrays import Float64, Int64
from solver.store import Gram, Store, in_parts

STRETCH = 4096  # examples multiplied at a time
NEW_SHARE = 0.25  # of its columns may be new for a Gram matrix to be extended, not formed anew
CROWDED = 1.4  # times the features wanted: a Gram matrix of more drops the others before it is updated
WORTH_TWO = 256  # examples from which a second thread is worth waking
FRESH = 0.05
UPDATED = 0.1  # of the change that is allowed may be left after an update


def gram_for(store: Store, position: Int64, w: Float64, stale: float) -> Gram:
    """XᵀWX over these features, and maybe others, for weights within `stale`, relatively, of w: kept in the store."""
    last = extended(store, position)
    if last is None:
        last = Gram(position, np.zeros((position.size, position.size)), np.zeros(w.size))
    store.gram = last = _updated(store, last, position, w, stale)
    return last


def heaviest(w: Float64, left: float) -> Float64:
    """w without its smallest entries, which sum to no more than `left`."""
    size = np.abs(w)
    rising = np.sort(size)
    dropped = int(np.searchsorted(np.cumsum(rising), left, side="right"))
    least = rising[dropped] if dropped < w.size else np.inf
    return np.where(size >= least, w, 0.0)


def _updated(store: Store, last: Gram, position: Int64, w: Float64, stale: float) -> Gram:
    """The Gram matrix for weights near w: the last one if it will do, or with the largest changes added, or fresh."""
    total, scale = float(w.sum()), 1.0
    change = w - last.w
    if last.w.any():
        scale = total / float(last.w.sum())
        in_proportion = w - scale * last.w
        if np.abs(in_proportion).sum() < np.abs(change).sum():
            change = in_proportion
        else:
            scale = 1.0
    if float(np.abs(change).sum()) <= stale * total:
        return last if scale == 1.0 else Gram(last.position, scale * last.G, scale * last.w)
    change, fresh = heaviest(change, UPDATED * stale * total), heaviest(w, FRESH * stale * total)
    if np.count_nonzero(fresh) <= np.count_nonzero(change) or not last.w.any():
        return Gram(position, weighed(store, position, fresh), fresh)
    if last.position.size > CROWDED * position.size:
        last = Gram(position, last.of(position), last.w)
    G = scale * last.G
    G += weighed(store, last.position, change)
    return Gram(last.position, G, scale * last.w + change)


def extended(store: Store, position: Int64) -> Gram | None:
    """The store's Gram matrix with rows and columns for those of these features that it lacks.

    None if they are too many, or there is no Gram matrix.
    """
    last = store.gram
    if last is None:
        return None
    new = position[~np.isin(position, last.position, assume_unique=True)]
    if new.size == 0:
        return last
    if new.size > NEW_SHARE * last.position.size:
        return None
    # A feature that has left the store cannot be multiplied with, and has no part in the working set.
    kept = np.flatnonzero(np.isin(last.position, store.missing(last.position), invert=True))
    both = np.concatenate((last.position[kept], new))
    k = kept.size
    rows = weighed(store, both, last.w, first_row=k)
    G = np.empty((both.size, both.size))
    G[:k, :k] = last.G[np.ix_(kept, kept)]
    G[k:], G[:k, k:] = rows, rows[:, :k].T
    order = np.argsort(both)
    store.gram = Gram(both[order], G[np.ix_(order, order)], last.w)
    return store.gram


def weighed(store: Store, position: Int64, w: Float64, first_row: int = 0) -> Float64:
    """XᵀWX over these features, w of any sign: products in float32, a stretch of examples at a time, sums in float64.

    Examples with w = 0 cost nothing. first_row: rows before it are left out.
    """
    slots, k = store.slots(position), position.size
    kind, lo, hi, start, *lists = store.arrays
    chosen, root = np.flatnonzero(w), np.sqrt(np.abs(w)).astype(np.float32)
    nowhere = min(STRETCH, chosen.size)
    place = np.full(w.size, nowhere, np.int32)

    def part(begin: int, end: int) -> Float64:
        G, room = np.zeros((k - first_row, k)), np.empty((k, nowhere + 1), np.float32)
        cursor = np.empty(k, np.int64)
        if begin < end:
            subspace_kernels.seek(slots, lo, hi, lists[0], chosen[begin], cursor)
        for first in range(begin, end, STRETCH):
            here = chosen[first : min(first + STRETCH, end)]
            rising = w[here] > 0.0
            here, more = np.concatenate((here[rising], here[~rising])), int(rising.sum())
            place[here] = np.arange(here.size)
            subspace_kernels.spread_scaled(slots, kind, start, lo, hi, *lists, cursor, root, here, place, room)
            for columns, sign in ((room[:, :more], 1.0), (room[:, more : here.size], -1.0)):
                if columns.shape[1]:
                    G += sign * (columns[first_row:] @ columns.T)
        return G

    G, *others = in_parts(chosen.size, part, worth=WORTH_TWO)
    for other in others:
        G += other
    return G
