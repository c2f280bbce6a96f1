"""A search whose work is done by the blocks, by feature or by example: it finds what the driver would find alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import DefaultOptions, Examples, ProblemOptions, ThreadBlocks, make_problem, null_model, solve_path
from solver.algorithms.certified import gram, sharing, stiff
from solver.algorithms.certified import model as models
from solver.algorithms.certified.shard import Sliced
from solver.algorithms.certified.sharing import BY_EXAMPLE, BY_FEATURE, HERE, SharedStore, Work, expected_seconds
from solver.algorithms.certified.store import Chosen, Rows
from solver.algorithms.certified.tuning import GRAM_CHOICE, GRAM_MATRIX, SHARING, STIFF
from solver.blocks import Others
from solver.columns import Columns
from solver.layout import Layout, split_for
from solver.stretches import Part
from solver.threads import Threads
from tests.solver.algorithms.test_gram import filled_store, mixed
from tests.solver.test_replay import Forgetful

PROCESSES = Others(threads=4, processes=4, copies=4, room=10**9, byte=4e-10)


class Apart(ThreadBlocks):
    """Blocks of this process that pass for those of others."""

    others = PROCESSES


class ForgetfulApart(Forgetful):
    """Such blocks that may be lost; names: of the questions."""

    others = PROCESSES
    names: frozenset[str] = frozenset()

    def ask(self, name: str, *shared: Any, each: Any = None) -> Iterable[Any]:
        self.names |= {name}
        return super().ask(name, *shared, each=each)


def prefer(monkeypatch: pytest.MonkeyPatch, *places: str) -> None:
    """Have work done at these places in turn, where they are open to it."""
    wanted: Iterator[str] = cycle(places)

    def expected(work: Work, threads: int, others: Others) -> dict[str, float]:
        seconds = dict.fromkeys(expected_seconds(work, threads, others), 1.0)
        place = next(wanted)
        return seconds | ({place: 0.0} if place in seconds else {})

    monkeypatch.setattr(sharing, "expected_seconds", expected)


def blocks_of(X: Any, count: int, make: Callable[..., Any] = Apart.from_csc) -> Any:
    examples = Examples.of(np.where(np.arange(len(X)) % 3, 1.0, -1.0))
    return make(sparse.csc_matrix(X), examples, count)


def shared_store(blocks: Any, n: int, p: int) -> SharedStore:
    """All columns of the blocks, and an intercept's."""
    store = SharedStore(n, p + 1, 10**9, Threads(1), blocks, p)
    store.add(np.array([p]), [Part(p, Columns.all_ones(n))])
    store.add(np.arange(p), blocks.columns(np.arange(p)))
    return store


@pytest.mark.parametrize("n", [3, 64, 65, 300])
@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize("place", [BY_FEATURE, BY_EXAMPLE])
def test_passes_are_the_same_wherever_they_are_made(
    place: str, count: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, rng = mixed(n, 20), np.random.default_rng(1)
    prefer(monkeypatch, place)
    with blocks_of(X, count) as blocks:
        store = shared_store(blocks, n, 20)
        every = np.hstack((X, np.ones((n, 1), np.float32))).astype(np.float64)
        for position in (np.array([1, 2, 3, 7, 20]), np.arange(21), np.array([4])):
            slots, columns = store.slots(position), every[:, position]
            r, w, d = rng.normal(size=n), rng.random(n), rng.normal(size=position.size)
            g, h, slopes = np.empty(position.size), np.empty(position.size), np.empty(position.size)
            store.sums(slots, r, w, g, h)
            store.slopes(slots, r, slopes)
            np.testing.assert_allclose(g, columns.T @ r, atol=1e-5)
            np.testing.assert_allclose(slopes, columns.T @ r, atol=1e-5)
            np.testing.assert_allclose(h, (columns**2).T @ w, atol=1e-5)
            np.testing.assert_allclose(store.product(slots, d), columns @ d, atol=1e-5)


@pytest.mark.parametrize("n", [3, 64, 300, 10_000])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_gram_matrix_is_the_sum_over_the_blocks(count: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X, rng = mixed(n, 20), np.random.default_rng(1)
    prefer(monkeypatch, BY_EXAMPLE)
    w = rng.normal(size=n) * (rng.random(n) < 0.5)
    with blocks_of(X, count) as blocks:
        store, alone = shared_store(blocks, n, 20), filled_store(X)
        for position, first_row in ((np.array([1, 2, 3, 6, 19]), 0), (np.array([7, 1, 2, 3, 0]), 3)):
            found = store.shared_gram(position, Rows.of(w), first_row)
            assert found is not None
            expected = gram.weighted_gram(alone, position, Rows.of(w), first_row)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_columns_that_leave_the_store_are_not_used_by_example_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    X = mixed(300, 20)
    prefer(monkeypatch, BY_EXAMPLE)
    monkeypatch.setattr(sharing, "SHARING", replace(SHARING, most_by_example=6))
    with blocks_of(X, 3) as blocks:
        store = shared_store(blocks, 300, 20)
        for position in (
            np.arange(5),
            np.arange(4, 10),
            np.arange(1, 3),
        ):  # the second needs room, the third is new again
            d = np.ones(position.size)
            np.testing.assert_allclose(store.product(store.slots(position), d), X[:, position] @ d, atol=1e-5)
        store.keep(np.array([9, 12]))
        np.testing.assert_allclose(store.product(store.slots(np.array([12])), np.ones(1)), X[:, 12], atol=1e-5)


@pytest.mark.filterwarnings("ignore::solver.records.ConvergenceWarning")
@pytest.mark.parametrize("memory", [1000, 2000])
def test_blocks_that_are_lost_while_columns_are_dropped_change_nothing(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    X = sparse.random_array((60, 90), density=0.3, rng=rng, format="csc", dtype=np.float32)
    examples = Examples.of(np.sign(X @ rng.normal(size=90) + 0.3 * rng.normal(size=60)))
    options = DefaultOptions(subspace_memory=memory, max_rounds=40)

    def make() -> ThreadBlocks:
        return ThreadBlocks.from_csc(X, examples, 3)

    def path(blocks: Any) -> list[float]:
        problem = make_problem(blocks, examples, ProblemOptions(intercept=False))
        null = null_model(blocks, problem)
        lambdas = [ratio * null.lambda_max for ratio in (0.5, 0.2, 0.19, 0.004)]
        return [one.objective for one in solve_path(blocks, problem, lambdas, options, null=null)]

    prefer(monkeypatch, BY_EXAMPLE)
    expected = path(ForgetfulApart(make, lambda number: False))
    np.testing.assert_allclose(path(ForgetfulApart(make, lambda number: True)), expected, rtol=1e-12)


@pytest.mark.parametrize("sizes", [[1], [3, 0, 2], [0, 0, 5], [5, 0, 0], [1, 1, 1, 1, 1, 0, 0, 0], [7, 1, 90]], ids=str)
@pytest.mark.parametrize("n", [1, 63, 64, 700, 704])
def test_each_example_is_one_blocks(n: int, sizes: list[int]) -> None:
    """Blocks without features get none; they may be the last."""
    examples = Sliced((np.arange(n, dtype=np.float64),), n, sum(sizes))
    cut = [part.vectors[0] for part in split_for(examples, Layout(sizes))]
    np.testing.assert_array_equal(np.concatenate(cut), np.arange(n))
    assert all(part.size == 0 for part, size in zip(cut, sizes, strict=True) if size == 0)
    none = Sliced((np.empty(0),), 0, 0)
    assert [part.n for part in split_for(none, Layout([0, 0]))] == [0, 0]


@pytest.mark.parametrize("module", ["shard", "sharing", "store"])
def test_a_worker_can_load_it_before_anything_else(module: str) -> None:
    """Its first question loads it, not a script that has loaded the solver."""
    done = subprocess.run([sys.executable, "-c", f"import solver.algorithms.certified.{module}"], check=False)
    assert done.returncode == 0


def test_cost_model_sends_work_where_it_takes_the_least_time() -> None:
    def place(work: Work, others: Others) -> str:
        seconds = expected_seconds(work, 2, others)
        return min(seconds, key=lambda one: seconds[one])

    small = Work(1e-3, 2, 10_000, 100, 100, 10**6)
    wide = Work(1.0, 2, 300_000, 200_000, 100_000, 3 * 10**9)  # as webspam: many columns over few examples
    narrow = Work(5.0, 2, 45_000_000, 1600, 800, 0)  # as dna: few over many
    network = PROCESSES._replace(copies=1, byte=8e-9)
    assert place(small, PROCESSES) == HERE
    assert place(wide, PROCESSES) == place(wide, network) == BY_FEATURE
    assert place(narrow, PROCESSES) == BY_EXAMPLE
    assert place(narrow, network) == HERE  # its vectors alone take longer
    assert place(wide, Others()) == place(narrow, Others()) == HERE
    full = replace(narrow, nbytes=10**10)
    assert BY_EXAMPLE not in expected_seconds(full, 2, PROCESSES)


MODES = {
    "by its Gram matrix": replace(GRAM_CHOICE, cycles_spared=10**9),
    "on columns": replace(GRAM_CHOICE, cycles_spared=0),
}


@pytest.mark.parametrize(
    ("places", "lost"),
    [((BY_FEATURE,), False), ((BY_EXAMPLE,), False), ((BY_FEATURE, BY_EXAMPLE, HERE), True)],
    ids=["by feature", "by example", "in turns, blocks are lost"],
)
@pytest.mark.parametrize("mode", MODES)
def test_path_is_certified_and_the_same_wherever_its_work_is_done(
    mode: str, places: tuple[str, ...], lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    X = mixed(200, 60, seed=5)
    examples = Examples.of(np.sign(X @ rng.normal(size=60) * (rng.random(60) < 0.3).sum() + rng.normal(size=200)))
    monkeypatch.setattr(models, "GRAM_CHOICE", MODES[mode])
    monkeypatch.setattr(gram, "GRAM_MATRIX", replace(GRAM_MATRIX, always_fresh=0))
    always = replace(STIFF, max_stiff=8, least_stiff=2, solve_cost=0.0, solve_cost_cubed=0.0, matrix_cycles=np.inf)
    monkeypatch.setattr(stiff, "STIFF", always)

    def path(blocks: Any) -> list[Any]:
        factors = np.ones(60)
        factors[7] = 0.0  # not penalised
        problem = make_problem(blocks, examples, ProblemOptions(intercept=True), factors=factors)
        null = null_model(blocks, problem)
        lambdas = [null.lambda_max * 0.3**k for k in range(1, 5)]
        return list(solve_path(blocks, problem, lambdas, DefaultOptions(gap=1e-6), null=null))

    def make() -> ThreadBlocks:
        return ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 3)

    expected = path(make())
    prefer(monkeypatch, *places)
    blocks = ForgetfulApart(make, lambda number: lost and number % 3 == 1)
    found = path(blocks)
    assert blocks.lost > 0 or not lost
    for one, other in zip(found, expected, strict=True):
        assert one.gap <= 1e-6 * one.objective
        np.testing.assert_allclose(one.objective, other.objective, rtol=1e-6)
    if BY_FEATURE in places:
        assert {"chosen_sums", "chosen_product"} <= blocks.names
        assert "run_cycle" in blocks.names or mode != "on columns"
    if BY_EXAMPLE in places:
        assert {"rows_sums", "rows_product"} <= blocks.names
        assert "rows_gram" in blocks.names or mode == "on columns"


def test_nothing_is_shared_with_blocks_of_this_process() -> None:
    X = mixed(300, 20)
    with blocks_of(X, 3, ThreadBlocks.from_csc) as blocks:
        store = shared_store(blocks, 300, 20)
        assert type(store.chosen(np.arange(21))) is Chosen
