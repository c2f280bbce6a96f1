"""Generated problems, small enough for a reference in plain numpy and for LIBLINEAR run to tightness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from solver import Coefficients, Examples, SolverOptions, ThreadBlocks

Float = Any
Made = tuple[sparse.csc_matrix, Examples]


def _tall(rng: np.random.Generator) -> Float:
    return rng.normal(size=(400, 8)) + 0.5 * rng.normal(size=(400, 1))


def _wide(rng: np.random.Generator) -> Float:
    return rng.normal(size=(30, 120)) * (rng.random((30, 120)) < 0.4)


def _sparse(rng: np.random.Generator) -> Float:
    return rng.exponential(size=(300, 80)) * (rng.random((300, 80)) < 0.08)


def _one_hot(rng: np.random.Generator) -> Float:
    letters = rng.integers(0, 4, (250, 10))
    return (letters[:, :, None] == np.arange(4)).reshape(250, 40).astype(float)


def _words(rng: np.random.Generator) -> Float:
    return (rng.random((300, 60)) < 0.06).astype(float)


def _dense(rng: np.random.Generator) -> Float:
    return rng.normal(size=(150, 30)) @ np.diag(np.geomspace(0.5, 2.0, 30))


def _mixed(rng: np.random.Generator) -> Float:
    """Dense columns, valued ones and ones, as lists or bits, in turn."""
    X = rng.normal(size=(120, 27))
    X[:, 1::3] *= rng.random((120, 9)) < 0.2
    X[:, 2::3] = rng.random((120, 9)) < 0.15
    return X


_SHAPES = {f.__name__[1:]: f for f in (_tall, _wide, _sparse, _one_hot, _words, _dense, _mixed)}


@pytest.fixture(scope="session")
def make() -> Callable[[str], Made]:
    """A problem by name, the same each time: labels follow a few of the features, with noise."""

    def made(name: str) -> Made:
        rng = np.random.default_rng(sum(map(ord, name)))
        X = _SHAPES[name](rng).astype(np.float32)
        truth = np.where(rng.random(X.shape[1]) < 0.3, rng.normal(size=X.shape[1]), 0.0)
        score: Float = X @ truth
        score = score / (score.std() or 1.0) + 0.7 * rng.normal(size=X.shape[0])
        return sparse.csc_matrix(X), Examples.of(np.where(score > np.median(score), 1, -1))

    return made


@pytest.fixture(scope="session")
def objective() -> Callable[[sparse.csc_matrix, Examples, float, Coefficients], float]:
    """f(β), from the data, in numpy."""

    def of(X: sparse.csc_matrix, examples: Examples, lam: float, beta: Coefficients) -> float:
        signed = examples.encoded
        m = X.astype(np.float64) @ beta.dense(X.shape[1])
        loss = np.abs(signed) * np.logaddexp(0.0, -np.sign(signed) * m)
        return float(loss.sum() + lam * np.abs(beta.value).sum())

    return of


@pytest.fixture(scope="session")
def tight() -> SolverOptions:
    """Run until rounding is all that is left to gain."""
    return SolverOptions.paper(tol=1e-13, max_rounds=20_000)


@pytest.fixture
def blocks_of() -> Callable[[sparse.csc_matrix, Examples, int], ThreadBlocks]:
    def cut(X: sparse.csc_matrix, examples: Examples, M: int) -> ThreadBlocks:
        return ThreadBlocks.from_csc(X, examples, M, threads=2)

    return cut
