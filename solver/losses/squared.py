"""Squared loss: ℓ(y, m) = ½ (y − m)² for targets y that are numbers. With an L1 penalty this is the lasso.

r = s (y − m), w = s. The dual is Σ s (y u − ½ u²), and the residual's dual point is u = y − m. Examples are two rows:
targets and weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float64
from solver.kernels.compiled import kernel
from solver.losses.labels import checked_weights, vector

NAME, LABELS, BOUNDED, FLATTENS = "squared", "number", False, False


def encode(y: ArrayLike, s: ArrayLike | None) -> Float64:
    targets = vector(y, "targets")
    if not np.isfinite(targets).all():
        raise ValueError("targets must be finite")
    return np.stack([targets, np.ones(targets.size) if s is None else checked_weights(s, targets.size)])


def weights(examples: Float64) -> Float64:
    own: Float64 = examples[1]
    return own


@kernel
def value(margins: Float64, examples: Float64) -> float:
    # 0.5 * (s * (y - m)**2).sum()
    total = 0.0
    for i in range(margins.size):
        d = examples[0, i] - margins[i]
        total += 0.5 * examples[1, i] * d * d
    return total


@kernel
def residuals(margins: Float64, examples: Float64, least: float, r: Float64, w: Float64) -> None:
    # r = s * (y - m); w = s; no weight is below any `least`
    for i in range(margins.size):
        r[i] = examples[1, i] * (examples[0, i] - margins[i])
        w[i] = examples[1, i]


@kernel
def values_along(margins: Float64, dmargins: Float64, examples: Float64, alphas: Float64, out: Float64) -> None:
    # out = [value(m + a * dm, examples) for a in alphas]
    out[:] = 0.0
    for k in range(alphas.size):
        total = 0.0
        for i in range(margins.size):
            d = examples[0, i] - (margins[i] + alphas[k] * dmargins[i])
            total += 0.5 * examples[1, i] * d * d
        out[k] = total


@kernel
def slope_along(margins: Float64, dmargins: Float64, examples: Float64) -> float:
    # -(r * dm).sum()
    total = 0.0
    for i in range(margins.size):
        total -= examples[1, i] * (examples[0, i] - margins[i]) * dmargins[i]
    return total


@kernel
def dual_value(margins: Float64, examples: Float64, scale: float) -> float:
    # u = scale * (y - m); (s * (y * u - 0.5 * u**2)).sum()
    total = 0.0
    for i in range(margins.size):
        u = scale * (examples[0, i] - margins[i])
        total += examples[1, i] * u * (examples[0, i] - 0.5 * u)
    return total
