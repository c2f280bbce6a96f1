"""Problems with their best certified objectives: data real or generated, solved by us to a strict duality gap.

A solved problem is kept under benchmarks/.problems, so that every peer, today or tomorrow, is held against the same.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from benchmarks import bench_dglmnet
from benchmarks.lookalikes import ARRAYS, make_arrays
from benchmarks.problem import Problem

FOLDER = Path(__file__).parent / ".problems"
DENSE = 0.25  # the share of entries that are not zero, above which peers get a dense matrix
EPSILON_STEPS = (6, 10)  # there λmax/2^6 and λmax/2^10 only: peers are slow on dense data


def steps_of(name: str, length: int) -> tuple[int, ...]:
    """The k of λmax/2^k."""
    return EPSILON_STEPS if name == "epsilon" else tuple(range(1, length + 1))


def find_problem(name: str, data: Path | None, length: int, gap: float) -> Path:
    """The file of a solved problem, made if there is none."""
    source = _source(name, data)
    identity = "generated" if source is None else f"{source.stat().st_size}-{source.stat().st_mtime_ns}"
    path = FOLDER / f"{name}-{length}-{gap:g}-{identity}.npz"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        _solve(*read_data(name, data), steps_of(name, length), gap).save(path)
    return path


def read_data(name: str, data: Path | None) -> tuple[sp.csr_matrix, np.ndarray]:
    """X and y: from the folder of real data if it has them, else a look-alike."""
    source = _source(name, data)
    if source is None:
        return make_arrays(name)
    X, labels = load_svmlight_file(str(source), dtype=np.float32)
    return X, np.where(labels > labels.min(), 1.0, -1.0)


def describe(name: str, path: Path) -> dict[str, Any]:
    """What results say of the problem they are about."""
    problem = Problem.load(path)
    return {
        "name": name,
        "key": path.stem,
        "generated": path.stem.endswith("generated"),
        "examples": problem.n,
        "features": int(problem.X.shape[1]),
        "nonzeros": int(problem.X.nnz),
        "lambda_max": problem.largest,
        "lambdas": problem.lambdas.tolist(),
        "best": problem.best.tolist(),
        "gap": problem.gap.tolist(),
    }


def _source(name: str, data: Path | None) -> Path | None:
    """The text of a real data set; None for one that is generated."""
    source = None if data is None else data / f"{name}.train.svm"
    if source is not None and source.exists():
        return source
    if name not in ARRAYS:
        where = "no --data folder is given" if source is None else f"there is no {source}"
        raise click.UsageError(f"no data set {name}: {where}, and what can be generated is {', '.join(ARRAYS)}")
    return None


def _solve(X: sp.csr_matrix, y: np.ndarray, steps: tuple[int, ...], gap: float) -> Problem:
    """Our own path with a strict gap: f(β) is within it of the minimum, whoever finds that."""
    nothing = np.full(len(steps), np.nan)
    largest = float(np.abs(X.T.astype(np.float64) @ y).max()) / 2
    lambdas = largest / 2.0 ** np.array(steps)
    dense = bool(X.nnz > DENSE * X.shape[0] * X.shape[1])
    problem = Problem(sp.csr_matrix(X, dtype=np.float32), y, largest, lambdas, nothing, nothing, dense)
    ready = bench_dglmnet.prepare(problem)
    best, gaps = [], []
    with ready.blocks:
        for lam, beta in zip(lambdas, bench_dglmnet.path(ready, lambdas.tolist(), {"gap": gap}), strict=True):
            best.append(problem.objective(beta, lam))
            gaps.append(bench_dglmnet.about(ready)["gap"])
    return replace(problem, best=np.array(best), gap=np.array(gaps))
