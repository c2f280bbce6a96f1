"""Passes over many examples: cut into strips by their number alone, worked on by any number of threads."""

from __future__ import annotations

import pickle
import sys
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import (
    LOSSES,
    Block,
    Columns,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    ProblemOptions,
    SolverOptions,
    ThreadBlocks,
    make_problem,
    null_model,
    solve_path,
)
from solver import free as free_module
from solver import threads as threads_module
from solver.free import FreeCoordinates
from solver.point import Point
from solver.threads import STRIP, Threads, strips

N = 300
LENGTH = 37  # of a strip in these tests: it does not divide N
every_loss = pytest.mark.parametrize("loss", LOSSES)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "STRIP", LENGTH)


def drawn(loss: str, threads: int = 2) -> tuple[Examples, Any, Any]:
    """Examples with weights, margins, and a direction."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=N) if loss == "squared" else np.where(rng.random(N) < 0.3, 1.0, -1.0)
    whole = Examples.of(y, rng.exponential(size=N), loss)
    return Examples(whole.loss, whole.encoded, Threads(threads)), 2.0 * rng.normal(size=N), rng.normal(size=N)


def results(loss: str, threads: int = 2) -> list[Any]:
    """What every pass over the examples gives."""
    examples, margins, dmargins = drawn(loss, threads)
    working, r, moved = np.empty((2, N)), np.empty(N), margins.copy()
    examples.residuals(margins, working, 1e-3)
    examples.residual(margins, r)
    examples.move(moved, 0.3, dmargins)
    sums = [examples.value(margins), examples.slope_along(margins, dmargins), examples.dual_value(margins, 0.8)]
    return [sums, examples.values_along(margins, dmargins, np.array([0.1, 1.0])), working, r, moved]


@pytest.mark.parametrize("n", [1, STRIP, STRIP + 1, 45_000_000])
def test_strips_cover_all_examples_and_none_is_longer_than_the_limit(n: int) -> None:
    cuts = np.array(strips(n))
    assert cuts[0] == 0 and cuts[-1] == n
    assert (np.diff(cuts) > 0).all() and np.diff(cuts).max() <= STRIP
    assert len(cuts) == 2 or n > STRIP


@every_loss
def test_strips_sum_to_what_one_pass_gives(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = results(loss)
    monkeypatch.setattr(threads_module, "STRIP", LENGTH)
    for one, other in zip(results(loss), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@every_loss
def test_any_number_of_threads_gives_the_same_bits(loss: str, short: None) -> None:
    for threads in (2, 3, 16):
        for one, other in zip(results(loss, threads), results(loss, 1), strict=True):
            np.testing.assert_array_equal(one, other)


def test_an_error_in_a_strip_reaches_the_caller(short: None) -> None:
    def work(lo: int, hi: int) -> None:
        if hi == N:
            raise OSError("the last strip")

    for threads in (1, 2):
        with pytest.raises(OSError, match="last strip"):
            Threads(threads).over_strips(work, N)


@every_loss
@pytest.mark.parametrize("features", [0, 2])
@pytest.mark.parametrize("intercept", [True, False])
def test_unpenalised_coordinates_are_fitted_strip_by_strip(
    loss: str, features: int, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(1).normal(size=(features, N)).astype(np.float32)
    penalty = Penalty.scaled(3, 1.0, False, np.r_[np.zeros(features), np.ones(3 - features)], None)
    found = []
    for length, threads in ((STRIP, 2), (LENGTH, 1), (LENGTH, 3)):
        monkeypatch.setattr(threads_module, "STRIP", length)
        monkeypatch.setattr(free_module, "PIECE", length)  # several of them to a strip where there are several columns
        examples, margins, _ = drawn(loss, threads)
        problem = Problem(examples, penalty, intercept)
        found.append((FreeCoordinates(problem, problem.free, rows).refit(margins), margins))
    for one, other in zip(found[1], found[2], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-9)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options", [DefaultOptions(), DefaultOptions(subspace_memory=0), SolverOptions.paper()], ids=str
)
def test_a_path_over_strips_is_the_path(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    X = sparse.random(N, 12, 0.3, "csc", random_state=3, dtype=np.float32)
    y = np.where(X[:, [0]].toarray()[:, 0] - 0.4 + 0.3 * rng.normal(size=N) > 0.0, 1.0, -1.0)

    def path() -> list[Any]:
        examples = Examples.of(y)
        with ThreadBlocks.from_csc(X, examples, 3) as blocks:
            problem = make_problem(blocks, examples, ProblemOptions(intercept=True))
            null = null_model(blocks, problem)
            return list(solve_path(blocks, problem, [null.lambda_max * 0.5**k for k in (1, 2, 4)], options, null=null))

    whole = path()
    monkeypatch.setattr(threads_module, "STRIP", LENGTH)
    for one, other in zip(path(), whole, strict=True):
        assert one.rounds == other.rounds
        assert one.objective == pytest.approx(other.objective, rel=1e-10)
        np.testing.assert_allclose(one.beta.dense(12), other.beta.dense(12), rtol=1e-6, atol=1e-8)


# --- what blocks of one process share -------------------------------------------------------------------------------


def test_blocks_that_ask_at_once_get_one_expansion_filled_by_all(short: None) -> None:
    examples, margins, _ = drawn("logistic")
    expected = np.empty((2, N))
    examples.residuals(margins, expected)
    point, together, found = Point(margins), Barrier(4), list[Any]()

    def ask() -> None:
        together.wait()
        found.append(point.expand(examples))

    asking = [Thread(target=ask) for _ in range(4)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert all(one is found[0] for one in found) and len(found) == 4
    np.testing.assert_array_equal((found[0].r, found[0].w), expected)


def test_an_expansion_is_kept_only_while_it_is_used() -> None:
    examples, margins, _ = drawn("logistic")
    point = Point(margins)
    r = point.expand(examples).r
    assert sys.getrefcount(r) == 2  # its name here, and the argument of the call
    np.testing.assert_array_equal(point.expand(examples).r, r)


def test_a_point_travels_as_its_margins() -> None:
    examples, margins, _ = drawn("logistic")
    point = Point(margins)
    kept = point.expand(examples)
    there = pickle.loads(pickle.dumps(point))  # noqa: S301
    np.testing.assert_array_equal(there.margins, margins)
    np.testing.assert_array_equal(there.expand(examples).r, kept.r)


def test_a_block_refers_to_margins_until_it_moves_its_own() -> None:
    examples, margins, dmargins = drawn("logistic")
    X = np.random.default_rng(4).normal(size=(N, 3)).astype(np.float32)
    block = Block([Columns.from_rows(np.ascontiguousarray(X.T))], 3, examples)
    block.sweep(margins, 1.0, 0.5, 10)
    assert block._margins is margins
    before = margins.copy()
    block.cycle(None, 1.0, 1e-6)
    margins += dmargins  # as the driver does after a round
    np.testing.assert_array_equal(block._margins, before)
