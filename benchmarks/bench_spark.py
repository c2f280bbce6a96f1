"""Spark MLlib in local mode: OWL-QN over cached rows, every λ from a cold start. Needs Java 17 or newer."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.measure import CORES, Peer, Rung, Unfit, run, tolerances
from benchmarks.problem import Problem
from benchmarks.text import write_svm


@dataclass(frozen=True)
class Ready:
    """Rows in Spark's memory."""

    rows: Any
    n: int


def prepare(problem: Problem) -> Ready:
    if shutil.which("java") is None:
        raise Unfit("needs Java, and there is none on the PATH")
    from pyspark.sql import SparkSession

    memory = int(psutil.virtual_memory().available * 0.6 / 2**20)
    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.driver.memory", f"{memory}m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", CORES)
        .config("spark.driver.maxResultSize", "0")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "rows.svm"
        write_svm(text, problem.X, (problem.y > 0).astype(int))
        reader = session.read.format("libsvm").option("numFeatures", str(problem.X.shape[1]))
        rows = reader.load(str(text)).repartition(CORES).cache()
        rows.count()
    return Ready(rows, problem.n)


def path(data: Ready, lambdas: Sequence[float], rung: Rung) -> Iterator[np.ndarray]:
    from pyspark.ml.classification import LogisticRegression

    for lam in lambdas:
        model = LogisticRegression(
            regParam=lam / data.n,
            elasticNetParam=1.0,
            standardization=False,
            fitIntercept=False,
            **{"maxIter": 10_000, **rung},
        ).fit(data.rows)
        yield model.coefficients.toArray()


def warm_up(data: Ready, problem: Problem) -> None:
    """The same rows, twice, a few iterations: the JVM compiles what it runs often."""
    list(path(data, problem.lambdas[[0, 0]].tolist(), {"tol": 1e-2, "maxIter": 5}))


PEER = Peer(
    name="spark",
    label="Spark MLlib",
    package="pyspark",
    requirements=("pyspark==4.3.0",),
    prepare=prepare,
    path=path,
    ladder=tolerances(2, 10),
    warm_up=warm_up,
)

if __name__ == "__main__":
    run(PEER)
