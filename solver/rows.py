"""Data by example: parts of the examples, for algorithms that learn online. One interface, threads of this process
behind it; Dask tasks in pipeline/.

A question leaves nothing behind in a part: it brings all that it needs, so it can be asked again, anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from solver.arrays import Coefficients, Float32, Float64, Int64
from solver.kernels import examples as kernels
from solver.options import ProblemOptions
from solver.penalty import Penalty
from solver.problem import Examples, Problem
from solver.start import NullModel


class Schedule(NamedTuple):
    """How a pass learns: the step for an example is rate · s / seen^power, seen being the examples so far.

    l1: of each model, where several are learnt together.
    """

    rate: float
    seen: float
    power: float
    l1: float | Float64


@dataclass(frozen=True)
class RowPart:
    """Some neighbouring examples, by example: a CSR matrix over all features. values: empty where every value is 1."""

    indptr: Int64 = field(repr=False)
    features: Any = field(repr=False)  # int32 or int64: positions
    values: Float32 = field(repr=False)
    examples: Examples = field(repr=False)
    width: int

    def learn(self, weights: Float32, schedule: Schedule) -> Float32:
        """One pass of truncated gradient over the examples, in their order, from these weights.

        Where weights have columns, each is a model of its own; all learn in the same pass.
        """
        own = weights.copy()
        learn = kernels.learn if own.ndim == 1 else kernels.learn_together
        learn(self.indptr, self.features, self.values, self.examples.encoded, *schedule, own)
        return own

    def loss(self, beta: Float64) -> float:
        """L at β."""
        margins = np.empty(self.examples.n)
        kernels.margins(self.indptr, self.features, self.values, beta, margins)
        return self.examples.value(margins)

    def slopes(self) -> Float64:
        """Xᵀr at β = 0."""
        residuals, slopes = np.empty(self.examples.n), np.zeros(self.width)
        self.examples.residual(np.zeros(self.examples.n), residuals)
        kernels.add_slopes(self.indptr, self.features, self.values, residuals, slopes)
        return slopes


class Rows(ABC):
    """M parts of the examples, which together are all of them. Questions are asked of all parts at once."""

    width: int  # features
    weights: Sequence[float]  # Σ s of each part

    @abstractmethod
    def ask(self, name: str, shared: Any = None, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every RowPart with what all share and its own part of `each`; answers in their order."""

    def learn(self, beta: Float64, schedules: Sequence[Schedule]) -> Float64:
        """A pass in every part from the same β, then the average of what they learnt, by the parts' weights.

        Columns of β are models of their own.
        """
        total, weight = np.zeros(beta.shape), sum(self.weights)
        answers = self.ask("learn", beta.astype(np.float32), schedules)
        for own, learnt in zip(self.weights, answers, strict=True):
            total += (own / weight) * learnt
        return total

    def loss(self, beta: Float64) -> float:
        """L at β, from the data."""
        return float(sum(self.ask("loss", beta)))

    def largest_slope(self) -> float:
        """max |Xᵀr| at β = 0, which is λmax."""
        return float(np.abs(sum(self.ask("slopes"))).max())


class ThreadRows(Rows):
    """Parts in this process, worked on by a pool of threads."""

    def __init__(self, parts: Sequence[RowPart]) -> None:
        self._parts = parts
        self._pool = ThreadPoolExecutor(len(parts), thread_name_prefix="rows")
        self.width = parts[0].width
        self.weights = [float(part.examples.weights.sum()) for part in parts]

    @classmethod
    def from_csr(cls, X: sparse.csr_matrix | sparse.csr_array, examples: Examples, parts: int) -> ThreadRows:
        """Cut X into contiguous parts of about equal numbers of examples."""
        cuts = cut_examples(examples.n, parts)
        ones = bool((X.data == 1.0).all())
        made = []
        for lo, hi in pairwise(cuts):
            inside = slice(X.indptr[lo], X.indptr[hi])
            values = np.empty(0, np.float32) if ones else X.data[inside].astype(np.float32)
            indptr = (X.indptr[lo : hi + 1] - X.indptr[lo]).astype(np.int64)
            own = Examples(examples.loss, examples.between(lo, hi))
            made.append(RowPart(indptr, X.indices[inside].astype(np.int32), values, own, X.shape[1]))
        return cls(made)

    def ask(self, name: str, shared: Any = None, each: Sequence[Any] | None = None) -> list[Any]:
        def call(k: int) -> Any:
            return getattr(self._parts[k], name)(*arguments(shared, each, k))

        return list(self._pool.map(call, range(len(self._parts))))

    def close(self) -> None:
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def arguments(shared: Any, each: Sequence[Any] | None, k: int) -> list[Any]:
    """What part k is asked with."""
    return [*([] if shared is None else [shared]), *([] if each is None else [each[k]])]


def cut_examples(n: int, parts: int) -> list[int]:
    """Where parts of equal size begin, and the end."""
    if not 1 <= parts <= n:
        raise ValueError(f"the examples can be cut into 1..{n} parts, got {parts}")
    return [n * k // parts for k in range(parts + 1)]


def check_problem(name: str, problem: ProblemOptions, *, factored: bool) -> None:
    """Refuse what learning by example has not."""
    reasons = {
        f"loss {problem.loss}": problem.loss != "logistic",
        "an intercept": bool(problem.intercept),
        f"an l1_ratio of {problem.l1_ratio:g}": problem.l1_ratio != 1.0,
        "non-negative coefficients": problem.nonnegative,
        "standardized features": problem.standardize,
        "penalty factors": factored,
    }
    for what, asked in reasons.items():
        if asked:
            raise ValueError(
                f"algorithm {name!r} has logistic loss and the L1 penalty alone; it does not go with {what}"
            )


def make_problem_by_example(rows: Rows, examples: Examples) -> tuple[Problem, NullModel]:
    """The problem of logistic loss with the L1 penalty, and its null model, β = 0."""
    zero = NullModel(Coefficients.empty(), examples.value(np.zeros(examples.n)), rows.largest_slope())
    return Problem(examples, Penalty(rows.width)), zero
