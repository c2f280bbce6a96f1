"""Hard data, small: the default mode ends within its tolerance of the optimum, in few passes over the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from benchmarks.check_hard import SETS
from solver import DefaultOptions, Examples, Solution, ThreadBlocks, lambda_grid
from tests.solver import plain
from tests.solver.plain import lambda_max


@pytest.mark.parametrize("name", SETS)
def test_every_model_is_within_tol_of_the_optimum_in_few_passes(name: str) -> None:
    X, y = SETS[name](np.random.default_rng(1), 50)
    X.sort_indices()
    examples = Examples.of(y)

    def path(options: DefaultOptions) -> list[Solution]:
        with ThreadBlocks.from_csc(X, examples, 3, threads=2) as blocks:
            return plain.path(blocks, examples, lambda_grid(lambda_max(blocks, examples), 12), options)

    found, strict = path(DefaultOptions()), path(DefaultOptions(gap=1e-6))
    assert all(one.converged for one in [*found, *strict])
    assert sum(one.rounds for one in found) <= 4 * len(found)
    for one, proof in zip(found, strict, strict=True):
        bound = proof.objective - proof.gap  # no model is below this
        assert one.objective <= bound * (1.0 + 1e-4) + 2 * proof.gap


def test_a_matrix_that_cannot_be_factored_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*_: object, **__: object) -> None:
        asked.append(1)
        raise LinAlgError

    monkeypatch.setattr("solver.algorithms.certified.gram_problem.cho_factor", refuse)
    X, y = SETS["factors"](np.random.default_rng(1), 50)
    X.sort_indices()
    examples = Examples.of(y)
    with ThreadBlocks.from_csc(X, examples, 2, threads=2) as blocks:
        found = plain.path(blocks, examples, lambda_grid(lambda_max(blocks, examples), 12), DefaultOptions())
    assert asked
    assert all(one.converged for one in found)
