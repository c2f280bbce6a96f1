"""The constants of the algorithm, with the values the paper gives.

The paper fixes ν (Section 2), b, σ and γ (Algorithm 3) and leaves open δ, the sufficient decrease of step 1,
the tolerance of the relative-decrease stop, the rise allowed on going back to α = 1, and the iteration limit.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class SolverOptions:
    """What the outer loop, the sub-problems and the line search are run with.

    nu: ν, added to the diagonal of the block-diagonal Hessian H̃.
    b, sigma, gamma: the Armijo rule. For γ > 1/2 a single cycle no longer guarantees D < 0.
    delta: lower end δ of the search for α_init.
    sufficient_decrease: relative decrease at which α = 1 is taken without a search.
    tol: a round whose relative decrease is at most this ends the iteration.
    back_tol: relative rise of the objective allowed on going back to α = 1 at the end; None means tol.
    max_rounds: the iteration limit, for one λ.
    """

    nu: float = 1e-6
    b: float = 0.5
    sigma: float = 0.01
    gamma: float = 0.0
    delta: float = 1e-3
    sufficient_decrease: float = 0.01
    tol: float = 1e-4
    back_tol: float | None = None
    max_rounds: int = 100

    def __post_init__(self) -> None:
        for name in ("nu", "tol", "sufficient_decrease"):
            _require(getattr(self, name) > 0, name, "be > 0", getattr(self, name))
        for name in ("b", "sigma", "delta"):
            _require(0 < getattr(self, name) < 1, name, "lie between 0 and 1", getattr(self, name))
        _require(0 <= self.gamma < 1, "gamma", "be at least 0 and less than 1", self.gamma)
        _require(self.back_tol is None or self.back_tol >= 0, "back_tol", "be >= 0", self.back_tol)
        _require(self.max_rounds >= 1, "max_rounds", "be at least 1", self.max_rounds)
        for name, value in asdict(self).items():
            _require(value is None or math.isfinite(value), name, "be finite", value)

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's constants; keyword arguments replace single ones."""
        return cls(**changes)

    @property
    def allowed_rise(self) -> float:
        """Relative rise of the objective that going back to α = 1 may cost."""
        return self.tol if self.back_tol is None else self.back_tol


@dataclass(frozen=True)
class DefaultOptions:
    """What the certified mode is run with.

    tol: the estimated relative suboptimality at which a λ is done.
    max_gap: the relative duality gap must be below this as well.
    gap: a strict certificate instead: done only when the relative duality gap itself is at most this.
    subspace_memory: bytes that the driver's store of columns may take; None means a quarter of the memory available.
    max_rounds: passes over the data for one λ, at the most; the first λ has one more, to begin with.
    threads: of the driver's search; None means all cores that it may use.
    """

    tol: float = 1e-4
    max_gap: float = 1e-2
    gap: float | None = None
    subspace_memory: int | None = None
    max_rounds: int = 200
    threads: int | None = None

    def __post_init__(self) -> None:
        _require(0 < self.tol < 1, "tol", "lie between 0 and 1", self.tol)
        _require(0 < self.max_gap < math.inf, "max_gap", "be > 0 and finite", self.max_gap)
        _require(self.gap is None or 0 < self.gap < 1, "gap", "lie between 0 and 1", self.gap)
        memory = self.subspace_memory
        _require(memory is None or memory >= 0, "subspace_memory", "be >= 0", memory)
        _require(self.max_rounds >= 1, "max_rounds", "be at least 1", self.max_rounds)
        _require(self.threads is None or self.threads >= 1, "threads", "be at least 1", self.threads)


def _require(holds: bool, name: str, rule: str, found: object) -> None:
    if not holds:
        raise ValueError(f"{name} must {rule}, got {found}")
