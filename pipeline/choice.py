"""Which model of a path is taken when nobody names one: the best of an evaluation, or else the one with the lowest BIC.

BIC = −2 log-likelihood + k log n, where k features have a weight and n is the weight of all examples: what is known of
a model without further data. The smallest λ would nearly always have the lowest loss on the training data, and be
overfitted to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import UserError

if TYPE_CHECKING:
    from pipeline.model import PathModel
    from solver import Examples, Problem, Solution

STRIP = 1 << 20  # examples whose weights are added at a time
LEAST_LOSS = 1e-300  # so that its logarithm is a number


@dataclass(frozen=True)
class Choice:
    """A model of a path, and why it is this one."""

    index: int
    why: str


def choose_model(model: PathModel, lambda_index: int | None = None) -> Choice:
    """The model that was asked for; or the best of an evaluation; or the one with the lowest BIC."""
    from pipeline.metrics import find_metric

    if lambda_index is not None:
        return Choice(model.check_index(lambda_index), "as asked for")
    best = model.best()
    if best is not None:
        judged = model.record.evaluation
        by = "held-out examples" if judged and judged.held_out else "the data of the run's evaluation"
        return Choice(best, f"the best by {find_metric(model.metric).label} on {by}")
    lowest = lowest_bic(model.path)
    if lowest is None:
        raise UserError(
            f"{model.name}: no evaluation says which model is best, and the version that made the run did not compute "
            "BIC: judge the models with dask-submit evaluate, or choose one with --lambda-index K"
        )
    return Choice(lowest, "the lowest BIC on the training data, as no evaluation has chosen one")


def lowest_bic(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The row of path.parquet with the lowest BIC, the sparsest of equals; None where a row does not tell it."""
    values = [row.get("bic") for row in rows]
    known = [value for value in values if value is not None]
    return values.index(min(known)) if known and len(known) == len(values) else None


class Bic:
    """BIC of the solutions of a problem."""

    def __init__(self, problem: Problem) -> None:
        self._penalty, self._numbers = problem.penalty, problem.examples.loss.LABELS == "number"
        self._n = total_weight(problem.examples)

    def of(self, solution: Solution) -> float:
        """Of labels that are numbers, by the normal distribution whose variance is the mean squared error."""
        beta = solution.beta
        loss = solution.objective - self._penalty.at(solution.lam, beta.position).value(beta.value)
        fit = self._n * math.log(2.0 * max(loss, LEAST_LOSS) / self._n) if self._numbers else 2.0 * loss
        return fit + solution.nonzeros * math.log(self._n)


def total_weight(examples: Examples) -> float:
    """What all examples weigh; strip by strip, as a vector over examples may be large."""
    strips = (examples.encoded[..., lo : lo + STRIP] for lo in range(0, examples.n, STRIP))
    return float(sum(examples.loss.weights(strip).sum() for strip in strips))
