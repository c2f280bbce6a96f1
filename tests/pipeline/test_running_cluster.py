"""A scheduler and workers started by hand, as on a real cluster: a fit there, and workers that go away."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from pipeline import L1LogisticRegressionPath, PathOptions, Watcher, fit_path
from pipeline import blocks as pipeline_blocks
from pipeline import cluster as pipeline_cluster
from pipeline.blocks import list_workers
from pipeline.cluster import ClusterOptions, open_client
from solver import RoundRecord, SolverOptions
from tests.pipeline.hand_made import HandMade
from transforms import Dataset, UserError, from_arrays, liveness
from transforms.errors import WorkerLost


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path)
    yield made
    made.close()


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rng = np.random.default_rng(0)
    X = sp.random_array((400, 50), density=0.3, rng=rng, format="csc", dtype=np.float32)
    y = np.where(X @ rng.normal(size=50) + 0.1 * rng.normal(size=400) > 0, 1, -1)
    return from_arrays(X, y, str(tmp_path / "dataset"), partitions=2)


class OnRound(Watcher):
    """A watcher that does something at a round of the second λ."""

    def __init__(self, action: Callable[[], object], round: int = 3) -> None:
        self._action, self._round = action, round

    def placed(self, placements: object) -> None:
        pass

    def begin(self, lambdas: object, done: int, largest: float) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        if (record.lambda_index, record.round) == (1, self._round):
            self._action()

    def solution(self, solution: object) -> None:
        pass


LONG = SolverOptions.paper(tol=1e-13, max_rounds=2000)


@pytest.mark.timeout(120)  # a hang is what this guards against
def test_killed_worker_ends_the_fit_and_keeps_what_is_done(cluster: HandMade, dataset: Dataset, tmp_path: Path) -> None:
    cluster.worker("a")
    victim = cluster.worker("b")
    with pytest.raises(WorkerLost, match=r"worker b .* was lost.*--resume"):
        fit_path(
            dataset,
            str(tmp_path / "run"),
            options=LONG,
            path=PathOptions(length=3),
            client=cluster.client,
            watcher=OnRound(victim.kill),
        )
    assert pq.read_table(tmp_path / "run" / "path.parquet")["index"].to_pylist() == [0]
    fit_path(
        dataset, str(tmp_path / "run"), options=LONG, path=PathOptions(length=3), client=cluster.client, resume=True
    )
    assert pq.read_table(tmp_path / "run" / "path.parquet")["index"].to_pylist() == [0, 1, 2]


@pytest.mark.timeout(120)
def test_killed_worker_ends_the_fit_of_an_estimator(
    cluster: HandMade, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps no run that could be continued."""
    victim = cluster.worker("a")
    watched = partial(fit_path, watcher=OnRound(victim.kill, round=1))
    monkeypatch.setattr("pipeline.estimators.fit_dask.fit_path", watched)
    with pytest.raises(WorkerLost, match=r"worker a .* was lost.* Fit again") as caught:
        L1LogisticRegressionPath(path_length=3, client=cluster.client).fit(dataset)
    assert "--resume" not in str(caught.value)


@pytest.mark.timeout(120)
def test_frozen_worker_counts_as_lost(
    cluster: HandMade, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "SILENCE_SECONDS", 4.0)
    victim = cluster.worker("a")
    freeze = OnRound(lambda: victim.send_signal(signal.SIGSTOP))
    with pytest.raises(WorkerLost, match="worker a"):
        fit_path(
            dataset,
            str(tmp_path / "run"),
            options=LONG,
            path=PathOptions(length=3),
            client=cluster.client,
            watcher=freeze,
        )


def test_restarted_worker_is_not_taken_for_the_old_one(cluster: HandMade, dataset: Dataset) -> None:
    """A worker of the same name has a new object at β = 0; its answers must not be used."""
    cluster.worker("a")
    workers = list_workers(cluster.client)
    placements = pipeline_blocks.place(dataset, [[0, 1]], workers, "memory")
    with pipeline_blocks.DaskBlocks(cluster.client, dataset, placements) as blocks:
        blocks._tokens = ["another object's token"]
        with pytest.raises(WorkerLost):
            blocks.violation(None, 1.0)


def test_worker_without_the_package_is_named(cluster: HandMade, tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "transforms"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('not installed here')")
    cluster.worker("a", {"PYTHONPATH": str(broken.parent)})
    expected = r"worker tcp://127.0.0.1:\d+ cannot load dglmnet .*Install the same version"
    with pytest.raises(UserError, match=expected), open_client(ClusterOptions(scheduler=cluster.address)):
        pass


def test_worker_of_another_version_is_named(cluster: HandMade, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.worker("a")
    monkeypatch.setattr(pipeline_cluster, "__version__", "9.9")
    expected = r"worker tcp://127.0.0.1:\d+ has dglmnet .*; this is 9.9"
    with pytest.raises(UserError, match=expected), open_client(ClusterOptions(scheduler=cluster.address)):
        pass


def test_scheduler_without_workers_is_an_error(cluster: HandMade) -> None:
    with pytest.raises(UserError, match="has no workers"), open_client(ClusterOptions(scheduler=cluster.address)):
        pass


def test_unreachable_scheduler_is_one_line_and_exit_code_2(dataset: Dataset, tmp_path: Path) -> None:
    words = ["fit", str(tmp_path / "dataset"), "--output", str(tmp_path / "r"), "--scheduler", "tcp://127.0.0.1:1"]
    hasty = "import pipeline.cluster; pipeline.cluster.CONNECT_SECONDS = 0.5; "
    done = subprocess.run(
        [sys.executable, "-c", hasty + "from pipeline.commands.submit import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot reach a Dask scheduler at tcp://127.0.0.1:1: nothing listens there" in done.stderr
