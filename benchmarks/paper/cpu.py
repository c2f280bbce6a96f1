"""What the parts of the experiment cost, in CPU seconds: those by the wall depend on what else a machine does.

The path on two blocks of this process; of it the line search, by a clock around it; one pass of the online learner; the
transposition of the text. The line search of up to 2^18 examples runs on the thread that calls it, whose time counts.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from distributed import Client

from benchmarks.paper.data import Data, by_example
from benchmarks.paper.results import Rows
from solver import ConvergenceWarning, Examples, ProblemOptions, ThreadBlocks, ThreadRows, make_problem, solve_path
from solver.algorithms import paper
from solver.linesearch import line_search
from solver.rows import Schedule
from transforms import convert_libsvm

PASSES = 5


class Clock:
    """Calls a function, and adds up the CPU seconds of the calling thread."""

    def __init__(self, function: Any) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *given: Any) -> Any:
        began = time.thread_time()
        try:
            return self._function(*given)
        finally:
            self.seconds += time.thread_time() - began


def measure_cpu(data: Data, modes: dict[str, Any], lambdas: list[float], blocks: int, client: Client) -> Rows:
    """A row for each mode, one for a pass of the online learner, one for the transposition."""
    X, examples = by_example(data.train), Examples.of(data.train.labels()[0])
    rows: Rows = []
    with ThreadBlocks.from_csc(X.tocsc(), examples, min(blocks, data.train.p)) as parts:
        problem = make_problem(parts, examples, ProblemOptions(intercept=False))
        for mode, options in modes.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                list(solve_path(parts, problem, lambdas[:2], options))  # compiled outside the clock
                search, began = Clock(line_search), time.process_time()
                with patch.object(paper, "line_search", search):
                    rounds = sum(one.rounds for one in solve_path(parts, problem, lambdas, options))
            seconds = time.process_time() - began
            rows.append({"what": mode, "cpu": seconds, "search": search.seconds, "rounds": rounds})
    return [*rows, {"what": "pass", "cpu": _pass(X, examples)}, {"what": "convert", "cpu": _convert(data, client)}]


def _pass(X: Any, examples: Examples) -> float:
    with ThreadRows.from_csr(X, examples, 1) as rows:
        beta = rows.learn(np.zeros(rows.width), [Schedule(0.5, 1.0, 0.5, 0.0)])
        began = time.process_time()
        for _ in range(PASSES):
            beta = rows.learn(beta, [Schedule(0.5, 1.0, 0.5, 0.0)])
        return (time.process_time() - began) / PASSES


def _convert(data: Data, client: Client) -> float:
    with tempfile.TemporaryDirectory(prefix="paper-convert-") as scratch:
        began = time.process_time()
        convert_libsvm(str(data.text), str(Path(scratch) / "data"), client=client)
        return time.process_time() - began
