"""The constants, and what is said of impossible ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from solver import SolverOptions


def test_paper_mode_has_the_papers_constants() -> None:
    options = SolverOptions.paper()
    assert (options.nu, options.b, options.sigma, options.gamma) == (1e-6, 0.5, 0.01, 0.0)


def test_single_constants_can_be_changed_and_all_survive_a_round_trip() -> None:
    options = SolverOptions.paper(tol=1e-9, back_tol=1e-3)
    assert options.tol == 1e-9
    assert SolverOptions(**asdict(options)) == options


def test_the_rise_allowed_at_the_end_is_the_tolerance_unless_set() -> None:
    assert SolverOptions(tol=1e-5).allowed_rise == 1e-5
    assert SolverOptions(tol=1e-5, back_tol=0.0).allowed_rise == 0.0


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("tol", -1, "tol must be > 0, got -1"),
        ("tol", float("nan"), "tol must be > 0, got nan"),
        ("nu", 0.0, "nu must be > 0, got 0.0"),
        ("sufficient_decrease", 0.0, "sufficient_decrease must be > 0"),
        ("b", 1.0, "b must lie between 0 and 1, got 1.0"),
        ("sigma", 0.0, "sigma must lie between 0 and 1"),
        ("delta", 1.5, "delta must lie between 0 and 1"),
        ("gamma", 1.0, "gamma must be at least 0 and less than 1"),
        ("back_tol", -1e-9, "back_tol must be >= 0"),
        ("max_rounds", 0, "max_rounds must be at least 1, got 0"),
        ("tol", float("inf"), "tol must be finite"),
    ],
)
def test_impossible_constants_are_refused_by_name(name: str, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        SolverOptions(**{name: value})
