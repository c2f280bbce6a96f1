"""Storage by URL: secrets stay secret, files are written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import logging
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from tests.reference import read_back, read_text
from transforms import UserError, convert_libsvm
from transforms.claim import Claim
from transforms.inputs import Block, InputFile, Span
from transforms.mapreduce import Job
from transforms.plan import Plan
from transforms.storage import (
    StorageOptions,
    create_hashed,
    open_storage,
    read_parquet,
    read_ranges,
    redact,
    remove,
    sha256_of,
    write_json,
)
from transforms.stores import LocalStore

Write = Callable[[str, bytes], str]
SECRET = "hunter2"
SMALL = b"1 1:1 2:2\n0 1:3\n1 4:1\n"


# --- secrets --------------------------------------------------------------------------------------------------------


def test_options_show_their_names_and_hide_their_values() -> None:
    options = StorageOptions(key="me", secret=SECRET, client_kwargs={"password": SECRET})
    for shown in (repr(options), str(options), f"{options}", f"{options!r}", f"{[options]}"):
        assert SECRET not in shown
        assert "secret" in shown
    assert options["secret"] == SECRET


def test_options_stay_hidden_after_a_journey() -> None:
    there = pickle.loads(pickle.dumps(StorageOptions(secret=SECRET)))  # noqa: S301
    assert type(there) is StorageOptions
    assert dict(there) == {"secret": SECRET}
    assert SECRET not in repr(there)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a", "s3://bucket/a"),
        (f"ftp://user:{SECRET}@host:21/a/b", "ftp://host:21/a/b"),
        (f"s3://key:{SECRET}@bucket/a", "s3://bucket/a"),
        (f"ftp://user:p@{SECRET}@host/a", "ftp://host/a"),
        (f"simplecache::ftp://user:{SECRET}@host/a", "simplecache::ftp://host/a"),
        ("/a/b@c:d", "/a/b@c:d"),
        ("data/in.svm", "data/in.svm"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_what_dask_may_log_of_a_task_holds_no_secret() -> None:
    url = f"ftp://user:{SECRET}@host/out"
    plan = Plan([], 1, 1, "spread", False, None, "raise").recipe()
    job = Job(url, StorageOptions(password=SECRET), "/out/_temporary", Claim("/out/claim.json", "t"), plan, False)
    assert SECRET not in repr(job)
    assert SECRET not in repr(Block(0, (Span(InputFile(f"{url}/in.svm", "ftp://host/in.svm", 9, ""), 0, 9),)))


def test_a_failing_task_tells_no_secret(
    client: Client, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    fsspec.filesystem("memory").pipe_file("/secrets/in.svm", b"1 1:1\nx\n")
    with caplog.at_level(logging.DEBUG), pytest.raises(UserError) as caught:
        convert_libsvm(
            "memory://secrets/in.svm", "memory://secrets/out", storage_options={"password": SECRET}, client=client
        )
    out, err = capfd.readouterr()
    assert SECRET not in out + err + caplog.text + str(caught.value)


def test_a_data_set_holds_no_secret(client: Client) -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/secrets/in.svm", SMALL)
    dataset = convert_libsvm(
        "memory://secrets/in.svm",
        "memory://secrets/good",
        storage_options={"password": SECRET},
        client=client,
    )
    assert read_back(dataset).columns == read_text(SMALL).columns
    for path in fs.find("/secrets/good"):
        assert SECRET.encode() not in fs.cat_file(path)
    assert SECRET not in repr(dataset)
    assert fs.find("/secrets/good/_temporary") == []


def test_an_unknown_protocol_is_told() -> None:
    with pytest.raises(UserError, match="nosuch"):
        open_storage(f"nosuch://user:{SECRET}@host/a")
    try:
        open_storage(f"nosuch://user:{SECRET}@host/a")
    except UserError as error:
        assert SECRET not in str(error)


def test_options_for_remote_storage_do_not_disturb_local_files(write: Write) -> None:
    path = write("a", b"x")
    for url in (path, f"file://{path}"):
        fs, inside = open_storage(url, {"key": "me", "secret": SECRET})
        assert fs.cat_file(inside) == b"x"


# --- files ----------------------------------------------------------------------------------------------------------


def test_ranges_of_several_files_come_in_the_order_asked_for(write: Write) -> None:
    a, b = write("a", bytes(range(100))), write("b", bytes(range(100, 200)))
    fs, _ = open_storage(a)
    got = read_ranges(fs, [a, b, a, a], [90, 0, 5, 7], [200, 3, 5, 8])
    assert got == [bytes(range(90, 100)), bytes([100, 101, 102]), b"", bytes([7])]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_table_is_read_whole(tmp_path: Path, rows: int) -> None:
    table = pa.table({"a": pa.array(range(rows), pa.int64()), "b": pa.array([0.5] * rows, pa.float32())})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_parquet(*open_storage(str(tmp_path / "t.parquet"))).equals(table)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_reading_a_table_leaves_no_thread_behind(tmp_path: Path) -> None:
    """A thread of Arrow's that still holds a Python object when the process ends aborts it."""
    pq.write_table(pa.table({"a": [1, 2], "b": [3, 4]}), tmp_path / "t.parquet")
    program = """
import os, sys
from transforms.storage import open_storage, read_parquet
before = os.listdir("/proc/self/task")
read_parquet(*open_storage(sys.argv[1]))
assert set(os.listdir("/proc/self/task")) <= set(before)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "t.parquet")], check=True, timeout=60)


def test_a_hashed_file_knows_its_size_and_checksum(tmp_path: Path) -> None:
    fs, path = open_storage(str(tmp_path / "a"))
    with create_hashed(fs, path) as file:
        file.write(b"hello ")
        file.write(memoryview(b"world"))
    assert Path(path).read_bytes() == b"hello world"
    assert (file.size, file.sha256) == (11, hashlib.sha256(b"hello world").hexdigest())
    assert sha256_of(fs, path) == file.sha256


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_hashed_file_that_was_not_finished_is_gone(tmp_path: Path, error: BaseException) -> None:
    fs, path = open_storage(str(tmp_path / "a"))
    with pytest.raises(type(error)), create_hashed(fs, path) as file:
        file.write(b"half")
        raise error
    assert not Path(path).exists()


def test_json_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs, path = open_storage(str(tmp_path / "a.json"))
    write_json(fs, path, {"a": 1})

    def full(self: LocalStore, fs: Any, source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", source)

    monkeypatch.setattr(LocalStore, "rename", full)
    with pytest.raises(UserError, match=rf"^{re.escape(path)}: No space left on device: make room"):
        write_json(fs, path, {"a": 2})
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert Path(path).read_text() == '{\n "a": 1\n}\n'


def test_removing_what_is_not_there_is_fine(tmp_path: Path) -> None:
    fs, path = open_storage(str(tmp_path / "a"))
    remove(fs, path)
    remove(fs, path, recursive=True)
