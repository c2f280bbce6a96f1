"""Safe screening: features whose bound is at most λ are passed over and left unread, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from solver import (
    Block,
    Coefficients,
    Columns,
    DefaultOptions,
    Examples,
    Solution,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
)
from solver.stretches import SafePrefix, in_stretches
from tests.solver import plain
from tests.solver.plain import lambda_max

STRICT = DefaultOptions(gap=1e-8)


def bounds_of(X: Any, examples: Examples) -> Any:
    """max(Σ s|x| over yx > 0, Σ s|x| over yx < 0), for each feature."""
    wide = X.toarray().astype(np.float64) * examples.encoded[:, None]
    return np.maximum(np.maximum(wide, 0.0).sum(axis=0), -np.minimum(wide, 0.0).sum(axis=0))


class Counted:
    """Stretches of a few columns, and how often each was read."""

    def __init__(self, X: Any, per_stretch: int) -> None:
        self._parts = [X[:, first : first + per_stretch] for first in range(0, X.shape[1], per_stretch)]
        self.counts = [one.shape[1] for one in self._parts]
        self.reads = np.zeros(len(self._parts), int)

    def read(self, chosen: Iterable[int]) -> Iterator[Columns]:
        for k in chosen:
            self.reads[k] += 1
            one = self._parts[k]
            yield Columns.from_csc(one.indptr, one.indices, one.data, one.shape[0])

    def __iter__(self) -> Iterator[Columns]:
        return self.read(range(len(self.counts)))


def sorted_by_bound(X: Any, examples: Examples) -> tuple[Any, Any]:
    """Two halves as two partitions would be, each by falling bound, side by side; and the bounds."""
    bounds = bounds_of(X, examples)
    half = X.shape[1] // 2
    order = np.concatenate([first + np.argsort(-bounds[first:last]) for first, last in ((0, half), (half, None))])
    return X[:, order], bounds[order]


def path(source: Any, p: int, examples: Examples, bounds: Any, options: Any, length: int = 8) -> list[Solution]:
    with ThreadBlocks([Block(source, p, examples, bounds)]) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = lambda_grid(largest, length)
        return plain.path(blocks, examples, lambdas, options)


def same(one: Sequence[Solution], other: Sequence[Solution], rel: float) -> None:
    for a, b in zip(one, other, strict=True):
        assert a.lam == b.lam
        assert a.converged and b.converged
        assert a.objective == pytest.approx(b.objective, rel=rel)


@given(
    X=arrays(np.float32, st.tuples(st.integers(2, 14), st.integers(2, 9)), elements=st.integers(-3, 3)),
    copies=st.integers(0, 3),
    weighted=st.booleans(),
    order=st.booleans(),
    memory=st.sampled_from([None, 0, 100]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_the_optimum_is_the_same_without_screening(
    X: Any, copies: int, weighted: bool, order: bool, memory: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = sparse.csc_matrix(np.hstack([X, X[:, :copies], np.zeros((X.shape[0], 1), np.float32)]))
    weights = rng.exponential(size=X.shape[0]) if weighted else None
    examples = Examples.of(rng.choice([-1, 1], X.shape[0]), weights)
    if not np.abs(X.T @ examples.encoded).any():
        return
    if order:
        X, bounds = sorted_by_bound(X, examples)
    else:
        bounds = bounds_of(X, examples)
    options = DefaultOptions(gap=1e-6, subspace_memory=memory, max_rounds=2000)
    pruned = path(Counted(X, 2), X.shape[1], examples, bounds, options, 5)
    same(pruned, path(Counted(X, 2), X.shape[1], examples, None, options, 5), 2e-6)


@given(
    X=arrays(np.float32, st.tuples(st.integers(1, 10), st.integers(1, 6)), elements=st.integers(-3, 3)),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_no_slope_is_ever_above_its_bound(X: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    examples = Examples.of(rng.choice([-1, 1], X.shape[0]), rng.exponential(size=X.shape[0]))
    matrix = sparse.csc_matrix(X)
    block = Block([Columns.from_csc(matrix.indptr, matrix.indices, matrix.data, X.shape[0])], X.shape[1], examples)
    sweep = block.sweep(5.0 * rng.normal(size=X.shape[0]), 1.0, -1.0, 100)
    assert (np.abs(sweep.slope) <= bounds_of(matrix, examples)[sweep.position] * (1 + 1e-9)).all()


@pytest.mark.parametrize("memory", [None, 0])
def test_stretches_that_cannot_matter_are_not_read(make: Callable[..., Any], memory: int | None) -> None:
    X, bounds = sorted_by_bound(*make("sparse"))
    _, examples = make("sparse")
    source = Counted(X, 8)
    with ThreadBlocks([Block(source, X.shape[1], examples, bounds)]) as blocks:
        lam = float(np.sort(bounds)[-8])
        null = replace(plain.null(blocks, examples), lambda_max=2 * lam)  # so that λ is searched for a model
        source.reads[:] = 0
        options = DefaultOptions(subspace_memory=memory)
        (solution,) = plain.path(blocks, examples, [lam], options, null=null)
    # The first working set looks as far as 0.8 λ, sweeps as far as λ.
    level = 0.8 * lam if memory is None else lam
    can_matter = np.array([bounds[k : k + 8].max() > level for k in range(0, X.shape[1], 8)])
    assert (source.reads[~can_matter] == 0).all() and (~can_matter).any()
    assert (source.reads[can_matter] > 0).all()
    assert solution.converged


def test_a_smaller_threshold_reads_only_what_the_sweep_passed_over(make: Callable[..., Any]) -> None:
    X, bounds = sorted_by_bound(*make("sparse"))
    _, examples = make("sparse")
    source = Counted(X, 8)
    block = Block(source, X.shape[1], examples, bounds)
    margins = np.random.default_rng(0).normal(size=examples.n)
    high, low = float(np.quantile(bounds, 0.8)), float(np.quantile(bounds, 0.3))
    block.sweep(margins, high, 1.0, 1000)
    before = source.reads.copy()
    later = block.list_again(low, 1.0, 1000)
    whole = before > 0
    whole &= np.array([bounds[k : k + 8].min() > high for k in range(0, X.shape[1], 8)])
    assert (source.reads[whole] == before[whole]).all() and whole.any()
    anew = Block(Counted(X, 8), X.shape[1], examples, bounds).sweep(margins, low, 1.0, 1000)
    assert later.position.tolist() == anew.position.tolist()
    assert later.slope.tolist() == anew.slope.tolist()
    assert later.nbytes.tolist() == anew.nbytes.tolist()
    assert later.violation == anew.violation


def test_columns_and_products_read_only_the_stretches_that_hold_them(make: Callable[..., Any]) -> None:
    X, examples = make("mixed")
    source = Counted(X, 5)
    block = Block(source, X.shape[1], examples)
    wanted = np.array([1, 3, 16])
    columns = Columns.joined([part.columns for part in block.columns(wanted)], examples.n)
    assert source.reads.tolist() == [1, 0, 0, 1, 0, 0]
    found = Block([columns], 3, examples).start(Coefficients(np.arange(3), np.array([1.0, -2.0, 0.5])))
    product = block.start(Coefficients(wanted, np.array([1.0, -2.0, 0.5])))
    assert source.reads.tolist() == [2, 0, 0, 2, 0, 0]
    np.testing.assert_allclose(product, found, rtol=1e-12)


@pytest.mark.parametrize("name", ["sparse", "mixed", "wide"])
def test_paper_mode_is_the_same_to_the_last_bit(make: Callable[..., Any], name: str) -> None:
    X, bounds = sorted_by_bound(*make(name))
    _, examples = make(name)
    options = SolverOptions.paper(tol=1e-6, max_rounds=500)
    one, other = (path(Counted(X, 6), X.shape[1], examples, b, options) for b in (bounds, None))
    for a, b in zip(one, other, strict=True):
        assert (a.lam, a.objective, a.gap, a.rounds) == (b.lam, b.objective, b.gap, b.rounds)
        assert a.beta.value.tobytes() == b.beta.value.tobytes()


@pytest.mark.parametrize("name", ["tall", "wide", "sparse", "one_hot", "dense", "mixed"])
def test_screening_costs_no_rounds(make: Callable[..., Any], name: str) -> None:
    X, bounds = sorted_by_bound(*make(name))
    _, examples = make(name)
    one, other = (path(Counted(X, 6), X.shape[1], examples, b, DefaultOptions()) for b in (bounds, None))
    assert [s.rounds for s in one] == [s.rounds for s in other]
    same(one, other, 1e-12)


def test_coefficients_that_begin_below_the_bound_go_to_zero(make: Callable[..., Any]) -> None:
    X, bounds = sorted_by_bound(*make("sparse"))
    _, examples = make("sparse")
    last = int(np.flatnonzero(bounds > 0)[-1])
    begin = Coefficients(np.array([last]), np.array([0.7]))
    for memory in (None, 0):
        with ThreadBlocks([Block(Counted(X, 6), X.shape[1], examples, bounds)]) as blocks:
            largest = lambda_max(blocks, examples)
            options = DefaultOptions(gap=1e-6, subspace_memory=memory)
            (found,) = plain.path(blocks, examples, [0.5 * largest], options, betas=[begin])
            (cold,) = plain.path(blocks, examples, [0.5 * largest], options)
        assert found.objective == pytest.approx(cold.objective, rel=2e-6)


def test_a_part_of_a_stretch_is_its_columns(make: Callable[..., Any]) -> None:
    X, examples = make("mixed")
    whole = Columns.from_csc(X.indptr, X.indices, X.data, examples.n)
    for lo, hi in ((0, 5), (4, 20), (26, 27), (7, 7)):
        margins = np.random.default_rng(0).normal(size=examples.n)
        found = Block([whole.part(lo, hi)], hi - lo, examples).sweep(margins, 1.0, -1.0, 99)
        every = Block([whole], whole.count, examples).sweep(margins, 1.0, -1.0, 99)
        assert found.slope.tolist() == every.slope[lo:hi].tolist()


def test_bounds_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bounds given for 4 columns"):
        SafePrefix(np.ones(3), [2, 2])


def test_a_source_that_can_only_be_passed_over_gives_single_stretches() -> None:
    X = sparse.random_array((6, 10), density=0.5, format="csc", dtype=np.float32, rng=np.random.default_rng(0))
    counted = Counted(X, 3)

    class Passing:
        def __iter__(self) -> Iterator[Columns]:
            return iter(counted)

    source = in_stretches(Passing())
    assert list(source.counts) == [3, 3, 3, 1]
    assert [columns.count for columns in source.read([1, 3])] == [3, 1]
