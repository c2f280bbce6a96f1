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
from solver.kernels.compiled import exact, in_order_part, inlined, kernel, kernel_part

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


@in_order_part
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


@kernel_part
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


@in_order_part
def _listed_sums(
    indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, r: Float64, w: Float64
) -> tuple[float, float]:
    # as above, without weights on r
    g, h = sums_of_list(indices, data, lo, hi, shift, r, w, None)
    return g, h


@kernel_part
def _dense_sums(dense: Float32, row: int, r: Float64, w: Float64) -> tuple[float, float]:
    # x = dense[row]; x @ r, (w * x**2).sum()
    g = 0.0
    h = 0.0
    for i in range(r.size):
        v = np.float64(dense[row, i])
        g += v * r[i]
        h += v * v * w[i]
    return g, h


@kernel_part
def move_by_list(
    indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, d: float, r: Float64, w: Float64
) -> None:
    # r -= w * x * d
    for k in range(lo, hi):
        i = np.uint32(indices[k])
        r[i] -= w[i] * (d if data is None else d * np.float64(data[k + shift]))


@kernel_part
def move_by_row(dense: Float32, row: int, d: float, r: Float64, w: Float64) -> None:
    # r -= w * dense[row] * d
    for i in range(r.size):
        r[i] -= w[i] * (d * np.float64(dense[row, i]))


@kernel_part
def bit_sums(
    bits: UInt64, row: int, start: int, words: int, r: Float64, w: Any, weighted: bool | None
) -> tuple[float, float]:
    # x = bits[row], so many words from `start` on; x @ r, or x @ (w * r) unless `weighted` is None; x @ w, or 0
    g = 0.0
    h = 0.0
    for k in range(words):
        word, first = bits[row, start + k], 64 * k
        for t in range(min(64, r.size - first)):
            is_set = (word & (np.uint64(1) << np.uint64(t))) != 0
            v = r[first + t] if weighted is None else w[first + t] * r[first + t]
            g += v if is_set else 0.0
            if w is not None:
                h += w[first + t] if is_set else 0.0
    return g, h


@kernel_part
def move_by_bits(bits: UInt64, row: int, start: int, words: int, d: float, r: Float64, w: Float64 | None) -> None:
    # r -= w * bits[row] * d, of which so many words from `start` on
    for k in range(words):
        word, first = bits[row, start + k], 64 * k
        for t in range(min(64, r.size - first)):
            step = d if (word & (np.uint64(1) << np.uint64(t))) != 0 else 0.0
            r[first + t] -= step if w is None else w[first + t] * step


@kernel_part
def _add_list(indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, d: float, out: Float64) -> None:
    # out += x * d
    for k in range(lo, hi):
        out[np.uint32(indices[k])] += d if data is None else d * np.float64(data[k + shift])


# --- chosen columns, rows of a matrix four at a time --------------------------------------------------------


@inlined
def _four_dense(chosen: Int64, kind: UInt8, c: int) -> bool:
    # (kind[chosen[c : c + 4]] == DENSE).all(), four there
    dense = 0
    for e in range(c, min(c + 4, chosen.size)):
        dense += kind[chosen[e]] == DENSE
    return dense == 4


@inlined
def _store_sums(a: float, b: float, c: float, d: float, out: Float64) -> None:
    # out[:] = (a, b, c, d), one by one: numba would compile the message of a mismatch as well, for half a second
    out[0], out[1], out[2], out[3] = a, b, c, d


@inlined
def _store_products(ab: float, ac: float, ad: float, bc: float, bd: float, cd: float, out: Float64) -> None:
    # out above its diagonal
    out[0, 1], out[0, 2], out[0, 3], out[1, 2], out[1, 3], out[2, 3] = ab, ac, ad, bc, bd, cd


@inlined
def _take_four(rows: Int64, c: int, four: Int64) -> None:
    # four[:] = rows[c : c + 4]
    four[0], four[1], four[2], four[3] = rows[c], rows[c + 1], rows[c + 2], rows[c + 3]


@kernel_part
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
    _store_sums(ga, gb, gc, gd, g)
    if h is not None:
        _store_sums(ha, hb, hc, hd, h)
    if H is not None:
        _store_products(ab, ac, ad, bc, bd, cd, H)


@kernel_part
def four_bit_sums(
    bits: UInt64,
    rows: Int64,
    start: int,
    words: int,
    r: Float64,
    w: Any,
    g: Float64,
    h: Float64 | None,
    H: Float64 | None,
    weighted: bool | None,
) -> None:
    # as four_sums, X = bits[rows], of which so many words from `start` on
    a, b, c, d = rows[0], rows[1], rows[2], rows[3]
    ga = gb = gc = gd = 0.0
    ha = hb = hc = hd = 0.0
    ab = ac = ad = bc = bd = cd = 0.0
    for k in range(words):
        at, first = start + k, 64 * k
        xa, xb, xc, xd = bits[a, at], bits[b, at], bits[c, at], bits[d, at]
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
    _store_sums(ga, gb, gc, gd, g)
    if h is not None:
        _store_sums(ha, hb, hc, hd, h)
    if H is not None:
        _store_products(ab, ac, ad, bc, bd, cd, H)


@kernel_part
def move_by_four_bits(
    bits: UInt64, rows: Int64, start: int, words: int, steps: Float64, r: Float64, w: Float64 | None
) -> None:
    # r -= w * (bits[rows].T @ steps), of which so many words from `start` on
    p, q, u, v = steps[0], steps[1], steps[2], steps[3]
    a, b, c, d = rows[0], rows[1], rows[2], rows[3]
    for k in range(words):
        at, first = start + k, 64 * k
        xa, xb, xc, xd = bits[a, at], bits[b, at], bits[c, at], bits[d, at]
        for t in range(min(64, r.size - first)):
            bit = np.uint64(1) << np.uint64(t)
            step = ((p if xa & bit else 0.0) + (q if xb & bit else 0.0)) + (
                (u if xc & bit else 0.0) + (v if xd & bit else 0.0)
            )
            r[first + t] -= step if w is None else w[first + t] * step


@inlined
def _strip(bits: UInt64, start: int, n: int) -> tuple[int, int, int]:
    # of the strip that begins at this word: its words, its first example, and the end of its examples
    return min(STRIP_WORDS, bits.shape[1] - start), 64 * start, min(64 * (start + STRIP_WORDS), n)


@inlined
def _end_of_bits(chosen: Int64, kind: UInt8, c: int) -> int:
    # the end of the run of bits that begins at chosen[c]
    while c < chosen.size and kind[chosen[c]] == BITS:
        c += 1
    return c


# Of the columns `chosen`, each kernel below takes those of its own kinds and passes over the others. So only kernels of
# kinds that the data have are compiled (solver/columns.py calls them).


@kernel
def listed_sums(
    chosen: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    r: Float64,
    w: Float64,
    g: Float64,
    h: Float64,
) -> None:
    # g = X[:, chosen].T @ r; h = (w[:, None] * X[:, chosen]**2).sum(axis=0)
    for c in range(chosen.size):
        s = np.uint64(chosen[c])
        if kind[s] == ONES:
            g[c], h[c] = _listed_sums(indices, None, lo[s], hi[s], 0, r, w)
        elif kind[s] == VALUED:
            g[c], h[c] = _listed_sums(indices, data, lo[s], hi[s], at[s] - lo[s], r, w)


@kernel
def dense_sums(
    chosen: Int64, kind: UInt8, at: Int64, dense: Float32, r: Float64, w: Float64, g: Float64, h: Float64
) -> None:
    # as listed_sums
    rows, g4, h4 = np.empty(4, np.int64), np.empty(4), np.empty(4)
    c = np.int64(0)  # not plain 0: what is called would be compiled for that constant, too
    while c < chosen.size:
        if _four_dense(chosen, kind, c):
            for e in range(4):
                rows[e] = at[chosen[c + e]]
            four_sums(dense, rows, r, w, g4, h4, None, None)
            for e in range(4):
                g[c + e], h[c + e] = g4[e], h4[e]
            c += 3
        elif kind[chosen[c]] == DENSE:
            g[c], h[c] = _dense_sums(dense, at[chosen[c]], r, w)
        c += 1


@kernel
def bits_sums(chosen: Int64, kind: UInt8, at: Int64, bits: UInt64, r: Float64, w: Any, g: Float64, h: Any) -> None:
    # as listed_sums, or as listed_slopes where w and h are None; of a run of bits, four rows at a time, and a strip of
    # examples for all rows before the next
    rows, g4, h4 = np.empty(4, np.int64), np.empty(4), np.empty(4)
    end: Any = np.int64(0)
    while end < chosen.size:
        first, end = end, _end_of_bits(chosen, kind, end)
        for c in range(first, end):
            g[c] = 0.0
            if h is not None:
                h[c] = 0.0
        for start in range(0, bits.shape[1], STRIP_WORDS):
            words, lo, hi = _strip(bits, start, r.size)
            c = first
            while c < end:
                width = 4 if c + 4 <= end else 1
                for e in range(width):
                    rows[e] = at[chosen[c + e]]
                if h is not None:
                    if width == 4:
                        four_bit_sums(bits, rows, start, words, r[lo:hi], w[lo:hi], g4, h4, None, None)
                    else:
                        g4[0], h4[0] = bit_sums(bits, rows[0], start, words, r[lo:hi], w[lo:hi], None)
                    for e in range(width):
                        h[c + e] += h4[e]
                elif width == 4:
                    four_bit_sums(bits, rows, start, words, r[lo:hi], None, g4, None, None, None)
                else:
                    g4[0] = bit_sums(bits, rows[0], start, words, r[lo:hi], None, None)[0]
                for e in range(width):
                    g[c + e] += g4[e]
                c += width
        end += first == end  # a column of another kind


@kernel
def listed_slopes(
    chosen: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    r: Float64,
    g: Float64,
) -> None:
    # g = X[:, chosen].T @ r
    for c in range(chosen.size):
        s = np.uint64(chosen[c])
        if kind[s] == ONES:
            g[c] = listed_slope(indices, None, lo[s], hi[s], 0, r)
        elif kind[s] == VALUED:
            g[c] = listed_slope(indices, data, lo[s], hi[s], at[s] - lo[s], r)


@kernel
def dense_slopes(chosen: Int64, kind: UInt8, at: Int64, dense: Float32, r: Float64, g: Float64) -> None:
    # as listed_slopes
    rows, g4 = np.empty(4, np.int64), np.empty(4)
    c = np.int64(0)
    while c < chosen.size:
        if _four_dense(chosen, kind, c):
            for e in range(4):
                rows[e] = at[chosen[c + e]]
            four_sums(dense, rows, r, None, g4, None, None, None)
            for e in range(4):
                g[c + e] = g4[e]
            c += 3
        elif kind[chosen[c]] == DENSE:
            g[c] = dense_slope(dense, at[chosen[c]], r)
        c += 1


@kernel
def add_listed(
    chosen: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    d: Float64,
    out: Float64,
) -> None:
    # out += X[:, chosen] @ d
    for c in range(chosen.size):
        s = chosen[c]
        if d[c] != 0.0 and kind[s] == ONES:
            _add_list(indices, None, lo[s], hi[s], 0, d[c], out)
        elif d[c] != 0.0 and kind[s] == VALUED:
            _add_list(indices, data, lo[s], hi[s], at[s] - lo[s], d[c], out)


@kernel_part
def _add_four(dense: Float32, rows: Int64, steps: Float64, out: Float64) -> None:
    # out += dense[rows].T @ steps
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    p, q, r, s = steps[0], steps[1], steps[2], steps[3]
    for i in range(out.size):
        out[i] += (p * np.float64(a[i]) + q * np.float64(b[i])) + (r * np.float64(c[i]) + s * np.float64(d[i]))


@kernel
def add_dense(chosen: Int64, kind: UInt8, at: Int64, dense: Float32, d: Float64, out: Float64) -> None:
    # as add_listed; four rows at a time, as `out` is read and written with each
    four, steps = np.empty(4, np.int64), np.empty(4)
    many = 0
    for c in range(chosen.size):
        if d[c] != 0.0 and kind[chosen[c]] == DENSE:
            four[many], steps[many] = at[chosen[c]], d[c]
            many += 1
            if many == 4:
                _add_four(dense, four, steps, out)
                many = 0
    for q in range(many):
        step, row = steps[q], four[q]
        for i in range(out.size):
            out[i] += step * np.float64(dense[row, i])


@kernel
def add_bits(chosen: Int64, kind: UInt8, at: Int64, bits: UInt64, d: Float64, out: Float64) -> None:
    # as add_listed; four rows at a time, and a strip of examples for all rows before the next
    rows, falls = np.empty(chosen.size, np.int64), np.empty(chosen.size)
    many = 0
    for c in range(chosen.size):
        if d[c] != 0.0 and kind[chosen[c]] == BITS:
            rows[many], falls[many] = at[chosen[c]], -d[c]
            many += 1
    four, steps = np.empty(4, np.int64), np.empty(4)
    for start in range(0, bits.shape[1], STRIP_WORDS):
        words, first, last = _strip(bits, start, out.size)
        strip, c = out[first:last], 0
        while c + 4 <= many:
            _take_four(rows, c, four)
            _take_four(falls, c, steps)
            move_by_four_bits(bits, four, start, words, steps, strip, None)
            c += 4
        while c < many:
            move_by_bits(bits, rows[c], start, words, falls[c], strip, None)
            c += 1


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
    last = np.int64(0)
    for e in range(examples.size):
        last = max(last, examples[e])
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
        for e in range(examples.size):
            out[c, e] = np.float32(0.0)
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
