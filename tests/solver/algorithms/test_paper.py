"""The outer loop: it descends, it arrives where LIBLINEAR does, and it keeps zeros."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from pipeline.export import sklearn_penalty
from solver import (
    Coefficients,
    ConvergenceWarning,
    Examples,
    Penalty,
    Problem,
    RoundRecord,
    SolverOptions,
    ThreadBlocks,
    solve_path,
)
from solver.algorithms.paper import back_to_one
from solver.linesearch import Found, line_search
from tests.solver.plain import lambda_max, solve, state_at

NAMES = ["tall", "wide", "sparse", "one_hot", "dense", "mixed"]


def liblinear(X: Any, y: Any, lam: float, weights: Any = None) -> Coefficients:
    model = LogisticRegression(
        C=1.0 / lam, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=100_000, **sklearn_penalty(1.0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped at rounding rather than at 1e-10
        model.fit(X.astype(np.float64), y, sample_weight=weights)
    return Coefficients.from_dense(model.coef_.ravel())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [2, 6, 10])
def test_any_number_of_blocks_reaches_liblinears_objective(
    make: Callable[..., Any],
    blocks_of: Callable[..., ThreadBlocks],
    objective: Callable[..., float],
    tight: SolverOptions,
    name: str,
    k: int,
) -> None:
    X, examples = make(name)
    with blocks_of(X, examples, 1) as blocks:
        lam = lambda_max(blocks, examples) / 2**k
    best = objective(X, examples, lam, liblinear(X, examples.encoded, lam))
    for M in (1, 2, 5):
        with blocks_of(X, examples, M) as blocks:
            solution = solve(blocks, examples, lam, tight)
        assert solution.converged
        assert solution.objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("M", [1, 2, 5])
def test_the_objective_falls_in_every_round(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], name: str, M: int
) -> None:
    X, examples = make(name)
    trace: list[RoundRecord] = []
    with blocks_of(X, examples, M) as blocks:
        lam = lambda_max(blocks, examples) / 64
        options = SolverOptions.paper(tol=1e-10, max_rounds=5000)
        solution = solve(blocks, examples, lam, options, on_round=trace.append)
    values = [examples.n * np.log(2.0), *(record.objective for record in trace)]
    assert all(after < before for before, after in pairwise(values[:-1]))
    assert values[-1] <= values[-2]
    assert [record.round for record in trace] == list(range(1, solution.rounds + 1))
    assert trace[-1].objective == solution.objective
    assert trace[-1].nonzeros == solution.nonzeros


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("M", [1, 2, 5])
def test_f_from_incremental_margins_is_f_from_scratch_in_every_round(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], objective: Callable[..., float], name: str, M: int
) -> None:
    X, examples = make(name)
    options = SolverOptions.paper()
    with blocks_of(X, examples, M) as blocks:
        lam = lambda_max(blocks, examples) / 256
        state = state_at(blocks, examples, lam, Coefficients.empty())
        for _ in range(60):
            direction = state.direction(options.nu)
            state.move(direction, line_search(state.ray(direction), state.objective, options))
            beta = Coefficients.from_dense(state.beta)
            assert state.objective == pytest.approx(objective(X, examples, lam, beta), rel=1e-9)
            assert state.penalty == pytest.approx(lam * np.abs(state.beta).sum(), rel=1e-12)
            assert state.nonzeros == beta.position.size


def test_the_blocks_follow_the_iterate_one_call_behind(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks]
) -> None:
    X, examples = make("sparse")
    with blocks_of(X, examples, 3) as blocks:
        state = state_at(blocks, examples, 0.5, Coefficients.empty())
        for _ in range(4):
            direction = state.direction(1e-6)
            state.move(direction, line_search(state.ray(direction), state.objective, SolverOptions.paper()))
        gap = state.gap()
        ratio = blocks.violation(None, 1.0).ratio
    p = 1.0 / (1.0 + np.exp(-state.margins))
    slopes = X.T.astype(np.float64) @ ((examples.encoded + 1.0) / 2.0 - p)
    assert ratio == pytest.approx(np.abs(slopes).max(), rel=1e-10)
    assert gap >= 0.0


def kkt_violation(X: Any, examples: Examples, lam: float, beta: Any) -> float:
    s, y = np.abs(examples.encoded), np.sign(examples.encoded)
    m = X.astype(np.float64) @ beta
    slopes = X.T.astype(np.float64) @ (s * y / (1.0 + np.exp(y * m)))
    at_nonzero = np.where(beta != 0.0, np.abs(slopes - lam * np.sign(beta)), 0.0)
    at_zero = np.where(beta == 0.0, np.maximum(np.abs(slopes) - lam, 0.0), 0.0)
    return float(max(at_nonzero.max(), at_zero.max()) / lam)


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_satisfies_the_optimality_conditions(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], tight: SolverOptions, name: str
) -> None:
    X, examples = make(name)
    with blocks_of(X, examples, 3) as blocks:
        lam = lambda_max(blocks, examples) / 16
        solution = solve(blocks, examples, lam, tight)
    assert kkt_violation(X, examples, lam, solution.beta.dense(X.shape[1])) < 1e-4


def test_gamma_enters_the_rule_and_the_same_optimum_is_reached(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks]
) -> None:
    X, examples = make("dense")
    with blocks_of(X, examples, 4) as blocks:
        lam = lambda_max(blocks, examples) / 16
        found = [
            solve(blocks, examples, lam, SolverOptions.paper(gamma=gamma, sigma=0.3, tol=1e-12, max_rounds=5000))
            for gamma in (0.0, 0.45)
        ]
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-8)


# --- sparsity ---


def test_going_back_to_alpha_1_happens_only_if_it_costs_little_and_never_climbs() -> None:
    options = SolverOptions(back_tol=0.01)
    cheap, dear, climbing = (Found(0.5, 100.0, at_one, -1.0) for at_one in (100.5, 102.0, 100.5))
    assert back_to_one(cheap, 101.0, options) == Found(1.0, 100.5, 100.5, -1.0)
    assert back_to_one(dear, 103.0, options) == dear
    assert back_to_one(climbing, 100.2, options) == climbing


def twins() -> tuple[Any, Examples]:
    """Two copies of each column, in different blocks: both blocks overshoot together, so α is near 1/2."""
    rng = np.random.default_rng(4)
    half = rng.normal(size=(200, 10)).astype(np.float32)
    y = np.where(half[:, 0] + 0.5 * rng.normal(size=200) > 0, 1, -1)
    return sparse.csc_matrix(np.hstack([half, half])), Examples.of(y)


def test_the_last_step_back_at_alpha_1_keeps_the_zeros_that_the_blocks_found(
    blocks_of: Callable[..., ThreadBlocks],
) -> None:
    X, examples = twins()
    with blocks_of(X, examples, 2) as blocks:
        lam = lambda_max(blocks, examples) / 3
        start = Coefficients.from_dense(np.full(20, 1e-7))  # tiny weights that every block sends to zero
        kept, lost = (
            solve(
                blocks,
                examples,
                lam,
                SolverOptions(tol=0.5, back_tol=back_tol, sufficient_decrease=0.9),
                solve_from(start, blocks, examples, lam),
            )
            for back_tol in (0.5, 0.0)
        )
    assert kept.rounds == lost.rounds == 1
    assert kept.nonzeros < lost.nonzeros
    assert kept.objective >= lost.objective


def solve_from(start: Coefficients, blocks: Any, examples: Examples, lam: float) -> Coefficients:
    """Near the optimum, with every coefficient a little off zero."""
    best = solve(blocks, examples, lam, SolverOptions(tol=1e-6, max_rounds=1000))
    return Coefficients.from_dense(best.beta.dense(20) * 0.97 + start.dense(20))


def test_the_iteration_limit_warns_and_says_what_was_reached(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks]
) -> None:
    X, examples = make("dense")
    with (
        blocks_of(X, examples, 2) as blocks,
        pytest.warns(ConvergenceWarning, match=r"3 rounds .* raise max_rounds or tol"),
    ):
        solution = solve(blocks, examples, 0.1, SolverOptions(tol=1e-12, max_rounds=3))
    assert (solution.rounds, solution.stop, solution.converged) == (3, "limit", False)


def test_a_warm_start_at_the_solution_ends_in_one_round(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], tight: SolverOptions
) -> None:
    X, examples = make("sparse")
    with blocks_of(X, examples, 2) as blocks:
        first = solve(blocks, examples, 0.5, tight)
        again = solve(blocks, examples, 0.5, SolverOptions(tol=1e-9), first.beta)
    assert again.rounds == 1
    assert again.objective == pytest.approx(first.objective, rel=1e-12)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (2.0, 1.0), (3.0, 5.0)])
def test_example_weights_equal_repeated_rows(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], tight: SolverOptions, weights: tuple[float, float]
) -> None:
    X, examples = make("mixed")
    times = np.where(np.arange(examples.n) % 2 == 0, *weights).astype(int)
    rows = np.repeat(np.arange(examples.n), times)
    weighted, repeated = Examples.of(examples.encoded, times), Examples.of(examples.encoded[rows])
    found = []
    for matrix, of in ((X, weighted), (X[rows].tocsc().sorted_indices(), repeated)):
        with blocks_of(matrix, of, 2) as blocks:
            lam = lambda_max(blocks, of) / 8
            found.append((lam, solve(blocks, of, lam, tight)))
    (lam, one), (other_lam, other) = found
    assert lam == pytest.approx(other_lam, rel=1e-12)
    assert one.objective == pytest.approx(other.objective, rel=1e-9)
    assert np.allclose(one.beta.dense(X.shape[1]), other.beta.dense(X.shape[1]), atol=1e-5)


def test_an_example_of_weight_0_has_no_say(
    make: Callable[..., Any], blocks_of: Callable[..., ThreadBlocks], tight: SolverOptions
) -> None:
    X, examples = make("tall")
    keep = np.arange(examples.n) % 3 != 0
    found = []
    for matrix, of in (
        (X, Examples.of(examples.encoded, keep.astype(float))),
        (X[keep].tocsc(), Examples.of(examples.encoded[keep])),
    ):
        with blocks_of(matrix, of, 2) as blocks:
            found.append(solve(blocks, of, 2.0, tight).objective)
    assert found[0] == pytest.approx(found[1], rel=1e-10)


def test_a_line_search_that_finds_nothing_ends_the_iteration_and_says_so(
    blocks_of: Callable[..., ThreadBlocks],
) -> None:
    """With γ near 1 and features that go together, one cycle's D is positive, so no step passes."""
    rng = np.random.default_rng(0)
    X = (0.3 * rng.normal(size=(200, 1)) + rng.normal(size=(200, 12))).astype(np.float32)
    examples = Examples.of(np.where(X.sum(axis=1) + 4.0 * rng.normal(size=200) > 0, 1, -1))
    options = SolverOptions(gamma=0.99, sufficient_decrease=0.99, back_tol=0.0)
    with (
        blocks_of(sparse.csc_matrix(X), examples, 1) as blocks,
        pytest.warns(ConvergenceWarning, match="found no step"),
    ):
        solution = solve(blocks, examples, 0.01, options)
    assert (solution.stop, solution.converged, solution.rounds) == ("no step", False, 1)
    assert solution.nonzeros == 0


@pytest.mark.parametrize("blocks", [1, 3])
def test_beside_an_intercept_columns_far_from_zero_take_no_more_rounds_than_near_it(blocks: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12))
    y = np.where(X[:, 0] - X[:, 1] + 0.5 + rng.normal(size=300) > 0, 1.0, -1.0)
    examples, options = Examples.of(y), SolverOptions.paper(tol=1e-8, max_rounds=300)
    problem = Problem(examples, Penalty(12), intercept=True)
    found, records = [], dict[int, RoundRecord]()
    for mean in (0.0, 1000.0):
        columns = sparse.csc_matrix((X + mean).astype(np.float32))
        with ThreadBlocks.from_csc(columns, examples, blocks) as cut:
            path = solve_path(
                cut, problem, [20.0, 5.0, 1.0], options, on_round=lambda one: records.update({one.lambda_index: one})
            )
            found.append(list(path))
    for near, far in zip(*found, strict=True):
        assert near.converged and far.converged
        assert records[far.lambda_index].nonzeros == far.nonzeros  # the intercept is none of them
        assert far.objective == pytest.approx(near.objective, rel=1e-4)  # data round to float32
        assert far.rounds <= near.rounds + 2
        assert far.gap <= 1e-3 * far.objective
