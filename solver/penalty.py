"""The penalty: λ Σⱼ (ρ fⱼ |βⱼ| + (1 − ρ) eⱼ βⱼ²/2), with a factor for each feature, and maybe βⱼ ≥ 0.

`Penalty` holds what does not change along a path: ρ and the factors. `Terms` are its three arrays at one λ, over some
features: the kernels read these. A factor of 0 leaves a feature unpenalised, one of ∞ excludes it. Standardising
features is a matter of factors alone: fⱼ = σⱼ and eⱼ = σⱼ², and coefficients stay on the scale of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from solver.arrays import Float64, Int64
from solver.kernels import penalty as kernels


class Violation(NamedTuple):
    """How far slopes Xᵀr are from dual feasibility.

    ratio: the largest |xⱼᵀr| over its threshold; the residual divided by it is feasible.
    conjugate: Σ (|xⱼᵀr| − thresholdⱼ)₊² / (2 l2ⱼ), the penalty's conjugate; ∞ where a feature with l2 = 0 violates.
    """

    ratio: float
    conjugate: float

    @classmethod
    def joined(cls, parts: Sequence[Violation]) -> Violation:
        """Over different features."""
        return cls(max(part.ratio for part in parts), sum(part.conjugate for part in parts))


class Terms(NamedTuple):
    """The penalty of coefficients at one λ: Σⱼ up βⱼ⁺ + down βⱼ⁻ + ½ l2 βⱼ². For the lasso, up = down = λ."""

    up: Float64
    down: Float64
    l2: Float64

    def of(self, chosen: Int64) -> Terms:
        """For some of the features."""
        up = self.up[chosen]
        return Terms(up, up if self.down is self.up else self.down[chosen], self.l2[chosen])

    def between(self, first: int, last: int) -> Terms:
        """For the features first to last, viewed."""
        return Terms(self.up[first:last], self.down[first:last], self.l2[first:last])

    def value(self, beta: Float64) -> float:
        return float(kernels.value(beta, *self))

    def gains(self, slopes: Float64, curvature: Float64, beta: Float64) -> Float64:
        """What a quadratic model falls by when one coordinate alone is minimised, for each."""
        out = np.empty(slopes.size)
        kernels.gains(slopes, curvature, beta, *self, out)
        return out

    def soft_threshold(self, target: Float64) -> Float64:
        out = np.empty(target.size)
        kernels.thresholds(target, self.up, self.down, out)
        return out

    def violation(self, slopes: Float64) -> Violation:
        return Violation(*kernels.violation(slopes, *self))

    def above(self, slopes: Float64, share: float) -> np.ndarray:
        """Which slopes are above this share of their thresholds?"""
        found: np.ndarray = (slopes > share * self.up) | (-slopes > share * self.down)
        return found

    def slope_at(self, beta: Float64) -> Float64:
        """The derivative of the L1 part at coefficients that are not zero; 0 at those that are."""
        slope: Float64 = np.where(beta > 0.0, self.up, 0.0) - np.where(beta < 0.0, self.down, 0.0)
        return slope

    @property
    def is_ridged(self) -> bool:
        return bool(self.l2.any())

    @property
    def free(self) -> np.ndarray:
        """Which features are not penalised?"""
        unpenalised: np.ndarray = (self.up == 0.0) & (self.down == 0.0)
        return unpenalised


@dataclass(frozen=True)
class Penalty:
    """ρ and the factors of `size` features. Factors are None where all are 1.

    l1_ratio: ρ. nonnegative: βⱼ ≥ 0 for penalised features.
    l1_factor, l2_factor: fⱼ and eⱼ.
    """

    size: int
    l1_ratio: float = 1.0
    nonnegative: bool = False
    l1_factor: Float64 | None = field(default=None, repr=False)
    l2_factor: Float64 | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.l1_ratio <= 1.0:
            raise ValueError(f"l1_ratio must be > 0 and at most 1, got {self.l1_ratio}")
        for factor in (self.l1_factor, self.l2_factor):
            if factor is not None and (factor.shape != (self.size,) or not (factor >= 0.0).all()):
                raise ValueError(f"penalty factors must be {self.size} numbers >= 0")
        if (self.l1_factor is None) != (self.l2_factor is None):
            raise ValueError("l1_factor and l2_factor must be given together")
        if self.l1_factor is not None and self.l2_factor is not None and self.l2_factor[self.l1_factor == 0.0].any():
            raise ValueError("l2_factor must be 0 where l1_factor is: such features are not penalised at all")

    @classmethod
    def scaled(
        cls, size: int, l1_ratio: float, nonnegative: bool, factors: Float64 | None, scales: Float64 | None
    ) -> Penalty:
        """With factors given by the user, and the scales σⱼ that features are standardised by.

        A feature that is constant, of scale 0, is excluded.
        """
        if factors is None and scales is None:
            return cls(size, l1_ratio, nonnegative)
        l1 = np.ones(size) if factors is None else np.asarray(factors, dtype=np.float64).copy()
        if scales is None:
            return cls(size, l1_ratio, nonnegative, l1, l1)
        varied = scales > 0.0
        with np.errstate(invalid="ignore"):  # ∞ · 0
            return cls(
                size,
                l1_ratio,
                nonnegative,
                np.where(varied, l1 * scales, np.inf),
                np.where(varied, l1 * scales**2, np.inf),
            )

    @property
    def free(self) -> Int64:
        """The features that are not penalised."""
        return np.empty(0, np.int64) if self.l1_factor is None else np.flatnonzero(self.l1_factor == 0.0)

    def part(self, first: int, last: int) -> Penalty:
        """For a block: its own features. The unpenalised are the driver's (free.py); the block leaves them alone."""
        if self.l1_factor is None or self.l2_factor is None:
            return Penalty(last - first, self.l1_ratio, self.nonnegative)
        l1, l2 = self.l1_factor[first:last].copy(), self.l2_factor[first:last]
        l1[l1 == 0.0] = np.inf
        return Penalty(last - first, self.l1_ratio, self.nonnegative, l1, l2)

    def at(self, lam: float, position: Int64 | None = None) -> Terms:
        """The arrays at λ, of these features or of all. A position past the last feature is the intercept's."""
        count = self.size if position is None else position.size
        up, l2 = np.full(count, lam * self.l1_ratio), np.zeros(count)
        l2[:] = lam * (1.0 - self.l1_ratio)
        if self.l1_factor is not None and self.l2_factor is not None:
            inside = slice(None) if position is None else position < self.size
            chosen = slice(None) if position is None else position[inside]
            up[inside] *= self.l1_factor[chosen]
            if self.l1_ratio < 1.0:
                l2[inside] *= self.l2_factor[chosen]
                l2[np.isinf(l2)] = 0.0  # excluded features have no coefficient
        if position is not None:
            up[position >= self.size] = l2[position >= self.size] = 0.0
        down = np.where(up > 0.0, np.inf, 0.0) if self.nonnegative else up
        return Terms(up, down, l2)

    def in_lambdas(self, bounds: Float64) -> Float64:
        """Bounds of |∂L/∂βⱼ| as λ: a feature is zero wherever λ is at least this."""
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = self.l1_ratio if self.l1_factor is None else self.l1_ratio * self.l1_factor
            scaled: Float64 = np.where(bounds > 0.0, bounds / factor, 0.0)
        return scaled
