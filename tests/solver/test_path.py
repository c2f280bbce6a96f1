"""Algorithm 5: the path, and taking it up again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from solver import (
    Coefficients,
    RoundRecord,
    Solution,
    SolverOptions,
    ThreadBlocks,
    falling,
    lambda_grid,
    solve_path,
)
from tests.solver.plain import lambda_max, path, problem_of, solve

OPTIONS = SolverOptions.paper(tol=1e-5, max_rounds=1000)


def test_lambda_max_is_the_largest_slope_at_zero(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks]
) -> None:
    X, examples = make("mixed")
    slopes = X.T.astype(np.float64) @ (examples.encoded / 2.0)
    with blocks_of(X, examples, 4) as blocks:
        assert lambda_max(blocks, examples) == pytest.approx(np.abs(slopes).max(), rel=1e-12)


@pytest.mark.parametrize("name", ["tall", "sparse", "one_hot", "dense"])
def test_just_below_lambda_max_something_enters_and_from_there_up_nothing_does(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], name: str
) -> None:
    X, examples = make(name)
    with blocks_of(X, examples, 2) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = [2 * largest, largest, 0.99 * largest]
        above, at, below = path(blocks, examples, lambdas, OPTIONS)
    for solution in (above, at):
        assert (solution.nonzeros, solution.rounds, solution.gap, solution.converged) == (0, 0, 0.0, True)
        assert solution.objective == pytest.approx(examples.n * np.log(2.0), rel=1e-12)
    assert below.nonzeros > 0


def test_the_grid_is_lambda_max_halved_twenty_times() -> None:
    assert lambda_grid(8.0) == [8.0 * 2.0**-i for i in range(1, 21)]


def test_length_ratio_and_extra_values_can_be_chosen() -> None:
    assert lambda_grid(8.0, 3, 0.25) == [2.0, 0.5, 0.125]
    assert lambda_grid(8.0, 2, 0.5, extra=[3.0, 9.0, 2.0]) == [9.0, 4.0, 3.0, 2.0]
    assert falling([1.0, 3.0, 2.0, 3.0]) == [3.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: lambda_grid(0.0), "λmax must be > 0"),
        (lambda: lambda_grid(1.0, 0), "length must be at least 1"),
        (lambda: lambda_grid(1.0, 5, 1.0), "ratio must lie between"),
        (lambda: falling([1.0, 0.0]), "λ must be > 0 and finite, got 0.0"),
        (lambda: falling([float("nan")]), "λ must be > 0 and finite, got nan"),
    ],
)
def test_impossible_grids_are_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_lambdas_must_fall(make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks]) -> None:
    X, examples = make("tall")
    with blocks_of(X, examples, 1) as blocks, pytest.raises(ValueError, match="must fall"):
        next(solve_path(blocks, problem_of(blocks, examples), [1.0, 2.0], OPTIONS))


@pytest.mark.parametrize("lam", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_lambda_is_refused(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], lam: float
) -> None:
    X, examples = make("tall")
    with blocks_of(X, examples, 1) as blocks, pytest.raises(ValueError, match="λ must be > 0"):
        solve(blocks, examples, lam, OPTIONS)


def equal(one: Solution, other: Solution) -> bool:
    return (
        one.objective == other.objective
        and one.gap == other.gap
        and one.rounds == other.rounds
        and np.array_equal(one.beta.position, other.beta.position)
        and np.array_equal(one.beta.value, other.beta.value)
    )


@pytest.mark.parametrize("name", ["sparse", "mixed", "dense"])
@pytest.mark.parametrize("M", [1, 3])
def test_a_path_cut_after_any_lambda_ends_the_same_to_the_last_bit(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], name: str, M: int
) -> None:
    X, examples = make(name)
    with blocks_of(X, examples, M) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = lambda_grid(largest, 8)
        whole = path(blocks, examples, lambdas, OPTIONS)
    for done in (1, 4, 7):
        stored = Coefficients(whole[done - 1].beta.position.copy(), whole[done - 1].beta.value.copy())
        with blocks_of(X, examples, M) as fresh:
            rest = path(fresh, examples, lambdas, OPTIONS, done=done, betas=[stored])
        assert [s.lambda_index for s in rest] == list(range(done, 8))
        assert all(equal(a, b) for a, b in zip(whole[done:], rest, strict=True))


def test_warm_starts_save_rounds_and_the_trace_tells_where_each_round_belongs(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks]
) -> None:
    X, examples = make("sparse")
    trace: list[RoundRecord] = []
    with blocks_of(X, examples, 2) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = lambda_grid(largest, 24, 0.8)
        options = SolverOptions.paper(tol=1e-6)
        warm = path(blocks, examples, lambdas, options, on_round=trace.append)
        cold = [solve(blocks, examples, lam, options) for lam in lambdas]
    assert sum(s.rounds for s in warm) < sum(s.rounds for s in cold)
    for solution in warm:
        assert solution.rounds == sum(record.lambda_index == solution.lambda_index for record in trace)
    for a, b in zip(warm, cold, strict=True):
        assert a.objective == pytest.approx(b.objective, rel=1e-3)
