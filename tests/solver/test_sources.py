"""Where columns come from, and how many threads work on them, does not show in the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from solver import (
    Block,
    Coefficients,
    Columns,
    Examples,
    Solution,
    SolverOptions,
    Step,
    ThreadBlocks,
    lambda_grid,
)
from tests.solver import plain

OPTIONS = SolverOptions.paper(tol=1e-6, max_rounds=500)


class Streamed:
    """Columns made anew, a few at a time, in every pass."""

    def __init__(self, X: Any, n: int, per_chunk: int) -> None:
        self.X, self.n, self.per_chunk = X, n, per_chunk
        self.passes = 0

    def __iter__(self) -> Iterator[Columns]:
        self.passes += 1
        for first in range(0, self.X.shape[1], self.per_chunk):
            part = self.X[:, first : first + self.per_chunk]
            yield Columns.from_csc(part.indptr.copy(), part.indices.copy(), part.data.copy(), self.n)


def halves(X: Any) -> list[Any]:
    middle = X.shape[1] // 2
    return [X[:, :middle], X[:, middle:]]


def path(blocks: ThreadBlocks, examples: Examples) -> list[Solution]:
    with blocks:
        lambdas = lambda_grid(plain.lambda_max(blocks, examples), 6)
        return plain.path(blocks, examples, lambdas, OPTIONS)


def same(one: list[Solution], other: list[Solution]) -> bool:
    return all(
        a.objective == b.objective
        and a.gap == b.gap
        and a.rounds == b.rounds
        and a.beta.position.tobytes() == b.beta.position.tobytes()
        and a.beta.value.tobytes() == b.beta.value.tobytes()
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("name", ["sparse", "one_hot", "words", "mixed", "dense"])
def test_streamed_and_in_memory_give_the_same_bits(make: Callable[..., Any], name: str) -> None:
    X, examples = make(name)
    streams = [Streamed(half, examples.n, 4) for half in halves(X)]
    streamed = [Block(s, s.X.shape[1], examples) for s in streams]
    resident = [Block(list(s), s.X.shape[1], examples) for s in streams]
    before = [s.passes for s in streams]
    one = path(ThreadBlocks(streamed), examples)
    rounds = sum(s.rounds for s in one)
    assert all(s.passes >= b + rounds for s, b in zip(streams, before, strict=True))  # it really was read again
    assert same(one, path(ThreadBlocks(resident), examples))


@pytest.mark.parametrize("name", ["sparse", "words"])
def test_where_listed_columns_are_cut_does_not_matter(make: Callable[..., Any], name: str) -> None:
    X, examples = make(name)
    found = []
    for per_chunk in (1, 7, X.shape[1]):
        blocks = [Block(Streamed(half, examples.n, per_chunk), half.shape[1], examples) for half in halves(X)]
        found.append(path(ThreadBlocks(blocks), examples))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize("name", ["sparse", "mixed"])
def test_the_number_of_threads_does_not_matter(make: Callable[..., Any], name: str) -> None:
    X, examples = make(name)
    one, two, many = (path(ThreadBlocks.from_csc(X, examples, 5, threads), examples) for threads in (1, 2, 7))
    assert same(one, two)
    assert same(one, many)


def test_a_source_that_gives_other_columns_is_found_out(make: Callable[..., Any]) -> None:
    X, examples = make("sparse")
    whole = Columns.from_csc(X.indptr, X.indices, X.data, examples.n)
    for size, says in ((X.shape[1] + 1, "gave 80 columns, the block has 81"), (X.shape[1] - 1, "has 79 columns")):
        with pytest.raises(ValueError, match=says):
            Block([whole], size, examples).cycle(None, 1.0, 1e-6)
    short = Columns.from_csc([0, 1], [0], [1.0], 5)
    with pytest.raises(ValueError, match="over 5 examples"):
        Block([short], 1, examples).cycle(None, 1.0, 1e-6)


def test_margins_of_another_length_are_refused(make: Callable[..., Any]) -> None:
    X, examples = make("sparse")
    block = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], X.shape[1], examples)
    with pytest.raises(ValueError, match="margins of 3 examples"):
        block.set_margins(np.zeros(3))


def test_a_failure_in_one_block_reaches_the_caller(make: Callable[..., Any]) -> None:
    X, examples = make("sparse")

    class Broken:
        def __iter__(self) -> Iterator[Columns]:
            raise OSError("part-00001.parquet: no such file")

    good = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], X.shape[1], examples)
    with (
        ThreadBlocks([good, Block(Broken(), 3, examples)]) as blocks,
        pytest.raises(OSError, match="part-00001"),
    ):
        list(blocks.cycle(None, 1.0, 1e-6))


def test_a_step_is_made_once_and_moves_margins_and_coefficients(make: Callable[..., Any]) -> None:
    X, examples = make("sparse")
    block = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], X.shape[1], examples)
    first = block.cycle(None, 0.5, 1e-6)
    dbeta, dmargins = Coefficients(first.dbeta.position.copy(), first.dbeta.value.copy()), first.dmargins.copy()
    moved = block.cycle(Step(0.5, dmargins), 0.5, 1e-6).dbeta

    other = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], X.shape[1], examples)
    other.start(dbeta._replace(value=0.5 * dbeta.value))
    other.set_margins(0.5 * dmargins)
    expected = other.cycle(None, 0.5, 1e-6).dbeta
    assert np.array_equal(moved.position, expected.position)
    assert np.array_equal(moved.value, expected.value)


@pytest.mark.parametrize("count", [0, 81])
def test_an_impossible_number_of_blocks_is_refused(make: Callable[..., Any], count: int) -> None:
    X, examples = make("sparse")
    with pytest.raises(ValueError, match=r"blocks must lie in 1\.\.80"):
        ThreadBlocks.from_csc(X, examples, count)


def test_read_only_arrays_will_do(make: Callable[..., Any]) -> None:
    """What comes out of a file or off the wire cannot be written to."""
    X, examples = make("mixed")
    plain = path(ThreadBlocks.from_csc(X, examples, 2), examples)
    for array in (X.indptr, X.indices, X.data, examples.encoded):
        array.setflags(write=False)
    assert same(plain, path(ThreadBlocks.from_csc(X, examples, 2), examples))
    block = Block([Columns.from_csc(X.indptr, X.indices, X.data, examples.n)], X.shape[1], examples)
    dmargins = block.cycle(None, 0.5, 1e-6).dmargins.copy()
    dmargins.setflags(write=False)
    assert block.violation(Step(1.0, dmargins), 1.0).ratio > 0.0
