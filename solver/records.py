"""What the certified mode reports: the certificate of an iterate, and the record of each round."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from solver.arrays import Coefficients
from solver.dglmnet import ConvergenceWarning, OnRound, RoundRecord, Solution, Stop
from solver.options import DefaultOptions


@dataclass(frozen=True)
class Certificate:
    """What is known of an iterate: f, its duality gap, and the estimated distance to the optimum, all absolute."""

    objective: float
    gap: float
    estimate: float

    def met(self, options: DefaultOptions) -> bool:
        if options.gap is not None:
            return self.gap <= options.gap * self.objective
        return self.estimate <= options.tol * self.objective and self.gap <= options.max_gap * self.objective


class Log:
    """The clock, and what is reported of each round."""

    def __init__(self, lambda_index: int, lam: float, on_round: OnRound | None) -> None:
        self._index, self._lam, self._on_round = lambda_index, lam, on_round
        self._began = perf_counter()
        self._search_total = 0.0
        self.rounds = 0

    def begin(self, objective: float, lam: float | None = None) -> None:
        """A round begins; lam: where it is at another λ, on the way."""
        self.before, self._at = objective, self._lam if lam is None else lam
        self._round_began = perf_counter()
        self._search = 0.0

    @contextmanager
    def searching(self) -> Iterator[None]:
        began = perf_counter()
        yield
        self._search += perf_counter() - began
        self._search_total += perf_counter() - began

    def end(self, objective: float, beta: Coefficients, gap: float, alpha: float = 1.0) -> None:
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
                nonzeros=int(np.count_nonzero(beta.value)),
                seconds=perf_counter() - self._round_began,
                line_search_seconds=self._search,
                gap=gap,
            )
        )

    def solution(self, beta: Coefficients, certificate: Certificate, options: DefaultOptions) -> Solution:
        stop: Stop = "tolerance" if certificate.met(options) else "limit"
        return Solution(
            lambda_index=self._index,
            lam=self._lam,
            beta=beta,
            objective=certificate.objective,
            gap=certificate.gap,
            rounds=self.rounds,
            stop=stop,
            seconds=perf_counter() - self._began,
            line_search_seconds=self._search_total,
        )


def warn_unless_met(solution: Solution, certificate: Certificate, options: DefaultOptions) -> None:
    if solution.converged:
        return
    f = certificate.objective
    asked = (
        f"a relative gap of {options.gap:g} was asked for"
        if options.gap is not None
        else f"tol = {options.tol:g} and a relative gap below {options.max_gap:g} were asked for"
    )
    warnings.warn(
        f"λ = {solution.lam:g}: after {solution.rounds} rounds the estimated relative suboptimality is "
        f"{certificate.estimate / f:.2g} and the relative duality gap {certificate.gap / f:.2g}; {asked}. "
        "Raise max_rounds, or ask for less.",
        ConvergenceWarning,
        stacklevel=3,
    )
