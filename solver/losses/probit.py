"""Probit loss: ℓ(y, m) = −log Φ(y m) for labels y ∈ {−1, +1}, Φ being the normal distribution.

With t = y m and κ(t) = φ(t) / Φ(t): r = s y κ, w = s κ (κ + t). Misclassified examples pull without bound, so the
screening bounds of a data set do not hold. The dual is Σ s min_τ (ℓ(τ) + u τ), u ≥ 0; the minimum lies where κ(τ) = u.
Examples are one vector s·y, as for the logistic loss.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float64
from solver.kernels.compiled import kernel, kernel_part
from solver.losses.labels import signed_weights

NAME, LABELS, BOUNDED, FLATTENS = "probit", "binary", False, True
_ROOT_HALF = math.sqrt(0.5)
_ROOT_TAU = math.sqrt(2.0 * math.pi)
_TAIL = -8.0  # below, the ratio of φ and Φ comes from a continued fraction
_TERMS = 24  # of it: exact to the last bit from 8 on
_STEPS = 60  # of Newton's method for κ(τ) = u, at the most; four or five are usual
_FURTHEST = 37.0  # of τ: κ underflows from 38 on, and a step that overshoots must find its way back


def encode(y: ArrayLike, s: ArrayLike | None) -> Float64:
    return signed_weights(y, s)


def weights(examples: Float64) -> Float64:
    return np.abs(examples)


@kernel_part
def _beyond(x: float) -> float:
    # φ(x) / Φ(-x) - x for x >= 8: 1 / (x + 2 / (x + 3 / (x + ...)))
    f = x
    for k in range(_TERMS, 1, -1):
        f = x + k / f
    return 1.0 / f


@kernel_part
def _normal(t: float) -> tuple[float, float, float]:
    # -log Φ(t), κ(t), κ(t) + t
    if t < _TAIL:
        more = _beyond(-t)
        ratio = more - t
        return 0.5 * t * t + math.log(_ROOT_TAU * ratio), ratio, more
    density = math.exp(-0.5 * t * t) / _ROOT_TAU
    if t > 0.0:
        below = 0.5 * math.erfc(t * _ROOT_HALF)
        ratio = density / (1.0 - below)
        return -math.log1p(-below), ratio, ratio + t
    phi = 0.5 * math.erfc(-t * _ROOT_HALF)
    ratio = density / phi
    return -math.log(phi), ratio, ratio + t


@kernel
def value(margins: Float64, examples: Float64) -> float:
    # -(s * scipy.special.log_ndtr(y * m)).sum()
    total = 0.0
    for i in range(margins.size):
        total += abs(examples[i]) * _normal(math.copysign(1.0, examples[i]) * margins[i])[0]
    return total


@kernel
def residuals(margins: Float64, examples: Float64, least: float, r: Float64, w: Float64) -> None:
    # r = s * y * kappa; w = s * np.maximum(kappa * (kappa + t), least)
    for i in range(margins.size):
        _, ratio, more = _normal(math.copysign(1.0, examples[i]) * margins[i])
        r[i] = examples[i] * ratio
        w[i] = abs(examples[i]) * max(ratio * more, least)


@kernel
def values_along(margins: Float64, dmargins: Float64, examples: Float64, alphas: Float64, out: Float64) -> None:
    # out = [value(m + a * dm, examples) for a in alphas]
    out[:] = 0.0
    for k in range(alphas.size):
        total = 0.0
        for i in range(margins.size):
            t = math.copysign(1.0, examples[i]) * (margins[i] + alphas[k] * dmargins[i])
            total += abs(examples[i]) * _normal(t)[0]
        out[k] = total


@kernel
def slope_along(margins: Float64, dmargins: Float64, examples: Float64) -> float:
    # -(r * dm).sum()
    total = 0.0
    for i in range(margins.size):
        total -= examples[i] * _normal(math.copysign(1.0, examples[i]) * margins[i])[1] * dmargins[i]
    return total


@kernel_part
def _least_along(t: float, scale: float) -> float:
    # min over τ of -log Φ(τ) + u τ, for u = scale * κ(t), 0 < scale <= 1: Newton on log κ(τ) = log u, from τ = t
    loss, ratio, more = _normal(t)
    u = scale * ratio
    if u <= 0.0:
        return 0.0
    tau = t
    wanted = math.log(u)
    for _ in range(_STEPS):
        step = (math.log(ratio) - wanted) / more
        tau = min(tau + step, _FURTHEST)
        loss, ratio, more = _normal(tau)
        if abs(step) <= 1e-13 * (1.0 + abs(tau)):
            break
    least: float = loss + u * tau
    return least


@kernel
def dual_value(margins: Float64, examples: Float64, scale: float) -> float:
    # (s * min over τ of (-log Φ(τ) + scale * κ(y m) * τ)).sum()
    total = 0.0
    for i in range(margins.size):
        t = math.copysign(1.0, examples[i]) * margins[i]
        if scale == 1.0:
            loss, ratio, _ = _normal(t)
            total += abs(examples[i]) * (loss + ratio * t)
        elif scale > 0.0:
            total += abs(examples[i]) * _least_along(t, scale)
    return total
