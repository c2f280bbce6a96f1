"""What the parts of the experiment cost, in CPU seconds: those by the wall depend on what else a machine does.

The path on two blocks of this process; of it the line search, by a clock around it; one pass of the online learner; the
transposition of the text. And the path in paper mode on as many blocks as the paper had servers, where of each round
the slowest block counts alone: what it would take if each had a server, and no network lay between.
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
from solver import (
    ConvergenceWarning,
    Examples,
    ProblemOptions,
    RoundRecord,
    ThreadBlocks,
    ThreadRows,
    make_problem,
    solve_path,
)
from solver.algorithms import paper
from solver.linesearch import line_search
from solver.rows import Schedule
from solver.threads import is_one_strip
from transforms import convert_libsvm

PASSES = 5
SERVERS = "servers"
PAPER_BLOCKS = 16  # the paper's servers


class Clock:
    """Calls the line search, and adds up its CPU seconds.

    Up to one strip of examples it runs on the thread that calls it, whose time counts; beyond, on all cores.
    """

    def __init__(self, n: int) -> None:
        self._now, self.seconds = time.thread_time if is_one_strip(n) else time.process_time, 0.0

    def __call__(self, *given: Any) -> Any:
        began = self._now()
        try:
            return line_search(*given)
        finally:
            self.seconds += self._now() - began


class Side:
    """Adds up the CPU seconds of all blocks, and of each round those of the slowest."""

    def __init__(self, blocks: ThreadBlocks) -> None:
        self._blocks, self.every, self.slowest = blocks, 0.0, 0.0
        blocks.take_times()

    def add(self, record: RoundRecord | None = None) -> None:
        own = [cpu for _, cpu in self._blocks.take_times()]
        self.every, self.slowest = self.every + sum(own), self.slowest + max(own)


def measure_cpu(data: Data, modes: dict[str, Any], lambdas: list[float], blocks: int, client: Client) -> Rows:
    """A row for each mode, one for paper mode side by side, one for a pass, one for the transposition."""
    X, examples = by_example(data.train), Examples.of(data.train.labels()[0])
    columns = X.tocsc()
    asked = [*((mode, mode, blocks) for mode in modes), (SERVERS, "paper", PAPER_BLOCKS)]
    rows = [
        {"what": what} | _path(columns, examples, min(count, data.train.p), modes[mode], lambdas)
        for what, mode, count in asked
    ]
    return [*rows, {"what": "pass", "cpu": _pass(X, examples)}, {"what": "convert", "cpu": _convert(data, client)}]


def _path(columns: Any, examples: Examples, blocks: int, options: Any, lambdas: list[float]) -> dict[str, Any]:
    """CPU seconds of a path, of its line search, and as if blocks worked side by side."""
    with ThreadBlocks.from_csc(columns, examples, blocks, threads=2) as parts, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        problem = make_problem(parts, examples, ProblemOptions(intercept=False))
        list(solve_path(parts, problem, lambdas[:2], options))  # compiled outside the clock
        search, side, began = Clock(examples.n), Side(parts), time.process_time()
        with patch.object(paper, "line_search", search):
            rounds = sum(one.rounds for one in solve_path(parts, problem, lambdas, options, on_round=side.add))
        side.add()
        cpu = time.process_time() - began
    beside = cpu - side.every + side.slowest
    return {"cpu": cpu, "search": search.seconds, "rounds": rounds, "blocks": blocks, "side_by_side": beside}


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
