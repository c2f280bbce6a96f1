"""Squared hinge loss: ℓ(y, m) = ½ max(0, 1 − y m)² for labels y ∈ {−1, +1}: a loss that solver/ does not come with.

r = s y max(0, 1 − y m), w = s where y m < 1. The dual is Σ s (u − ½ u²), u ≥ 0; the residual's point is
u = max(0, 1 − y m). Written as the losses of solver/ are, for the test that such a module is all it takes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float64
from solver.kernels.compiled import inlined, kernel
from solver.losses.labels import signed_weights

NAME, LABELS, BOUNDED = "squared hinge", "binary", False


def encode(y: ArrayLike, s: ArrayLike | None) -> Float64:
    return signed_weights(y, s)


def weights(examples: Float64) -> Float64:
    return np.abs(examples)


@inlined
def _short(example: float, margin: float) -> float:
    # np.maximum(1 - y * m, 0)
    return max(1.0 - math.copysign(1.0, example) * margin, 0.0)


@kernel
def value(margins: Float64, examples: Float64) -> float:
    total = 0.0
    for i in range(margins.size):
        total += 0.5 * abs(examples[i]) * _short(examples[i], margins[i]) ** 2
    return total


@kernel
def residuals(margins: Float64, examples: Float64, least: float, working: Float64) -> None:
    for i in range(margins.size):
        u = _short(examples[i], margins[i])
        working[0, i] = examples[i] * u
        working[1, i] = abs(examples[i]) * (1.0 if u > 0.0 else least)


@kernel
def values_along(margins: Float64, dmargins: Float64, examples: Float64, alphas: Float64, out: Float64) -> None:
    out[:] = 0.0
    for k in range(alphas.size):
        for i in range(margins.size):
            out[k] += 0.5 * abs(examples[i]) * _short(examples[i], margins[i] + alphas[k] * dmargins[i]) ** 2


@kernel
def slope_along(margins: Float64, dmargins: Float64, examples: Float64) -> float:
    total = 0.0
    for i in range(margins.size):
        total -= examples[i] * _short(examples[i], margins[i]) * dmargins[i]
    return total


@kernel
def dual_value(margins: Float64, examples: Float64, scale: float) -> float:
    total = 0.0
    for i in range(margins.size):
        u = scale * _short(examples[i], margins[i])
        total += abs(examples[i]) * u * (1.0 - 0.5 * u)
    return total
