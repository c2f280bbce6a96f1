"""The problem: f(β) = Σᵢ sᵢ ℓ(yᵢ, mᵢ) + penalty(β), m = Xβ (+ intercept). The one place that adds loss and penalty.

`Problem` is what never changes: examples, loss, penalty, whether there is an intercept. `Objective` is f at one λ over
some coordinates. What changes in the iteration (β, margins) is passed in.

The dual of f is max D(u) − conjugate(Xᵀr): with the residual r at some margins as the dual point, a lower bound of f.
The L1 part asks for |xⱼᵀr| ≤ thresholdⱼ, which r scaled down satisfies; the L2 part makes that a price instead.
Unpenalised features ask for xⱼᵀr = 0, which margins must satisfy before they come here (free.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import Coefficients, Float64, Int64
from solver.kernels import penalty as penalty_kernels
from solver.kernels import vectors
from solver.losses import Loss, find_loss
from solver.penalty import Penalty, Terms, Violation
from solver.threads import Threads, is_one_strip

T = TypeVar("T")


@dataclass(frozen=True)
class Examples:
    """Targets and weights of the examples, as the kernels of the loss read them, and the threads for passes over them.

    Results do not depend on how many threads there are: passes are cut into strips by n alone (threads.py).
    """

    loss: Loss = field(repr=False)
    encoded: Float64 = field(repr=False)
    threads: Threads = field(default_factory=Threads, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        targets: ArrayLike,
        weights: ArrayLike | None = None,
        loss: str = "logistic",
        class_weights: tuple[float, float] | None = None,
    ) -> Examples:
        """class_weights: what the examples of the classes −1 and +1 are weighed by, beside weights of their own."""
        found = find_loss(loss)
        if class_weights is not None:
            own = np.where(np.asarray(targets) > 0, class_weights[1], class_weights[0])
            weights = own if weights is None else own * np.asarray(weights, dtype=np.float64)
        return cls(found, found.encode(targets, weights))

    def __reduce__(self) -> tuple[object, ...]:  # modules do not travel
        return _examples, (self.loss.NAME, self.encoded)

    @property
    def n(self) -> int:
        return int(self.encoded.shape[-1])

    @property
    def weights(self) -> Float64:
        return self.loss.weights(self.encoded)

    @property
    def least_curvature(self) -> float:
        """The share of |r| that w is held above, for steps to stay finite; 0 where the curvature cannot vanish."""
        return vectors.LEAST_CURVATURE if self.loss.FLATTENS else 0.0

    def between(self, lo: int, hi: int) -> Float64:
        """What kernels read of these examples. They are faster on arrays in one piece."""
        return self.encoded if hi - lo == self.n else np.ascontiguousarray(self.encoded[..., lo:hi])

    def value(self, margins: Float64) -> float:
        """L."""
        return float(sum(self._pass(self.loss.value, (margins,))))

    def residuals(self, margins: Float64, working: Float64 | tuple[Float64, Float64], least: float = 0.0) -> None:
        """working = (r, w) at these margins; a weight is at least this share of the example's own."""
        r, w = working
        residuals = self.loss.residuals
        self._pass(lambda m, r, w, encoded: residuals(m, encoded, least, r, w), (margins, r, w))

    def residual(self, margins: Float64, r: Float64) -> None:
        """r alone."""
        residuals = self.loss.residuals
        self._pass(lambda m, r, encoded: residuals(m, encoded, 0.0, r, np.empty(r.size)), (margins, r))

    def slope_along(self, margins: Float64, dmargins: Float64) -> float:
        return float(sum(self._pass(self.loss.slope_along, (margins, dmargins))))

    def values_along(self, margins: Float64, dmargins: Float64, alphas: Float64) -> Float64:
        def part(margins: Float64, dmargins: Float64, encoded: Float64) -> Float64:
            out = np.empty(alphas.size)
            self.loss.values_along(margins, dmargins, encoded, alphas, out)
            return out

        first, *others = self._pass(part, (margins, dmargins))
        for other in others:
            first += other
        return first

    def dual_value(self, margins: Float64, scale: float) -> float:
        return float(sum(self._pass(self.loss.dual_value, (margins,), scale)))

    def move(self, margins: Float64, alpha: float, dmargins: Float64) -> None:
        """margins += α Δm."""
        self._pass(lambda m, dm, encoded: vectors.move(m, alpha, dm), (margins, dmargins))

    def _pass(self, kernel: Callable[..., T], over: tuple[Float64, ...], *rest: Any) -> list[T]:
        """kernel(vectors over examples, what it reads of the examples, the rest), on each strip of the examples."""
        if is_one_strip(self.n):  # a fit of few examples makes thousands of passes
            return [kernel(*over, self.encoded, *rest)]

        def part(lo: int, hi: int) -> T:
            return kernel(*(vector[lo:hi] for vector in over), self.between(lo, hi), *rest)

        return self.threads.over_strips(part, self.n)


def _examples(loss: str, encoded: Float64) -> Examples:
    return Examples(find_loss(loss), encoded)


@dataclass(frozen=True)
class Problem:
    """Examples and penalty of a fit. The intercept, if there is one, is a coordinate past the last feature."""

    examples: Examples
    penalty: Penalty
    intercept: bool = False

    def on(self, threads: Threads) -> Problem:
        """The same, with passes over the examples on these threads."""
        return replace(self, examples=replace(self.examples, threads=threads))

    @property
    def coordinates(self) -> int:
        """Features, and the intercept."""
        return self.penalty.size + self.intercept

    @property
    def free(self) -> Int64:
        """The coordinates that are not penalised."""
        own = np.full(int(self.intercept), self.penalty.size, np.int64)
        return np.concatenate((self.penalty.free, own))

    def at(self, lam: float, position: Int64 | None = None) -> Objective:
        """f at λ, over these coordinates or over all."""
        where = np.arange(self.coordinates) if position is None and self.intercept else position
        return Objective(self.examples, lam, self.penalty.at(lam, where))

    def feasible(self, beta: Coefficients) -> Coefficients:
        """β without coefficients that the penalty does not allow: of excluded features, or of the wrong sign."""
        up, down, _ = self.penalty.at(1.0, beta.position)
        allowed = np.isfinite(np.where(beta.value > 0.0, up, down))
        return Coefficients(beta.position[allowed], beta.value[allowed])

    def value(self, margins: Float64, beta: Coefficients, lam: float) -> float:
        """f."""
        return self.at(lam, beta.position).value(margins, beta.value)


@dataclass(frozen=True)
class Objective:
    """f at λ over some coordinates, those of `terms`; the others are held."""

    examples: Examples
    lam: float
    terms: Terms

    def value(self, margins: Float64, beta: Float64) -> float:
        return self.examples.value(margins) + self.terms.value(beta)

    def penalty_changes(self, beta: Float64, dbeta: Coefficients, alphas: Float64) -> Float64:
        """What the penalty rises by from β to β + αΔβ, for each α."""
        out = np.empty(alphas.size)
        penalty_kernels.changes_along(beta, *dbeta, *self.terms, alphas, out)
        return out

    def dual_value(self, margins: Float64, violation: Violation) -> float:
        """What no f falls below. `violation` is that of all features at the residual of these margins."""
        scaled = self.examples.dual_value(margins, min(1.0, 1.0 / violation.ratio) if violation.ratio > 0.0 else 1.0)
        if violation.ratio <= 1.0 or not np.isfinite(violation.conjugate):
            return scaled
        return max(scaled, self.examples.dual_value(margins, 1.0) - violation.conjugate)
