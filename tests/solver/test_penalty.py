"""The penalty against its definition: one coordinate minimised by brute force, values, duals, and factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import Coefficients, Examples, Penalty, Violation
from solver.kernels.penalty import coordinate_step, soft_threshold
from solver.penalty import Terms
from solver.problem import Objective

INF = np.inf
thresholds = st.sampled_from([0.0, 0.3, 1.0, 2.5, INF])
plain = st.floats(-5.0, 5.0)


def cost(b: Any, up: float, down: float, l2: float) -> Any:
    """up b⁺ + down b⁻ + ½ l2 b²; 0 at b = 0 whatever the thresholds."""
    b = np.asarray(b, dtype=float)
    with np.errstate(invalid="ignore"):  # ∞ · 0
        slope = np.where(b > 0, up * b, np.where(b < 0, down * -b, 0.0))
    return slope + 0.5 * l2 * b * b


def terms_of(up: Any, down: Any, l2: Any) -> Terms:
    return Terms(*(np.atleast_1d(np.asarray(one, dtype=float)) for one in (up, down, l2)))


def around(x: float) -> Any:
    """Points everywhere, and close to x."""
    return np.concatenate((np.linspace(-40.0, 40.0, 4001), x + np.linspace(-1e-3, 1e-3, 201), [0.0]))


@given(target=plain, up=thresholds, down=thresholds)
def test_the_soft_threshold_is_the_proximal_operator(target: float, up: float, down: float) -> None:
    found = soft_threshold(target, up, down)

    def f(b: Any) -> Any:
        return 0.5 * (b - target) ** 2 + cost(b, up, down, 0.0)

    assert f(found) <= f(around(found)).min() + 1e-12
    assert terms_of(up, down, 0.0).soft_threshold(np.array([target]))[0] == found


@given(
    g=plain,
    h=st.sampled_from([1e-6, 0.3, 4.0]),
    b=st.sampled_from([0.0, 0.7, -1.3]),
    up=thresholds,
    down=thresholds,
    l2=st.sampled_from([0.0, 0.5, 20.0]),
)
def test_a_coordinate_step_minimises_along_the_coordinate(
    g: float, h: float, b: float, up: float, down: float, l2: float
) -> None:
    step = coordinate_step(g, h, b, up, down, l2)

    def model(d: Any) -> Any:
        return -g * d + 0.5 * h * d * d + cost(b + d, up, down, l2)

    candidates = np.concatenate((around(step), [-b]))
    assert model(step) <= model(candidates).min() + 1e-9 * (1.0 + abs(g * step))
    if abs(b + step) < 1e-300:
        assert step == -b  # what is zero is exactly zero
    gains = terms_of(up, down, l2).gains(np.array([g]), np.array([h]), np.array([b]))
    if np.isfinite(cost(b, up, down, l2)):
        assert gains[0] == pytest.approx(max(float(model(0.0) - model(step)), 0.0), rel=1e-9, abs=1e-9)


def drawn(seed: int, size: int = 30) -> tuple[Terms, Any]:
    """Thresholds of all kinds, and coefficients that are allowed."""
    rng = np.random.default_rng(seed)
    up = rng.choice([0.0, 0.5, 1.0, INF], size)
    down = np.where((rng.random(size) < 0.3) & (up > 0.0), INF, up)
    beta = np.where(rng.random(size) < 0.6, rng.normal(size=size), 0.0)
    beta = np.where(beta > 0, np.where(np.isinf(up), 0.0, beta), np.where(np.isinf(down), 0.0, beta))
    return Terms(up, down, rng.choice([0.0, 0.7], size)), beta


@pytest.mark.parametrize("seed", range(5))
def test_values_along_a_ray_are_those_of_the_points_on_it(seed: int) -> None:
    terms, beta = drawn(seed)
    expected = sum(float(cost(b, *of)) for b, of in zip(beta, zip(*terms, strict=True), strict=True))
    assert terms.value(beta) == pytest.approx(expected, rel=1e-12)
    position = np.flatnonzero(beta)
    dbeta = Coefficients(position, -0.5 * beta[position])  # towards zero: no sign that is not allowed
    alphas = np.array([0.0, 0.3, 1.0, 2.0])
    found = Objective(Examples.of([1.0]), 1.0, terms).penalty_changes(beta, dbeta, alphas)
    ends = [terms.value(beta + a * dbeta.dense(beta.size)) - terms.value(beta) for a in alphas]
    np.testing.assert_allclose(found, ends, rtol=1e-12, atol=1e-12)


def test_a_coefficient_that_is_not_allowed_costs_infinitely_much() -> None:
    assert terms_of(1.0, INF, 0.0).value(np.array([-1e-300])) == INF
    assert terms_of(INF, INF, 0.0).value(np.array([1.0])) == INF
    assert terms_of(INF, INF, 0.0).value(np.zeros(1)) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_slopes_divided_by_the_ratio_are_feasible_and_no_more(seed: int) -> None:
    terms, _ = drawn(seed)
    slopes = 3.0 * np.random.default_rng(seed).normal(size=30)
    ratio = terms.violation(slopes).ratio
    penalised = ~terms.free
    inside = (slopes <= terms.up * ratio * (1 + 1e-12)) & (-slopes <= terms.down * ratio * (1 + 1e-12))
    assert inside[penalised & ~np.isinf(terms.up)].all()
    less = 0.999 * ratio
    assert ((slopes > terms.up * less) | (-slopes > terms.down * less))[penalised].any()


def test_the_conjugate_is_what_slopes_gain_at_the_most() -> None:
    rng = np.random.default_rng(0)
    up, down, l2 = rng.uniform(0.2, 2.0, 12), rng.uniform(0.2, 2.0, 12), rng.uniform(0.1, 3.0, 12)
    down[:4] = INF
    slopes = 3.0 * rng.normal(size=12)
    b = np.linspace(-100.0, 100.0, 400_001)
    most = [float((z * b - cost(b, *of)).max()) for z, of in zip(slopes, zip(up, down, l2, strict=True), strict=True)]
    assert Terms(up, down, l2).violation(slopes).conjugate == pytest.approx(sum(most), rel=1e-6)


def test_without_an_l2_part_a_violation_has_no_price() -> None:
    assert terms_of(1.0, 1.0, 0.0).violation(np.array([1.5])) == Violation(1.5, INF)
    assert terms_of(1.0, 1.0, 0.0).violation(np.array([0.5])) == Violation(0.5, 0.0)
    assert terms_of(0.0, 0.0, 0.0).violation(np.array([9.0])) == Violation(0.0, 0.0)  # free.py sees to that one
    parts = [Violation(0.5, 1.0), Violation(2.0, 3.0)]
    assert Violation.joined(parts) == Violation(2.0, 4.0)


# --- factors --------------------------------------------------------------------------------------------------------

FACTORS = np.array([1.0, 0.0, INF, 2.0])


def rows(terms: Terms) -> list[list[float]]:
    return [one.tolist() for one in terms]


def test_the_plain_penalty_is_lambda_alike_for_all() -> None:
    assert rows(Penalty(3).at(0.7)) == [[0.7] * 3, [0.7] * 3, [0.0] * 3]
    assert Penalty(3).free.size == 0


def test_factors_scale_both_parts_and_0_and_infinity_mean_free_and_excluded() -> None:
    penalty = Penalty.scaled(4, 0.25, False, FACTORS, None)
    assert rows(penalty.at(2.0)) == [[0.5, 0.0, INF, 1.0], [0.5, 0.0, INF, 1.0], [1.5, 0.0, 0.0, 3.0]]
    assert penalty.free.tolist() == [1]
    assert penalty.at(2.0).free.tolist() == [False, True, False, False]


def test_non_negative_is_an_infinite_threshold_below_for_those_that_are_penalised() -> None:
    up, down, _ = Penalty.scaled(4, 1.0, True, FACTORS, None).at(2.0)
    assert up.tolist() == [2.0, 0.0, INF, 4.0]
    assert down.tolist() == [INF, 0.0, INF, INF]


def test_a_position_past_the_last_feature_is_the_intercepts_and_free() -> None:
    penalty = Penalty.scaled(4, 0.5, True, FACTORS, None)
    assert rows(penalty.at(2.0, np.array([0, 3, 4]))) == [[1.0, 2.0, 0.0], [INF, INF, 0.0], [1.0, 2.0, 0.0]]
    assert rows(Penalty(4, 0.5).at(2.0, np.array([2, 4]))) == [[1.0, 0.0]] * 3


def test_standardising_is_a_matter_of_factors_and_a_constant_feature_is_excluded() -> None:
    scales = np.array([2.0, 3.0, 1.0, 0.0])
    penalty = Penalty.scaled(4, 0.5, False, FACTORS, scales)
    assert rows(penalty.at(2.0)) == [[2.0, 0.0, INF, INF], [2.0, 0.0, INF, INF], [4.0, 0.0, 0.0, 0.0]]
    alone = Penalty.scaled(4, 0.5, False, None, scales)
    assert rows(alone.at(2.0)) == [[2.0, 3.0, 1.0, INF], [2.0, 3.0, 1.0, INF], [4.0, 9.0, 1.0, 0.0]]


def test_a_block_has_the_penalty_of_its_features_and_leaves_the_free_ones_alone() -> None:
    whole = Penalty.scaled(4, 0.5, False, FACTORS, None)
    part = whole.part(1, 4)
    assert rows(part.at(2.0)) == [[INF, INF, 2.0], [INF, INF, 2.0], [0.0, 0.0, 2.0]]
    assert part.free.size == 0
    assert whole.free.tolist() == [1]  # not changed by it
    assert Penalty(9, 0.5, True).part(2, 5) == Penalty(3, 0.5, True)


def test_bounds_of_slopes_become_the_lambda_from_which_on_a_feature_is_zero() -> None:
    bounds = np.array([3.0, 3.0, 3.0, 3.0])
    assert Penalty.scaled(4, 0.5, False, FACTORS, None).in_lambdas(bounds).tolist() == [6.0, INF, 0.0, 3.0]
    assert Penalty(2, 0.5).in_lambdas(np.array([3.0, 0.0])).tolist() == [6.0, 0.0]
    assert Penalty.scaled(1, 1.0, False, np.zeros(1), None).in_lambdas(np.zeros(1)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Penalty(2, 0.0), "l1_ratio must be > 0 and at most 1, got 0.0"),
        (lambda: Penalty(2, 1.1), "l1_ratio must be > 0 and at most 1, got 1.1"),
        (lambda: Penalty(2, np.nan), "l1_ratio must be > 0 and at most 1, got nan"),
        (lambda: Penalty.scaled(2, 1.0, False, np.ones(3), None), "factors must be 2 numbers >= 0"),
        (lambda: Penalty.scaled(2, 1.0, False, np.array([1.0, -1.0]), None), "factors must be 2 numbers >= 0"),
        (lambda: Penalty.scaled(2, 1.0, False, np.array([1.0, np.nan]), None), "factors must be 2 numbers >= 0"),
        (lambda: Penalty(2, 0.5, l1_factor=np.ones(2)), "given together"),
        (lambda: Penalty(2, 0.5, l2_factor=np.ones(2)), "given together"),
        (lambda: Penalty(2, 0.5, False, np.array([0.0, 1.0]), np.ones(2)), "l2_factor must be 0 where l1_factor is"),
    ],
)
def test_impossible_penalties_are_refused(made: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        made()
