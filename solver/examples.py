"""The examples of a training set as the loss sees them: labels yᵢ ∈ {−1, +1} and, if given, weights sᵢ.

With weights, L(β) = Σᵢ sᵢ log(1 + exp(−yᵢ βᵀxᵢ)): an example of weight 2 is that example twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Float64


@dataclass(frozen=True)
class Examples:
    """`signed` holds sᵢyᵢ: one vector from which the kernels read label and weight alike."""

    signed: Float64 = field(repr=False)

    @classmethod
    def of(cls, labels: ArrayLike, weights: ArrayLike | None = None) -> Examples:
        y = np.asarray(labels)
        if y.ndim != 1 or y.size == 0:
            raise ValueError(f"labels must be a vector of at least one example, got shape {y.shape}")
        if not np.isin(y, (-1, 1)).all():
            found = y[~np.isin(y, (-1, 1))][0]
            raise ValueError(f"labels must be -1 or +1, got {found}")
        signed = y.astype(np.float64)
        if weights is not None:
            s = np.asarray(weights, dtype=np.float64)
            if s.shape != y.shape:
                raise ValueError(f"weights must match labels: {s.shape} against {y.shape}")
            if not (np.isfinite(s).all() and (s >= 0).all()):
                raise ValueError("weights must be finite and >= 0")
            signed *= s
        return cls(signed)

    @property
    def n(self) -> int:
        return self.signed.size
