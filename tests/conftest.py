"""Clusters and services that the whole suite shares, and how hard hypothesis tries."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import pytest
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, settings

from pipeline.commands.shared import run_command
from pipeline.commands.submit import command as dask_submit
from tests.services.hdfs import Hdfs, hdfs_servers
from tests.services.install_hdfs import missing
from tests.services.s3 import RCLONE_ENVIRONMENT, Bucket, find_rclone, make_bucket, moto_server, rclone_server

TESTS = Path(__file__).parent
_QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
settings.register_profile("suite", deadline=None, derandomize=True, database=None, suppress_health_check=_QUIET)
settings.register_profile("search", deadline=None, max_examples=2000, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# Where files are shared out among processes, those that take longest come first, lest one process end long after the
# other. The first two compile most of the kernels, each its own, for all that follow.
LONGEST_FIRST = (
    "solver/algorithms/test_certified.py",
    "transforms/test_output.py",
    "pipeline/test_driver.py",
    "pipeline/test_lost_workers_scoring.py",
    "pipeline/test_hangs.py",
    "pipeline/test_lost_workers.py",
    "pipeline/test_lost_driver.py",
    "test_notebooks.py",
    "services/test_s3.py",
    "pipeline/test_convert_cli.py",
    "pipeline/test_pipeline.py",
    "pipeline/test_submit_cli.py",
    "pipeline/test_estimator.py",
    "transforms/test_convert.py",
    "solver/algorithms/test_split.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Two workers of one thread each, in this process."""
    with Client(
        processes=False,
        n_workers=2,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
        memory_limit=0,
        set_as_default=False,
    ) as client:
        yield client


@pytest.fixture(scope="session")
def process_client() -> Iterator[Client]:
    """Two worker processes of one thread each."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            host="127.0.0.1",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes], str]:
    """Write bytes to a file of the test's own folder; returns its path as a string."""

    def written(name: str, content: bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return str(path)

    return written


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'dglmnet[s3]'")
    pytest.importorskip("moto.server", reason="moto's server is not installed: pip install 'moto[server]'")
    with moto_server() as address:
        yield address


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    """A bucket of the test's own on a real S3 server."""
    return make_bucket(s3_endpoint)


@pytest.fixture(scope="session")
def rclone_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server that is not moto's, and the environment that clients need for it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'dglmnet[s3]'")
    if find_rclone() is None:
        pytest.skip("rclone is not installed: pip install 'dglmnet[storage-tests]'")
    with pytest.MonkeyPatch.context() as patch, rclone_server(tmp_path_factory.mktemp("rclone")) as address:
        for name, value in RCLONE_ENVIRONMENT.items():
            patch.setenv(name, value)
        yield address


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A NameNode and three DataNodes. A test that stops one starts it again."""
    pytest.importorskip("hdfs_native", reason="hdfs-native is not installed: pip install 'dglmnet[hdfs]'")
    if reason := missing():
        pytest.skip(reason)
    with hdfs_servers(tmp_path_factory.mktemp("hdfs")) as servers:
        yield servers


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in this process, through its own error handling: a process of its own takes seconds to import."""
    monkeypatch.setattr("signal.signal", lambda *args: None)

    def done(command: click.Command, *words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", [command.name or "", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            run_command(command)
        return subprocess.CompletedProcess(words, int(caught.value.code or 0), *capfd.readouterr())

    return done


@pytest.fixture
def submit(
    call: Callable[..., subprocess.CompletedProcess[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """dask-submit in this process."""
    return partial(call, dask_submit)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command that is called in this process sets up logging, to a stream that is closed when the test is over."""
    named = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [(one, one.handlers, one.propagate, one.level) for one in [logging.root, *named]]
    showwarning = warnings.showwarning
    yield
    for one, handlers, propagate, level in before:
        one.handlers, one.propagate = handlers, propagate
        if one.level != level:
            one.setLevel(level)
    warnings.showwarning = showwarning
