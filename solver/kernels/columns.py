"""Products with columns: Xᵀr, Σ w x², Xd; and what is needed to take columns in.

Columns come as eight arrays (solver/columns.py), the same for a block and for the driver's store:
    kind     VALUED, ONES, DENSE or BITS
    lo, hi   the column's range of `indices`; empty for a dense one and for bits
    at       where its values begin in `data`; for a dense one and for bits, its row of `dense` or `bits`
    indices, data, dense, bits
and kernels work on the columns `chosen`. Sums are float64, over float32 data. Of bits, example i is bit i % 64 of word
i // 64; loops over a word test one bit for each lane of a vector, and add where it is set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.arrays import Float32, Float64, Int32, Int64, UInt8, UInt64
from solver.kernels.compiled import exact, in_order, inlined, kernel

VALUED, ONES, DENSE, BITS = 0, 1, 2, 3
LARGEST = np.float32(np.finfo(np.float32).max)
# Of bits: the vectors over so many examples stay in the second-level cache. Measured on one thread, 64 columns of 20
# million examples: 0.09 instead of 0.10 ns a bit for slopes, 0.13 instead of 0.15 with curvatures.
STRIP_WORDS = 512


# --- one column: a list of positions, with values or, where data is None, all ones; or a row of a matrix ------------
# A kernel asks for the kind in its own loop: behind one function for all kinds, short lists took twice as long.


@inlined
def _times(data: Any, k: int, value: float) -> Any:
    # data[k] * value, or value where all are ones
    return value if data is None else np.float64(data[k]) * value


@in_order
def listed_slope(indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, r: Float64) -> float:
    # x @ r; the values are `shift` behind the positions
    a = b = c = d = 0.0
    k = lo
    while k + 4 <= hi:  # positions are read unsigned: no test for negative ones
        a += _times(data, k + shift, r[np.uint32(indices[k])])
        b += _times(data, k + 1 + shift, r[np.uint32(indices[k + 1])])
        c += _times(data, k + 2 + shift, r[np.uint32(indices[k + 2])])
        d += _times(data, k + 3 + shift, r[np.uint32(indices[k + 3])])
        k += 4
    while k < hi:
        a += _times(data, k + shift, r[np.uint32(indices[k])])
        k += 1
    return (a + b) + (c + d)


@kernel
def dense_slope(dense: Float32, row: int, r: Float64) -> float:
    # dense[row] @ r
    g = 0.0
    for i in range(r.size):
        g += np.float64(dense[row, i]) * r[i]
    return g


@inlined
def sums_of_list(
    indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, r: Float64, w: Float64, weighted: bool | None
) -> tuple[float, float]:
    # x @ r, or x @ (w * r) unless `weighted` is None; (w * x**2).sum()
    g = h = 0.0
    for k in range(lo, hi):
        i = np.uint32(indices[k])
        v = _times(data, k + shift, w[i])
        g += _times(data, k + shift, r[i]) if weighted is None else v * r[i]
        h += _times(data, k + shift, v)
    return g, h


@in_order
def _listed_sums(
    indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, r: Float64, w: Float64
) -> tuple[float, float]:
    # as above, without weights on r
    g, h = sums_of_list(indices, data, lo, hi, shift, r, w, None)
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
def bit_sums(bits: UInt64, row: int, r: Float64, w: Any, weighted: bool | None) -> tuple[float, float]:
    # x = bits[row]; x @ r, or x @ (w * r) unless `weighted` is None; x @ w, or 0
    g = 0.0
    h = 0.0
    for k in range(bits.shape[1]):
        word, first = bits[row, k], 64 * k
        for t in range(min(64, r.size - first)):
            is_set = (word & (np.uint64(1) << np.uint64(t))) != 0
            v = r[first + t] if weighted is None else w[first + t] * r[first + t]
            g += v if is_set else 0.0
            if w is not None:
                h += w[first + t] if is_set else 0.0
    return g, h


@kernel
def move_by_bits(bits: UInt64, row: int, d: float, r: Float64, w: Float64 | None) -> None:
    # r -= w * bits[row] * d
    for k in range(bits.shape[1]):
        word, first = bits[row, k], 64 * k
        for t in range(min(64, r.size - first)):
            step = d if (word & (np.uint64(1) << np.uint64(t))) != 0 else 0.0
            r[first + t] -= step if w is None else w[first + t] * step


@kernel
def _add_list(indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, d: float, out: Float64) -> None:
    # out += x * d
    for k in range(lo, hi):
        out[np.uint32(indices[k])] += d if data is None else d * np.float64(data[k + shift])


# --- chosen columns, rows of a matrix four at a time --------------------------------------------------------


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
def four_bit_sums(
    bits: UInt64,
    rows: Int64,
    r: Float64,
    w: Any,
    g: Float64,
    h: Float64 | None,
    H: Float64 | None,
    weighted: bool | None,
) -> None:
    # as four_sums, X = bits[rows]
    a, b, c, d = bits[rows[0]], bits[rows[1]], bits[rows[2]], bits[rows[3]]
    ga = gb = gc = gd = 0.0
    ha = hb = hc = hd = 0.0
    ab = ac = ad = bc = bd = cd = 0.0
    for k in range(bits.shape[1]):
        xa, xb, xc, xd, first = a[k], b[k], c[k], d[k], 64 * k
        for t in range(min(64, r.size - first)):
            bit = np.uint64(1) << np.uint64(t)
            v = r[first + t] if weighted is None else w[first + t] * r[first + t]
            ga += v if xa & bit else 0.0
            gb += v if xb & bit else 0.0
            gc += v if xc & bit else 0.0
            gd += v if xd & bit else 0.0
            if h is not None:
                ha += w[first + t] if xa & bit else 0.0
                hb += w[first + t] if xb & bit else 0.0
                hc += w[first + t] if xc & bit else 0.0
                hd += w[first + t] if xd & bit else 0.0
            if H is not None:
                ab += w[first + t] if xa & xb & bit else 0.0
                ac += w[first + t] if xa & xc & bit else 0.0
                ad += w[first + t] if xa & xd & bit else 0.0
                bc += w[first + t] if xb & xc & bit else 0.0
                bd += w[first + t] if xb & xd & bit else 0.0
                cd += w[first + t] if xc & xd & bit else 0.0
    g[:] = (ga, gb, gc, gd)
    if h is not None:
        h[:] = (ha, hb, hc, hd)
    if H is not None:
        H[0, 1:] = (ab, ac, ad)
        H[1, 2:] = (bc, bd)
        H[2, 3] = cd


@kernel
def move_by_four_bits(bits: UInt64, rows: Int64, steps: Float64, r: Float64, w: Float64 | None) -> None:
    # r -= w * (bits[rows].T @ steps)
    a, b, c, d = bits[rows[0]], bits[rows[1]], bits[rows[2]], bits[rows[3]]
    p, q, u, v = steps[0], steps[1], steps[2], steps[3]
    for k in range(bits.shape[1]):
        xa, xb, xc, xd, first = a[k], b[k], c[k], d[k], 64 * k
        for t in range(min(64, r.size - first)):
            bit = np.uint64(1) << np.uint64(t)
            step = ((p if xa & bit else 0.0) + (q if xb & bit else 0.0)) + (
                (u if xc & bit else 0.0) + (v if xd & bit else 0.0)
            )
            r[first + t] -= step if w is None else w[first + t] * step


@kernel
def _bit_rows_sums(bits: UInt64, rows: Int64, r: Float64, w: Any, g: Float64, h: Any) -> None:
    # g[:] = bits[rows] @ r; h[:] = bits[rows] @ w, unless it is None; a strip of examples for all rows before the next
    g4, h4 = np.empty(4), np.empty(4)
    g[:] = 0.0
    if h is not None:
        h[:] = 0.0
    for k in range(0, bits.shape[1], STRIP_WORDS):
        part, here = bits[:, k : k + STRIP_WORDS], slice(64 * k, 64 * (k + STRIP_WORDS))
        c = 0
        while c < rows.size:
            width = 4 if c + 4 <= rows.size else 1
            if h is not None:
                if width == 4:
                    four_bit_sums(part, rows[c : c + 4], r[here], w[here], g4, h4, None, None)
                else:
                    g4[0], h4[0] = bit_sums(part, rows[c], r[here], w[here], None)
                h[c : c + width] += h4[:width]
            elif width == 4:
                four_bit_sums(part, rows[c : c + 4], r[here], None, g4, None, None, None)
            else:
                g4[0] = bit_sums(part, rows[c], r[here], None, None)[0]
            g[c : c + width] += g4[:width]
            c += width


@kernel
def _add_bit_rows(bits: UInt64, rows: Int64, d: Float64, out: Float64) -> None:
    # out += d @ bits[rows], a strip of examples for all rows before the next
    for k in range(0, bits.shape[1], STRIP_WORDS):
        part, strip = bits[:, k : k + STRIP_WORDS], out[64 * k : 64 * (k + STRIP_WORDS)]
        c = 0
        while c + 4 <= rows.size:
            move_by_four_bits(part, rows[c : c + 4], -d[c : c + 4], strip, None)
            c += 4
        while c < rows.size:
            move_by_bits(part, rows[c], -d[c], strip, None)
            c += 1


@kernel
def _end_of_bits(chosen: Int64, kind: UInt8, c: int) -> int:
    # the end of the run of bits that begins at chosen[c]
    while c < chosen.size and kind[chosen[c]] == BITS:
        c += 1
    return c


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
    bits: UInt64,
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
        elif kind[s] == BITS:
            end = _end_of_bits(chosen, kind, c)
            _bit_rows_sums(bits, at[chosen[c:end]], r, w, g[c:end], h[c:end])
            c = end - 1
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
    bits: UInt64,
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
        elif kind[s] == BITS:
            end = _end_of_bits(chosen, kind, c)
            _bit_rows_sums(bits, at[chosen[c:end]], r, None, g[c:end], None)
            c = end - 1
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
    bits: UInt64,
    d: Float64,
    out: Float64,
) -> None:
    # out += X[:, chosen] @ d; rows of a matrix four at a time, as `out` is read and written with each
    four, as_bits = np.empty(4, np.int64), np.empty(chosen.size, np.int64)
    many = many_bits = 0
    for c in range(chosen.size):
        s, step = chosen[c], d[c]
        if step == 0.0:
            continue
        if kind[s] == ONES:
            _add_list(indices, None, lo[s], hi[s], 0, step, out)
        elif kind[s] == VALUED:
            _add_list(indices, data, lo[s], hi[s], at[s] - lo[s], step, out)
        elif kind[s] == BITS:
            as_bits[many_bits] = c
            many_bits += 1
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
    if many_bits:
        used = as_bits[:many_bits]
        _add_bit_rows(bits, at[chosen[used]], d[used], out)


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
    bits: UInt64,
    cursor: Int64,
    mean: Float32,
    unit: Float32,
    examples: Int64,
    root: Float32,
    place: Int32,
    out: Float32,
) -> None:
    # out[:, :examples.size] = (root[:, None] * (X[:, chosen] - mean)[examples] * unit).T, mean = 0 for all but dense
    # columns; cursor[c] is where column c has got to, place[examples] = np.arange(examples.size); all other examples
    # have one place, the last of out and of root, which is of no use
    last = examples.max()
    for c in range(chosen.size):
        s = chosen[c]
        if kind[s] == DENSE:
            for e in range(examples.size):
                out[c, e] = (dense[at[s], examples[e]] - mean[c]) * unit[c] * root[e]
            continue
        if kind[s] == BITS:
            for e in range(examples.size):
                i = np.uint64(examples[e])
                word = bits[at[s], i >> np.uint64(6)]
                out[c, e] = root[e] if (word >> (i & np.uint64(63))) & np.uint64(1) else np.float32(0.0)
            continue
        out[c, : examples.size] = np.float32(0.0)
        k = cursor[c]
        if kind[s] == ONES:
            while k < hi[s] and indices[k] <= last:
                p = np.uint32(place[np.uint32(indices[k])])
                out[c, p] = root[p]
                k += 1
        else:
            while k < hi[s] and indices[k] <= last:
                p = np.uint32(place[np.uint32(indices[k])])
                out[c, p] = root[p] * (data[k + at[s] - lo[s]] * unit[c])
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
def survey(
    indptr: Int64,
    indices: Int32,
    data: Float32,
    valued: bool,
    n: int,
    dense_at: float,
    bits_between: tuple[float, float],
    kind: UInt8,
) -> int:
    # Set the kind of each column; return the first column that is malformed, or -1.
    for j in range(kind.size):
        lo, hi = indptr[j], indptr[j + 1]
        if hi < lo or hi > indices.size or lo < 0:
            return j
        positions, falls, others = indices[lo:hi], 0, 0  # counts, of slices from 0 on: such loops are vectorised
        for k in range(1, positions.size):
            falls += positions[k - 1] >= positions[k]
        if falls or (hi > lo and (indices[lo] < 0 or indices[hi - 1] >= n)):
            return j
        if valued:
            values, finite = data[lo:hi], 0
            for k in range(values.size):
                finite += abs(values[k]) <= LARGEST
                others += values[k] != np.float32(1.0)
            if finite < values.size:
                return j
        ones = others == 0
        if ones and hi > lo and bits_between[0] * n <= hi - lo <= bits_between[1] * n:
            kind[j] = BITS
        elif hi - lo >= dense_at * n and hi > lo:
            kind[j] = DENSE
        else:
            kind[j] = ONES if ones else VALUED
    return -1


@exact
def spread(indices: Int32, data: Float32, valued: bool, out: Float32) -> None:
    # out[indices] = data, or 1
    for k in range(indices.size):
        out[indices[k]] = data[k] if valued else np.float32(1.0)


@exact
def set_bits(indices: Int32, out: UInt64) -> None:
    # out has the bits of these positions, which rise, set, and no others
    out[:] = 0
    k = 0
    while k < indices.size:
        at = indices[k] >> 6
        word = np.uint64(0)
        while k < indices.size and indices[k] >> 6 == at:
            word |= np.uint64(1) << np.uint64(indices[k] & 63)
            k += 1
        out[at] = word
