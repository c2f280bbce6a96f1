"""What a fit is run with: the problem, and the constants of either algorithm.

A field made by `option` is one that people set: commands, configuration files and estimators take its name, type,
default and words from here, so that a new one is written once. The others are the paper's constants, for those who
compare.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from typing import Any, Self


def option(
    default: Any, words: str, *, metavar: str | None = None, unit: str | None = None, least: int | None = None
) -> Any:
    """A field that people set.

    words: what --help says. unit: "bytes" where a size may be written as 2GB. least: of a whole number.
    """
    return field(default=default, metadata={"words": words, "metavar": metavar, "unit": unit, "least": least})


def options_of(kind: type[Any]) -> list[Field[Any]]:
    """The fields of an options class that people set."""
    return [one for one in fields(kind) if "words" in one.metadata and one.default is not MISSING]


@dataclass(frozen=True)
class ProblemOptions:
    """What is minimised: loss, penalty, and whether there is an intercept."""

    loss: str = option("logistic", "The loss: logistic, squared (the lasso, labels are numbers) or probit.")
    intercept: bool | None = option(None, "Fit an intercept, which is not penalised. [default: yes; paper no]")
    l1_ratio: float = option(
        1.0,
        "ρ of the elastic net λ(ρ‖β‖₁ + (1 − ρ)/2 ‖β‖²), above 0; at 1 it is the L1 penalty alone.",
        metavar="ρ",
    )
    nonnegative: bool = option(False, "Allow no coefficient below 0.")
    standardize: bool = option(
        False,
        "Penalise features as if each had standard deviation 1. Coefficients stay on the scale of the input; constant "
        "features are left out.",
    )
    class_weight: str | None = option(
        None, "Weights of the classes: balanced, or LABEL=W for one or both, as in 1=10,0=1.", metavar="balanced|L=W"
    )

    def __post_init__(self) -> None:
        _require(0 < self.l1_ratio <= 1, "l1_ratio", "be above 0 and at most 1", self.l1_ratio)


@dataclass(frozen=True)
class SolverOptions:
    """What paper mode is run with: the outer loop, the sub-problems and the line search.

    The paper fixes ν (Section 2), b, σ and γ (Algorithm 3) and leaves open δ, the sufficient decrease of step 1, the
    tolerance of the relative-decrease stop, the rise allowed on going back to α = 1, and the iteration limit.

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
    gamma: float = option(0.0, "γ of the Armijo rule.")
    delta: float = 1e-3
    sufficient_decrease: float = 0.01
    tol: float = option(1e-4, "The relative decrease of a round that ends a λ.")
    back_tol: float | None = None
    max_rounds: int = option(100, "Rounds for one λ, at the most.", least=1)

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
    subspace_memory: bytes that the driver's store of columns may take; None means a quarter of the memory available, or
    no limit if the blocks' own columns are in this process.
    max_rounds: passes over the data for one λ, at the most; the first λ has one more, to begin with.
    threads: of the driver's search; None means all cores that it may use.
    """

    tol: float = option(1e-4, "The estimated relative distance from the optimum at which a λ is done.")
    max_gap: float = 1e-2
    gap: float | None = option(None, "Ask for a relative duality gap of G: a strict certificate.", metavar="G")
    subspace_memory: int | None = option(
        None,
        "The driver's memory for the columns of the active set; matrices of them take as much again, up to 0.4 GB. "
        "Without it, a quarter of what is free; columns in this process are not copied and have no limit.",
        metavar="SIZE",
        unit="bytes",
    )
    max_rounds: int = option(200, "Rounds for one λ, at the most.", least=1)
    threads: int | None = option(None, "Threads of the driver's search. Without it, all cores.", least=1)

    def __post_init__(self) -> None:
        _require(0 < self.tol < 1, "tol", "lie between 0 and 1", self.tol)
        _require(0 < self.max_gap < math.inf, "max_gap", "be > 0 and finite", self.max_gap)
        _require(self.gap is None or 0 < self.gap < 1, "gap", "lie between 0 and 1", self.gap)
        memory = self.subspace_memory
        _require(memory is None or memory >= 0, "subspace_memory", "be >= 0", memory)
        _require(self.max_rounds >= 1, "max_rounds", "be at least 1", self.max_rounds)
        _require(self.threads is None or self.threads >= 1, "threads", "be at least 1", self.threads)


@dataclass(frozen=True)
class TruncatedGradientOptions:
    """What the online learner is run with. The step for an example is learning_rate · decay^(pass − 1) / t^power_t.

    t: the examples that its part has seen, one more at first. All as in Vowpal Wabbit: -l, --decay_learning_rate,
    --power_t, --passes.
    """

    learning_rate: float = option(0.5, "The learning rate of the first pass.")
    decay: float = option(1.0, "The learning rate of a pass over that of the pass before.")
    power_t: float = option(0.5, "How fast steps shrink within passes: by t^power_t after t examples.")
    passes: int = option(10, "Passes over the examples for one λ.", least=1)
    save_every: int = option(
        1, "Store the coefficients after every K-th pass; 0: the last alone.", metavar="K", least=0
    )

    def __post_init__(self) -> None:
        _require(0 < self.learning_rate < math.inf, "learning_rate", "be > 0 and finite", self.learning_rate)
        _require(0 < self.decay <= 1, "decay", "be above 0 and at most 1", self.decay)
        _require(0 <= self.power_t <= 1, "power_t", "be from 0 to 1", self.power_t)
        _require(self.passes >= 1, "passes", "be at least 1", self.passes)
        _require(self.save_every >= 0, "save_every", "be at least 0", self.save_every)


def _require(holds: bool, name: str, rule: str, found: object) -> None:
    if not holds:
        raise ValueError(f"{name} must {rule}, got {found}")
