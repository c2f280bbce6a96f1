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
    chosen: Int64,
    kind: UInt8,
    indptr: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    rows: Int64,
    working: Float64,
    out: Float64,
) -> None:
    # out = (w[:, None] * X[:, chosen]**2).sum(axis=0); rows[j] is the row of dense that column j is
    w = working[1]
    for c in range(chosen.size):
        j = chosen[c]
        h = 0.0
        if kind[j] == DENSE:
            x = dense[rows[j]]
            for i in range(w.size):
                h += w[i] * np.float64(x[i]) * np.float64(x[i])
        else:
            for k in range(indptr[j], indptr[j + 1]):
                v = np.float64(data[k]) if kind[j] == VALUED else 1.0
                h += v * v * w[np.uint32(indices[k])]
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
def _four_dense(slots: Int64, kind: UInt8, c: int) -> bool:
    # (kind[slots[c : c + 4]] == DENSE).all(), four there
    dense = 0
    for e in range(c, min(c + 4, slots.size)):
        dense += kind[slots[e]] == DENSE
    return dense == 4


@kernel
def _four_sums(dense: Float32, rows: Int64, r: Float64, w: Float64, g: Float64, h: Float64) -> None:
    # X = dense[rows]; g[:] = X @ r; h[:] = X**2 @ w
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    ga = gb = gc = gd = 0.0
    ha = hb = hc = hd = 0.0
    for i in range(r.size):
        xa, xb, xc, xd = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
        ga += xa * r[i]
        gb += xb * r[i]
        gc += xc * r[i]
        gd += xd * r[i]
        ha += xa * xa * w[i]
        hb += xb * xb * w[i]
        hc += xc * xc * w[i]
        hd += xd * xd * w[i]
    g[0], g[1], g[2], g[3] = ga, gb, gc, gd
    h[0], h[1], h[2], h[3] = ha, hb, hc, hd


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
    c = 0
    while c < slots.size:
        if _four_dense(slots, kind, c):
            _four_sums(dense, at[slots[c : c + 4]], r, w, g[c : c + 4], h[c : c + 4])
            c += 4
        else:
            s = slots[c]
            g[c], h[c] = _sums_of(kind[s], lo[s], hi[s], at[s], indices, data, dense, r, w)
            c += 1


@kernel
def _four_slopes(dense: Float32, rows: Int64, r: Float64, g: Float64) -> None:
    # g[:] = dense[rows] @ r
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    ga = gb = gc = gd = 0.0
    for i in range(r.size):
        ga += np.float64(a[i]) * r[i]
        gb += np.float64(b[i]) * r[i]
        gc += np.float64(c[i]) * r[i]
        gd += np.float64(d[i]) * r[i]
    g[0], g[1], g[2], g[3] = ga, gb, gc, gd


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
    c = 0
    while c < slots.size:
        if _four_dense(slots, kind, c):
            _four_slopes(dense, at[slots[c : c + 4]], r, g[c : c + 4])
            c += 4
        else:
            s = slots[c]
            g[c] = _slope_of(kind[s], lo[s], hi[s], at[s], indices, data, dense, r)
            c += 1


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
def _four_slopes_and_hessian(dense: Float32, rows: Int64, r: Float64, w: Float64, g: Float64, H: Float64) -> None:
    # X = dense[rows]; g[:] = X @ r; H[:] = (X * w) @ X.T, above the diagonal
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    ga = gb = gc = gd = 0.0
    ab = ac = ad = bc = bd = cd = 0.0
    for i in range(r.size):
        xa, xb, xc, xd = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
        ga += xa * r[i]
        gb += xb * r[i]
        gc += xc * r[i]
        gd += xd * r[i]
        va, vb, vc = w[i] * xa, w[i] * xb, w[i] * xc
        ab += va * xb
        ac += va * xc
        ad += va * xd
        bc += vb * xc
        bd += vb * xd
        cd += vc * xd
    g[0], g[1], g[2], g[3] = ga, gb, gc, gd
    H[0, 1], H[0, 2], H[0, 3], H[1, 2], H[1, 3], H[2, 3] = ab, ac, ad, bc, bd, cd


@kernel
def _move_by_four(dense: Float32, rows: Int64, steps: Float64, r: Float64, w: Float64) -> None:
    # r -= w * (dense[rows].T @ steps)
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    p, q, u, v = steps[0], steps[1], steps[2], steps[3]
    for i in range(r.size):
        r[i] -= w[i] * ((p * np.float64(a[i]) + q * np.float64(b[i])) + (u * np.float64(c[i]) + v * np.float64(d[i])))


@kernel
def _to_minimum(g: float, h: float, b: float, lam: float) -> float:
    # the step from b to the minimum of -g * step + 0.5 * h * step**2 + lam * abs(b + step)
    target = g + h * b
    if target > lam:
        return (target - lam) / h - b
    if target < -lam:
        return (target + lam) / h - b
    return -b


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
    # Of dense columns four share a reading of r and w: a step on one changes the slopes of those that follow through
    # the four columns' own Hessian, before it changes r.
    decrease = 0.0
    worst = 0.0
    kept = 0
    here, rows = np.empty(4, np.int64), np.empty(4, np.int64)
    g, H, steps = np.empty(4), np.empty((4, 4)), np.empty(4)
    c = 0
    while c < count:
        here[0], width = order[c], 1
        while width < 4 and c + width < count and kind[slots[here[width - 1]]] == DENSE:
            here[width] = order[c + width]
            width += 1
        s = slots[here[0]]
        if width == 4 and kind[slots[here[3]]] == DENSE:
            for e in range(4):
                rows[e] = at[slots[here[e]]]
            _four_slopes_and_hessian(dense, rows, r, w, g, H)
        else:
            width = 1
            g[0] = _slope_of(kind[s], lo[s], hi[s], at[s], indices, data, dense, r)
        moved = False
        for e in range(width):
            j = here[e]
            steps[e] = 0.0
            b = beta[j] + d[j]
            if b == 0.0 and abs(g[e]) < lam - slack:
                continue
            order[c + e] = order[kept]
            order[kept] = j
            kept += 1
            step = _to_minimum(g[e], h[j], b, lam)
            if step == 0.0:
                continue
            worst = max(worst, abs(step) * h[j])
            decrease += 0.5 * h[j] * step * step
            d[j] = 0.0 - beta[j] if step == -b else d[j] + step
            steps[e] = step
            moved = True
            for other in range(e + 1, width):
                g[other] -= H[e, other] * step
        if moved and width == 4:
            _move_by_four(dense, rows, steps, r, w)
        elif moved:
            _move_residual(kind[s], lo[s], hi[s], at[s], indices, data, dense, steps[0], r, w)
        c += width
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
def energy(r: Float64, w: Float64) -> float:
    # (r[w > 0]**2 / w[w > 0]).sum()
    total = 0.0
    for i in range(r.size):
        if w[i] > 0.0:
            total += r[i] * r[i] / w[i]
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
    mean: Float32,
    unit: Float32,
    chosen: Int64,
    place: Int32,
    out: Float32,
) -> None:
    # out[:, :chosen.size] = (root[:, None] * (X[:, slots] - mean) * unit)[chosen].T, with mean = 0 for all but dense
    # columns; cursor[c] is where column c has got to, place[chosen] = np.arange(chosen.size); all other examples have
    # one place, the last of out, which is of no use
    last = chosen.max()
    for c in range(slots.size):
        s = slots[c]
        if kind[s] == DENSE:
            for e in range(chosen.size):
                out[c, e] = (dense[at[s], chosen[e]] - mean[c]) * unit[c] * root[chosen[e]]
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
                out[c, np.uint32(place[i])] = root[i] * (data[k + at[s] - lo[s]] * unit[c])
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
            step = _to_minimum(q[j], h, b, lam)
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
