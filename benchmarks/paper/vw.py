"""The real Vowpal Wabbit beside our online learner, both on one worker: the same weights, quality and time?"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.environments import CannotInstall, python_of
from benchmarks.paper.data import Data, by_example
from benchmarks.paper.results import Rows, kept
from benchmarks.paper.runs import Bench
from benchmarks.paper.settings import Steps
from benchmarks.peers import ROOT, find_peer
from solver import Examples, ThreadRows, TruncatedGradientOptions
from solver.algorithms.truncated_gradient import schedules
from solver.arrays import Coefficients
from solver.rows import Schedule

FEW = 4  # λ that are compared, spread over those of the online learner


def vowpal_wabbit(bench: Bench, grid: list[Steps]) -> dict[Steps, Rows]:
    """A row for each λ and pass, ours on one part beside it. Raises CannotInstall where there is none."""
    lambdas = bench.setting.online(bench.lambdas())
    lambdas = [lambdas[k] for k in np.unique(np.linspace(0, len(lambdas) - 1, FEW).astype(int))]
    found = {}
    with tempfile.TemporaryDirectory(prefix="paper-vw-") as scratch:
        for steps in grid:

            def work(steps: Steps = steps) -> Rows:
                return _compare(bench.data, Path(scratch), steps.options(bench.setting.passes), lambdas)

            about = bench.about(steps=steps, lambdas=lambdas, passes=bench.setting.passes)
            found[steps] = kept(bench.folder / f"vw-{steps.name}.json", about, work)
    return found


def _compare(data: Data, scratch: Path, options: TruncatedGradientOptions, lambdas: list[float]) -> Rows:
    X, y, passes = by_example(data.train), data.train.labels()[0], options.passes
    if not (scratch / "rows.npz").exists():
        np.savez(scratch / "rows.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), y=y)
    asked = [{"l1": lam / data.train.n} | asdict(options) for lam in lambdas]
    (scratch / "asked.json").write_text(json.dumps(asked))
    python = python_of(find_peer("vw"))
    subprocess.run([python, "-m", "benchmarks.paper.vw_process", str(scratch)], cwd=ROOT, check=True)
    rows: Rows = []
    with ThreadRows.from_csr(X, Examples.of(y), 1) as parts:
        parts.learn(np.zeros(parts.width), [Schedule(0.1, 1.0, 0.5, 0.0)])  # compiled outside the clock
        for number, lam in enumerate(lambdas):
            ours, cpu = _learn(parts, options, lam)
            theirs, (wall, their_cpu) = _read(scratch / f"{number}.npz")
            for k, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                quality = {"auprc": data.auprc(other), "ours": data.auprc(one)}
                counts = {"nonzeros": other.position.size, "our_nonzeros": one.position.size}
                times = {"seconds": wall / passes, "cpu": their_cpu / passes, "our_cpu": cpu / passes}
                rows.append({"lambda": lam, "pass": k + 1} | quality | counts | times)
    return rows


def _read(path: Path) -> tuple[list[Coefficients], list[float]]:
    """The weights after each pass, and the seconds of all, by the wall and of the CPU."""
    with np.load(path) as file:
        starts, positions, values = file["starts"].tolist(), file["positions"], file["values"]
        return [Coefficients(positions[lo:hi], values[lo:hi]) for lo, hi in pairwise(starts)], file["seconds"].tolist()


def _learn(parts: ThreadRows, options: TruncatedGradientOptions, lam: float) -> tuple[list[Coefficients], float]:
    """Our weights after each pass, and the CPU seconds of all."""
    found, beta, began = [], np.zeros(parts.width), time.process_time()
    for number in range(1, options.passes + 1):
        beta = parts.learn(beta, schedules(parts, lam, number, options))
        found.append(beta)
    seconds = time.process_time() - began
    return [Coefficients.from_dense(one) for one in found], seconds


def is_there() -> bool:
    """Can Vowpal Wabbit be installed here?"""
    try:
        python_of(find_peer("vw"))
    except CannotInstall:
        return False
    return True
