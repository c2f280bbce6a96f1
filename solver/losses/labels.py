"""Targets and weights of the examples, checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float64


def signed_weights(y: ArrayLike, s: ArrayLike | None) -> Float64:
    """sᵢyᵢ for labels yᵢ ∈ {−1, +1}: one vector from which a kernel reads label and weight alike."""
    labels = vector(y, "labels")
    wrong = labels[(labels != -1.0) & (labels != 1.0)]
    if wrong.size:
        raise ValueError(f"labels must be -1 or +1, got {wrong[0]:g}")
    return labels if s is None else labels * checked_weights(s, labels.size)


def vector(y: ArrayLike, what: str) -> Float64:
    """A copy, as float64."""
    values = np.array(y, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"{what} must be a vector of at least one example, got shape {values.shape}")
    return values


def checked_weights(s: ArrayLike, n: int) -> Float64:
    weights = np.asarray(s, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(f"weights must match labels: {weights.shape} against {(n,)}")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("weights must be finite and >= 0")
    return weights
