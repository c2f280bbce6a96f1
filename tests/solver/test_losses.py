"""Every loss against its definition: value, derivatives, values along a ray, and the dual, far out too."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_ndtr

from solver import LOSSES, Examples
from tests.solver import independent

NAMES = ["logistic", "squared", "probit"]
FAR = np.array([-1e3, -40.0, -8.001, -7.999, -1.0, -1e-9, 0.0, 1e-9, 1.0, 7.999, 8.001, 40.0, 1e3])


def drawn(name: str, margins: Any, seed: int = 0) -> tuple[Any, Any, Examples]:
    """Targets of both signs, weights, some of them 0, and both as the loss reads them."""
    rng = np.random.default_rng(seed)
    n = len(margins)
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0) if name != "squared" else 3.0 * rng.normal(size=n)
    s = np.where(np.arange(n) % 5 == 3, 0.0, rng.exponential(size=n))
    return y, s, Examples.of(y, s, name)


def working(examples: Examples, margins: Any, least: float = 0.0) -> Any:
    out = np.empty((2, margins.size))
    examples.residuals(margins, out, least)
    return out


both_signs = pytest.mark.parametrize("sign", [1.0, -1.0])
every_loss = pytest.mark.parametrize("name", NAMES)


@every_loss
@both_signs
def test_the_value_is_the_definition_at_any_margin(name: str, sign: float) -> None:
    margins = sign * FAR
    y, s, examples = drawn(name, margins)
    expected = independent.LOSSES[name].value(y, margins)
    for i in range(margins.size):  # one by one: a large one hides the others
        alone = Examples.of(y[i : i + 1], s[i : i + 1], name)
        assert alone.value(margins[i : i + 1]) == pytest.approx(s[i] * expected[i], rel=1e-13, abs=1e-300)
    assert examples.value(margins) == pytest.approx((s * expected).sum(), rel=1e-13)


@every_loss
def test_residuals_and_weights_are_the_derivatives_of_the_value(name: str) -> None:
    margins, h = np.linspace(-6.0, 6.0, 40), 1e-4
    y, s, examples = drawn(name, margins)

    def values(m: Any) -> Any:
        return s * independent.LOSSES[name].value(y, m)

    r, w = working(examples, margins)
    np.testing.assert_allclose(r, (values(margins - h) - values(margins + h)) / (2 * h), rtol=1e-6, atol=1e-9)
    rising = (working(examples, margins - h)[0] - working(examples, margins + h)[0]) / (2 * h)
    np.testing.assert_allclose(w, rising, rtol=1e-5, atol=1e-9)
    assert (w[s == 0.0] == 0.0).all() and (r[s == 0.0] == 0.0).all()


@both_signs
def test_far_out_residuals_and_weights_are_the_closed_forms(sign: float) -> None:
    margins = sign * FAR
    y, s, logistic = drawn("logistic", margins)
    r, w = working(logistic, margins)
    np.testing.assert_allclose(r, s * y * expit(-y * margins), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(w, s * expit(margins) * expit(-margins), rtol=1e-13, atol=1e-300)
    y, s, probit = drawn("probit", margins)
    r, w = working(probit, margins)
    t = y * margins
    ratio = np.exp(-0.5 * t * t - log_ndtr(t) - 0.5 * np.log(2.0 * np.pi))
    np.testing.assert_allclose(r, s * y * ratio, rtol=1e-9, atol=1e-300)  # log_ndtr loses digits in exp, at -1000
    # From Φ(-x) = φ(x)/x (1 - 1/x² + 3/x⁴ - ...): κ(κ + t) is 1 - 1/x² + 6/x⁴ - 50/x⁶ and less.
    tail = t < -30.0
    series = 1.0 - t[tail] ** -2.0 + 6.0 * t[tail] ** -4.0 - 50.0 * t[tail] ** -6.0
    np.testing.assert_allclose(w[tail], s[tail] * series, rtol=1e-8)
    assert np.isfinite(w).all() and (w >= 0.0).all()
    y, s, squared = drawn("squared", margins)
    np.testing.assert_array_equal(working(squared, margins), [s * (y - margins), s])


@pytest.mark.parametrize("name", ["logistic", "probit"])
def test_a_weight_is_held_above_a_share_of_the_examples_own(name: str) -> None:
    _, s, examples = drawn(name, FAR)
    free, held = working(examples, FAR)[1], working(examples, FAR, 1e-3)[1]
    np.testing.assert_array_equal(held, np.maximum(free, 1e-3 * s))


@every_loss
def test_values_and_slope_along_a_ray_are_those_of_the_points_on_it(name: str) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 13, 511, 512, 1025):
        margins, dmargins = 3.0 * rng.normal(size=n), rng.normal(size=n)
        _, _, examples = drawn(name, margins, n)
        alphas = np.array([0.0, 1e-9, 0.25, 1.0, 7.0])
        along = examples.values_along(margins, dmargins, alphas)
        np.testing.assert_allclose(along, [examples.value(margins + a * dmargins) for a in alphas], rtol=1e-12)
        slope = -working(examples, margins)[0] @ dmargins
        assert examples.slope_along(margins, dmargins) == pytest.approx(slope, rel=1e-12, abs=1e-12)


@every_loss
@both_signs
def test_at_the_residual_itself_the_dual_is_the_loss_less_its_tangent(name: str, sign: float) -> None:
    margins = sign * FAR
    _, _, examples = drawn(name, margins)
    r, _ = working(examples, margins)
    size = examples.value(margins) + np.abs(r * margins).sum()
    assert examples.dual_value(margins, 1.0) == pytest.approx(examples.value(margins) + r @ margins, abs=1e-13 * size)


@every_loss
@both_signs
@pytest.mark.parametrize("scale", [1.0, 0.999, 0.5, 1e-3, 1e-12, 0.0])
def test_no_dual_value_is_above_any_primal_one(name: str, sign: float, scale: float) -> None:
    """D(u) ≤ L(m') + u·m' whatever m' is; far out too, or a certificate would be none."""
    margins, rng = sign * FAR, np.random.default_rng(2)
    _, _, examples = drawn(name, margins)
    r, _ = working(examples, margins)
    dual = examples.dual_value(margins, scale)
    for size in (1e-3, 1.0, 30.0, 1e3):
        for other in (size * rng.normal(size=margins.size), margins + size * rng.normal(size=margins.size)):
            primal, tangent = examples.value(other), scale * (r * other)
            assert dual <= primal + tangent.sum() + 1e-12 * (primal + np.abs(tangent).sum())


@every_loss
@pytest.mark.parametrize("scale", [0.999, 0.5, 1e-3])
@pytest.mark.parametrize("margin", [-40.0, -8.001, -7.999, -2.0, 0.0, 1.0, 4.0])
def test_a_dual_value_is_the_least_that_a_primal_one_can_be(name: str, scale: float, margin: float) -> None:
    m = np.array([margin])
    examples = Examples.of([1.0], [2.0], name)
    u = scale * working(examples, m)[0, 0]
    least = minimize_scalar(lambda t: examples.value(np.array([t])) + u * t, bounds=(-60, 60), options={"xatol": 1e-9})
    assert examples.dual_value(m, scale) == pytest.approx(least.fun, rel=1e-9, abs=1e-9)


@every_loss
def test_an_example_of_weight_0_has_no_say(name: str) -> None:
    margins = np.linspace(-5.0, 5.0, 9)
    y, s, examples = drawn(name, margins)
    kept = s > 0.0
    fewer = Examples.of(y[kept], s[kept], name)
    for scale in (1.0, 0.5):
        assert examples.dual_value(margins, scale) == pytest.approx(fewer.dual_value(margins[kept], scale), rel=1e-12)
    np.testing.assert_array_equal(examples.weights, s)


@every_loss
def test_examples_travel(name: str) -> None:
    _, _, examples = drawn(name, FAR)
    there = pickle.loads(pickle.dumps(examples))  # noqa: S301
    assert there.loss is LOSSES[name]
    assert there.value(FAR) == examples.value(FAR)


@pytest.mark.parametrize(
    ("targets", "loss", "says"),
    [
        ([1.0, -1.0], "hinge", "loss must be one of logistic, squared, probit, got 'hinge'"),
        ([1.0, np.nan], "squared", "targets must be finite"),
        ([1.0, 0.0], "probit", "labels must be -1 or \\+1, got 0"),
        ([], "squared", "targets must be a vector of at least one example"),
    ],
)
def test_impossible_targets_and_losses_are_refused(targets: list[float], loss: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Examples.of(targets, None, loss)
