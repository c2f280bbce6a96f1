"""Truncated gradient: the kernel against plain Python, the average of parts, and the real Vowpal Wabbit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from benchmarks.text import write_vw
from solver import (
    Coefficients,
    Examples,
    NullModel,
    Problem,
    RoundRecord,
    ThreadBlocks,
    ThreadRows,
    TruncatedGradientOptions,
    make_problem,
    null_model,
    solve_path,
)
from solver.algorithms.truncated_gradient import learn_together
from solver.options import ProblemOptions
from solver.rows import Schedule, make_problem_by_example

Made = tuple[sparse.csc_matrix, Examples]
SETTINGS = [
    TruncatedGradientOptions(passes=1),
    TruncatedGradientOptions(0.1, 0.5, 0.5, 4),
    TruncatedGradientOptions(0.5, 0.9, 0.8, 3),
    TruncatedGradientOptions(0.3, 1.0, 0.0, 2),
]


def truncated(w: np.ndarray, gravity: float) -> np.ndarray:
    return np.asarray(np.sign(w) * np.maximum(np.abs(w) - gravity, 0.0))


def plain_pass(X: np.ndarray, signed: np.ndarray, weights: np.ndarray, how: Schedule) -> np.ndarray:
    """One pass in numpy, all weights truncated for every example."""
    w, gravity, seen = weights.astype(np.float64), 0.0, how.seen
    for x, one in zip(X.astype(np.float64), signed, strict=True):
        y, s = math.copysign(1.0, one), abs(one)
        seen += s
        step = how.rate * s / seen**how.power
        w += y * step / (1.0 + math.exp(y * min(max(truncated(w, gravity) @ x, -50.0), 50.0))) * x
        gravity += step * how.l1
    return truncated(w, gravity)


def posed(rows: ThreadRows, examples: Examples) -> tuple[Problem, NullModel]:
    return make_problem_by_example(rows, examples)


@pytest.mark.parametrize("name", ["tall", "wide", "one_hot", "words"])
def test_a_pass_is_that_of_plain_python(make: Callable[[str], Made], name: str) -> None:
    X, examples = make(name)
    weighted = Examples(examples.loss, examples.encoded * np.linspace(0.5, 2.0, examples.n))
    how, start = Schedule(0.4, 7.0, 0.6, 2e-3), np.linspace(-0.2, 0.2, X.shape[1]).astype(np.float32)
    with ThreadRows.from_csr(X.tocsr(), weighted, 1) as rows:
        (found,) = rows.ask("learn", start, [how])
    expected = plain_pass(X.toarray(), weighted.encoded, start, how)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert 0 < np.count_nonzero(found) <= np.count_nonzero(expected) + 1


def test_examples_that_weigh_nothing_teach_nothing(make: Callable[[str], Made]) -> None:
    X, examples = make("words")
    heavy = np.arange(examples.n) % 3 != 0
    options = TruncatedGradientOptions(passes=3)
    found = []
    for rows_of, own in ((X.tocsr(), examples.encoded * heavy), (X.tocsr()[heavy], examples.encoded[heavy])):
        counted = Examples(examples.loss, own)
        with ThreadRows.from_csr(rows_of, counted, 1) as rows:
            problem, null = posed(rows, counted)
            found.append(next(solve_path(rows, problem, [0.3], options, null=null)))
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-9)
    np.testing.assert_array_equal(found[0].beta.value, found[1].beta.value)


def test_parts_are_averaged_by_their_weights_and_the_average_begins_the_next_pass(make: Callable[[str], Made]) -> None:
    X, examples = make("sparse")
    encoded = examples.encoded.copy()
    encoded[:100] *= 5.0  # the first of three parts weighs five times the others
    weighted = Examples(examples.loss, encoded)
    options, lam = TruncatedGradientOptions(0.4, 0.7, 0.5, 2), 0.05
    kept: list[Coefficients] = []
    with ThreadRows.from_csr(X.tocsr(), weighted, 3) as rows:
        problem, null = posed(rows, weighted)
        list(
            solve_path(rows, problem, [lam], options, null=null, on_pass=lambda index, number, beta: kept.append(beta))
        )
    beta, dense = np.zeros(X.shape[1]), X.toarray()
    sizes = [500.0, 100.0, 100.0]
    for number in (0, 1):
        learnt = [
            plain_pass(
                dense[100 * k : 100 * k + 100],
                encoded[100 * k : 100 * k + 100],
                beta,
                Schedule(0.4 * 0.7**number, 1.0 + number * sizes[k], 0.5, lam / 700.0),
            )
            for k in range(3)
        ]
        beta = np.average(learnt, axis=0, weights=sizes)
        np.testing.assert_allclose(kept[number].dense(beta.size), beta, atol=1e-5)


@pytest.mark.parametrize("name", ["tall", "one_hot"])
def test_lambdas_that_learn_together_learn_what_each_learns_alone(make: Callable[[str], Made], name: str) -> None:
    X, examples = make(name)
    weighted = Examples(examples.loss, examples.encoded * np.linspace(0.0, 2.0, examples.n))
    options = TruncatedGradientOptions(0.4, 0.7, 0.6, 3)
    with ThreadRows.from_csr(X.tocsr(), weighted, 2) as rows:
        problem, null = posed(rows, weighted)
        lambdas = [null.lambda_max / 2**k for k in range(1, 8)]
        alone: dict[tuple[int, int], np.ndarray] = {}

        def keep(index: int, number: int, beta: Coefficients) -> None:
            alone[index, number] = beta.dense(X.shape[1])

        list(solve_path(rows, problem, lambdas, options, null=null, on_pass=keep))
        for number, betas in enumerate(learn_together(rows, lambdas, options), 1):
            for k in range(len(lambdas)):
                np.testing.assert_allclose(betas[:, k], alone[k, number], rtol=1e-5, atol=1e-6)
                assert np.count_nonzero(betas[:, k]) == np.count_nonzero(alone[k, number])
    assert len({np.count_nonzero(beta) for beta in alone.values()}) > 3


def test_lambda_max_is_that_of_the_columns(make: Callable[[str], Made]) -> None:
    X, examples = make("mixed")
    with ThreadRows.from_csr(X.tocsr(), examples, 4) as rows, ThreadBlocks.from_csc(X, examples, 2) as blocks:
        problem = make_problem(blocks, examples, ProblemOptions(intercept=False))
        by_feature = null_model(blocks, problem)
        _, by_example = posed(rows, examples)
    assert by_example.lambda_max == pytest.approx(by_feature.lambda_max, rel=1e-6)
    assert by_example.objective == pytest.approx(by_feature.objective)


def test_rounds_tell_the_true_objective(
    make: Callable[[str], Made], objective: Callable[[sparse.csc_matrix, Examples, float, Coefficients], float]
) -> None:
    X, examples = make("tall")
    told: list[RoundRecord] = []
    with ThreadRows.from_csr(X.tocsr(), examples, 2) as rows:
        problem, null = posed(rows, examples)
        lam = null.lambda_max / 8
        (found,) = solve_path(rows, problem, [lam], SETTINGS[2], null=null, on_round=told.append)
    assert [record.round for record in told] == [1, 2, 3]
    assert told[-1].objective == found.objective == pytest.approx(objective(X, examples, lam, found.beta), rel=1e-6)
    assert found.objective < null.objective
    assert math.isnan(found.gap) and found.converged


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ["tall", "words"])
def test_one_part_learns_the_weights_of_vowpal_wabbit(
    make: Callable[[str], Made], tmp_path: Path, name: str, options: TruncatedGradientOptions
) -> None:
    vw = pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit")
    X, examples = make(name)
    write_vw(tmp_path / "rows.vw", X.tocsr(), np.sign(examples.encoded).astype(int))
    with ThreadRows.from_csr(X.tocsr(), examples, 1) as rows:
        problem, null = posed(rows, examples)
        lam = null.lambda_max / 16
        (found,) = solve_path(rows, problem, [lam], options, null=null)
    told = (
        f"--quiet --noconstant --loss_function logistic -b 10 -d {tmp_path}/rows.vw --cache_file {tmp_path}/cache "
        f"--sgd -l {options.learning_rate} --decay_learning_rate {options.decay} --power_t {options.power_t} "
        f"--passes {options.passes} --holdout_off --l1 {lam / examples.n!r} "
        f"--predict_only_model --readable_model {tmp_path}/weights.txt"
    )
    vw.Workspace(told).finish()
    expected = np.zeros(X.shape[1])
    for line in (tmp_path / "weights.txt").read_text().splitlines():
        place, _, weight = line.partition(":")
        if place.isdigit() and weight:
            expected[int(place)] = float(weight.split()[0])
    np.testing.assert_allclose(found.beta.dense(X.shape[1]), expected, atol=2e-5)
    assert np.count_nonzero(expected)
