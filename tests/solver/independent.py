"""An implementation of our own, in numpy alone, that shares no line with solver/: what fits are held against.

min Σ sᵢ ℓ(yᵢ, mᵢ) + λ Σⱼ (ρ fⱼ |βⱼ| + (1 − ρ) eⱼ βⱼ²/2), m = Xβ + β₀, by accelerated proximal gradient (FISTA) that
starts over whenever the objective rises, run until no coefficient moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr

Array = Any
ITERATIONS = 100_000
AT_REST = 1e-13  # of the largest coefficient


@dataclass(frozen=True)
class Loss:
    """ℓ, −∂ℓ/∂m and a bound of ∂²ℓ/∂m², by label and margin."""

    value: Callable[[Array, Array], Array]
    pull: Callable[[Array, Array], Array]
    bend: float


LOSSES = {
    "logistic": Loss(lambda y, m: np.logaddexp(0.0, -y * m), lambda y, m: y * expit(-y * m), 0.25),
    "squared": Loss(lambda y, m: 0.5 * (y - m) ** 2, lambda y, m: y - m, 1.0),
    "probit": Loss(
        lambda y, m: -log_ndtr(y * m),
        lambda y, m: y * np.exp(-0.5 * m * m - log_ndtr(y * m)) / np.sqrt(2.0 * np.pi),
        1.0,
    ),
    "squared-hinge": Loss(
        lambda y, m: 0.5 * np.maximum(1.0 - y * m, 0.0) ** 2, lambda y, m: y * np.maximum(1.0 - y * m, 0.0), 1.0
    ),
}


@dataclass(frozen=True)
class Reference:
    """A problem, its data as float64 matrix. l1, l2: fⱼ and eⱼ, a number for each feature; l1 = ∞ excludes one."""

    X: Array
    y: Array
    weights: Array
    loss: str = "logistic"
    l1_ratio: float = 1.0
    nonnegative: bool = False
    l1: Array = 1.0
    l2: Array = 1.0
    intercept: bool = False

    def objective(self, lam: float, beta: Array, intercept: float = 0.0) -> float:
        """f, by its definition."""
        margins = self.X @ beta + intercept
        kept = beta != 0.0
        l1, l2 = (np.broadcast_to(factor, beta.shape)[kept] for factor in (self.l1, self.l2))
        own = self.l1_ratio * l1 * np.abs(beta[kept]) + (1.0 - self.l1_ratio) * l2 * beta[kept] ** 2 / 2.0
        return float((self.weights * LOSSES[self.loss].value(self.y, margins)).sum() + lam * own.sum())

    def minimise(self, lam: float, iterations: int = ITERATIONS) -> tuple[Array, float, float]:
        """β, β₀ and f there."""
        p = self.X.shape[1]
        l1 = np.broadcast_to(self.l1, p).astype(float)
        kept = np.isfinite(l1)
        l2 = np.where(kept, np.broadcast_to(self.l2, p), 0.0)
        columns = self.X[:, kept]
        up, ridge = lam * self.l1_ratio * l1[kept], lam * (1.0 - self.l1_ratio) * l2[kept]
        down = np.where(up > 0.0, 1e30, 0.0) if self.nonnegative else up
        if self.intercept:
            columns = np.hstack([columns, np.ones((len(self.y), 1))])
            up, down, ridge = (np.append(one, 0.0) for one in (up, down, ridge))
        found = _fista(columns, self.y, self.weights, LOSSES[self.loss], up, down, ridge, iterations)
        beta, intercept = np.zeros(p), float(found[-1]) if self.intercept else 0.0
        beta[kept] = found[: int(kept.sum())]
        return beta, intercept, self.objective(lam, beta, intercept)


def _fista(X: Array, y: Array, s: Array, loss: Loss, up: Array, down: Array, ridge: Array, iterations: int) -> Array:
    unit = np.sqrt((s[:, None] * X**2).sum(axis=0))
    unit[unit == 0.0] = 1.0
    X, up, down, ridge = X / unit, up / unit, down / unit, ridge / unit**2  # columns of one size: steps suit all
    step = 1.0 / (loss.bend * np.linalg.norm(np.sqrt(s)[:, None] * X, 2) ** 2 + 1e-12)

    def f(b: Array) -> float:
        return float(
            (s * loss.value(y, X @ b)).sum() + (np.where(b > 0, up, down) * np.abs(b) + ridge * b * b / 2).sum()
        )

    beta = ahead = np.zeros(X.shape[1])
    best, momentum = f(beta), 1.0
    for _ in range(iterations):
        target = ahead + step * (X.T @ (s * loss.pull(y, X @ ahead)))
        new = np.maximum(target - step * up, 0.0) + np.minimum(target + step * down, 0.0)
        new /= 1.0 + step * ridge
        value = f(new)
        if value > best and momentum > 1.0:
            ahead, momentum = beta, 1.0
            continue
        rest = np.abs(new - beta).max(initial=0.0) <= AT_REST * np.abs(new).max(initial=0.0)
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = new + (momentum - 1.0) / following * (new - beta)
        beta, best, momentum = new, value, following
        if rest:
            break
    return beta / unit
