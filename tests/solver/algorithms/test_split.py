"""Beyond the budget: rounds split by feature, searched over a span, reach the same optimum in few rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import (
    Coefficients,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    RoundRecord,
    Solution,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
)
from solver.algorithms.certified.span import Span
from solver.algorithms.certified.split import Pace
from solver.algorithms.certified.tuning import SPLIT_ROUNDS
from solver.batches import BLOCK_DESCENT, Batches
from solver.columns import Columns
from tests.solver import plain
from tests.solver.plain import lambda_max, solve

Made = tuple[sparse.csc_matrix, Examples]


def factors(seed: int, n: int, p: int) -> Made:
    """All features share a few factors, so every block correlates with every other."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, p)) + 0.3 * rng.normal(size=(n, p))
    y = np.where(X[:, 0] - X[:, -1] + rng.normal(size=n) > 0, 1, -1)
    return sparse.csc_matrix(X.astype(np.float32)), Examples.of(y)


def doubled(seed: int, n: int, p: int) -> Made:
    """Every feature twice, in blocks that do not see each other."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.4)
    y = np.where(X[:, :4].sum(axis=1) + rng.normal(size=n) > 0, 1, -1)
    return sparse.csc_matrix(np.hstack([X, X]).astype(np.float32)), Examples.of(y)


DATA = {
    "factors": factors(0, 200, 40),
    "wide factors": factors(1, 50, 150),
    "doubled": doubled(2, 150, 25),
}


def path(made: Made, options: DefaultOptions, M: int = 4, length: int = 8, **more: Any) -> list[Solution]:
    X, examples = made
    with ThreadBlocks.from_csc(X, examples, M, threads=2) as blocks:
        return plain.path(blocks, examples, lambda_grid(lambda_max(blocks, examples), length), options, **more)


def needed(made: Made, found: list[Solution]) -> int:
    """Bytes of the columns that the largest solution has."""
    return max(int(8 * made[0].getnnz(axis=0)[s.beta.position].sum()) for s in found)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("name", DATA)
def test_any_budget_reaches_the_optimum_within_tol(name: str, share: float) -> None:
    tight = path(DATA[name], DefaultOptions(gap=1e-8))
    memory = int(share * needed(DATA[name], tight))
    for tol in (1e-3, 1e-4, 1e-5):
        found = path(DATA[name], DefaultOptions(tol=tol, subspace_memory=memory))
        for one, best in zip(found, tight, strict=True):
            assert one.converged
            assert one.objective - best.objective <= 0.7 * tol * best.objective
            assert one.objective - best.objective <= one.gap + 1e-9 * one.objective


@pytest.mark.parametrize("name", DATA)
def test_a_strict_gap_is_reached_without_any_budget(name: str) -> None:
    for one in path(DATA[name], DefaultOptions(gap=1e-5, subspace_memory=0, max_rounds=500), length=6):
        assert one.converged and one.gap <= 1e-5 * one.objective


def test_rounds_are_a_fraction_of_paper_modes_where_blocks_correlate() -> None:
    X, examples = DATA["factors"]
    found = path(DATA["factors"], DefaultOptions(subspace_memory=0), M=4)
    last = found[-1]
    with ThreadBlocks.from_csc(X, examples, 4) as blocks, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = SolverOptions.paper(tol=1e-12, max_rounds=4 * last.rounds)
        paper = solve(blocks, examples, last.lam, options, found[-2].beta)
    assert last.objective < paper.objective


def test_what_fits_helps() -> None:
    tight = path(DATA["factors"], DefaultOptions(gap=1e-8))
    none, half = (
        sum(s.rounds for s in path(DATA["factors"], DefaultOptions(subspace_memory=memory)))
        for memory in (0, needed(DATA["factors"], tight) // 2)
    )
    assert half < none


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_every_round_has_its_gap_and_the_objective_never_rises(share: float) -> None:
    trace: list[RoundRecord] = []
    tight = path(DATA["doubled"], DefaultOptions(gap=1e-8))
    options = DefaultOptions(subspace_memory=int(share * needed(DATA["doubled"], tight)))
    for solution in path(DATA["doubled"], options, on_round=trace.append):
        mine = [r for r in trace if r.lambda_index == solution.lambda_index]
        assert [r.round for r in mine] == list(range(1, solution.rounds + 1))
        assert all(b.objective <= a.objective * (1 + 1e-12) for a, b in pairwise(mine))
        assert all(r.gap is not None and r.gap >= -1e-9 * r.objective for r in mine)
        assert (mine[-1].gap, mine[-1].nonzeros) == (solution.gap, solution.nonzeros)


def test_a_path_taken_up_again_is_the_same() -> None:
    options = DefaultOptions(subspace_memory=0)
    whole = path(DATA["doubled"], options)
    stored = Coefficients(whole[3].beta.position.copy(), whole[3].beta.value.copy())
    for a, b in zip(whole[4:], path(DATA["doubled"], options, done=4, betas=[stored]), strict=True):
        assert (a.objective, a.gap, a.rounds) == (b.objective, b.gap, b.rounds)
        assert a.beta.value.tobytes() == b.beta.value.tobytes()


def test_the_objective_and_the_margins_belong_to_the_coefficients(
    make: Callable[..., Any], objective: Callable[..., float]
) -> None:
    X, examples = make("mixed")
    for solution in path((X, examples), DefaultOptions(subspace_memory=0)):
        assert solution.objective == pytest.approx(objective(X, examples, solution.lam, solution.beta), rel=1e-9)


@pytest.mark.parametrize("name", ["sparse", "wide", "mixed"])
def test_what_is_zero_is_exactly_zero(make: Callable[..., Any], name: str) -> None:
    tight = path(make(name), DefaultOptions(gap=1e-8))
    for one, best in zip(path(make(name), DefaultOptions(subspace_memory=0)), tight, strict=True):
        assert one.nonzeros <= 1.1 * best.nonzeros + 1


SHARED = [[2, 2, -1, 2], [1, -3, 3, 2], [2, 1, 0, 1], [0, -1, -3, -2]]
FAR = np.array([*SHARED, [2, 2, -2, 0], [-1, 1, 2, 0], [0, 1, 0, 0]])
NEARLY_SEPARABLE = np.array([*SHARED, [1, 2, 0, 1], [-1, 0, 1, 0], [0, 1, 0, 0]])


@pytest.mark.parametrize("memory", [0, 28])
@pytest.mark.parametrize("X", [FAR, NEARLY_SEPARABLE], ids=["far", "nearly separable"])
def test_directions_that_all_but_depend_on_each_other_are_still_searched(X: Any, memory: int) -> None:
    """A column twice, and λ far below λmax: a combination of the last steps goes nowhere at any length."""
    y = [1, 1, -1, 1, 1, 1, -1] if X is FAR else [-1, 1, 1, 1, 1, 1, -1]
    made = sparse.csc_matrix(np.hstack([X, X[:, :1]]).astype(np.float32)), Examples.of(y)
    with ThreadBlocks.from_csc(*made, 3, threads=1) as blocks:
        lam = 1e-4 * lambda_max(blocks, made[1])
        (tight,) = plain.path(blocks, made[1], [lam], DefaultOptions(gap=1e-8))
        (found,) = plain.path(blocks, made[1], [lam], DefaultOptions(subspace_memory=memory, max_rounds=30))
    assert found.converged
    assert found.objective == pytest.approx(tight.objective, rel=1e-6)


# --- the parts ----------------------------------------------------------------------------------------------


def test_the_span_of_two_steps_finds_what_no_single_step_does() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[:, 1] = X[:, 0] + 0.1 * X[:, 1]
    signed = np.where(X[:, 0] - 0.5 * X[:, 1] + 0.1 * rng.normal(size=300) > 0, 1.0, -1.0)
    restricted = Problem(Examples.of(signed), Penalty(2)).at(1e-3)
    span = Span(restricted, np.zeros(300), np.zeros(2), np.ascontiguousarray(X.T), np.eye(2))
    c, found = span.minimise(300 * np.log(2.0))

    def f(b: Any) -> float:
        return float(np.logaddexp(0, -signed * (X @ b)).sum() + 1e-3 * np.abs(b).sum())

    assert found == pytest.approx(f(c), rel=1e-12)
    assert all(found <= f(c + 0.05 * rng.normal(size=2)) for _ in range(50))


def test_directions_that_say_the_same_do_no_harm() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=100)
    signed = np.where(x + rng.normal(size=100) > 0, 1.0, -1.0)
    D = np.array([x, x, 2 * x, np.zeros(100)])
    B = np.array([[1.0], [1.0], [2.0], [0.0]])
    c, found = Span(Problem(Examples.of(signed), Penalty(1)).at(1.0), np.zeros(100), np.zeros(1), D, B).minimise(
        100 * np.log(2.0)
    )
    assert np.isfinite(c).all()
    assert found < 100 * np.log(2.0)


def test_batches_hold_to_their_size_and_cycle_over_all_columns(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, examples = make("mixed")
    columns = Columns.from_csc(X.indptr, X.indices, X.data, examples.n)
    working = np.stack([examples.encoded / 2, np.full(examples.n, 0.25)])
    changes = []
    for size in (1 << 27, 1):
        monkeypatch.setattr("solver.batches.BLOCK_DESCENT", replace(BLOCK_DESCENT, batch_bytes=size))
        dmargins = np.empty(examples.n)
        batches = Batches(working.copy(), np.empty((examples.n, 2)), dmargins, 1e-6, 200, examples.least_curvature)
        for chosen in np.split(np.arange(27), 3):
            batches.add(chosen, columns.select(chosen), np.zeros(9), Penalty(9).at(1.0))
        change = batches.change()
        np.testing.assert_allclose(dmargins, X.astype(np.float64) @ change.dense(27), rtol=1e-6, atol=1e-8)
        changes.append(change)
    slopes = X.T.astype(np.float64) @ (working[0] - 0.25 * (X.astype(np.float64) @ changes[0].dense(27)))
    assert np.abs(slopes).max() <= 1.0 + 0.2  # one batch: the model is minimised, up to rest_share
    assert changes[1].position.size  # one by one: each once, in turn


def test_pace_needs_three_rounds_and_tells_what_a_steady_pace_leaves() -> None:
    pace = Pace()
    gains = [0.8**k for k in range(12)]
    estimates = [pace.add(gain) for gain in gains]
    assert estimates[:2] == [np.inf, np.inf]
    for k, estimate in enumerate(estimates[2:], 2):
        left = sum(0.8**j for j in range(k + 1, 200))
        assert left <= estimate
    assert estimate <= 5 * SPLIT_ROUNDS.pace_safety * left
