"""Every problem that can be stated, in every mode, against scikit-learn and an implementation of our own."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.optimize import linprog
from sklearn.linear_model import ElasticNet, LogisticRegression

from pipeline.export import sklearn_penalty
from solver import (
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    Solution,
    SolverOptions,
    ThreadBlocks,
    null_model,
    solve_path,
)
from solver.free import NoMinimum
from tests.solver.independent import Reference

LOSSES = ["logistic", "squared", "probit"]
MODES: dict[str, Any] = {
    "certified": DefaultOptions(gap=1e-8),
    "beyond the budget": DefaultOptions(gap=1e-7, subspace_memory=0, max_rounds=3000),
    "paper": SolverOptions.paper(tol=1e-12, max_rounds=20_000),
}
SHARES = (0.3, 0.03)  # of λmax


def columns_of(seed: int, n: int, p: int) -> Any:
    """Of all kinds: dense, sparse, ones, a duplicate, a constant and an empty one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.6)
    X[:, 3] = rng.random(n) < 0.3
    X[:, 4], X[:, 5], X[:, 6] = X[:, 3], 2.0, 0.0
    return X.astype(np.float32).astype(np.float64)


def targets_of(X: Any, loss: str, seed: int) -> Any:
    rng = np.random.default_rng(seed + 1)
    score = X[:, :4] @ rng.normal(size=4) + 0.8 + rng.normal(size=len(X))
    return score if loss == "squared" else np.where(score > 0, 1.0, -1.0)


def problem_of(reference: Reference) -> Problem:
    """The same problem, as solver/ has it."""
    p = reference.X.shape[1]
    weights = None if (reference.weights == 1.0).all() else reference.weights
    factors = None if np.isscalar(reference.l1) else reference.l1
    penalty = Penalty.scaled(p, reference.l1_ratio, reference.nonnegative, factors, None)
    return Problem(Examples.of(reference.y, weights, reference.loss), penalty, reference.intercept)


def fit(reference: Reference, options: Any, shares: Any = SHARES, M: int = 2) -> list[Solution]:
    """The solutions at these shares of λmax."""
    problem, X = problem_of(reference), sparse.csc_matrix(reference.X.astype(np.float32))
    with ThreadBlocks.from_csc(X, problem.examples, M, threads=1) as blocks, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a tolerance was not met: the gap is looked at
        null = null_model(blocks, problem)
        return list(solve_path(blocks, problem, [share * null.lambda_max for share in shares], options, null=null))


def value(reference: Reference, found: Solution) -> float:
    """f of what was found, by its definition."""
    return reference.objective(found.lam, found.beta.dense(reference.X.shape[1]), found.intercept)


# --- against an implementation of our own ---------------------------------------------------------------------------

STATED = [
    (loss, intercept, ratio, weighted, factors, nonnegative)
    for loss in LOSSES
    for intercept in (False, True)
    for ratio in (1.0, 0.95, 0.5)
    for weighted in (False, True)
    for factors in (False, True)
    for nonnegative in (False, True)
]


@cache
def stated(k: int) -> Reference:
    loss, intercept, ratio, weighted, factors, nonnegative = STATED[k]
    rng = np.random.default_rng(k)
    X = columns_of(k, 60, 10)
    f = np.exp(0.5 * rng.normal(size=10))
    f[7], f[1] = np.inf, f[1] if nonnegative else 0.0
    weights = rng.integers(0, 4, 60).astype(float) if weighted else np.ones(60)
    own: dict[str, Any] = {"l1": f, "l2": f} if factors else {}
    return Reference(X, targets_of(X, loss, k), weights, loss, ratio, nonnegative, intercept=intercept, **own)


@cache
def best(k: int, lam: float) -> float:
    return stated(k).minimise(lam)[2]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_every_problem_is_solved_in_every_mode(mode: str, loss: str, intercept: bool) -> None:
    for k in (k for k in range(len(STATED)) if STATED[k][:2] == (loss, intercept)):
        for found in fit(stated(k), MODES[mode]):
            optimum = best(k, found.lam)
            said = STATED[k], found.stop, found.rounds
            assert found.objective == pytest.approx(value(stated(k), found), rel=1e-9), said
            assert found.objective == pytest.approx(optimum, rel=1e-6), said
            assert found.objective - optimum <= found.gap + 1e-9 * optimum, said
            if mode != "paper":
                assert found.converged and found.gap <= MODES[mode].gap * found.objective, said


# --- against scikit-learn -------------------------------------------------------------------------------------------


def well_behaved(loss: str, weighted: bool, **more: Any) -> Reference:
    X = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32).astype(float)
    weights = np.random.default_rng(1).integers(1, 4, 100).astype(float) if weighted else np.ones(100)
    return Reference(X, targets_of(X, loss, 0), weights, loss, **more)


def same_model(reference: Reference, beta: Any, intercept: float, options: Any, lam_share: float) -> None:
    (found,) = fit(reference, options, [lam_share])
    theirs = reference.objective(found.lam, beta, intercept)
    assert found.objective == pytest.approx(theirs, rel=1e-6)
    np.testing.assert_allclose(found.beta.dense(beta.size), beta, atol=2e-4)
    assert found.intercept == pytest.approx(intercept, abs=2e-4)


def lambda_at(reference: Reference, share: float) -> float:
    problem = problem_of(reference)
    with ThreadBlocks.from_csc(sparse.csc_matrix(reference.X.astype(np.float32)), problem.examples, 1) as blocks:
        return share * null_model(blocks, problem).lambda_max


@pytest.mark.parametrize("options", [MODES["certified"], MODES["paper"]], ids=["certified", "paper"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_logistic_models_are_those_of_scikit_learn(ratio: float, intercept: bool, weighted: bool, options: Any) -> None:
    reference = well_behaved("logistic", weighted, l1_ratio=ratio, intercept=intercept)
    lam = lambda_at(reference, 0.1)
    theirs = LogisticRegression(
        C=1.0 / lam, **sklearn_penalty(ratio), fit_intercept=intercept, solver="saga", tol=1e-9, max_iter=20_000
    )
    # With weights, saga comes to no rest where the penalty is L1 alone: it gets the examples repeated.
    times = reference.weights.astype(int)
    theirs.fit(np.repeat(reference.X, times, axis=0), np.repeat(reference.y, times))
    same_model(reference, theirs.coef_[0], float(np.ravel(theirs.intercept_)[0]), options, 0.1)


@pytest.mark.parametrize("options", [MODES["certified"], MODES["paper"]], ids=["certified", "paper"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_squared_loss_is_the_elastic_net_of_scikit_learn(
    ratio: float, nonnegative: bool, weighted: bool, options: Any
) -> None:
    """Which divides the loss by 2n, or by twice the sum of the weights."""
    reference = well_behaved("squared", weighted, l1_ratio=ratio, intercept=True, nonnegative=nonnegative)
    alpha = lambda_at(reference, 0.1) / reference.weights.sum()
    theirs = ElasticNet(alpha=alpha, l1_ratio=ratio, positive=nonnegative, tol=1e-12, max_iter=100_000)
    theirs.fit(reference.X, reference.y, sample_weight=reference.weights)
    same_model(reference, theirs.coef_, float(theirs.intercept_), options, 0.1)


# --- what must come to the same -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", LOSSES)
def test_integer_weights_are_repeated_examples(loss: str, mode: str) -> None:
    X = columns_of(0, 50, 8)
    y, times = targets_of(X, loss, 0), np.random.default_rng(5).integers(0, 4, 50)
    weighted = Reference(X, y, times.astype(float), loss, 0.9, intercept=True)
    repeated = Reference(
        np.repeat(X, times, axis=0), np.repeat(y, times), np.ones(times.sum()), loss, 0.9, intercept=True
    )
    for a, b in zip(fit(weighted, MODES[mode]), fit(repeated, MODES[mode]), strict=True):
        assert a.lam == pytest.approx(b.lam, rel=1e-10)
        assert a.objective == pytest.approx(b.objective, rel=1e-7)


@pytest.mark.parametrize("options", [DefaultOptions(), SolverOptions.paper()], ids=["certified", "paper"])
def test_factors_of_one_are_the_plain_path_to_the_last_bit(options: Any) -> None:
    X = columns_of(1, 60, 10)
    plain = Reference(X, targets_of(X, "logistic", 1), np.ones(60))
    ones = Reference(plain.X, plain.y, plain.weights, l1=np.ones(10), l2=np.ones(10))
    for a, b in zip(fit(plain, options, (0.5, 0.1, 0.01)), fit(ones, options, (0.5, 0.1, 0.01)), strict=True):
        assert (a.lam, a.objective, a.gap, a.rounds, a.intercept) == (b.lam, b.objective, b.gap, b.rounds, 0.0)
        assert a.beta.value.tobytes() == b.beta.value.tobytes()


def test_all_factors_doubled_is_lambda_doubled() -> None:
    X = columns_of(1, 60, 10)
    plain = Reference(X, targets_of(X, "logistic", 1), np.ones(60), l1_ratio=0.7, intercept=True)
    twice = Reference(X, plain.y, plain.weights, l1_ratio=0.7, l1=np.full(10, 2.0), l2=np.full(10, 2.0), intercept=True)
    for a, b in zip(fit(plain, MODES["certified"]), fit(twice, MODES["certified"]), strict=True):
        assert a.lam == pytest.approx(2.0 * b.lam, rel=1e-12)
        assert a.objective == pytest.approx(b.objective, rel=2e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_standardising_is_fitting_on_columns_of_standard_deviation_1(loss: str, intercept: bool, ratio: float) -> None:
    """With an intercept it makes no difference whether these are centred."""
    rng = np.random.default_rng(2)
    X = (columns_of(2, 60, 10) * np.exp(rng.normal(size=10))).astype(np.float32)
    y, weights = targets_of(X, loss, 2), rng.exponential(size=60)
    examples = Examples.of(y, weights, loss)
    with ThreadBlocks.from_csc(sparse.csc_matrix(X), examples, 2) as blocks:
        scales = blocks.scales()
        problem = Problem(examples, Penalty.scaled(10, ratio, False, None, scales), intercept)
        null = null_model(blocks, problem)
        lam = 0.1 * null.lambda_max
        (found,) = solve_path(blocks, problem, [lam], DefaultOptions(gap=1e-8), null=null)
    mean = np.average(X.astype(float), axis=0, weights=weights)
    deviation = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    np.testing.assert_allclose(scales, np.where(np.arange(10) == 5, 0.0, deviation), rtol=1e-6)
    varied = scales > 0.0
    scaled = (X[:, varied] - (mean[varied] if intercept else 0.0)) / deviation[varied]
    other = Reference(scaled, y, weights, loss, ratio, intercept=intercept)
    beta, _, objective = other.minimise(lam)
    assert found.objective == pytest.approx(objective, rel=1e-6)
    # Columns 3 and 4 are one and the same: how they share is open where the penalty is L1 alone.
    mine, theirs = found.beta.dense(10)[varied] * deviation[varied], beta
    for one in (mine, theirs):
        one[3] = one[4] = one[3] + one[4]
    np.testing.assert_allclose(mine, theirs, atol=1e-4)
    assert not found.beta.dense(10)[~varied].any()


@pytest.mark.parametrize("options", [DefaultOptions(), SolverOptions.paper(tol=1e-9, max_rounds=2000)])
def test_with_an_intercept_probabilities_are_right_on_average_where_positives_are_rare(options: Any) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5000, 10)).astype(np.float32).astype(float)
    score = X[:, 0] + rng.logistic(size=5000)
    y = np.where(score > np.quantile(score, 0.99), 1.0, -1.0)
    for found in fit(Reference(X, y, np.ones(5000), intercept=True), options, (0.9, 0.3, 0.05)):
        probabilities = 1.0 / (1.0 + np.exp(-(X @ found.beta.dense(10) + found.intercept)))
        assert probabilities.mean() == pytest.approx(0.01, abs=1e-4)


# --- awkward data ---------------------------------------------------------------------------------------------------

BOTH = {"certified": DefaultOptions(), "paper": SolverOptions.paper(tol=1e-9, max_rounds=3000)}


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize(("n", "p"), [(12, 150), (1500, 7)])
def test_any_shape_has_its_certificate(loss: str, ratio: float, n: int, p: int, mode: str) -> None:
    X = columns_of(4, n, p)
    X[: n // 4] = 0.0  # empty rows
    reference = Reference(X, targets_of(X, loss, 4), np.ones(n), loss, ratio, intercept=True)
    for found in fit(reference, BOTH[mode], (0.5, 0.1, 0.01), M=3):
        optimum = reference.minimise(found.lam, iterations=3000)[2]
        assert found.objective == pytest.approx(value(reference, found), rel=1e-8)
        assert found.objective - optimum <= found.gap + 1e-9 * optimum
        assert found.objective <= optimum * (1.0 + 1e-4)
        assert not {6} & set(found.beta.position.tolist())  # the empty column


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("loss", ["logistic", "probit"])
def test_separable_data_with_an_intercept_end_at_tiny_lambda_and_stay_finite(loss: str, mode: str) -> None:
    X = np.random.default_rng(6).normal(size=(60, 5)).astype(np.float32).astype(float)
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0.8, 1.0, -1.0)
    reference = Reference(X, y, np.ones(60), loss, intercept=True)
    found = fit(reference, BOTH[mode], 0.5 ** np.arange(1, 25))
    for one in found:
        assert np.isfinite([one.objective, one.gap, one.intercept, *one.beta.value]).all()
        assert one.objective == pytest.approx(value(reference, one), rel=1e-6)
    assert all(b.objective < a.objective for a, b in pairwise(found))
    assert found[-1].objective < 1e-3 * found[0].objective
    assert mode == "paper" or all(one.converged for one in found)


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("loss", LOSSES)
def test_from_lambda_max_up_only_what_is_not_penalised_has_a_coefficient(loss: str, mode: str) -> None:
    factors = np.ones(10)
    factors[1] = 0.0
    X = columns_of(7, 60, 10)
    reference = Reference(X, targets_of(X, loss, 7), np.ones(60), loss, 0.8, l1=factors, l2=factors, intercept=True)
    above, at, below = fit(reference, BOTH[mode], (3.0, 1.0, 0.9))
    for one in (above, at):
        assert (one.beta.position.tolist(), one.stop, one.gap, one.rounds) == ([1], "zero", 0.0, 0)
        assert one.objective == pytest.approx(reference.minimise(one.lam)[2], rel=1e-9)
        assert one.intercept != 0.0
    assert below.nonzeros > 1


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e15])
def test_a_column_in_other_units_stops_nothing(loss: str, mode: str, scale: float) -> None:
    X = columns_of(8, 80, 8)
    X[:, 0] = (X[:, 0] * scale).astype(np.float32)
    y = targets_of(X / np.array([scale, *np.ones(7)]), loss, 8)
    reference = Reference(X, y, np.ones(80), loss, intercept=True)
    for one in fit(reference, BOTH[mode], (0.5, 0.1, 0.01)):
        assert np.isfinite([one.objective, one.gap, one.intercept, *one.beta.value]).all()
        assert one.objective == pytest.approx(value(reference, one), rel=1e-6)
        assert one.objective - reference.minimise(one.lam, iterations=2000)[2] <= one.gap + 1e-6 * one.objective


# --- any problem ----------------------------------------------------------------------------------------------------

ROUGH: dict[str, Any] = {
    "certified": DefaultOptions(),
    "beyond the budget": DefaultOptions(subspace_memory=0, max_rounds=500),
    "a column's budget": DefaultOptions(subspace_memory=60, max_rounds=500),
    "paper": SolverOptions.paper(tol=1e-3),
}


def separates(X: Any, y: Any) -> bool:
    """Is there a direction in which no margin falls and one rises?"""
    signed = y[:, None] * X
    found = linprog(
        -signed.sum(axis=0), A_ub=np.vstack([signed, -signed]), b_ub=np.repeat([1.0, 0.0], len(y)), bounds=(None, None)
    )
    return bool(found.status == 0 and -found.fun > 1e-9)


@st.composite
def problems(draw: st.DrawFn) -> Reference:
    """Small ones, with empty, constant and duplicate columns, empty rows, weights of 0, free and excluded features."""
    shape = st.tuples(st.integers(2, 14), st.integers(1, 6))
    X = draw(arrays(np.float64, shape, elements=st.integers(-3, 3).map(float)))
    n = len(X)
    copies, constant = draw(st.integers(0, 2)), draw(st.booleans())
    X = np.hstack([X, X[:, :copies], np.full((n, int(constant)), 2.0)])
    loss, nonnegative = draw(st.sampled_from(LOSSES)), draw(st.booleans())
    numbers = st.floats(-20.0, 20.0) if loss == "squared" else st.sampled_from([-1.0, 1.0])
    y = np.array(draw(st.lists(numbers, min_size=n, max_size=n)))
    weights = np.ones(n)
    if draw(st.booleans()):
        weights = np.array(draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 5.0]), min_size=n, max_size=n)))
    own: dict[str, Any] = {}
    if draw(st.booleans()):
        factor = st.sampled_from([0.5, 1.0, 3.0, np.inf, 1e-3 if nonnegative else 0.0])
        own["l1"] = own["l2"] = np.array(draw(st.lists(factor, min_size=X.shape[1], max_size=X.shape[1])))
    ratio, intercept = draw(st.sampled_from([1.0, 0.95, 0.5])), draw(st.booleans())
    return Reference(X, y, weights, loss, ratio, nonnegative, intercept=intercept, **own)


@given(
    reference=problems(),
    mode=st.sampled_from(sorted(ROUGH)),
    share=st.sampled_from([2.0, 1.0, 0.9, 0.3, 1e-2, 1e-4]),
    M=st.integers(1, 3),
)
@settings(max_examples=200)
def test_the_gap_bounds_the_distance_whatever_the_problem(
    reference: Reference, mode: str, share: float, M: int
) -> None:
    free = reference.X[:, np.broadcast_to(reference.l1, reference.X.shape[1]) == 0.0]
    if reference.intercept:
        free = np.hstack([free, np.ones((len(free), 1))])
    weighed = reference.weights > 0.0
    try:
        largest = lambda_at(reference, 1.0)
    except NoMinimum:
        assert reference.loss != "squared" and separates(free[weighed], reference.y[weighed])
        return
    if largest <= 1e-9:
        return
    (found,) = fit(reference, ROUGH[mode], [share], min(M, reference.X.shape[1]))
    optimum = reference.minimise(found.lam, iterations=3000)[2]
    assert found.objective == pytest.approx(value(reference, found), rel=1e-9, abs=1e-9)
    assert found.gap >= 0.0
    assert found.objective - optimum <= found.gap + 1e-9 * (1.0 + found.objective)
    if mode == "certified":  # with no room for columns, rounds may crawl from λmax to λmax/10,000, and say so
        assert found.converged
        assert found.objective <= optimum * (1.0 + 1e-4) + 1e-9
