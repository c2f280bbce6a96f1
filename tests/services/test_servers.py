"""The servers that other tests rely on do what they say: they serve, fail on request, and end by themselves."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from tests.services.faulty_proxy import FAULTS, LOST_ANSWER, PASSED, FaultyProxy, faulty_proxy
from tests.services.hdfs import Hdfs
from tests.services.s3 import Bucket, make_bucket

ROOT = Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 100


def _wait(until: Callable[[], bool]) -> None:
    """A fault of the servers is caught by the test's time limit."""
    while not until():
        time.sleep(0.05)


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3_endpoint, rate=0.0) as proxy:
        yield proxy


@pytest.fixture
def behind(proxy: FaultyProxy) -> Bucket:
    return make_bucket(proxy.url)


def test_a_proxy_without_faults_changes_nothing(proxy: FaultyProxy, behind: Bucket) -> None:
    behind.write("a/b", CONTENT)
    behind.write("empty", b"")
    assert behind.files("a") == {"b": CONTENT}
    assert behind.fs.cat_file(f"{behind.name}/empty") == b""
    assert behind.fs.cat_ranges([f"{behind.name}/a/b"], [10], [20]) == [CONTENT[10:20]]
    assert behind.fs.info(f"{behind.name}/a/b")["size"] == len(CONTENT)
    behind.fs.rm(f"{behind.name}/a/b")
    assert behind.files("a") == {}
    assert set(proxy.counts) == {PASSED}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_that_s3fs_gets_over(proxy: FaultyProxy, behind: Bucket, fault: str) -> None:
    proxy.rate, proxy.faults = 0.5, (fault,)
    for k in range(3):
        behind.write(f"a/{k}", CONTENT)
    assert behind.files("a") == {str(k): CONTENT for k in range(3)}
    assert proxy.failed == proxy.counts[fault] > 0


def test_a_lost_answer_is_of_a_request_that_was_done(proxy: FaultyProxy, behind: Bucket, s3_endpoint: str) -> None:
    proxy.rate, proxy.faults = 1.0, (LOST_ANSWER,)
    address = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    with pytest.raises(ConnectionError):
        connection.request("PUT", f"/{behind.name}/a", CONTENT)
        connection.getresponse()
    proxy.rate = 0.0
    assert behind.fs.cat_file(f"{behind.name}/a") == CONTENT


def test_a_slow_proxy_takes_its_time(proxy: FaultyProxy, behind: Bucket) -> None:
    proxy.delay = 0.3
    before = time.monotonic()
    behind.write("a", CONTENT)
    assert time.monotonic() - before >= 0.3


_OWNER = """
import sys
from pathlib import Path
from tests.services.processes import start_server
process = start_server(["sleep", "600"], Path(sys.argv[1]))
print(process.pid, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_when_the_test_run_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _OWNER, str(tmp_path / "log")]
    owner = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert owner.stdin is not None and owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    _wait(lambda: server.name() == "sleep")
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    server.wait(60)
    owner.stdin.close(), owner.stdout.close()


@pytest.mark.storage
def test_rclone_serves_s3(rclone_endpoint: str) -> None:
    bucket = make_bucket(rclone_endpoint)
    bucket.write("a/b", CONTENT)
    assert bucket.files("a") == {"b": CONTENT}


@pytest.mark.storage
def test_a_proxy_before_rclone_keeps_signatures_valid(rclone_endpoint: str) -> None:
    with faulty_proxy(rclone_endpoint, rate=0.25) as proxy:
        bucket = make_bucket(proxy.url)
        for k in range(20):
            bucket.write(f"a/{k}", CONTENT)
        assert bucket.files("a") == {str(k): CONTENT for k in range(20)}
        assert proxy.failed > 0


@pytest.mark.storage
def test_hdfs_keeps_files_when_its_servers_come_and_go(hdfs: Hdfs) -> None:
    folder = hdfs.make_folder()
    folder.write("a/b", CONTENT)
    hdfs.stop_namenode()
    assert hdfs.live_datanodes() == 0
    hdfs.start_namenode()
    hdfs.kill_datanode(0)
    assert folder.files("a") == {"b": CONTENT}
    _wait(lambda: hdfs.live_datanodes() == 2)
    folder.write("a/c", CONTENT)
    hdfs.start_datanode(0)
    assert folder.files("a") == {"b": CONTENT, "c": CONTENT}


@pytest.mark.storage
def test_two_tests_on_hdfs_have_folders_of_their_own(hdfs: Hdfs) -> None:
    first, second = hdfs.make_folder(), hdfs.make_folder()
    first.write("a/b", CONTENT)
    assert second.files("a") == {}
    assert first.files("a") == {"b": CONTENT}
