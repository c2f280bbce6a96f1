"""Servers that fail on the way: the result is the same, or one line says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from pipeline import PathOptions, Watcher, fit_path
from tests.pipeline.runs import make_rows, to_text
from tests.services.faulty_proxy import FAULTS, FaultyProxy, faulty_proxy
from tests.services.hdfs import Folder, Hdfs
from tests.services.processes import free_port
from tests.services.s3 import SECRET, Bucket, make_bucket
from tests.services.stores import HERE, Disk, assert_same_run, call, data_of, spawn
from transforms import UserError, claim, convert_libsvm, open_dataset
from transforms.claim import ClaimKeeper

pytestmark = [pytest.mark.storage, pytest.mark.timeout(240)]
TRAIN, TEST = to_text(*make_rows(n=300)), to_text(*make_rows(n=150, seed=1))
SHAPE: dict[str, Any] = {"partitions": 2, "block_size": 8000}
PATH = PathOptions(length=4)
UNREACHABLE = "(onnection refused|ould not connect).*: check the address and the network"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory, client: Client) -> Disk:
    """A data set and a run that nothing happened to."""
    disk = Disk(tmp_path_factory.mktemp("disk"))
    dataset = convert_libsvm(disk.write("train.svm", TRAIN), f"{disk.url}/data", client=client, **SHAPE)
    fit_path(dataset, f"{disk.url}/run", path=PATH, client=client)
    return disk


class OnTheWay(Watcher):
    """Watches a conversion or a fit, and does something once in the middle of it."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action, self.happened = action, False

    def _act(self) -> None:
        if not self.happened:
            self.happened = True
            self._action()

    def phase(self, name: str, total: int, unit: str) -> None:
        pass

    def advance(self, amount: int) -> None:
        self._act()

    def placed(self, placements: object) -> None:
        pass

    def begin(self, lambdas: object, done: int, largest: float) -> None:
        pass

    def round(self, record: object) -> None:
        pass

    def solution(self, solution: object) -> None:
        self._act()


# --- HDFS -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(hdfs: Hdfs) -> Iterator[Folder]:
    yield hdfs.make_folder()
    hdfs.restore()


def test_a_datanode_that_dies_changes_nothing_of_a_conversion(
    hdfs: Hdfs, folder: Folder, disk: Disk, process_client: Client
) -> None:
    death = OnTheWay(lambda: hdfs.kill_datanode(0))
    source = folder.write("train.svm", TRAIN)
    convert_libsvm(source, f"{folder.url}/data", client=process_client, progress=death, **SHAPE)
    assert death.happened
    assert data_of(folder.files("data")) == data_of(disk.files("data"))


def test_a_datanode_that_dies_changes_nothing_of_a_fit(hdfs: Hdfs, folder: Folder, disk: Disk, client: Client) -> None:
    source = folder.write("train.svm", TRAIN)
    dataset = convert_libsvm(source, f"{folder.url}/data", client=client, **SHAPE)
    death = OnTheWay(lambda: hdfs.kill_datanode(1))
    fit_path(dataset, f"{folder.url}/run", path=PATH, client=client, watcher=death)
    assert death.happened
    assert_same_run(folder.files("run"), disk.files("run"))


def test_a_namenode_that_starts_anew_changes_nothing_of_a_fit(
    hdfs: Hdfs, folder: Folder, disk: Disk, client: Client
) -> None:
    source = folder.write("train.svm", TRAIN)
    dataset = convert_libsvm(source, f"{folder.url}/data", client=client, **SHAPE)

    def restart() -> None:
        hdfs.stop_namenode()
        hdfs.start_namenode()

    fit_path(dataset, f"{folder.url}/run", path=PATH, client=client, watcher=OnTheWay(restart))
    assert_same_run(folder.files("run"), disk.files("run"))


def test_without_a_namenode_every_command_ends_with_one_line(hdfs: Hdfs, folder: Folder, disk: Disk) -> None:
    hdfs.stop_namenode()
    assert_each_fails_in_one_line(folder, disk)


def test_the_default_file_system_is_that_of_the_hadoop_configuration(hdfs: Hdfs, folder: Folder, disk: Disk) -> None:
    folder.write("train.svm", TRAIN)
    url = f"hdfs://{folder.path}"
    environment = {"HADOOP_CONF_DIR": str(hdfs.configuration)}
    for words in (
        ("convert", f"{url}/train.svm", f"{url}/data", "--partitions", "2", "--block-size", "8000"),
        ("fit", f"{url}/data", "--output", f"{url}/run", "--path-length", "4"),
    ):
        process = spawn(folder, *words, *HERE, **environment)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert data_of(folder.files("data")) == data_of(disk.files("data"))
    assert_same_run(folder.files("run"), disk.files("run"))


_KILLED_IN_THE_MIDDLE = """
import os, signal, sys
from hdfs_native import Client, WriteOptions
Client(sys.argv[1]).inner.create(sys.argv[2], WriteOptions(overwrite=False)).write(b"{}")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_claim_that_a_killed_writer_left_open_is_taken_over(
    hdfs: Hdfs, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDFS keeps a file for its writer for an hour, dead or not."""
    monkeypatch.setattr(claim, "PATIENCE_SECONDS", 1.0)
    path = f"{folder.path}/claim.json"
    subprocess.run([sys.executable, "-c", _KILLED_IN_THE_MIDDLE, hdfs.url, path], check=False)
    assert folder.names("") == ["claim.json"]
    keeper = ClaimKeeper(folder.url, {}, path)
    keeper.take(takeover=True)
    keeper.claim.check(folder.fs)
    keeper.release()
    assert folder.names("") == []


# --- S3 -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["s3_endpoint", "rclone_endpoint"])
def proxy(request: pytest.FixtureRequest) -> Iterator[FaultyProxy]:
    with faulty_proxy(request.getfixturevalue(request.param), rate=0.0) as proxy:
        yield proxy


def test_a_store_that_fails_a_quarter_of_the_requests_changes_nothing(
    proxy: FaultyProxy, disk: Disk, client: Client
) -> None:
    bucket = make_bucket(proxy.url)
    source, _ = bucket.write("train.svm", TRAIN), bucket.write("test.svm", TEST)
    options: dict[str, Any] = {"client": client, "storage_options": bucket.options}
    proxy.rate = 0.25
    convert_libsvm(source, f"{bucket.url}/data", **SHAPE, **options)
    fit_path(f"{bucket.url}/data", f"{bucket.url}/run", path=PATH, **options)
    predict = ("predict", "{0}/run", "{0}/test.svm", "--output", "{0}/p.parquet", "--overwrite", *HERE)
    call(bucket, *(word.format(bucket.url) for word in predict))
    proxy.rate = 0.0
    disk.write("test.svm", TEST)
    call(disk, *(word.format(disk.url) for word in predict))
    assert data_of(bucket.files("data")) == data_of(disk.files("data"))
    assert_same_run(bucket.files("run"), disk.files("run"))
    assert bucket.fs.cat_file(f"{bucket.name}/p.parquet") == Path(disk.url, "p.parquet").read_bytes()
    assert {fault for fault in FAULTS if proxy.counts[fault]} == set(FAULTS)


def test_without_its_server_every_command_on_s3_ends_with_one_line(disk: Disk) -> None:
    options = {"key": "tester", "secret": SECRET, "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{free_port()}"}}
    bucket = Bucket("bucket", options, None)
    assert_each_fails_in_one_line(bucket, disk)


def assert_each_fails_in_one_line(place: Folder | Bucket, disk: Disk) -> None:
    """Every command, by the store that it reads or writes, at once, as each waits for most of its time.

    One is a process of its own, for its exit code and all that it says.
    """
    url, local = place.url, disk.url
    started = time.monotonic()
    process = spawn(place, "fit", f"{url}/data", "--output", f"{local}/never", "--quiet")
    commands = [
        ("convert", f"{url}/train.svm", f"{local}/never"),
        ("convert", f"{local}/train.svm", f"{url}/data"),
        ("fit", f"{local}/data", "--output", f"{url}/run"),
        ("evaluate", f"{url}/run", f"{local}/train.svm"),
        ("predict", f"{local}/run", f"{local}/train.svm", "--output", f"{url}/p.parquet"),
        ("report", f"{url}/run"),
        ("status", f"{url}/run"),
        ("attach", f"{url}/run"),
        ("cancel", f"{url}/run"),
        ("pipeline", "--train", f"{local}/train.svm", "--output", f"{url}/pipeline"),
    ]
    with ThreadPoolExecutor(len(commands)) as pool:
        told = [str(error) for error in pool.map(lambda words: _error_of(place, *words, "--quiet"), commands)]
    for line in told:
        assert re.fullmatch(f".*{url}.*{UNREACHABLE}.*", line)
        assert "java" not in line
    _, errors = process.communicate()
    assert process.returncode == 2
    assert re.fullmatch(rf"dask-submit: error: {url}/data\S*: .*{UNREACHABLE}.*\n", errors)
    assert time.monotonic() - started < 30 * len(commands)


def _error_of(place: Folder | Bucket, *words: str) -> UserError:
    with pytest.raises(UserError) as caught:
        call(place, *words)
    return caught.value


def test_a_data_set_on_hdfs_opens_anew_after_the_namenode_was_away(hdfs: Hdfs, folder: Folder, client: Client) -> None:
    """A process that lives on, such as a notebook, needs no new start."""
    dataset = convert_libsvm(folder.write("train.svm", TRAIN), f"{folder.url}/data", client=client, **SHAPE)
    hdfs.stop_namenode()
    hdfs.start_namenode()
    assert open_dataset(f"{folder.url}/data").n == dataset.n
