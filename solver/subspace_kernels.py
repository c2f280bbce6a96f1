"""Numba kernels of the subspace search: columns in the driver's store, and coordinate descent over chosen ones.

The store (store.py) keeps, for each slot,
    kind    VALUED, ONES or DENSE, as in columns.py
    lo, hi  its range of `indices`
    at      where its values begin in `data`; for a dense column, its row of `dense`
The residual r and the weights w are separate vectors here: a cycle reads r alone, and w only where a step is made.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from solver.arrays import Float32, Float64, Int32, Int64, UInt8

VALUED, ONES, DENSE = 0, 1, 2

_SUMS = {"reassoc", "contract", "nsz", "arcp"}
kernel = nb.njit(nogil=True, cache=True, fastmath=_SUMS, error_model="numpy")


@kernel
def unpack(working: Float64, signed: Float64, least: float, r: Float64, w: Float64) -> None:
    # r = working[0]; w = np.maximum(working[1], least * np.abs(signed))
    for i in range(r.size):
        r[i] = working[0, i]
        w[i] = max(working[1, i], least * abs(signed[i]))


# --- columns of a block -------------------------------------------------------------------------------------


@kernel
def _sums_of(
    kind: int,
    lo: int,
    hi: int,
    at: int,
    indices: Int32,
    data: Float32,
    dense: Float32,
    r: Float64,
    w: Float64,
) -> tuple[float, float]:
    # x @ r, (w * x**2).sum()
    g = 0.0
    h = 0.0
    if kind == ONES:
        for k in range(lo, hi):
            i = np.uint32(indices[k])
            g += r[i]
            h += w[i]
    elif kind == VALUED:
        shift = at - lo
        for k in range(lo, hi):
            i = np.uint32(indices[k])
            x = np.float64(data[k + shift])
            g += x * r[i]
            h += x * x * w[i]
    else:
        for e in range(r.size):
            x = np.float64(dense[at, e])
            g += x * r[e]
            h += x * x * w[e]
    return g, h


@kernel
def _slope_of(kind: int, lo: int, hi: int, at: int, indices: Int32, data: Float32, dense: Float32, r: Float64) -> float:
    # x @ r
    g = 0.0
    if kind == ONES:
        for k in range(lo, hi):
            g += r[np.uint32(indices[k])]
    elif kind == VALUED:
        shift = at - lo
        for k in range(lo, hi):
            g += np.float64(data[k + shift]) * r[np.uint32(indices[k])]
    else:
        for i in range(r.size):
            g += np.float64(dense[at, i]) * r[i]
    return g


@kernel
def _move_residual(
    kind: int,
    lo: int,
    hi: int,
    at: int,
    indices: Int32,
    data: Float32,
    dense: Float32,
    d: float,
    r: Float64,
    w: Float64,
) -> None:
    # r -= w * x * d
    if kind == ONES:
        for k in range(lo, hi):
            i = np.uint32(indices[k])
            r[i] -= w[i] * d
    elif kind == VALUED:
        shift = at - lo
        for k in range(lo, hi):
            i = np.uint32(indices[k])
            r[i] -= w[i] * (d * np.float64(data[k + shift]))
    else:
        for e in range(r.size):
            r[e] -= w[e] * (d * np.float64(dense[at, e]))


@kernel
def diagonal(
    chosen: Int64, kind: UInt8, indptr: Int64, indices: Int32, data: Float32, working: Float64, out: Float64
) -> None:
    # out = (w[:, None] * X[:, chosen]**2).sum(axis=0), listed columns only
    for c in range(chosen.size):
        j = chosen[c]
        h = 0.0
        for k in range(indptr[j], indptr[j + 1]):
            x = np.float64(data[k]) if kind[j] == VALUED else 1.0
            h += x * x * working[1, np.uint32(indices[k])]
        out[c] = h


@kernel
def take(chosen: Int64, indptr: Int64, source: Int32, starts: Int64, out: Int32) -> None:
    # out = np.concatenate([source[indptr[j]:indptr[j + 1]] for j in chosen])
    for c in range(chosen.size):
        shift = starts[c] - indptr[chosen[c]]
        for k in range(indptr[chosen[c]], indptr[chosen[c] + 1]):
            out[k + shift] = source[k]


# --- columns of the store -----------------------------------------------------------------------------------


@kernel
def sums(
    slots: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    r: Float64,
    w: Float64,
    g: Float64,
    h: Float64,
) -> None:
    # g = X[:, slots].T @ r; h = (w[:, None] * X[:, slots]**2).sum(axis=0)
    for c in range(slots.size):
        s = slots[c]
        g[c], h[c] = _sums_of(kind[s], lo[s], hi[s], at[s], indices, data, dense, r, w)


@kernel
def slopes(
    slots: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    r: Float64,
    g: Float64,
) -> None:
    # g = X[:, slots].T @ r
    for c in range(slots.size):
        s = slots[c]
        g[c] = _slope_of(kind[s], lo[s], hi[s], at[s], indices, data, dense, r)


@kernel
def _add_four(dense: Float32, rows: Int64, steps: Float64, out: Float64) -> None:
    # out += dense[rows].T @ steps
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    p, q, r, s = steps[0], steps[1], steps[2], steps[3]
    for i in range(out.size):
        out[i] += (p * np.float64(a[i]) + q * np.float64(b[i])) + (r * np.float64(c[i]) + s * np.float64(d[i]))


@kernel
def product(
    slots: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    d: Float64,
    out: Float64,
) -> None:
    # out += X[:, slots] @ d; dense columns four at a time, as `out` is read and written with each
    four = np.empty(4, np.int64)
    many = 0
    for c in range(slots.size):
        s, step = slots[c], d[c]
        if step == 0.0:
            continue
        if kind[s] == ONES:
            for k in range(lo[s], hi[s]):
                out[np.uint32(indices[k])] += step
        elif kind[s] == VALUED:
            for k in range(lo[s], hi[s]):
                out[np.uint32(indices[k])] += step * np.float64(data[k + at[s] - lo[s]])
        else:
            four[many] = c
            many += 1
            if many == 4:
                _add_four(dense, at[slots[four]], d[four], out)
                many = 0
    for q in range(many):
        step, row = d[four[q]], at[slots[four[q]]]
        for i in range(out.size):
            out[i] += step * np.float64(dense[row, i])


@kernel
def descend(
    slots: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    beta: Float64,
    h: Float64,
    lam: float,
    r: Float64,
    w: Float64,
    d: Float64,
    order: Int64,
    count: int,
    slack: float,
) -> tuple[int, float, float]:
    # One cycle of coordinate descent on the quadratic model, over order[:count]; d and r are changed in place.
    # A coordinate that stays at zero with `slack` to spare is moved behind the others. Returned: how many were not,
    # the largest step in units of the slope, and what the model fell by, at least.
    decrease = 0.0
    worst = 0.0
    kept = 0
    for c in range(count):
        j = order[c]
        s = slots[j]
        g = _slope_of(kind[s], lo[s], hi[s], at[s], indices, data, dense, r)
        b = beta[j] + d[j]
        if b == 0.0 and abs(g) < lam - slack:
            continue
        order[c] = order[kept]
        order[kept] = j
        kept += 1
        target = g + h[j] * b
        if target > lam:
            step = (target - lam) / h[j] - b
        elif target < -lam:
            step = (target + lam) / h[j] - b
        else:
            step = -b
        if step == 0.0:
            continue
        worst = max(worst, abs(step) * h[j])
        decrease += 0.5 * h[j] * step * step
        d[j] = 0.0 - beta[j] if step == -b else d[j] + step
        _move_residual(kind[s], lo[s], hi[s], at[s], indices, data, dense, step, r, w)
    return kept, worst, decrease


@kernel
def model_loss(start: Float64, r: Float64, w: Float64) -> float:
    # dm = (start - r) / w; (0.5 * w * dm**2 - start * dm).sum()
    total = 0.0
    for i in range(r.size):
        if w[i] > 0.0:
            dm = (start[i] - r[i]) / w[i]
            total += (0.5 * w[i] * dm - start[i]) * dm
    return total


@kernel
def l1_norm(beta: Float64, d: Float64) -> float:
    # np.abs(beta + d).sum()
    total = 0.0
    for j in range(d.size):
        total += abs(beta[j] + d[j])
    return total


# --- the model by its Gram matrix ---------------------------------------------------------------------------


@kernel
def seek(slots: Int64, lo: Int64, hi: Int64, indices: Int32, first: int, cursor: Int64) -> None:
    # cursor = [lo[s] + np.searchsorted(indices[lo[s] : hi[s]], first) for s in slots]
    for c in range(slots.size):
        a, b = lo[slots[c]], hi[slots[c]]
        while a < b:
            middle = (a + b) // 2
            if indices[middle] < first:
                a = middle + 1
            else:
                b = middle
        cursor[c] = a


@kernel
def spread_scaled(
    slots: Int64,
    kind: UInt8,
    at: Int64,
    lo: Int64,
    hi: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    cursor: Int64,
    root: Float32,
    chosen: Int64,
    place: Int32,
    out: Float32,
) -> None:
    # out[:, :chosen.size] = (root[:, None] * X[:, slots])[chosen].T; cursor[c] is where column c has got to,
    # place[chosen] = np.arange(chosen.size); all other examples have one place, the last of out, which is of no use
    last = chosen.max()
    for c in range(slots.size):
        s = slots[c]
        if kind[s] == DENSE:
            for e in range(chosen.size):
                out[c, e] = dense[at[s], chosen[e]] * root[chosen[e]]
            continue
        out[c, : chosen.size] = np.float32(0.0)
        k = cursor[c]
        if kind[s] == ONES:
            while k < hi[s] and indices[k] <= last:
                i = np.uint32(indices[k])
                out[c, np.uint32(place[i])] = root[i]
                k += 1
        else:
            while k < hi[s] and indices[k] <= last:
                i = np.uint32(indices[k])
                out[c, np.uint32(place[i])] = root[i] * data[k + at[s] - lo[s]]
                k += 1
        cursor[c] = k


@kernel
def descend_gram(
    G: Float64, q: Float64, beta: Float64, d: Float64, lam: float, limit: int, share: float, least: float
) -> tuple[int, float]:
    # Cycles of coordinate descent on 0.5 * d @ G @ d - g @ d + lam * np.abs(beta + d).sum(), with q = g - G @ d, until
    # one gains less than `share` of all gained, or `least`. Returned: cycles, and the last one's gain.
    total = 0.0
    gain = 0.0
    for cycle in range(limit):
        gain = 0.0
        for j in range(q.size):
            h = G[j, j]
            b = beta[j] + d[j]
            target = q[j] + h * b
            if target > lam:
                step = (target - lam) / h - b
            elif target < -lam:
                step = (target + lam) / h - b
            else:
                step = -b
            if step == 0.0:
                continue
            gain += 0.5 * h * step * step
            d[j] = 0.0 - beta[j] if step == -b else d[j] + step
            for i in range(q.size):
                q[i] -= G[j, i] * step
        total += gain
        if gain <= max(share * total, least):
            return cycle + 1, gain
    return limit, gain
