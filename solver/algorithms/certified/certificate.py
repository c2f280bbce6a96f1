"""What is known of an iterate, and whether it is good enough."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from solver.options import DefaultOptions
from solver.records import ConvergenceWarning, Solution


@dataclass(frozen=True)
class Certificate:
    """f, its duality gap, and the estimated distance to the optimum, all absolute."""

    objective: float
    gap: float
    estimate: float

    def met(self, options: DefaultOptions) -> bool:
        if options.gap is not None:
            return self.gap <= options.gap * self.objective
        return self.estimate <= options.tol * self.objective and self.gap <= options.max_gap * self.objective


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
