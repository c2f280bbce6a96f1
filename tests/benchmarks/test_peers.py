"""How a peer is run, and what is told of one that failed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.peers import _last_line, find_peer, run_peer
from benchmarks.problem import Problem
from benchmarks.standing import Standing
from solver import DefaultOptions, Examples, ThreadBlocks
from tests.solver.plain import lambda_max, path

JAVA = """Py4JJavaError: o42.count
Caused by: SparkException: aborted
    at x
Caused by: BadIds: 7 after 9
    ... 1 more
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [(JAVA, "Caused by: BadIds: 7 after 9"), ("first\nValueError: last\n\n", "ValueError: last"), ("", "no message")],
)
def test_a_failure_is_told_by_its_cause(said: str, told: str) -> None:
    assert _last_line(io.StringIO(said)) == told


def test_a_peer_climbs_and_short_runs_are_repeated(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 30), density=0.3, rng=rng, format="csr", dtype=np.float32)
    y = np.where(X @ rng.normal(size=30) + rng.normal(size=200) > 0, 1.0, -1.0)
    examples = Examples.of(y)
    blocks = ThreadBlocks.from_csc(X.tocsc(), examples, 1)
    largest = lambda_max(blocks, examples)
    lambdas = largest / np.array([4.0, 16.0])
    tight = path(blocks, examples, lambdas.tolist(), DefaultOptions(gap=1e-9))
    best, gap = (np.array(values) for values in zip(*((one.objective, one.gap) for one in tight), strict=True))
    Problem(sp.csr_matrix(X), y, largest, lambdas, best, gap, False).save(tmp_path / "small.npz")
    found = run_peer(find_peer("dglmnet"), tmp_path / "small.npz", limit=60.0)
    assert (found["status"], found["climbed"]) == ("done", True), found
    assert {"seconds", "rounds", "gap"} == set(found["after"])
    times = [(fit["rung"]["tol"], fit["lambda_index"]) for fit in found["fits"]]
    assert times == sorted(set(times), key=times.index) * 3
    reached = Standing(found, best).reached(1e-4)
    assert reached.whole
    assert reached.count == 2
