"""Blocks that are lost at any question and made anew: the path is the same to the last bit."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import (
    Blocks,
    Coefficients,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    ProblemOptions,
    Solution,
    SolverOptions,
    ThreadBlocks,
    make_problem,
    null_model,
    solve_path,
)
from solver.algorithms.paper import State
from solver.arrays import Float64
from solver.linesearch import Found
from solver.replay import Question, Replay

MODES: dict[str, Any] = {
    "paper": SolverOptions.paper(tol=1e-9, max_rounds=60),
    "certified": DefaultOptions(),
    "beyond the budget": DefaultOptions(subspace_memory=0, max_rounds=40),
    "in parts": DefaultOptions(subspace_memory=2000, max_rounds=40),
}
PROBLEMS = {
    "plain": ProblemOptions(intercept=False),
    "intercept": ProblemOptions(intercept=True),
    "probit, elastic net": ProblemOptions(loss="probit", intercept=True, l1_ratio=0.7, standardize=True),
    "squared, non-negative": ProblemOptions(loss="squared", intercept=True, nonnegative=True),
}
RATIOS = (1.1, 0.5, 0.2, 0.19, 0.004)  # of λmax: above it, and far apart, so that there are stepping stones


class Forgetful(Blocks):
    """Blocks in this process that are all lost while they work on some of the questions, as workers may be."""

    def __init__(self, make: Callable[[], ThreadBlocks], lost: Callable[[int], bool]) -> None:
        self._make, self._is_lost = make, lost
        self._blocks = make()
        self._replay, self.asked, self.lost = Replay(), 0, 0

    @property
    def sizes(self) -> Any:
        return self._blocks.sizes

    def follow(self, iterate: Callable[[], tuple[Coefficients, Float64]]) -> None:
        self._replay.follow(iterate)

    def ask(self, name: str, *shared: Any, each: Any = None) -> Iterable[Any]:
        question = Question(name, shared, each)
        self.asked += 1
        if self._is_lost(self.asked):
            self.lost += 1
            list(self._put(self._replay.due(question)))  # they may have done some of it
            self._blocks.close()
            self._blocks = self._make()
            for earlier in self._replay.questions():
                list(self._put(earlier))
        answers = list(self._put(self._replay.due(question)))
        self._replay.note(question)
        return answers

    def _put(self, question: Question) -> Iterable[Any]:
        return self._blocks.ask(question.name, *question.shared, each=question.each)


def path_of(blocks: Blocks, examples: Examples, asked: ProblemOptions, options: Any) -> list[Solution]:
    factors = np.ones(blocks.layout.size)
    if asked.intercept and not asked.nonnegative:
        factors[3] = 0.0  # fitted by the driver
    problem = make_problem(blocks, examples, asked, factors=factors)
    null = null_model(blocks, problem)
    return list(solve_path(blocks, problem, [ratio * null.lambda_max for ratio in RATIOS], options, null=null))


@pytest.mark.filterwarnings("ignore::solver.records.ConvergenceWarning")
@pytest.mark.parametrize("asked", PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.parametrize("options", MODES.values(), ids=MODES.keys())
def test_blocks_lost_at_any_question_change_nothing(options: Any, asked: ProblemOptions) -> None:
    rng = np.random.default_rng(4)
    X = sparse.random_array((60, 90), density=0.3, rng=rng, format="csc", dtype=np.float32)
    score = X @ rng.normal(size=90) + 0.3 * rng.normal(size=60)
    examples = Examples.of(score if asked.loss == "squared" else np.sign(score), None, asked.loss)

    def make() -> ThreadBlocks:
        return ThreadBlocks.from_csc(X, examples, 3)

    undisturbed = Forgetful(make, lambda number: False)
    expected = path_of(undisturbed, examples, asked, options)
    for lost in (lambda number: True, lambda number: number % 3 == 1, lambda number: rng.random() < 0.2):
        blocks = Forgetful(make, lost)
        found = path_of(blocks, examples, asked, options)
        assert blocks.lost > 0
        assert blocks.asked == undisturbed.asked
        for one, other in zip(found, expected, strict=True):
            assert one.rounds == other.rounds
            # In paper mode, what the driver fits itself reaches the blocks as a part of the step, rounded.
            tolerance = 1e-12 if asked.intercept and isinstance(options, SolverOptions) else 0.0
            np.testing.assert_allclose(one.objective, other.objective, rtol=tolerance)
            assert np.array_equal(one.beta.position, other.beta.position)
            np.testing.assert_allclose(one.beta.value, other.beta.value, rtol=1e6 * tolerance)


def test_a_step_that_has_been_made_is_not_made_again() -> None:
    """Blocks are lost between two questions, while a step waits for the next."""
    X = sparse.random_array((40, 12), density=0.5, rng=np.random.default_rng(0), format="csc", dtype=np.float32)
    examples = Examples.of(np.where(np.arange(40) % 3, 1.0, -1.0))
    found = []
    for lost_at in (0, 5):
        blocks = Forgetful(lambda: ThreadBlocks.from_csc(X, examples, 2), partial(operator.eq, lost_at))
        blocks.set_penalty(Penalty(12))
        state = State(blocks, Problem(examples, Penalty(12)), 0.5, Coefficients.empty())
        direction = state.direction(1e-6)
        state.move(direction, Found(0.7, state.objective, state.objective, 0.0))
        blocks.columns(np.array([3], np.int64))  # the fifth question
        assert blocks.lost == (lost_at > 0)
        found.append(state.direction(1e-6))
    np.testing.assert_array_equal(found[0].dmargins, found[1].dmargins)
