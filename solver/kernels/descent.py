"""Coordinate descent on a quadratic model with a penalty, in three forms.

    cycle          the paper's cycle over all columns of a block (Algorithm 2), in the variables q and w of vectors.py
    descend        cycles over the columns of a working set, in the residual r; w is read only where a step is made
    descend_gram   cycles on a Gram matrix: no pass over the examples
The penalty comes as three arrays by column: up, down, l2 (penalty.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.arrays import Float32, Float64, Int32, Int64, UInt8, UInt64
from solver.kernels.columns import (
    BITS,
    DENSE,
    ONES,
    VALUED,
    bit_sums,
    dense_slope,
    four_bit_sums,
    four_sums,
    listed_slope,
    move_by_bits,
    move_by_four_bits,
    move_by_list,
    move_by_row,
    sums_of_list,
)
from solver.kernels.compiled import in_order_part, inlined, kernel, kernel_part
from solver.kernels.penalty import coordinate_step
from solver.kernels.vectors import bring

CONSTANT = 1e-12  # share of a column's curvature: one that has less about its mean is constant
WELL_FILLED = 1 / 16  # share of examples in a column from which neighbours in a line of cache are often used


@inlined
def _less_mean(g: float, h: float, s: float, offset: Float64) -> tuple[float, float]:
    # g and h of the column less its mean: what they are where the intercept follows every step. s = (w * x).sum()
    return g - offset[0] * s, max(h - s * s / offset[1], CONSTANT * h)


# --- the paper's cycle: columns kept as lists, valued or, with data None, all ones; numba compiles each by itself ---


@inlined
def _step(indices: Int32, data: Float32 | None, lo: int, hi: int, shift: int, d: float, q: Float64) -> None:
    # q -= x * d
    for k in range(lo, hi):
        q[np.uint32(indices[k])] -= d if data is None else d * data[k + shift]  # unsigned: no test for negative ones


@in_order_part
def _listed_cycle(
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32 | None,
    first: int,
    last: int,
    beta: Float64,
    up: Float64,
    down: Float64,
    l2: Float64,
    nu: float,
    q: Float64,
    w: Float64,
    offset: Float64 | None,
    moved: Int64,
    dbeta: Float64,
    count: int,
) -> int:
    # `cycle` over columns first:last
    for j in range(first, last):
        shift = at[j] - lo[j]
        g, h = sums_of_list(indices, data, lo[j], hi[j], shift, q, w, True)
        if offset is not None:
            s = h if data is None else listed_slope(indices, data, lo[j], hi[j], shift, w)
            g, h = _less_mean(g, h, s, offset)
        d = coordinate_step(g, h + nu, beta[j], up[j], down[j], l2[j])
        if d != 0.0:
            _step(indices, data, lo[j], hi[j], shift, d, q)
            if offset is not None:
                offset[0] -= s / offset[1] * d
            moved[count] = j
            dbeta[count] = d
            count += 1
    return count


# --- columns that are rows of a matrix: of numbers, with bits None, or of bits, with dense None ---------------------


@kernel_part
def _dense_sums(column: Float32, q: Float64, w: Float64) -> tuple[float, float]:
    # (w * x * q).sum(), (w * x**2).sum()
    g = 0.0
    h = 0.0
    for i in range(q.size):
        x = np.float64(column[i])
        v = x * w[i]
        g += v * q[i]
        h += v * x
    return g, h


@kernel_part
def _dense_step(column: Float32, d: float, q: Float64) -> None:
    # q -= x * d
    for i in range(q.size):
        q[i] -= d * column[i]


@kernel_part
def _dense_quad_step(X: Float32, s: int, d: Float64, q: Float64) -> None:
    # q -= d @ X[s : s + 4]
    d0, d1, d2, d3 = d[0], d[1], d[2], d[3]
    for i in range(q.size):
        q[i] -= d0 * X[s, i] + d1 * X[s + 1, i] + d2 * X[s + 2, i] + d3 * X[s + 3, i]


@kernel_part
def _quad(
    dense: Float32 | None,
    bits: UInt64 | None,
    s: int,
    beta: Float64,
    up: Float64,
    down: Float64,
    l2: Float64,
    nu: float,
    q: Float64,
    w: Float64,
    offset: Float64 | None,
    d: Float64,
) -> None:
    # Four coordinates in turn, for one reading of q and w: after a step on one, the slopes of those that
    # follow are brought up to date through the four columns' own Hessian instead of through q.
    g, h, H, sums, rows = np.empty(4), np.empty(4), np.empty((4, 4)), np.empty(4), np.arange(s, s + 4)
    if dense is not None:
        four_sums(dense, rows, q, w, g, h, H, True)
    if bits is not None:
        four_bit_sums(bits, rows, 0, bits.shape[1], q, w, g, h, H, True)
    if offset is not None:
        if dense is not None:
            four_sums(dense, rows, w, None, sums, None, None, None)
        if bits is not None:
            sums[:] = h
        for a in range(4):
            g[a], h[a] = _less_mean(g[a], h[a], sums[a], offset)
            for b in range(a + 1, 4):
                H[a, b] -= sums[a] * sums[b] / offset[1]
    for a in range(4):
        d[a] = coordinate_step(g[a], h[a] + nu, beta[a], up[a], down[a], l2[a])
        for b in range(a + 1, 4):
            g[b] -= H[a, b] * d[a]
    if d[0] != 0.0 or d[1] != 0.0 or d[2] != 0.0 or d[3] != 0.0:
        if dense is not None:
            _dense_quad_step(dense, s, d, q)
        if bits is not None:
            move_by_four_bits(bits, rows, 0, bits.shape[1], d, q, None)
    if offset is not None:
        offset[0] -= (sums * d).sum() / offset[1]


@kernel_part
def _single(
    dense: Any,
    bits: UInt64 | None,
    s: int,
    b: float,
    up: float,
    down: float,
    l2: float,
    nu: float,
    q: Float64,
    w: Float64,
    offset: Float64 | None,
) -> float:
    # One coordinate; returns its step.
    g = h = total = 0.0
    if dense is not None:
        g, h = _dense_sums(dense[s], q, w)
    if bits is not None:
        g, h = bit_sums(bits, s, 0, bits.shape[1], q, w, True)
    if offset is not None:
        total = h
        if dense is not None:
            total = dense_slope(dense, s, w)
        g, h = _less_mean(g, h, total, offset)
    d: float = coordinate_step(g, h + nu, b, up, down, l2)
    if d != 0.0:
        if dense is not None:
            _dense_step(dense[s], d, q)
        if bits is not None:
            move_by_bits(bits, s, 0, bits.shape[1], d, q, None)
        if offset is not None:
            offset[0] -= total / offset[1] * d
    return d


@kernel_part
def _rows_cycle(
    dense: Float32 | None,
    bits: UInt64 | None,
    row: int,
    first: int,
    last: int,
    beta: Float64,
    up: Float64,
    down: Float64,
    l2: Float64,
    nu: float,
    q: Float64,
    w: Float64,
    offset: Float64 | None,
    moved: Int64,
    dbeta: Float64,
    count: int,
) -> int:
    # `cycle` over columns first:last, the first of which is this row of the matrix
    d = np.empty(4)
    j = first
    while j < last:
        width, s = 4 if j + 4 <= last else 1, row + j - first
        if width == 4:
            here = slice(j, j + 4)
            _quad(dense, bits, s, beta[here], up[here], down[here], l2[here], nu, q, w, offset, d)
        else:
            d[0] = _single(dense, bits, s, beta[j], up[j], down[j], l2[j], nu, q, w, offset)
        for a in range(width):
            if d[a] != 0.0:
                moved[count] = j + a
                dbeta[count] = d[a]
                count += 1
        j += width
    return count


# --- over the columns of a block ----------------------------------------------------------------------------


@kernel
def cycle(
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    bits: UInt64,
    beta: Float64,
    up: Float64,
    down: Float64,
    l2: Float64,
    nu: float,
    working: Float64,
    paired: Float64,
    apart: bool,
    offset: Float64 | None,
    moved: Int64,
    dbeta: Float64,
) -> tuple[int, bool]:
    # for x, b in zip(X.T, beta): h = (w * x**2).sum() + nu; d = coordinate_step((w * x * q).sum(), h, b, ...)
    #                             q -= x * d; where d != 0, append (j, d) to (moved, dbeta)
    # q is in working if apart, or else in paired; returns how many moved, and where q is now. Well filled columns read
    # it apart, thinly filled ones paired. The rows of neighbouring columns of one matrix are neighbours.
    # offset: the intercept's step so far, changed in place, and w.sum(). The intercept is at its minimum after every
    # step, so that columns count less their means. None where there is no intercept.
    n = paired.shape[0]
    count = 0
    first = 0
    while first < kind.size:
        last = first
        entries = 0
        while last < kind.size and kind[last] == kind[first]:
            entries += hi[last] - lo[last]
            last += 1
        filled = entries > WELL_FILLED * n * (last - first)
        if apart != (kind[first] == DENSE or kind[first] == BITS or filled):
            apart = not apart
            bring(working, paired, apart)
        q, w = (working[0], working[1])
        qp, wp = (paired[:, 0], paired[:, 1])
        row = at[first]
        if kind[first] == DENSE:
            count = _rows_cycle(
                dense, None, row, first, last, beta, up, down, l2, nu, q, w, offset, moved, dbeta, count
            )
        elif kind[first] == BITS:
            count = _rows_cycle(None, bits, row, first, last, beta, up, down, l2, nu, q, w, offset, moved, dbeta, count)
        elif kind[first] == ONES:
            if apart:
                count = _listed_cycle(
                    lo, hi, at, indices, None, first, last, beta, up, down, l2, nu, q, w, offset, moved, dbeta, count
                )
            else:
                count = _listed_cycle(
                    lo, hi, at, indices, None, first, last, beta, up, down, l2, nu, qp, wp, offset, moved, dbeta, count
                )
        elif apart:
            count = _listed_cycle(
                lo, hi, at, indices, data, first, last, beta, up, down, l2, nu, q, w, offset, moved, dbeta, count
            )
        else:
            count = _listed_cycle(
                lo, hi, at, indices, data, first, last, beta, up, down, l2, nu, qp, wp, offset, moved, dbeta, count
            )
        first = last
    return count, apart


# --- over a working set ---------------------------------------------------------------------------------------------


@kernel_part
def _move_by_four(dense: Float32, rows: Int64, steps: Float64, r: Float64, w: Float64) -> None:
    # r -= w * (dense[rows].T @ steps)
    a, b, c, d = dense[rows[0]], dense[rows[1]], dense[rows[2]], dense[rows[3]]
    p, q, u, v = steps[0], steps[1], steps[2], steps[3]
    for i in range(r.size):
        r[i] -= w[i] * ((p * np.float64(a[i]) + q * np.float64(b[i])) + (u * np.float64(c[i]) + v * np.float64(d[i])))


@kernel
def descend(
    chosen: Int64,
    kind: UInt8,
    lo: Int64,
    hi: Int64,
    at: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    bits: UInt64,
    beta: Float64,
    h: Float64,
    up: Float64,
    down: Float64,
    l2: Float64,
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
    # Of rows of a matrix four share a reading of r and w: a step on one changes the slopes of those that follow through
    # the four columns' own Hessian, before it changes r.
    decrease = 0.0
    worst = 0.0
    kept = 0
    here, rows = np.empty(4, np.int64), np.empty(4, np.int64)
    g, H, steps = np.empty(4), np.empty((4, 4)), np.empty(4)
    c = 0
    while c < count:
        here[0], width = order[c], 1
        s = np.uint64(chosen[here[0]])
        if kind[s] == DENSE or kind[s] == BITS:
            while width < 4 and c + width < count and kind[chosen[order[c + width]]] == kind[s]:
                here[width] = order[c + width]
                width += 1
            for e in range(width):
                rows[e] = at[chosen[here[e]]]
        if width == 4 and kind[s] == DENSE:
            four_sums(dense, rows, r, w, g, None, H, None)
        elif width == 4:
            four_bit_sums(bits, rows, 0, bits.shape[1], r, w, g, None, H, None)
        else:
            width = 1
            if kind[s] == ONES:
                g[0] = listed_slope(indices, None, lo[s], hi[s], 0, r)
            elif kind[s] == VALUED:
                g[0] = listed_slope(indices, data, lo[s], hi[s], at[s] - lo[s], r)
            elif kind[s] == BITS:
                g[0] = bit_sums(bits, at[s], 0, bits.shape[1], r, None, None)[0]
            else:
                g[0] = dense_slope(dense, at[s], r)
        moved = False
        for e in range(width):
            j = here[e]
            steps[e] = 0.0
            b = beta[j] + d[j]
            if b == 0.0 and slack - down[j] < g[e] < up[j] - slack:
                continue
            order[c + e] = order[kept]
            order[kept] = j
            kept += 1
            step = coordinate_step(g[e], h[j], b, up[j], down[j], l2[j])
            if step == 0.0:
                continue
            worst = max(worst, abs(step) * h[j])
            decrease += 0.5 * (h[j] + l2[j]) * step * step
            d[j] = 0.0 - beta[j] if step == -b else d[j] + step
            steps[e] = step
            moved = True
            for other in range(e + 1, width):
                g[other] -= H[e, other] * step
        if moved and width == 4 and kind[s] == DENSE:
            _move_by_four(dense, rows, steps, r, w)
        elif moved and width == 4:
            move_by_four_bits(bits, rows, 0, bits.shape[1], steps, r, w)
        elif moved and kind[s] == ONES:
            move_by_list(indices, None, lo[s], hi[s], 0, steps[0], r, w)
        elif moved and kind[s] == VALUED:
            move_by_list(indices, data, lo[s], hi[s], at[s] - lo[s], steps[0], r, w)
        elif moved and kind[s] == BITS:
            move_by_bits(bits, at[s], 0, bits.shape[1], steps[0], r, w)
        elif moved:
            move_by_row(dense, at[s], steps[0], r, w)
        c += width
    return kept, worst, decrease


# --- on a Gram matrix -----------------------------------------------------------------------------------------------


@kernel
def descend_gram(
    G: Float64,
    q: Float64,
    beta: Float64,
    d: Float64,
    up: Float64,
    down: Float64,
    limit: int,
    share: float,
    least: float,
) -> tuple[int, float]:
    # Cycles of coordinate descent on 0.5 * d @ G @ d - g @ d + the penalty of beta + d, with q = g - G @ d, until one
    # gains less than `share` of all gained, or `least`. Returned: cycles, and the last one's gain. l2 is part of G.
    total = 0.0
    gain = 0.0
    for cycle in range(limit):
        gain = 0.0
        for j in range(q.size):
            h = G[j, j]
            b = beta[j] + d[j]
            step = coordinate_step(q[j], h, b, up[j], down[j], 0.0)
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
