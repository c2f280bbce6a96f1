"""The regularisation path (Algorithm 5): λmax from the data, then falling λ, each begun at the last solution.

A path can be cut after any λ and taken up again from the coefficients stored there. Margins are rebuilt from the
coefficients at the beginning of every λ, whether the run was cut or not. An algorithm that carries more from λ to λ
gives it out as its state, to be stored as well. So both end the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from solver.arrays import Coefficients, Float64

if TYPE_CHECKING:
    from solver.start import NullModel


def lambda_grid(largest: float, length: int = 20, ratio: float = 0.5, extra: Iterable[float] = ()) -> list[float]:
    """λmax · ratioⁱ for i = 1..length, and the extra values in their places, falling."""
    if not 0 < largest < math.inf:
        raise ValueError(f"λmax must be > 0 and finite, got {largest}: no feature tells the labels apart at β = 0")
    if length < 1:
        raise ValueError(f"the path length must be at least 1, got {length}")
    if not 0 < ratio < 1:
        raise ValueError(f"the path ratio must lie between 0 and 1, got {ratio}")
    return falling([*(largest * ratio**i for i in range(1, length + 1)), *extra])


def falling(lambdas: Iterable[float]) -> list[float]:
    """Sorted, largest first, each value once."""
    values = sorted({float(lam) for lam in lambdas}, reverse=True)
    for lam in values:
        if not 0 < lam < math.inf:
            raise ValueError(f"λ must be > 0 and finite, got {lam}")
    return values


StateVectors: TypeAlias = Mapping[str, Float64]
"""What an algorithm carries from one λ to the next beside the coefficients, as named vectors."""
OnState: TypeAlias = Callable[[int, Callable[[], StateVectors]], None]
"""Takes the number of λ done and what gives the state there, good until the next λ is asked for."""


OnPass: TypeAlias = Callable[[int, int, Coefficients], None]
"""Takes the index of λ, the pass of an online learner, counted from 1, and β after it."""


class StateMismatch(ValueError):
    """A state that does not belong to the problem, or is damaged."""


@dataclass(frozen=True)
class PathStart:
    """A path taken up again: how many λ are done, and the coefficients of all of them, or of the last, the newest last.

    Coefficients are over the problem's coordinates, the intercept among them. With `done` 0, a single one is where to
    begin instead of the null model.
    state: what the algorithm gave out when `state_done` λ were done. The λ since then are solved again, unreported.
    """

    done: int = 0
    betas: tuple[Coefficients, ...] = ()
    state: StateVectors | None = None
    state_done: int = 0

    def beta(self, null: NullModel) -> Coefficients:
        """Where to begin: at the last solution, or at the null model."""
        return self.betas[-1] if self.betas else null.beta
