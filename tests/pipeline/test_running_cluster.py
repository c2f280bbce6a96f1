"""A scheduler and workers started by hand, as on a real cluster: a fit there, and workers that go away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from pipeline import cluster as pipeline_cluster
from pipeline.cluster import ClusterOptions, open_client
from tests.pipeline.hand_made import HandMade
from transforms import Dataset, UserError, from_arrays


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
    monkeypatch.setattr(pipeline_cluster, "_check_scheduler", lambda client: None)
    expected = r"worker tcp://127.0.0.1:\d+ has dglmnet .*; this is 9.9"
    with pytest.raises(UserError, match=expected), open_client(ClusterOptions(scheduler=cluster.address)):
        pass


def test_scheduler_of_another_version_is_named(cluster: HandMade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_cluster, "__version__", "9.9")
    expected = r"the scheduler at tcp://127.0.0.1:\d+ has dglmnet .*; this is 9.9"
    with pytest.raises(UserError, match=expected), open_client(ClusterOptions(scheduler=cluster.address)):
        pass


def test_scheduler_without_the_package_is_named(tmp_path: Path) -> None:
    """It reads the graphs that it is sent."""
    broken = tmp_path / "broken" / "transforms"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('not installed here')")
    made = HandMade(tmp_path, {"PYTHONPATH": str(broken.parent)})
    try:
        expected = r"the scheduler at .* cannot load dglmnet \(ImportError: not installed here\)"
        with pytest.raises(UserError, match=expected), open_client(ClusterOptions(scheduler=made.address)):
            pass
    finally:
        made.close()


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
