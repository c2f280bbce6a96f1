"""dask-submit doctor: what is well is told as such, what is wrong is named with a remedy, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.doctor import OK, WARN, WRONG, Row
from pipeline.doctor.machine import crowded_rows, memory_row
from pipeline.doctor.network import Way, between_row, clock_row, from_here_row
from pipeline.doctor.scheduler import check_security, find_workers
from pipeline.doctor.storage import check_storage
from tests.pipeline.hand_made import HandMade
from tests.services.certificates import make_certificates
from tests.services.hdfs import Hdfs
from tests.services.s3 import Bucket

pytestmark = pytest.mark.timeout(180)  # a hang is what the time limits guard against
Submit = Callable[..., subprocess.CompletedProcess[str]]


def examined(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows that --json printed, by what and where."""
    return {(row["what"], row["where"]): row for row in json.loads(done.stdout)["rows"]}


def shadow(folder: Path, **versions: str) -> dict[str, str]:
    """The environment of a process that finds other versions of packages installed, or, with dglmnet, none of it."""
    for name, version in versions.items():
        if name == "dglmnet":
            for package in ("pipeline", "transforms"):
                (folder / package).mkdir(parents=True)
                (folder / package / "__init__.py").write_text("raise ImportError('not installed here')")
        else:
            (folder / f"{name}-{version}.dist-info").mkdir(parents=True)
            (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def test_cluster_that_is_well(cluster: HandMade, submit: Submit, tmp_path: Path) -> None:
    store = tmp_path / "new" / "store"
    done = submit("doctor", "--scheduler", cluster.address, "--storage", str(store), "--json")
    rows = examined(done)
    assert (done.returncode, json.loads(done.stdout)["well"]) == (0, True)
    assert not [row for row in rows.values() if row["verdict"] == WRONG]
    for what in ("answers", "kernels", "memory", "local disk", "clock", "network from here", "storage"):
        assert {where for one, where in rows if one == what} >= {"a", "b"}, what
    packages = ("python", "dask", "distributed", "numpy", "numba", "pyarrow", "fsspec", "dglmnet")
    assert {rows[package, "everywhere"]["verdict"] for package in packages} == {OK}
    assert {("network", "a to b"), ("network", "b to a"), ("exclusive creation", "here")} <= set(rows)
    assert not (tmp_path / "new").exists(), "all that was written is deleted again"


def test_stopped_worker_is_named_and_the_others_are_examined(
    cluster: HandMade, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.doctor.scheduler.PATIENCE_SECONDS", 2.0)
    cluster.processes["b"].send_signal(signal.SIGSTOP)
    try:
        done = submit("doctor", "--scheduler", cluster.address, "--quiet")
    finally:
        cluster.processes["b"].send_signal(signal.SIGCONT)
    assert done.returncode == 2
    assert "does not answer, last heard of" in done.stdout
    assert "Restart it or end it" in done.stdout
    assert "everywhere" not in done.stdout, "with --quiet, nothing of what is well"


def test_worker_and_scheduler_of_another_make_are_named(tmp_path: Path, submit: Submit) -> None:
    bare = shadow(tmp_path / "bare", dglmnet="")
    cluster = HandMade(tmp_path, bare)
    try:
        cluster.worker("a", bare)
        cluster.worker("b", shadow(tmp_path / "old", numpy="1.26.4", numba="0.61.0", dask="2025.1.0"))
        done = submit("doctor", "--scheduler", cluster.address, "--storage", str(tmp_path / "store"), "--json")
    finally:
        cluster.close()
    rows = examined(done)
    assert done.returncode == 2
    row = rows["dglmnet", "scheduler, a"]
    assert (row["verdict"], row["found"]) == (WRONG, "cannot be loaded: ImportError: not installed here")
    assert [rows[package, "b"]["verdict"] for package in ("numpy", "dask", "numba")] == [WRONG, WRONG, WARN]
    assert "1.26.4 on b" in rows["numpy", "b"]["found"]
    assert rows["memory", "a"]["verdict"] != WRONG, "what needs no package is asked all the same"
    assert rows["storage", "b"]["verdict"] == OK
    assert ("storage", "a") not in rows


def test_scheduler_that_is_not_there_is_one_row(submit: Submit) -> None:
    done = submit("doctor", "--scheduler", "tcp://127.0.0.1:1", "--json")
    assert (done.returncode, len(examined(done))) == (2, 1)
    assert "nothing listens there" in done.stdout


def test_scheduler_without_workers_and_one_that_is_lost(
    tmp_path: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HandMade(tmp_path)
    try:
        done = submit("doctor", "--scheduler", cluster.address, "--json")
        assert done.returncode == 2
        assert examined(done)["workers", "scheduler"]["found"] == "it has no workers"
        monkeypatch.setattr("transforms.liveness.SCHEDULER_SECONDS", 1.0)

        def stop_it(*args: Any) -> list[Row]:
            cluster.processes["scheduler"].send_signal(signal.SIGSTOP)
            return check_security(*args)

        monkeypatch.setattr("pipeline.doctor.examination.check_security", stop_it)
        done = submit("doctor", "--scheduler", cluster.address, "--json")
    finally:
        cluster.close()
    assert done.returncode == 2
    assert "does not answer" in examined(done)["scheduler", "scheduler"]["found"]


def test_over_tls(tmp_path: Path, submit: Submit) -> None:
    certificates = make_certificates(tmp_path)
    cluster = HandMade(tmp_path, {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}, certificates)
    try:
        cluster.worker("a")
        cluster.worker("b")
        done = submit("doctor", "--scheduler", cluster.address, *certificates.options, "--json")
    finally:
        cluster.close()
    rows = examined(done)
    assert done.returncode == 0
    assert "by TLS" in rows["scheduler", "scheduler"]["found"]
    assert not [row for row in rows.values() if row["verdict"] == WRONG]


def test_this_machine(submit: Submit, tmp_path: Path) -> None:
    done = submit("doctor", "--storage", str(tmp_path / "store"))
    assert done.returncode == 0
    for what in ("python", "kernels", "memory", "local disk", "storage", "exclusive creation"):
        assert f" {what} " in done.stdout
    assert list(tmp_path.iterdir()) == []


# Storage


def test_storage_that_cannot_be_written_is_named(submit: Submit, write: Callable[[str, bytes], str]) -> None:
    file = write("file", b"in the way")
    done = submit("doctor", "--storage", f"{file}/store", "--json")
    row = examined(done)["storage", "here"]
    assert (done.returncode, row["verdict"]) == (2, WRONG)
    assert file in row["found"]


def test_storage_that_workers_do_not_share_is_named(cluster: HandMade) -> None:
    """In fsspec's memory, each process is alone."""
    rows = check_storage("memory://store", None, find_workers(cluster.client)[0])
    assert [row.verdict for row in rows] == [OK, WRONG, WRONG, OK]
    assert "does not see what is written here" in rows[1].found


def test_bucket_is_shared_and_left_as_it_was(cluster: HandMade, bucket: Bucket) -> None:
    rows = check_storage(f"{bucket.url}/runs", bucket.options, find_workers(cluster.client)[0])
    assert [(row.what, row.where) for row in rows if row.verdict == OK] == [
        ("storage", "here"),
        ("storage", "a"),
        ("storage", "b"),
        ("exclusive creation", "here"),
    ]
    assert bucket.names("runs") == []


@pytest.mark.storage
def test_hdfs_is_shared_and_left_as_it_was(cluster: HandMade, hdfs: Hdfs) -> None:
    folder = hdfs.make_folder()
    rows = check_storage(f"{folder.url}/new/runs", None, find_workers(cluster.client)[0])
    assert [row.verdict for row in rows] == [OK] * 4
    assert folder.fs.ls(folder.path) == []


def test_secrets_are_not_shown(submit: Submit, s3_endpoint: str, write: Callable[[str, bytes], str]) -> None:
    options = {"key": "hush-hush-key", "secret": "hush-hush", "endpoint_url": s3_endpoint}
    file = write("s3.json", json.dumps(options).encode())
    url = "s3://no-bucket-of-this-name/hush-hush-key"
    done = submit("doctor", "--storage", url, "--storage-options", f"@{file}", "--json")
    assert done.returncode == 2
    assert "there is no such bucket" in done.stdout
    assert "hush-hush" not in done.stdout + done.stderr


# What is judged by its size


def machine(limit: int | None, used: int, host: str = "h") -> dict[str, Any]:
    return {"host": host, "machine": 8_000_000_000, "available": 6_000_000_000, "used": used, "limit": limit}


def test_memory_without_limit_or_room_and_limits_beyond_the_machine_are_warned_of() -> None:
    assert memory_row("a", machine(None, 0)).verdict == WARN
    assert memory_row("a", machine(4_000_000_000, 3_900_000_000)).verdict == WARN
    assert memory_row("a", machine(4_000_000_000, 200_000_000)) == Row("memory", "a", "limit 4.0 GB, 3.8 GB free")
    alone, two = [machine(8_000_000_000, 0)], [machine(8_000_000_000, 0)] * 2
    assert crowded_rows(alone) == []
    (row,) = crowded_rows([*two, machine(8_000_000_000, 0, "other")])
    assert (row.where, row.verdict) == ("h", WARN)


def test_slow_ways_and_wrong_clocks_are_warned_of() -> None:
    slow, fast = Way(0.1, 1e6, 1e6, skew=-5.0), Way(0.001, 1e8, 1e8)
    assert clock_row("a", slow).found == "5.000 s behind the clock here (± 0.050 s)"
    assert [clock_row("a", way).verdict for way in (slow, fast)] == [WARN, OK]
    assert [from_here_row("a", way).verdict for way in (slow, fast)] == [WARN, OK]
    assert [between_row("a to b", way).verdict for way in (slow, fast, "refused")] == [WARN, OK, WRONG]
    assert "16.0 s of sending for each million of examples" in between_row("a to b", slow).remedy
