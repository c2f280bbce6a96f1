"""What an algorithm reports: the record of each round, the solution of each λ, and the clock that both need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from solver.arrays import Coefficients
from solver.compiling import working_seconds

Stop: TypeAlias = Literal["zero", "tolerance", "limit", "no step", "gap", "passes"]


class ConvergenceWarning(UserWarning):
    """The iteration ended before it met its tolerance."""


@dataclass(frozen=True)
class RoundRecord:
    """One round, for progress and trace. Objective, nonzeros and gap are those after the step.

    gap: the duality gap, absolute; None where the round did not compute it.
    """

    lambda_index: int
    lam: float
    round: int
    objective: float
    relative_decrease: float
    alpha: float
    nonzeros: int
    seconds: float
    line_search_seconds: float
    gap: float | None = None


@dataclass(frozen=True)
class Solution:
    """The result for one λ. Positions of beta count over all blocks, in their order; the intercept is apart.

    stop: "zero", λ ≥ λmax, where all penalised coefficients are zero; "tolerance", the algorithm's own was met;
    "limit", max_rounds; "no step", the line search found no step although rounding does not explain it; "gap", rounds
    hardly lower f any more, but the gap is too wide to take that for the end; "passes", so many as were asked for are
    done, which is all that an online learner aims at. gap: NaN where it was not computed.
    """

    lambda_index: int
    lam: float
    beta: Coefficients = field(repr=False)
    objective: float
    gap: float
    rounds: int
    stop: Stop
    seconds: float
    line_search_seconds: float
    intercept: float = 0.0

    @property
    def converged(self) -> bool:
        return self.stop in ("zero", "tolerance", "passes")

    @property
    def nonzeros(self) -> int:
        return self.beta.position.size


OnRound: TypeAlias = Callable[[RoundRecord], None]


class Log:
    """The clock of one λ, and what is reported of it."""

    def __init__(self, lambda_index: int, lam: float, on_round: OnRound | None) -> None:
        self._index, self._lam, self._on_round = lambda_index, lam, on_round
        self._began = working_seconds()
        self._search_total = 0.0
        self.rounds = 0

    def begin(self, objective: float, lam: float | None = None) -> None:
        """A round begins; lam: where it is at another λ, on the way."""
        self.before, self._at = objective, self._lam if lam is None else lam
        self._round_began = working_seconds()
        self._search = 0.0

    @contextmanager
    def searching(self) -> Iterator[None]:
        """The driver's own part of a round: the line search, or the search that it is widened to."""
        began = working_seconds()
        yield
        self._search += working_seconds() - began
        self._search_total += working_seconds() - began

    def end(self, objective: float, nonzeros: int, *, alpha: float = 1.0, gap: float | None = None) -> None:
        self.rounds += 1
        if self._on_round is None:
            return
        decrease = (self.before - objective) / self.before if self.before > 0 else 0.0
        self._on_round(
            RoundRecord(
                lambda_index=self._index,
                lam=self._at,
                round=self.rounds,
                objective=objective,
                relative_decrease=decrease,
                alpha=alpha,
                nonzeros=nonzeros,
                seconds=working_seconds() - self._round_began,
                line_search_seconds=self._search,
                gap=gap,
            )
        )

    def solution(self, beta: Coefficients, intercept: float, objective: float, gap: float, stop: Stop) -> Solution:
        return Solution(
            lambda_index=self._index,
            lam=self._lam,
            beta=beta,
            objective=objective,
            gap=gap,
            rounds=self.rounds,
            stop=stop,
            seconds=working_seconds() - self._began,
            line_search_seconds=self._search_total,
            intercept=intercept,
        )
