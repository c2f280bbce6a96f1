"""The certified mode: the optimum that paper mode and LIBLINEAR find, a gap that is a bound, and any budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from pipeline.export import sklearn_penalty
from solver import (
    Block,
    Coefficients,
    Columns,
    ConvergenceWarning,
    DefaultOptions,
    Examples,
    RoundRecord,
    Solution,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
)
from solver.algorithms.certified import gram, search
from solver.algorithms.certified.store import Store
from solver.algorithms.certified.subspace import Subspace
from solver.algorithms.certified.tuning import GRAM_MATRIX, STEPPING_STONES, WORKING_SET
from solver.stretches import Part
from tests.solver import plain
from tests.solver.plain import lambda_max, solve

NAMES = ["tall", "wide", "sparse", "one_hot", "dense", "mixed"]
TIGHT = SolverOptions.paper(tol=1e-13, max_rounds=20_000)


def matrix(X: Any) -> sparse.csc_matrix:
    return sparse.csc_matrix(np.asarray(X, dtype=np.float32))


def path(
    X: Any, examples: Examples, options: DefaultOptions | None = None, length: int = 10, M: int = 2, **more: Any
) -> list[Solution]:
    X = X if sparse.issparse(X) else matrix(X)
    with ThreadBlocks.from_csc(X, examples, M, threads=2) as blocks:
        lambdas = lambda_grid(lambda_max(blocks, examples), length)
        return plain.path(blocks, examples, lambdas, options or DefaultOptions(), **more)


def best(X: Any, examples: Examples, length: int = 10) -> list[float]:
    """The optimum at every λ of the path: the strictest certificate, cross-checked against paper mode elsewhere."""
    return [s.objective - s.gap for s in path(X, examples, DefaultOptions(gap=1e-8, max_rounds=500), length)]


def within(found: Iterable[Solution], optima: Iterable[float], tol: float = 1e-4) -> None:
    for solution, optimum in zip(found, optima, strict=True):
        assert solution.converged
        assert solution.objective <= optimum * (1 + tol) + 1e-12
        assert solution.objective - optimum <= solution.gap + 1e-8 * optimum  # by so much `best` is a bound
        assert solution.gap <= 1e-2 * solution.objective


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("M", [1, 3])
def test_the_objective_is_within_tol_of_paper_mode_run_to_tightness(
    make: Callable[..., Any], objective: Callable[..., float], name: str, M: int
) -> None:
    X, examples = make(name)
    found = path(X, examples, M=M, length=8)
    with ThreadBlocks.from_csc(X, examples, 1) as blocks:
        optima = [solve(blocks, examples, s.lam, TIGHT).objective for s in found]
    within(found, optima)
    for solution in found:
        assert solution.objective == pytest.approx(objective(X, examples, solution.lam, solution.beta), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_strict_gap_is_reached_and_agrees_with_paper_mode(make: Callable[..., Any], name: str) -> None:
    X, examples = make(name)
    found = path(X, examples, DefaultOptions(gap=1e-7), length=6)
    with ThreadBlocks.from_csc(X, examples, 1) as blocks:
        optima = [solve(blocks, examples, s.lam, TIGHT).objective for s in found]
    for solution, optimum in zip(found, optima, strict=True):
        assert solution.gap <= 1e-7 * solution.objective
        assert solution.objective == pytest.approx(optimum, rel=2e-7)


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_errs_on_the_safe_side(make: Callable[..., Any], name: str) -> None:
    X, examples = make(name)
    optima = best(X, examples)
    for tol in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        within(path(X, examples, DefaultOptions(tol=tol), length=10), optima, tol)


def correlated(seed: int, n: int, p: int) -> Any:
    """All features share a few factors."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, p)) + 0.1 * rng.normal(size=(n, p))


def drawn(shape: str, seed: int) -> tuple[Any, Examples]:
    n, p = {"wide": (60, 400), "wide factors": (60, 200), "tall": (1000, 12)}.get(shape, (300, 40))
    rng = np.random.default_rng(seed)
    X = correlated(seed, n, p) if "factors" in shape else rng.normal(size=(n, p))
    if shape == "duplicates":
        X[:, p // 2 :] = X[:, : p // 2]
    examples = Examples.of(np.where(X[:, :3].sum(axis=1) + rng.normal(size=n) > 0, 1, -1))
    if shape.startswith("mean"):
        X += float(shape.split()[1]) * (rng.random(p) < 0.7) * rng.uniform(0.3, 1.0, p)
    return X, examples


@pytest.mark.parametrize(
    "shape", ["factors", "wide factors", "duplicates", "wide", "tall", "mean 30", "mean 100", "mean 1000"]
)
@pytest.mark.parametrize("seed", [7, 8, 28, 47])
def test_the_estimate_has_a_margin(monkeypatch: pytest.MonkeyPatch, shape: str, seed: int) -> None:
    """True suboptimality at most 0.5 tol; on many more seeds (docs/algorithm.md) it was at most 0.2."""
    X, examples = drawn(shape, seed)
    optima = best(X, examples, 12)
    approximate = replace(GRAM_MATRIX, always_fresh=0)
    for matrices in (GRAM_MATRIX, approximate):  # Gram matrices are exact, then approximate, as larger data have them
        monkeypatch.setattr(gram, "GRAM_MATRIX", matrices)
        for tol in (1e-3, 1e-4, 1e-5):
            within(path(X, examples, DefaultOptions(tol=tol), length=12), optima, 0.5 * tol)


def words(seed: int, n: int, p: int, length: int) -> tuple[Any, Examples]:
    """Rows of words of power-law frequency, scaled to unit length."""
    rng = np.random.default_rng(seed)
    ids = np.exp(rng.random((n, length)) * np.log(p)).astype(int) - 1  # each octave as frequent as the next
    X = sparse.csr_array((np.ones(ids.size), (np.repeat(np.arange(n), length), ids.ravel())), shape=(n, p))
    X.sum_duplicates()
    X.data = 1.0 + np.log(X.data)
    X = sparse.csc_array(sparse.diags_array(1.0 / np.sqrt((X**2).sum(axis=1))) @ X, dtype=np.float32)
    X = X[:, np.flatnonzero(np.diff(X.indptr))]
    margins = X @ rng.normal(size=X.shape[1])
    labels = np.where(3.0 * (margins - margins.mean()) / margins.std() + rng.logistic(size=n) > 0, 1, -1)
    return X, Examples.of(labels)


@pytest.mark.parametrize("seed", [1, 4])
def test_the_estimate_has_a_margin_where_cycles_stop_short_of_slow_ways(seed: int) -> None:
    """Few words are frequent: no Gram matrix pays, and the model's Hessian is nearly singular."""
    X, examples = words(seed, n=1600, p=50_000, length=200)
    optima = best(X, examples, 12)
    for tol in (1e-4, 1e-5):
        within(path(X, examples, DefaultOptions(tol=tol), length=12), optima, 0.3 * tol)


@pytest.mark.parametrize("mean", [100.0, 1e4])
def test_columns_far_from_zero_are_no_trap(mean: float) -> None:
    """Their Gram matrix is nearly of rank one: what it is beyond that must not be lost, nor crawled along."""
    rng = np.random.default_rng(120)
    Z = rng.normal(size=(300, 40))
    examples = Examples.of(np.where(Z[:, :3].sum(axis=1) + rng.normal(size=300) > 0, 1, -1))
    X = (Z + mean * (rng.random(40) < 0.7) * rng.uniform(0.3, 1.0, 40)).astype(np.float32)
    found = path(X, examples, length=14)
    assert all(solution.rounds <= 3 for solution in found)
    liblinear = LogisticRegression(
        **sklearn_penalty(1.0), solver="liblinear", C=1 / found[3].lam, tol=1e-5, max_iter=200, fit_intercept=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged: it is a bound from above all the same
        beta = liblinear.fit(X.astype(float), np.sign(examples.encoded)).coef_[0]
    loss = np.logaddexp(0.0, -examples.encoded * (X.astype(float) @ beta)).sum()
    assert found[3].objective <= (loss + found[3].lam * np.abs(beta).sum()) * (1 + 1e-4)
    within(found, best(X, examples, 14))


def test_a_step_that_fails_leaves_the_gap_alone_to_certify(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = labelled(5)
    store, csc = Store(60, 7, 10**6), matrix(X)
    store.add(np.arange(7), [Part(0, Columns.from_csc(csc.indptr, csc.indices, csc.data, 60))])
    stuck = plain.subspace(store, 7, np.zeros(60), Examples.of(y), 1.0)
    monkeypatch.setattr(Subspace, "_newton_step", lambda *_, **__: False)
    stuck.minimise(1e-4, np.inf)
    assert stuck.stuck
    assert stuck.remaining == np.inf


def test_a_column_of_huge_values_stops_nothing() -> None:
    X, y = labelled(5, n=200, p=15)
    X[:, 0] *= 1e20
    found = path(X, Examples.of(y), length=6)
    assert all(solution.converged and solution.rounds <= 3 for solution in found)


def far(X: Any, examples: Examples, options: DefaultOptions, times: float) -> tuple[Solution, list[RoundRecord]]:
    """The one λ so many times below λmax, from β = 0."""
    rounds = list[RoundRecord]()
    with ThreadBlocks.from_csc(X, examples, 2) as blocks:
        largest = lambda_max(blocks, examples)
        (found,) = plain.path(blocks, examples, [largest / times], options, on_round=rounds.append)
    return found, rounds


def test_a_far_lambda_is_reached_over_stepping_stones(monkeypatch: pytest.MonkeyPatch) -> None:
    """From β = 0 all but everything seems to matter."""
    X, examples = words(0, n=400, p=20_000, length=100)
    over, rounds = far(X, examples, DefaultOptions(), 300.0)
    on_the_way = [record.lam for record in rounds if record.lam != over.lam]
    assert len(on_the_way) == 2
    assert [record.round for record in rounds] == [*range(1, over.rounds + 1)]
    ratios = [a / b for a, b in pairwise([300.0 * over.lam, *on_the_way, over.lam])]
    np.testing.assert_allclose(ratios, 300.0 ** (1 / 3))
    monkeypatch.setattr(search, "STEPPING_STONES", replace(STEPPING_STONES, max_ratio=np.inf))
    straight, rounds = far(X, examples, DefaultOptions(), 300.0)
    assert {record.lam for record in rounds} == {straight.lam}
    tight, _ = far(X, examples, DefaultOptions(gap=1e-9), 300.0)
    within([over, straight], 2 * [tight.objective - tight.gap])


def test_a_far_lambda_needs_no_more_of_the_budget_than_a_near_one(monkeypatch: pytest.MonkeyPatch) -> None:
    X, examples = words(0, n=400, p=20_000, length=100)
    budget = 8 * X.nnz // 3  # of what all columns take, a third

    def beyond(*_: Any) -> None:
        raise AssertionError("rounds split by feature")

    monkeypatch.setattr(search, "SplitRounds", beyond)
    assert far(X, examples, DefaultOptions(subspace_memory=budget), 300.0)[0].converged
    monkeypatch.setattr(search, "STEPPING_STONES", replace(STEPPING_STONES, max_ratio=np.inf))
    with pytest.raises(AssertionError, match="rounds split by feature"):
        far(X, examples, DefaultOptions(subspace_memory=budget), 300.0)


@pytest.mark.parametrize(("n", "p"), [(500, 40), (60, 300)])
def test_strongly_correlated_features_are_no_trap(n: int, p: int) -> None:
    X = correlated(0, n, p)
    rng = np.random.default_rng(1)
    examples = Examples.of(np.where(X[:, 0] - X[:, 1] + rng.normal(size=n) > 0, 1, -1))
    within(path(X, examples), best(X, examples))


def labelled(seed: int, n: int = 60, p: int = 7) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)


def test_duplicate_constant_and_empty_columns_and_empty_rows() -> None:
    X, y = labelled(0)
    y[:20] = 1
    plain = np.hstack([X, np.ones((60, 1))])
    padded = np.zeros((70, 20))
    padded[:60, 1:9], padded[:60, 10:18] = plain, plain
    optima = best(plain, Examples.of(y))
    found = path(padded, Examples.of(np.concatenate((y, np.ones(10, int)))))
    within(found, [f + 10 * np.log(2.0) for f in optima])
    assert not any(set(s.beta.position.tolist()) & {0, 9, 18, 19} for s in found)


@pytest.mark.parametrize("label", [-1, 1])
def test_one_class_only(label: int) -> None:
    X, _ = labelled(1)
    examples = Examples.of(np.full(60, label))
    found = path(np.abs(X), examples)
    within(found, best(np.abs(X), examples))
    assert all(np.sign(s.beta.value).tolist() == [label] * s.nonzeros for s in found)


def test_separable_data_at_tiny_lambda_ends_and_stays_finite() -> None:
    X, _ = labelled(4, n=40, p=6)
    examples = Examples.of(np.where(X @ np.arange(1.0, 7.0) > 0, 1, -1))
    found = path(X, examples, length=40)
    assert all(np.isfinite(s.objective) and s.converged for s in found)
    within(found[:25], best(X, examples, 25))
    assert found[-1].objective < 1e-3 * found[0].objective


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_values_of_very_different_size(scale: float) -> None:
    X, y = labelled(5)
    X[:, ::2] *= scale
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = path(X, Examples.of(y))
    within(found, best(X, Examples.of(y)))


def test_weights_are_repeated_rows() -> None:
    X, y = labelled(6)
    times = np.random.default_rng(0).integers(0, 4, 60)
    repeated = path(np.repeat(X, times, axis=0), Examples.of(np.repeat(y, times)), DefaultOptions(gap=1e-9))
    weighted = path(X, Examples.of(y, times), DefaultOptions(gap=1e-9))
    for a, b in zip(repeated, weighted, strict=True):
        assert b.lam == pytest.approx(a.lam, rel=1e-9)
        assert b.objective == pytest.approx(a.objective, rel=1e-8)


def test_from_lambda_max_up_the_solution_is_exactly_zero(make: Callable[..., Any]) -> None:
    X, examples = make("sparse")
    with ThreadBlocks.from_csc(X, examples, 2) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = [2 * largest, largest, 0.99 * largest]
        above, at, below = plain.path(blocks, examples, lambdas, DefaultOptions())
    assert (above.nonzeros, at.nonzeros, at.rounds, at.gap) == (0, 0, 0, 0.0)
    assert below.converged


@given(
    X=arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=st.integers(-3, 3)),
    seed=st.integers(0, 99),
    k=st.integers(1, 12),
)
@settings(max_examples=60, deadline=None)
def test_any_small_matrix_gives_a_certified_solution(
    objective: Callable[..., float], X: Any, seed: int, k: int
) -> None:
    examples = Examples.of(np.random.default_rng(seed).choice([-1, 1], X.shape[0]))
    with ThreadBlocks.from_csc(matrix(X), examples, 1) as blocks:
        largest = lambda_max(blocks, examples)
        if largest == 0.0:
            return
        lam = largest / 2**k
        (solution,) = plain.path(blocks, examples, [lam], DefaultOptions())
        (strict,) = plain.path(blocks, examples, [lam], DefaultOptions(gap=1e-6))
    assert solution.converged and strict.converged
    assert solution.objective == pytest.approx(objective(matrix(X), examples, lam, solution.beta), rel=1e-9)
    assert solution.objective <= strict.objective * (1 + 1e-4)
    assert strict.gap <= 1e-6 * strict.objective


# --- the working set and the budget -------------------------------------------------------------------------


def test_the_working_set_changes_nothing(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    X, examples = make("wide")
    strict = DefaultOptions(gap=1e-8)
    chosen = path(X, examples, strict)
    monkeypatch.setattr(search, "WORKING_SET", replace(WORKING_SET, enter_share=-1.0))
    everything = path(X, examples, strict)
    for a, b in zip(chosen, everything, strict=True):
        assert a.objective == pytest.approx(b.objective, rel=2e-8)


@pytest.mark.parametrize("budget", ["nothing", "a tenth", "half"])
@pytest.mark.parametrize("name", ["sparse", "mixed", "one_hot"])
def test_a_small_budget_reaches_the_same_certificate(make: Callable[..., Any], name: str, budget: str) -> None:
    X, examples = make(name)
    whole = Columns.from_csc(X.indptr, X.indices, X.data, examples.n).nbytes
    memory = {"nothing": 0, "a tenth": whole // 10, "half": whole // 2}[budget]
    found = path(X, examples, DefaultOptions(subspace_memory=memory, max_rounds=5000), length=8)
    within(found, best(X, examples, 8))


@pytest.mark.parametrize("shape", ["factors", "wide factors"])
@pytest.mark.parametrize("seed", [20, 22, 31, 39, 45])
def test_the_estimate_is_safe_beyond_the_budget_too(shape: str, seed: int) -> None:
    """Where blocks share factors, rounds without a store gain by fits and starts: a pause is not the end."""
    X, examples = drawn(shape, seed)
    found = path(X, examples, DefaultOptions(subspace_memory=0, max_rounds=1000), length=12)
    within(found, best(X, examples, 12))


def many_examples(kind: str, rng: np.random.Generator) -> Any:
    """50,000 × 60: features that few examples have, features that go together, columns far from zero."""
    n, p = 50_000, 60
    if kind == "rare":
        return (rng.random((n, p)) < np.geomspace(1e-3, 0.5, p)).astype(float)
    shared = rng.normal(size=(n, 4)) @ rng.normal(size=(4, p)) + 0.5 * rng.normal(size=(n, p))
    return (shared > 0.7).astype(float) if kind == "alike" else shared + 3.0


@pytest.mark.parametrize("kind", ["rare", "alike", "far"])
def test_gram_matrices_of_a_sample_do_not_change_what_is_reached(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = many_examples(kind, rng)
    margins = X @ np.where(rng.random(60) < 0.3, rng.normal(size=60), 0.0)
    examples = Examples.of(np.where(rng.random(50_000) < 1.0 / (1.0 + np.exp(margins.mean() - margins)), 1, -1))
    drawn, draw = list[float](), gram.sample

    def watched(w: Any, size: float) -> Any:
        drawn.append(size)
        return draw(w, size)

    monkeypatch.setattr(gram, "sample", watched)
    monkeypatch.setattr(gram, "GRAM_MATRIX", replace(GRAM_MATRIX, always_fresh=0))
    found = path(X, examples, length=8)
    assert drawn
    assert max(drawn) <= 50_000 / 2
    within(found, best(X, examples, 8))


@pytest.mark.parametrize("take", [Columns.select, Columns.view], ids=["copied", "viewed"])
def test_columns_leave_the_store_when_others_need_the_room(
    make: Callable[..., Any], take: Callable[..., Columns]
) -> None:
    X, examples = make("mixed")
    columns = Columns.from_csc(X.indptr, X.indices, X.data, examples.n)
    store = Store(examples.n, columns.count, 1 << 20)
    everything = np.arange(columns.count)
    store.add(everything[9:], [Part(0, take(columns, everything[9:]))])
    store.add(everything[:9], [Part(0, take(columns, everything[:9]))])
    kept = everything[4:20]
    full = store.nbytes
    store.keep(kept)
    assert store.nbytes < full
    assert store.missing(everything).tolist() == [*range(4), *range(20, columns.count)]
    weights = np.random.default_rng(0).normal(size=kept.size)
    out = store.product(store.slots(kept), weights)
    np.testing.assert_allclose(out, X[:, kept].astype(np.float64) @ weights, rtol=1e-6, atol=1e-9)


class Streamed:
    """Columns made anew each time, a few at once."""

    def __init__(self, X: sparse.csc_matrix) -> None:
        self._X = X

    def __iter__(self) -> Any:
        for first in range(0, self._X.shape[1], 7):
            part = self._X[:, first : first + 7]
            yield Columns.from_csc(part.indptr, part.indices, part.data, part.shape[0])


@pytest.mark.parametrize("name", NAMES)
def test_streamed_and_resident_columns_give_the_same(make: Callable[..., Any], name: str) -> None:
    X, examples = make(name)
    paths = []
    for source in (Streamed(X), list(Streamed(X))):
        with ThreadBlocks([Block(source, X.shape[1], examples)]) as blocks:
            lambdas = lambda_grid(lambda_max(blocks, examples), 6)
            paths.append(plain.path(blocks, examples, lambdas, DefaultOptions()))
    for a, b in zip(*paths, strict=True):
        assert (a.objective, a.gap, a.rounds) == (b.objective, b.gap, b.rounds)
        assert np.array_equal(a.beta.value, b.beta.value)


# --- sweeps and columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_lists_what_is_above_the_threshold_with_slope_and_curvature(
    make: Callable[..., Any], name: str
) -> None:
    X, examples = make(name)
    margins = np.random.default_rng(0).normal(size=examples.n)
    p = 1.0 / (1.0 + np.exp(-margins))
    wide = X.toarray().astype(np.float64)
    slopes, curvature = wide.T @ ((examples.encoded + 1) / 2 - p), (wide**2).T @ (p * (1 - p))
    block = Block(list(Streamed(X)), X.shape[1], examples)
    threshold = float(np.median(np.abs(slopes)))
    first = block.sweep(margins, threshold, 1.0, 1000)
    for sweep in (first, block.list_again(threshold, 1.0, 1000)):
        assert sweep.violation.ratio == pytest.approx(np.abs(slopes).max() / threshold, rel=1e-9)
        assert sweep.position.tolist() == np.flatnonzero(np.abs(slopes) > threshold).tolist()
        np.testing.assert_allclose(sweep.slope, slopes[sweep.position], rtol=1e-9)
        # Curvature would cost reading the columns again: an earlier sweep's slopes are listed without.
        known = curvature[sweep.position] if sweep is first else np.full(sweep.position.size, np.nan)
        np.testing.assert_allclose(sweep.curvature, known, rtol=1e-9)
    few = block.list_again(threshold, 1.0, 3)
    assert few.position.tolist() == sorted(np.argsort(-np.abs(slopes))[:3].tolist())
    columns = Columns.joined([part.columns for part in block.columns(sweep.position)], examples.n)
    alone = Block([columns], columns.count, examples).sweep(margins, 1.0, -1.0, 1000)
    np.testing.assert_allclose(alone.slope, sweep.slope, rtol=1e-12)
    assert int(sweep.nbytes.sum()) <= columns.nbytes


# --- the path -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("done", [1, 4])
def test_a_path_taken_up_without_its_state_is_certified_as_if_never_cut(
    make: Callable[..., Any], name: str, done: int
) -> None:
    X, examples = make(name)
    whole = path(X, examples)
    stored = Coefficients(whole[done - 1].beta.position.copy(), whole[done - 1].beta.value.copy())
    rest = path(X, examples, done=done, betas=[stored])
    for a, b in zip(whole[done:], rest, strict=True):
        assert b.converged
        assert b.lam == a.lam
        assert b.objective == pytest.approx(a.objective, rel=1e-4)


def test_every_round_is_reported_and_the_objective_never_rises(make: Callable[..., Any]) -> None:
    X, examples = make("mixed")
    trace: list[RoundRecord] = []
    for solution in path(X, examples, on_round=trace.append):
        mine = [r for r in trace if r.lambda_index == solution.lambda_index]
        assert [r.round for r in mine] == list(range(1, solution.rounds + 1))
        assert all(b.objective <= a.objective * (1 + 1e-12) for a, b in pairwise(mine))
        assert mine[-1].nonzeros == solution.nonzeros
        assert mine[-1].gap == solution.gap


def test_the_gap_of_every_sweep_is_in_its_record_and_bounds_the_distance(make: Callable[..., Any]) -> None:
    X, examples = make("wide")
    trace: list[RoundRecord] = []
    path(X, examples, on_round=trace.append)
    optima = best(X, examples)
    for record in trace:
        assert record.gap is not None
        assert record.objective - optima[record.lambda_index] <= record.gap + 1e-9 * record.objective


def test_few_rounds_where_paper_mode_takes_many(make: Callable[..., Any]) -> None:
    X, examples = make("one_hot")
    found = path(X, examples)
    with ThreadBlocks.from_csc(X, examples, 2) as blocks, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paper = plain.path(blocks, examples, [s.lam for s in found], SolverOptions(tol=1e-6))
    rounds = sum(s.rounds for s in found)
    assert rounds <= 4 * len(found)
    assert rounds < sum(s.rounds for s in paper)


def test_a_certificate_out_of_reach_is_told_with_the_distance(make: Callable[..., Any]) -> None:
    X, examples = make("sparse")
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap .*; a relative gap of 1e-15 was asked for"):
        found = path(X, examples, DefaultOptions(gap=1e-15, max_rounds=3, subspace_memory=0), length=2)
    assert not found[-1].converged


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tol": 0.0}, "tol must lie between 0 and 1"),
        ({"gap": -1.0}, "gap must lie between 0 and 1"),
        ({"subspace_memory": -1}, "subspace_memory must be >= 0"),
        ({"max_rounds": 0}, "max_rounds must be at least 1"),
        ({"max_gap": float("nan")}, "max_gap must be > 0"),
    ],
)
def test_impossible_options_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DefaultOptions(**change)


def test_a_path_goes_on_in_log_lambda_and_never_uphill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of separable data, at small λ, that is most of the way: fewer Newton steps than from the last β."""
    X, _ = labelled(3, n=80, p=200)
    examples = Examples.of(np.where(X[:, 0] > 0, 1, -1))
    optima = best(X, examples, 16)
    steps, moved = list[int](), list[tuple[float, float]]()
    minimise, extrapolate_start = Subspace.minimise, Subspace.extrapolate_start

    def counted(self: Subspace, *args: Any, **named: Any) -> None:
        minimise(self, *args, **named)
        steps.append(self.steps)

    def watched(self: Subspace, before: Any, times: float) -> None:
        start, signs = self.objective, np.sign(self.beta)
        extrapolate_start(self, before, times)
        assert (np.sign(self.beta) * signs >= 0).all()
        assert not self.beta[signs == 0].any()
        moved.append((start, self.objective))

    monkeypatch.setattr(Subspace, "minimise", counted)
    monkeypatch.setattr(Subspace, "extrapolate_start", watched)
    within(path(X, examples, length=16), optima)
    assert len(moved) == 14
    assert all(after <= start for start, after in moved)
    assert moved[-1][1] - optima[-1] < 0.1 * (moved[-1][0] - optima[-1])
    with_it = sum(steps)
    steps.clear()
    monkeypatch.setattr(Subspace, "extrapolate_start", lambda *_: None)
    within(path(X, examples, length=16), optima)
    assert with_it < 0.8 * sum(steps)
