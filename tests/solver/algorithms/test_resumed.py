"""A path that is cut after any λ and taken up again ends with the same bits, whatever the problem."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import (
    ConvergenceWarning,
    DefaultOptions,
    Examples,
    PathStart,
    ProblemOptions,
    RoundRecord,
    Solution,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
    make_problem,
    null_model,
    solve_path,
    with_intercept,
)
from solver.algorithms.certified import gram, store
from solver.algorithms.certified.tuning import GRAM_MATRIX, STORE
from solver.path import StateMismatch

FEATURES, EXAMPLES = 150, 240
NO_PENALTY = np.where(np.arange(FEATURES) < 3, 0.0, 1.0)


def data(loss: str) -> tuple[sparse.csc_matrix, Examples]:
    """Columns of all kinds: lists of values, lists of ones, dense ones."""
    rng = np.random.default_rng(7)
    listed = sparse.random(EXAMPLES, 80, density=0.08, random_state=1, format="csc", dtype=np.float32)
    dense = rng.normal(size=(EXAMPLES, 30)).astype(np.float32)
    X = sparse.csc_matrix(sparse.hstack([listed, sparse.csc_matrix(dense), (listed[:, :40] != 0).astype(np.float32)]))
    z = X @ np.where(rng.random(FEATURES) < 0.3, rng.normal(size=FEATURES), 0.0) + rng.normal(size=EXAMPLES)
    return X, Examples.of(z if loss == "squared" else np.where(z > 0, 1.0, -1.0), loss=loss)


@dataclass
class Case:
    """A problem and its path. ratios: of λ to λmax."""

    options: Any = field(default_factory=DefaultOptions)
    problem: Mapping[str, Any] = field(default_factory=dict)
    factors: Any = None
    ratios: tuple[float, ...] = tuple(lambda_grid(1.0, 8, 0.55))
    states: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)
    rounds: list[RoundRecord] = field(default_factory=list)

    def solve(self, start: PathStart | None = None, M: int = 2) -> list[Solution]:
        problem = ProblemOptions(**({"intercept": True} | dict(self.problem)))
        X, examples = data(problem.loss)
        with ThreadBlocks.from_csc(X, examples, M) as blocks, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._problem = make_problem(blocks, examples, problem, factors=self.factors)
            null = null_model(blocks, self._problem)
            lambdas = [null.lambda_max * ratio for ratio in self.ratios]
            how: dict[str, Any] = {"null": null, "start": start, "on_round": self.rounds.append}
            return list(solve_path(blocks, self._problem, lambdas, self.options, on_state=self._keep, **how))

    def _keep(self, done: int, state: Any) -> None:
        self.states[done] = {name: vector.copy() for name, vector in state().items()}

    def start(self, whole: list[Solution], done: int, back: int = 0) -> PathStart:
        """After `done` λ, with the state of so many λ earlier, if there is one."""
        betas = tuple(with_intercept(self._problem, s.beta, s.intercept) for s in whole[:done])
        return PathStart(done, betas, self.states.get(done - back), done - back)


CASES = {
    "plain": Case(problem={"intercept": False}),
    "intercept": Case(),
    "unpenalised features": Case(factors=NO_PENALTY),
    "above λmax": Case(ratios=(3.0, 1.5, 0.8, 0.5, 0.3, 0.1)),
    "stepping stones": Case(ratios=(0.9, 0.01, 0.008, 0.0001, 0.00009)),
    "squared": Case(problem={"loss": "squared"}),
    "probit": Case(problem={"loss": "probit"}),
    "elastic net": Case(problem={"l1_ratio": 0.5}),
    "standardized": Case(problem={"standardize": True}),
    "strict": Case(options=DefaultOptions(gap=1e-6)),
    "no store": Case(options=DefaultOptions(subspace_memory=0), ratios=tuple(lambda_grid(1.0, 5, 0.5))),
    "small store": Case(options=DefaultOptions(subspace_memory=12_000), ratios=tuple(lambda_grid(1.0, 6, 0.5))),
    "paper": Case(options=SolverOptions(), ratios=tuple(lambda_grid(1.0, 5, 0.5))),
}


def assert_same(found: list[Solution], expected: list[Solution]) -> None:
    assert [s.lam for s in found] == [s.lam for s in expected]
    for one, other in zip(found, expected, strict=True):
        assert (one.objective, one.gap, one.intercept) == (other.objective, other.gap, other.intercept)
        assert (one.rounds, one.stop) == (other.rounds, other.stop)
        np.testing.assert_array_equal(one.beta.position, other.beta.position)
        np.testing.assert_array_equal(one.beta.value, other.beta.value)


@pytest.mark.parametrize("name", CASES)
def test_a_path_cut_after_any_λ_ends_with_the_same_bits(name: str) -> None:
    case = CASES[name]
    whole = case.solve()
    for done in range(1, len(whole)):
        assert_same(case.solve(case.start(whole, done)), whole[done:])


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gram matrices of a sample, though there are few examples."""
    few = replace(GRAM_MATRIX, always_fresh=0, sample_error_share=3.0)
    monkeypatch.setattr(gram, "GRAM_MATRIX", few)


@pytest.mark.usefixtures("sampled")
def test_a_sample_of_examples_is_part_of_the_state() -> None:
    case = Case()
    whole = case.solve()
    cuts = [done for done, state in case.states.items() if state.get("sample", np.empty(0)).size]
    assert cuts
    for done in cuts:
        assert_same(case.solve(case.start(whole, done)), whole[done:])
    start = case.start(whole, cuts[0])
    assert start.state is not None
    for name, vector in (("drawn", np.zeros(1)), ("sample", -start.state["sample"])):
        with pytest.raises(StateMismatch, match="above 0"):
            case.solve(PathStart(cuts[0], start.betas, {**start.state, name: vector}, cuts[0]))
    with pytest.raises(StateMismatch, match="sample_at"):
        case.solve(PathStart(cuts[0], start.betas, {**start.state, "sample_at": np.array([float(EXAMPLES)])}, cuts[0]))


def test_λ_since_the_state_are_solved_again_and_not_reported() -> None:
    case = Case()
    whole = case.solve()
    for done, back in product((4, 7), (1, 3)):
        case.rounds.clear()
        assert_same(case.solve(case.start(whole, done, back)), whole[done:])
        assert {record.lambda_index for record in case.rounds} == set(range(done, len(whole)))


def test_any_number_of_blocks_gives_the_same_bits() -> None:
    """Sweeps are by column, and the rest is the driver's."""
    case = Case()
    assert_same(case.solve(M=1), case.solve(M=5))


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_within_the_tolerance(threads: int) -> None:
    whole = Case().solve()
    other = Case(options=DefaultOptions(threads=threads)).solve()
    for a, b in zip(whole, other, strict=True):
        assert a.objective == pytest.approx(b.objective, rel=1e-6)


def test_a_path_resumed_on_other_cores_ends_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed search cuts its sums as before, unless a number of threads is asked for."""
    monkeypatch.setattr(store, "STORE", replace(STORE, entries_per_thread=1))
    case = Case(options=DefaultOptions(threads=3))
    whole = case.solve()
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0})
    case.options = DefaultOptions()
    assert case.solve()[-1].beta.value.tolist() != whole[-1].beta.value.tolist()
    case = replace(case, options=DefaultOptions(threads=3))
    case.solve()
    case.options = DefaultOptions()
    assert_same(case.solve(case.start(whole, 4)), whole[4:])


def test_a_state_that_does_not_fit_is_refused() -> None:
    case = Case()
    whole = case.solve()
    start = case.start(whole, 5)
    assert start.state is not None
    wrong: dict[str, Any] = {
        "dual_margins": np.zeros(EXAMPLES + 1),
        "support_bytes": np.zeros(0),
        "stored": np.array([3.0, 2.0]),
        "gram_at": np.array([0.0, 1e9]),
        "gram_w": np.full(EXAMPLES, np.nan),
        "settings": np.array([0.0, 0.0, 0.0]),
        "earlier": np.array([1.0]),
    }
    for name, vector in wrong.items():
        with pytest.raises(StateMismatch, match=name.split("_")[0]):
            case.solve(PathStart(5, start.betas, {**start.state, name: vector}, 5))
    with pytest.raises(StateMismatch, match="coefficients"):
        case.solve(PathStart(5, (), start.state, 5))
