"""Logistic loss: ℓ(y, m) = log(1 + exp(−y m)) for labels y ∈ {−1, +1}.

r = s y σ(−y m), w = s σ(m) σ(−m), with the sigmoid σ. The dual is Σ s H(u), 0 ≤ u ≤ 1, H being the binary entropy, and
the residual's dual point is u = σ(−y m). Examples are one vector s·y, from which label and weight are read alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float64
from solver.kernels.compiled import inlined, kernel, kernel_step
from solver.losses.labels import signed_weights

NAME, LABELS, BOUNDED, FLATTENS = "logistic", "binary", True, True
_FURTHEST = 708.0  # exp(-708) is the smallest power that is not subnormal
_LOG_2 = math.log(2.0)
_STRIP = 512  # examples handled for every step size before moving on: they stay in the first-level cache


def encode(y: ArrayLike, s: ArrayLike | None) -> Float64:
    return signed_weights(y, s)


def weights(examples: Float64) -> Float64:
    return np.abs(examples)


# --- elementary functions, written out because calls into libm are not vectorised ---------------------------


@kernel_step
def exp_minus(t: Any) -> Any:
    # np.exp(-t) for t >= 0; at t > 708, where doubles end, it stays at exp(-708)
    t = t if t < _FURTHEST else _FURTHEST
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


@kernel_step
def log1p_unit(u: Any) -> Any:
    # np.log1p(u) for -1/2 <= u <= 1, as 2 artanh(u / (2 + u)): relative accuracy holds for the smallest u
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
def split_power(x: Any) -> Any:
    # k and z with x = 2**k * (1 + z) and sqrt(1/2) <= 1 + z < sqrt(2), for x > 0 that is not subnormal
    bits = np.float64(x).view(np.int64)
    k = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)  # the bits of sqrt(1/2)
    return np.float64(k), np.int64(bits - (k << np.int64(52))).view(np.float64) - 1.0


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
def value(margins: Float64, examples: Float64) -> float:
    # (s * np.logaddexp(0, -y * m)).sum()
    total = 0.0
    for i in range(margins.size):
        total += abs(examples[i]) * _log_loss(math.copysign(1.0, examples[i]) * margins[i])
    return total


@kernel
def residuals(margins: Float64, examples: Float64, least: float, r: Float64, w: Float64) -> None:
    # p = 1 / (1 + exp(-m)); r = s * ((y + 1) / 2 - p); w = s * np.maximum(p * (1 - p), least)
    for i in range(margins.size):
        t = math.copysign(1.0, examples[i]) * margins[i]
        e = exp_minus(abs(t))
        q = 1.0 / (1.0 + e)
        s = abs(examples[i])
        r[i] = examples[i] * ((e if t > 0.0 else 1.0) * q)
        w[i] = max(s * (e * q * q), least * s)


@inlined
def _value_at(margins: Float64, dmargins: Float64, examples: Float64, alpha: float) -> Any:
    # value(m + alpha * dm, examples)
    total = 0.0
    for i in range(margins.size):  # from 0: a loop from elsewhere is not vectorised, as an index might be below 0
        t = math.copysign(1.0, examples[i]) * (margins[i] + alpha * dmargins[i])
        total += abs(examples[i]) * _log_loss(t)
    return total


@kernel
def values_along(margins: Float64, dmargins: Float64, examples: Float64, alphas: Float64, out: Float64) -> None:
    # out = [value(m + a * dm, examples) for a in alphas], in one pass over the examples
    out[:] = 0.0
    for start in range(0, margins.size, _STRIP):
        here = slice(start, start + _STRIP)
        for k in range(alphas.size):
            out[k] += _value_at(margins[here], dmargins[here], examples[here], alphas[k])


@kernel
def slope_along(margins: Float64, dmargins: Float64, examples: Float64) -> float:
    # -(r * dm).sum()
    total = 0.0
    for i in range(margins.size):
        t = math.copysign(1.0, examples[i]) * margins[i]
        total -= examples[i] * _sigmoid_minus(t) * dmargins[i]
    return total


@inlined
def _entropy(t: Any, scale: float, log_scale: float) -> Any:
    # u = scale / (1 + np.exp(t)); scipy.stats.entropy([u, 1 - u]) for 0 < scale <= 1
    a = min(abs(t), _FURTHEST)
    e = exp_minus(a)
    q = 1.0 / (1.0 + e)
    u = scale * (e if t > 0.0 else 1.0) * q
    log_u = log_scale - ((a if t > 0.0 else 0.0) + log1p_unit(e))
    # 1 - u and its logarithm without cancellation: from u where that is small, or else from its parts.
    rest = 1.0 - u if u <= 0.5 else (e + (1.0 - scale)) * q
    k, z = split_power(rest)
    log_rest = (0.0 if u <= 0.5 else k * _LOG_2) + log1p_unit(-u if u <= 0.5 else z)
    return -u * log_u - rest * log_rest


@kernel
def dual_value(margins: Float64, examples: Float64, scale: float) -> float:
    # u = scale / (1 + exp(y * m)); (s * scipy.stats.entropy([u, 1 - u])).sum()
    total = 0.0
    if scale > 0.0:
        log_scale = math.log(scale)
        for i in range(margins.size):
            t = math.copysign(1.0, examples[i]) * margins[i]
            total += abs(examples[i]) * _entropy(t, scale, log_scale)
    return total
