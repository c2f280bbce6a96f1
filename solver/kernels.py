"""Numba kernels: everything that runs over examples or nonzeros. Plain arrays in and out, GIL released.

Vectors over examples
    margins       m = Xβ
    signed        sᵢyᵢ, label times example weight
    working       (2, n): the residual r, or in a cycle q = z − Δm, and the weight w
    paired        (n, 2): q and w side by side, so that one random access fetches both: for thinly filled columns
    dmargins      Δm = X Δβ

In a cycle the sub-problem is kept in the paper's own form, q = z − Δm with z = r / w. The sums of eq. (beta-update) are
    Σ w x (q + βⱼ x) = g + βⱼ h,    g = Σ w x q,    h = Σ w x²  (+ ν, which acts on Δβ)
and a step d on coordinate j is q −= x d: one vector is written, at the positions of the column, and Δm is z − q in the
end. z grows without bound where an example is misclassified beyond doubt, and Δm would lose its digits there, so w is
held at 1e-6 |r| at least: |z| stays below 1e6, Δm exact to 1e-10.

A block's columns come as five arrays (see columns.py): kind, indptr, indices, data, dense. Sums are float64,
over float32 data.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from solver.arrays import Float32, Float64, Int32, Int64, UInt8

VALUED, ONES, DENSE = 0, 1, 2

# Only what a sum over vector lanes needs: nothing that assumes away NaN or infinity.
_SUMS = {"reassoc", "contract", "nsz", "arcp"}
# The numpy error model drops the test for division by zero, which would keep a loop from being vectorised.
kernel = nb.njit(nogil=True, cache=True, fastmath=_SUMS, error_model="numpy")
inlined = nb.njit(inline="always", fastmath=_SUMS, error_model="numpy")
# Sums must not be reordered where the answer is yes or no.
checked = nb.njit(nogil=True, cache=True, error_model="numpy")

LEAST_CURVATURE = 1e-6  # of |r|, that w is held at in a cycle
WELL_FILLED = 1 / 16  # share of examples in a column from which neighbours in a line of cache are often used
_STRIP = 512  # examples handled for every step size before moving on: they stay in the first-level cache


# --- elementary functions, written out because calls into libm are not vectorised ---------------------------


@inlined
def exp_minus(t: Any) -> Any:
    # np.exp(-t) for t >= 0; at t > 708, where doubles end, it stays at exp(-708)
    t = t if t < 708.0 else 708.0
    k = np.floor(t * 1.4426950408889634 + 0.5)
    x = (k * 0.69314718036912381649 - t) + k * 1.90821492927058770002e-10  # ln 2 in two parts: |x| <= ln(2)/2
    s = 1.0 / 6227020800.0
    s = s * x + 1.0 / 479001600.0
    s = s * x + 1.0 / 39916800.0
    s = s * x + 1.0 / 3628800.0
    s = s * x + 1.0 / 362880.0
    s = s * x + 1.0 / 40320.0
    s = s * x + 1.0 / 5040.0
    s = s * x + 1.0 / 720.0
    s = s * x + 1.0 / 120.0
    s = s * x + 1.0 / 24.0
    s = s * x + 1.0 / 6.0
    s = s * x + 0.5
    s = s * x * x + x
    power = (np.int64(1023) - np.int64(k)) << np.int64(52)  # the bits of 2^-k
    return (1.0 + s) * np.int64(power).view(np.float64)


@inlined
def log1p_unit(u: Any) -> Any:
    # np.log1p(u) for 0 <= u <= 1, as 2 artanh(u / (2 + u)): relative accuracy holds for the smallest u
    s = u / (2.0 + u)
    q = s * s
    t = 1.0 / 35.0
    t = t * q + 1.0 / 33.0
    t = t * q + 1.0 / 31.0
    t = t * q + 1.0 / 29.0
    t = t * q + 1.0 / 27.0
    t = t * q + 1.0 / 25.0
    t = t * q + 1.0 / 23.0
    t = t * q + 1.0 / 21.0
    t = t * q + 1.0 / 19.0
    t = t * q + 1.0 / 17.0
    t = t * q + 1.0 / 15.0
    t = t * q + 1.0 / 13.0
    t = t * q + 1.0 / 11.0
    t = t * q + 1.0 / 9.0
    t = t * q + 1.0 / 7.0
    t = t * q + 1.0 / 5.0
    t = t * q + 1.0 / 3.0
    return 2.0 * (s + s * q * t)


@inlined
def _log_loss(t: Any) -> Any:
    # np.logaddexp(0, -t)
    return (-t if t < 0.0 else 0.0) + log1p_unit(exp_minus(abs(t)))


@inlined
def _sigmoid_minus(t: Any) -> Any:
    # 1 / (1 + np.exp(t))
    e = exp_minus(abs(t))
    return (e if t > 0.0 else 1.0) / (1.0 + e)


# --- over the examples --------------------------------------------------------------------------------------


@kernel
def move(margins: Float64, alpha: float, dmargins: Float64) -> None:
    # margins += alpha * dmargins
    for i in range(margins.size):
        margins[i] += alpha * dmargins[i]


@kernel
def add(total: Float64, part: Float64) -> None:
    # total += part
    for i in range(total.size):
        total[i] += part[i]


@kernel
def working_response(margins: Float64, signed: Float64, working: Float64) -> None:
    # p = 1 / (1 + exp(-m)); working = s * np.stack([(y + 1) / 2 - p, p * (1 - p)])
    for i in range(margins.size):
        t = math.copysign(1.0, signed[i]) * margins[i]
        e = exp_minus(abs(t))
        q = 1.0 / (1.0 + e)
        working[0, i] = signed[i] * ((e if t > 0.0 else 1.0) * q)
        working[1, i] = abs(signed[i]) * (e * q * q)


@kernel
def begin_cycle(working: Float64, paired: Float64, dmargins: Float64) -> None:
    # w = np.maximum(w, 1e-6 * abs(r)); z = r / w, 0 where w is; working = np.stack([z, w]); paired = working.T; dm = z
    for i in range(dmargins.size):
        r = working[0, i]
        w = max(working[1, i], LEAST_CURVATURE * abs(r))
        z = r / w if w > 0.0 else 0.0
        working[0, i], working[1, i] = z, w
        paired[i, 0], paired[i, 1] = z, w
        dmargins[i] = z


@kernel
def end_cycle(working: Float64, paired: Float64, apart: bool, dmargins: Float64) -> None:
    # dm = z - q
    for i in range(dmargins.size):
        dmargins[i] -= working[0, i] if apart else paired[i, 0]


@kernel
def losses_along(margins: Float64, dmargins: Float64, signed: Float64, alphas: Float64, out: Float64) -> None:
    # out = [(s * np.logaddexp(0, -y * (m + a * dm))).sum() for a in alphas], in one pass over the examples
    out[:] = 0.0
    for start in range(0, margins.size, _STRIP):
        stop = min(start + _STRIP, margins.size)
        for k in range(alphas.size):
            a = alphas[k]
            total = 0.0
            for i in range(start, stop):
                t = math.copysign(1.0, signed[i]) * (margins[i] + a * dmargins[i])
                total += abs(signed[i]) * _log_loss(t)
            out[k] += total


@kernel
def loss(margins: Float64, signed: Float64) -> float:
    # (s * np.logaddexp(0, -y * m)).sum()
    total = 0.0
    for i in range(margins.size):
        total += abs(signed[i]) * _log_loss(math.copysign(1.0, signed[i]) * margins[i])
    return total


@kernel
def slope_along(margins: Float64, dmargins: Float64, signed: Float64) -> float:
    # -(r * dm).sum(), which is ∇L·Δβ
    total = 0.0
    for i in range(margins.size):
        t = math.copysign(1.0, signed[i]) * margins[i]
        total -= signed[i] * _sigmoid_minus(t) * dmargins[i]
    return total


@kernel
def curvature(working: Float64, dmargins: Float64) -> float:
    # (w * dm**2).sum(), which is Δβᵀ H Δβ over the features that make up dm
    total = 0.0
    for i in range(dmargins.size):
        total += working[1, i] * dmargins[i] * dmargins[i]
    return total


@kernel
def dual_value(margins: Float64, signed: Float64, scale: float) -> float:
    # u = scale / (1 + exp(y * m)); (s * scipy.stats.entropy([u, 1 - u])).sum()
    total = 0.0
    for i in range(margins.size):
        t = math.copysign(1.0, signed[i]) * margins[i]
        u = scale * _sigmoid_minus(t)
        rest = (1.0 - scale) + scale * _sigmoid_minus(-t)  # 1 - u without cancellation
        h = 0.0
        if u > 0.0:
            h -= u * math.log(u)
        if rest > 0.0:
            h -= rest * math.log(rest)
        total += abs(signed[i]) * h
    return total


# --- over the coefficients that move ------------------------------------------------------------------------


@kernel
def l1_changes(beta: Float64, index: Int64, dbeta: Float64, alphas: Float64, out: Float64) -> None:
    # out = [(np.abs(beta[index] + a * dbeta) - np.abs(beta[index])).sum() for a in alphas]
    for k in range(alphas.size):
        total = 0.0
        for i in range(index.size):
            b = beta[index[i]]
            total += abs(b + alphas[k] * dbeta[i]) - abs(b)
        out[k] = total


@kernel
def move_coefficients(beta: Float64, alpha: float, index: Int64, dbeta: Float64) -> int:
    # before = np.count_nonzero(beta); beta[index] += alpha * dbeta; return np.count_nonzero(beta) - before
    gained = 0
    for i in range(index.size):
        old = beta[index[i]]
        new = old + alpha * dbeta[i]
        beta[index[i]] = new
        gained += int(new != 0.0) - int(old != 0.0)
    return gained


@inlined
def _minimise(g: float, h: float, b: float, lam: float) -> float:
    # np.sign(g + h * b) * max(abs(g + h * b) - lam, 0) / h - b: eq. (beta-update), as a step
    # No branches, which short columns would pay for. At zero it is -b exactly: what leaves is zero, not nearly zero.
    target = g + h * b
    return math.copysign(max(abs(target) - lam, 0.0), target) / h - b


# --- columns kept as lists: valued, or with data None, all ones; numba compiles each by itself --------------


@inlined
def _sums(indices: Int32, data: Float32 | None, lo: int, hi: int, q: Float64, w: Float64) -> tuple[float, float]:
    # (w * x * q).sum(), (w * x**2).sum()
    g = 0.0
    h = 0.0
    for k in range(lo, hi):
        i = np.uint32(indices[k])  # unsigned: no test for negative positions
        if data is None:
            g += w[i] * q[i]
            h += w[i]
        else:
            x = np.float64(data[k])
            v = x * w[i]
            g += v * q[i]
            h += v * x
    return g, h


@inlined
def _step(indices: Int32, data: Float32 | None, lo: int, hi: int, d: float, q: Float64) -> None:
    # q -= x * d
    for k in range(lo, hi):
        q[np.uint32(indices[k])] -= d if data is None else d * data[k]


@kernel
def _listed_cycle(
    indptr: Int64,
    indices: Int32,
    data: Float32 | None,
    first: int,
    last: int,
    beta: Float64,
    lam: float,
    nu: float,
    q: Float64,
    w: Float64,
    moved: Int64,
    dbeta: Float64,
    count: int,
) -> int:
    # `cycle` over columns first:last
    for j in range(first, last):
        lo, hi = indptr[j], indptr[j + 1]
        g, h = _sums(indices, data, lo, hi, q, w)
        d = _minimise(g, h + nu, beta[j], lam)
        if d != 0.0:
            _step(indices, data, lo, hi, d, q)
            moved[count] = j
            dbeta[count] = d
            count += 1
    return count


# --- dense columns ------------------------------------------------------------------------------------------


@kernel
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


@kernel
def _dense_step(column: Float32, d: float, q: Float64) -> None:
    # q -= x * d
    for i in range(q.size):
        q[i] -= d * column[i]


@kernel
def _dense_quad_sums(X: Float32, s: int, q: Float64, w: Float64, g: Float64, H: Float64) -> None:
    # Q = X[s : s + 4]; g[:] = Q @ (w * q); H[:] = (Q * w) @ Q.T, upper triangle
    g0 = g1 = g2 = g3 = 0.0
    h00 = h01 = h02 = h03 = h11 = h12 = h13 = h22 = h23 = h33 = 0.0
    for i in range(q.size):
        x0, x1 = np.float64(X[s, i]), np.float64(X[s + 1, i])
        x2, x3 = np.float64(X[s + 2, i]), np.float64(X[s + 3, i])
        v0, v1, v2, v3 = w[i] * x0, w[i] * x1, w[i] * x2, w[i] * x3
        g0 += v0 * q[i]
        g1 += v1 * q[i]
        g2 += v2 * q[i]
        g3 += v3 * q[i]
        h00 += v0 * x0
        h01 += v0 * x1
        h02 += v0 * x2
        h03 += v0 * x3
        h11 += v1 * x1
        h12 += v1 * x2
        h13 += v1 * x3
        h22 += v2 * x2
        h23 += v2 * x3
        h33 += v3 * x3
    g[0], g[1], g[2], g[3] = g0, g1, g2, g3
    H[0, 0], H[0, 1], H[0, 2], H[0, 3] = h00, h01, h02, h03
    H[1, 1], H[1, 2], H[1, 3] = h11, h12, h13
    H[2, 2], H[2, 3], H[3, 3] = h22, h23, h33


@kernel
def _dense_quad_step(X: Float32, s: int, d: Float64, q: Float64) -> None:
    # q -= d @ X[s : s + 4]
    d0, d1, d2, d3 = d[0], d[1], d[2], d[3]
    for i in range(q.size):
        q[i] -= d0 * X[s, i] + d1 * X[s + 1, i] + d2 * X[s + 2, i] + d3 * X[s + 3, i]


@kernel
def _dense_quad(
    X: Float32,
    s: int,
    beta: Float64,
    lam: float,
    nu: float,
    q: Float64,
    w: Float64,
    d: Float64,
) -> None:
    # Four coordinates in turn, for one reading of q and w: after a step on one, the slopes of those that
    # follow are brought up to date through the four columns' own Hessian instead of through q.
    g, H = np.empty(4), np.empty((4, 4))
    _dense_quad_sums(X, s, q, w, g, H)
    for a in range(4):
        d[a] = _minimise(g[a], H[a, a] + nu, beta[a], lam)
        for b in range(a + 1, 4):
            g[b] -= H[a, b] * d[a]
    if d[0] != 0.0 or d[1] != 0.0 or d[2] != 0.0 or d[3] != 0.0:
        _dense_quad_step(X, s, d, q)


@kernel
def _dense_cycle(
    X: Float32,
    j: int,
    beta: Float64,
    lam: float,
    nu: float,
    q: Float64,
    w: Float64,
    moved: Int64,
    dbeta: Float64,
    count: int,
) -> int:
    # `cycle` over the rows of X, whose coefficients begin at beta[j]
    d = np.empty(4)
    s = 0
    while s < X.shape[0]:
        width = 4 if s + 4 <= X.shape[0] else 1
        if width == 4:
            _dense_quad(X, s, beta[j : j + 4], lam, nu, q, w, d)
        else:
            g, h = _dense_sums(X[s], q, w)
            d[0] = _minimise(g, h + nu, beta[j], lam)
            if d[0] != 0.0:
                _dense_step(X[s], d[0], q)
        for a in range(width):
            if d[a] != 0.0:
                moved[count] = j + a
                dbeta[count] = d[a]
                count += 1
        s += width
        j += width
    return count


# --- over the columns of a block ----------------------------------------------------------------------------


@inlined
def _bring(working: Float64, paired: Float64, apart: bool) -> None:
    # Bring q to where the next columns look for it: to working if apart, or else to paired.
    for i in range(paired.shape[0]):
        if apart:
            working[0, i] = paired[i, 0]
        else:
            paired[i, 0] = working[0, i]


@kernel
def cycle(
    kind: UInt8,
    indptr: Int64,
    indices: Int32,
    data: Float32,
    dense: Float32,
    beta: Float64,
    lam: float,
    nu: float,
    working: Float64,
    paired: Float64,
    apart: bool,
    moved: Int64,
    dbeta: Float64,
) -> tuple[int, bool]:
    # for x, b in zip(X.T, beta): h = (w * x**2).sum() + nu; d = soft((w * x * q).sum() + h * b, lam) / h - b
    #                             q -= x * d; where d != 0, append (j, d) to (moved, dbeta)
    # q is in working if apart, or else in paired; returns how many moved, and where q is now. Well filled columns read
    # it apart, thinly filled ones paired.
    n = paired.shape[0]
    count = 0
    slot = 0
    first = 0
    while first < kind.size:
        last = first + 1
        while last < kind.size and kind[last] == kind[first]:
            last += 1
        filled = indptr[last] - indptr[first] > WELL_FILLED * n * (last - first)
        if apart != (kind[first] == DENSE or filled):
            apart = not apart
            _bring(working, paired, apart)
        if kind[first] == DENSE:
            rows = dense[slot : slot + last - first]
            count = _dense_cycle(rows, first, beta, lam, nu, working[0], working[1], moved, dbeta, count)
            slot += last - first
        elif kind[first] == ONES:
            if apart:
                count = _listed_cycle(
                    indptr, indices, None, first, last, beta, lam, nu, working[0], working[1], moved, dbeta, count
                )
            else:
                count = _listed_cycle(
                    indptr, indices, None, first, last, beta, lam, nu, paired[:, 0], paired[:, 1], moved, dbeta, count
                )
        elif apart:
            count = _listed_cycle(
                indptr, indices, data, first, last, beta, lam, nu, working[0], working[1], moved, dbeta, count
            )
        else:
            count = _listed_cycle(
                indptr, indices, data, first, last, beta, lam, nu, paired[:, 0], paired[:, 1], moved, dbeta, count
            )
        first = last
    return count, apart


@kernel
def _slope(indices: Int32, data: Float32 | None, lo: int, hi: int, r: Float64) -> float:
    # x @ r
    g = 0.0
    for k in range(lo, hi):
        i = np.uint32(indices[k])
        g += r[i] if data is None else data[k] * r[i]
    return g


@kernel
def gradient(
    kind: UInt8, indptr: Int64, indices: Int32, data: Float32, dense: Float32, working: Float64, out: Float64
) -> None:
    # out = X.T @ r, which is -∇L
    r = working[0]
    slot = 0
    for j in range(kind.size):
        if kind[j] == ONES:
            out[j] = _slope(indices, None, indptr[j], indptr[j + 1], r)
        elif kind[j] == VALUED:
            out[j] = _slope(indices, data, indptr[j], indptr[j + 1], r)
        else:
            g = 0.0
            for i in range(r.size):
                g += dense[slot, i] * r[i]
            out[j] = g
            slot += 1


@kernel
def add_product(
    kind: UInt8, indptr: Int64, indices: Int32, data: Float32, dense: Float32, beta: Float64, out: Float64
) -> None:
    # out += X @ beta
    slot = -1
    for j in range(kind.size):
        if kind[j] == DENSE:
            slot += 1
        b = beta[j]
        if b == 0.0:
            continue
        if kind[j] == DENSE:
            for i in range(out.size):
                out[i] += b * dense[slot, i]
        else:
            for k in range(indptr[j], indptr[j + 1]):
                x = np.float64(data[k]) if kind[j] == VALUED else 1.0
                out[np.uint32(indices[k])] += b * x


# --- on taking columns in -----------------------------------------------------------------------------------


@checked
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


@checked
def spread(indices: Int32, data: Float32, valued: bool, out: Float32) -> None:
    # out[indices] = data, or 1
    for k in range(indices.size):
        out[indices[k]] = data[k] if valued else np.float32(1.0)
