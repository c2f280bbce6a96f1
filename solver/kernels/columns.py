"""Products with columns: Xᵀr, Σ w x², Xd; and what is needed to take columns in.

Columns come as seven arrays (solver/columns.py), the same for a block and for the driver's store:
    kind     VALUED, ONES or DENSE
    lo, hi   the column's range of `indices`; empty for a dense one
    at       where its values begin in `data`; for a dense one, its row of `dense`
    indices, data, dense
and kernels work on the columns `chosen`. Sums are float64, over float32 data.
"""

from __future__ import annotations

import numpy as np

from solver.arrays import Float32, Float64, Int32, Int64, UInt8
from solver.kernels.compiled import exact, kernel

VALUED, ONES, DENSE = 0, 1, 2


# --- one column: a list of positions, with values or, where data is None, all ones; or a row of the dense matrix ----
# A kernel asks for the kind in its own loop: behind one function for all kinds, short lists took twice as long.


@kernel
def listed_slope(indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, r: Float64) -> float:
    # x @ r; the values are `shift` behind the positions
    g = 0.0
    for k in range(lo, hi):
        i = np.uint32(indices[k])  # unsigned: no test for negative positions
        g += r[i] if data is None else np.float64(data[k + shift]) * r[i]
    return g


@kernel
def dense_slope(dense: Float32, row: int, r: Float64) -> float:
    # dense[row] @ r
    g = 0.0
    for i in range(r.size):
        g += np.float64(dense[row, i]) * r[i]
    return g


@kernel
def _listed_sums(
    indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, r: Float64, w: Float64
) -> tuple[float, float]:
    # x @ r, (w * x**2).sum()
    g = 0.0
    h = 0.0
    for k in range(lo, hi):
        i = np.uint32(indices[k])
        if data is None:
            g += r[i]
            h += w[i]
        else:
            x = np.float64(data[k + shift])
            g += x * r[i]
            h += x * x * w[i]
    return g, h


@kernel
def _dense_sums(dense: Float32, row: int, r: Float64, w: Float64) -> tuple[float, float]:
    # x = dense[row]; x @ r, (w * x**2).sum()
    g = 0.0
    h = 0.0
    for i in range(r.size):
        v = np.float64(dense[row, i])
        g += v * r[i]
        h += v * v * w[i]
    return g, h


@kernel
def move_by_list(
    indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, d: float, r: Float64, w: Float64
) -> None:
    # r -= w * x * d
    for k in range(lo, hi):
        i = np.uint32(indices[k])
        r[i] -= w[i] * (d if data is None else d * np.float64(data[k + shift]))


@kernel
def move_by_row(dense: Float32, row: int, d: float, r: Float64, w: Float64) -> None:
    # r -= w * dense[row] * d
    for i in range(r.size):
        r[i] -= w[i] * (d * np.float64(dense[row, i]))


@kernel
def _add_list(indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, d: float, out: Float64) -> None:
    # out += x * d
    for k in range(lo, hi):
        out[np.uint32(indices[k])] += d if data is None else d * np.float64(data[k + shift])


# --- chosen columns, dense ones four at a time --------------------------------------------------------------


@kernel
def _four_dense(chosen: Int64, kind: UInt8, c: int) -> bool:
    # (kind[chosen[c : c + 4]] == DENSE).all(), four there
    dense = 0
    for e in range(c, min(c + 4, chosen.size)):
        dense += kind[chosen[e]] == DENSE
    return dense == 4


@kernel
def four_sums(
    dense: Float32,
    rows: Int64,
    r: Float64,
    w: Float64 | None,
    g: Float64,
    h: Float64 | None,
    H: Float64 | None,
    weighted: bool | None,
) -> None:
    # X = dense[rows]; g[:] = X @ r, or X @ (w * r) unless `weighted` is None; h[:] = X**2 @ w;
    # H[:] = (X * w) @ X.T, above the diagonal. Compiled for each choice of what is None, without what that leaves out.
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    ga = gb = gc = gd = 0.0
    ha = hb = hc = hd = 0.0
    ab = ac = ad = bc = bd = cd = 0.0
    for i in range(dense.shape[1]):
        xa, xb, xc, xd = np.float64(a[i]), np.float64(b[i]), np.float64(c[i]), np.float64(d[i])
        if w is not None:
            va, vb, vc, vd = w[i] * xa, w[i] * xb, w[i] * xc, w[i] * xd
        ga += (xa if weighted is None else va) * r[i]
        gb += (xb if weighted is None else vb) * r[i]
        gc += (xc if weighted is None else vc) * r[i]
        gd += (xd if weighted is None else vd) * r[i]
        if h is not None:
            ha += va * xa
            hb += vb * xb
            hc += vc * xc
            hd += vd * xd
        if H is not None:
            ab += va * xb
            ac += va * xc
            ad += va * xd
            bc += vb * xc
            bd += vb * xd
            cd += vc * xd
    g[0], g[1], g[2], g[3] = ga, gb, gc, gd
    if h is not None:
        h[0], h[1], h[2], h[3] = ha, hb, hc, hd
    if H is not None:
        H[0, 1], H[0, 2], H[0, 3], H[1, 2], H[1, 3], H[2, 3] = ab, ac, ad, bc, bd, cd


@kernel
def sums(
    chosen: Int64,
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
    # g = X[:, chosen].T @ r; h = (w[:, None] * X[:, chosen]**2).sum(axis=0)
    c = 0
    while c < chosen.size:
        s = np.uint64(chosen[c])
        if kind[s] == ONES:
            g[c], h[c] = _listed_sums(indices, None, lo[s], hi[s], 0, r, w)
        elif kind[s] == VALUED:
            g[c], h[c] = _listed_sums(indices, data, lo[s], hi[s], at[s] - lo[s], r, w)
        elif _four_dense(chosen, kind, c):
            four_sums(dense, at[chosen[c : c + 4]], r, w, g[c : c + 4], h[c : c + 4], None, None)
            c += 3
        else:
            g[c], h[c] = _dense_sums(dense, at[s], r, w)
        c += 1


@kernel
def slopes(
    chosen: Int64,
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
    # g = X[:, chosen].T @ r
    c = 0
    while c < chosen.size:
        s = np.uint64(chosen[c])
        if kind[s] == ONES:
            g[c] = listed_slope(indices, None, lo[s], hi[s], 0, r)
        elif kind[s] == VALUED:
            g[c] = listed_slope(indices, data, lo[s], hi[s], at[s] - lo[s], r)
        elif _four_dense(chosen, kind, c):
            four_sums(dense, at[chosen[c : c + 4]], r, None, g[c : c + 4], None, None, None)
            c += 3
        else:
            g[c] = dense_slope(dense, at[s], r)
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
    chosen: Int64,
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
    # out += X[:, chosen] @ d; dense columns four at a time, as `out` is read and written with each
    four = np.empty(4, np.int64)
    many = 0
    for c in range(chosen.size):
        s, step = chosen[c], d[c]
        if step == 0.0:
            continue
        if kind[s] == ONES:
            _add_list(indices, None, lo[s], hi[s], 0, step, out)
        elif kind[s] == VALUED:
            _add_list(indices, data, lo[s], hi[s], at[s] - lo[s], step, out)
        else:
            four[many] = c
            many += 1
            if many == 4:
                _add_four(dense, at[chosen[four]], d[four], out)
                many = 0
    for q in range(many):
        step, row = d[four[q]], at[chosen[four[q]]]
        for i in range(out.size):
            out[i] += step * np.float64(dense[row, i])


# --- a Gram matrix ------------------------------------------------------------------------------------------


@kernel
def seek(chosen: Int64, lo: Int64, hi: Int64, indices: Int32, first: int, cursor: Int64) -> None:
    # cursor = [lo[s] + np.searchsorted(indices[lo[s] : hi[s]], first) for s in chosen]
    for c in range(chosen.size):
        a, b = lo[chosen[c]], hi[chosen[c]]
        while a < b:
            middle = (a + b) // 2
            if indices[middle] < first:
                a = middle + 1
            else:
                b = middle
        cursor[c] = a


@kernel
def spread_scaled(
    chosen: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    cursor: Int64,
    root: Float32,
    mean: Float32,
    unit: Float32,
    examples: Int64,
    place: Int32,
    out: Float32,
) -> None:
    # out[:, :examples.size] = (root[:, None] * (X[:, chosen] - mean) * unit)[examples].T, mean = 0 for all but dense
    # columns; cursor[c] is where column c has got to, place[examples] = np.arange(examples.size); all other examples
    # have one place, the last of out, which is of no use
    last = examples.max()
    for c in range(chosen.size):
        s = chosen[c]
        if kind[s] == DENSE:
            for e in range(examples.size):
                out[c, e] = (dense[at[s], examples[e]] - mean[c]) * unit[c] * root[examples[e]]
            continue
        out[c, : examples.size] = np.float32(0.0)
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


# --- taking columns in --------------------------------------------------------------------------------------


@kernel
def take(first: Int64, sizes: Int64, source: Int32, out: Int32) -> None:
    # out = np.concatenate([source[f : f + s] for f, s in zip(first, sizes)])
    end = 0
    for c in range(first.size):
        for k in range(sizes[c]):
            out[end + k] = source[first[c] + k]
        end += sizes[c]


@exact
def survey(indptr: Int64, indices: Int32, data: Float32, valued: bool, n: int, dense_at: float, kind: UInt8) -> int:
    # Set the kind of each column; return the first column that is malformed, or -1.
    for j in range(kind.size):
        lo, hi = indptr[j], indptr[j + 1]
        if hi < lo or hi > indices.size or lo < 0:
            return j
        rising = True
        for k in range(lo + 1, hi):
            rising &= indices[k - 1] < indices[k]
        if not rising or (hi > lo and (indices[lo] < 0 or indices[hi - 1] >= n)):
            return j
        ones = True
        if valued:
            finite = True
            for k in range(lo, hi):
                finite &= abs(data[k]) < np.inf
                ones &= data[k] == np.float32(1.0)
            if not finite:
                return j
        if hi - lo >= dense_at * n and hi > lo:
            kind[j] = DENSE
        else:
            kind[j] = ONES if ones else VALUED
    return -1


@exact
def spread(indices: Int32, data: Float32, valued: bool, out: Float32) -> None:
    # out[indices] = data, or 1
    for k in range(indices.size):
        out[indices[k]] = data[k] if valued else np.float32(1.0)
