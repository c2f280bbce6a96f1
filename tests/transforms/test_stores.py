"""What a store can do, and what is said when it does not: on a disk, on S3, and HDFS's errors."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from distributed import Client

from tests.services.s3 import Bucket
from transforms import UserError, convert_libsvm, stores
from transforms.claim import ClaimKeeper
from transforms.errors import StoreUnreachable
from transforms.storage import (
    create_exclusively,
    explain,
    explained,
    is_plain_name,
    make_folder,
    move,
    open_storage,
    read_json,
    remove_empty_folder,
    remove_leftovers,
    replace_file,
    whole_file,
    write_json,
)
from transforms.stores import STORES, is_leftover, store_of, temporary_name


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


SMALL = b"1 1:1 2:2\n0 1:3\n1 4:1\n"


@pytest.fixture(params=["disk", "s3", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, str]:
    """A folder of the test's own on each kind of store."""
    if request.param == "disk":
        return open_storage(str(tmp_path))
    if request.param == "memory":
        return open_storage(f"memory://{tmp_path}")
    bucket: Bucket = request.getfixturevalue("bucket")
    return open_storage(f"{bucket.url}/folder", bucket.options)


def test_only_one_of_many_creates_a_file(place: tuple[Any, str]) -> None:
    fs, path = place
    make_folder(fs, path)
    outcomes: list[bool] = []
    writers = [
        threading.Thread(target=lambda k=k: outcomes.append(create_exclusively(fs, f"{path}/a", str(k).encode())))
        for k in range(4 if store_of(fs) is STORES["file"] else 1)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(outcomes) == [False] * (len(writers) - 1) + [True]
    before = fs.cat_file(f"{path}/a")
    assert not create_exclusively(fs, f"{path}/a", b"other")
    assert fs.cat_file(f"{path}/a") == before


def test_a_file_that_was_created_by_a_request_made_twice_is_ours(place: tuple[Any, str]) -> None:
    fs, path = place
    make_folder(fs, path)
    assert create_exclusively(fs, f"{path}/a", b"mine alone")
    assert create_exclusively(fs, f"{path}/a", b"mine alone")


@pytest.mark.parametrize("place", ["disk", "s3"], indirect=True)
def test_readers_never_see_a_file_that_is_being_replaced_empty(place: tuple[Any, str]) -> None:
    fs, path = place
    make_folder(fs, path)
    write_json(fs, f"{path}/a.json", {"k": -1})
    stop = threading.Event()

    def rewrite() -> None:
        for k in range(60):
            write_json(fs, f"{path}/a.json", {"k": k})
        stop.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = [read_json(fs, f"{path}/a.json")["k"]]
    while not stop.is_set():
        seen.append(read_json(fs, f"{path}/a.json")["k"])
    writer.join()
    assert seen == sorted(seen)
    assert [name.rsplit("/", 1)[-1] for name in fs.ls(path, detail=False)] == ["a.json"]


def test_a_file_takes_the_place_of_another(place: tuple[Any, str]) -> None:
    fs, path = place
    make_folder(fs, path)
    replace_file(fs, f"{path}/a", b"a")
    replace_file(fs, f"{path}/b", b"b")
    move(fs, f"{path}/a", f"{path}/b")
    fs.invalidate_cache()
    assert fs.cat_file(f"{path}/b") == b"a"
    assert not fs.exists(f"{path}/a")


def test_only_empty_folders_are_removed(tmp_path: Path) -> None:
    fs, path = open_storage(str(tmp_path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for name in ("full", "empty", "missing", "full/file"):
        remove_empty_folder(fs, f"{path}/{name}")
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["file", "full"]


def test_leftovers_of_killed_writers_are_known_by_their_names(tmp_path: Path) -> None:
    fs, path = open_storage(str(tmp_path))
    left = Path(temporary_name(f"{path}/run.json")).name
    others = ["run.json", "notes.tmp", "run.json.tmp", "a.12345678.tmp.gz"]
    assert [name for name in [left, *others] if is_leftover(name)] == [left]
    for name in [left, Path(temporary_name("b")).name, *others]:
        (tmp_path / name).write_bytes(b"")
    remove_leftovers(fs, path, of="run.json.")
    assert left not in names_in(tmp_path)
    assert len(names_in(tmp_path)) == len(others) + 1
    remove_leftovers(fs, path)
    assert names_in(tmp_path) == sorted(others)


@pytest.mark.parametrize(
    "name", ["../a", "a/b", "/a", "..", ".", "", ".hidden", "s3://b", "a\\b", "a\0", "a\n", "x" * 300, 7, None, ["a"]]
)
def test_what_is_no_name_of_a_file_in_the_folder_is_not_plain(name: object) -> None:
    assert not is_plain_name(name)


def test_names_of_our_own_files_are_plain() -> None:
    assert all(map(is_plain_name, ["dataset.json", "labels.parquet", "part-00000.parquet"]))


# --- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device: make room"),
        (errno.EROFS, "Read-only file system: the file system is read-only"),
        (errno.EACCES, "Permission denied: check its permissions"),
        (errno.EIO, "Input/output error: the device"),
        (errno.EMFILE, "Too many open files: raise the limit"),
    ],
)
def test_what_the_system_refuses_is_told_with_the_file_and_a_remedy(number: int, said: str) -> None:
    with pytest.raises(UserError, match=f"^here: {said}"), explained("here"):
        raise OSError(number, os.strerror(number))
    with pytest.raises(UserError, match=f"^there: {said}"), explained("here"):
        raise OSError(number, os.strerror(number), "there.0123abcd.tmp")


def test_a_store_that_cannot_be_reached_is_told_apart() -> None:
    with (
        pytest.raises(StoreUnreachable, match=r"^hdfs://x/y: Connection refused: check the address"),
        explained("hdfs://user:password@x/y"),
    ):
        raise ConnectionRefusedError("Connection refused")


def test_a_secret_in_what_a_store_says_is_left_out_and_the_remedy_is_not() -> None:
    error = ConnectionError('cannot connect to "https://host/bucket?list-type=2&signature=hunter2"')
    assert explain(error, "s3://key:hunter2@bucket/a") == (
        's3://bucket/a: cannot connect to "https://host/bucket: check the address and the network'
    )


def test_other_errors_are_left_as_they_are() -> None:
    assert explain(ValueError("a")) is None
    with pytest.raises(FileNotFoundError), explained("here"):
        raise FileNotFoundError("a")


def test_a_mistyped_bucket_is_not_created(bucket: Bucket, client: Client, tmp_path: Path) -> None:
    (tmp_path / "in.svm").write_bytes(SMALL)
    with pytest.raises(UserError, match=f"s3://{bucket.name}x: there is no such bucket"):
        convert_libsvm(
            str(tmp_path / "in.svm"), f"s3://{bucket.name}x/data", storage_options=bucket.options, client=client
        )
    bucket.fs.invalidate_cache()
    assert not bucket.fs.exists(f"{bucket.name}x")


@pytest.mark.parametrize("store", ["s3", "hdfs"])
def test_a_server_that_accepts_and_never_answers_is_told(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("transforms.stores" if store == "s3" else "transforms.hdfs")
    pytest.importorskip("s3fs" if store == "s3" else "hdfs_native")
    monkeypatch.setattr(module, "FIRST_ANSWER_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        url = "s3://bucket/data" if store == "s3" else f"hdfs://{address}/data"
        options = {"client_kwargs": {"endpoint_url": f"http://{address}"}} if store == "s3" else {}
        with pytest.raises(StoreUnreachable, match=r"data: .*does not answer: check the address and the network"):
            open_storage(url, options)


# --- a real full disk -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_old_file_and_names_it(small_disk: Path) -> None:
    url = str(small_disk / "out")
    with whole_file(url, None) as file:
        file.write(b"old")
    with pytest.raises(UserError, match=rf"^{url}: No space left on device: make room"), whole_file(url, None) as file:
        for _ in range(100):
            file.write(bytes(10_000))
    assert names_in(small_disk) == ["out"]
    assert (small_disk / "out").read_bytes() == b"old"


def test_a_conversion_to_a_full_disk_leaves_nothing(small_disk: Path, client: Client, tmp_path: Path) -> None:
    (tmp_path / "in.svm").write_bytes(b"".join(b"%d %d:%d.5\n" % (k % 2, k, k) for k in range(1, 30_000)))
    with pytest.raises(UserError, match=r"out/_temporary/\S+: No space left on device"):
        convert_libsvm(str(tmp_path / "in.svm"), str(small_disk / "out"), client=client)
    assert names_in(small_disk) == []


# --- claims ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"[]", b'{"pid": "x"}', b'{"pid": -1}', b'{"pid": 1e400}', b"\xff", b"{"])
def test_a_damaged_claim_is_a_dead_one(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transforms.claim.PATIENCE_SECONDS", 0.1)
    (tmp_path / "claim.json").write_bytes(content)
    keeper = ClaimKeeper(str(tmp_path), {}, str(tmp_path / "claim.json"))
    keeper.take(takeover=True)
    keeper.release()
    assert names_in(tmp_path) == []


# --- HDFS -----------------------------------------------------------------------------------------------------------

JAVA = '\\n\\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.delete(FSNamesystem.java:3)")'


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (
            RuntimeError(f'RPCError("org.apache.hadoop.security.AccessControlException", "denied{JAVA}'),
            PermissionError,
            "denied",
        ),
        (
            RuntimeError(f'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "safe{JAVA}'),
            OSError,
            "safe",
        ),
        (
            RuntimeError(f'RPCError("java.io.IOException", "/a could only be replicated to 0 nodes{JAVA}'),
            OSError,
            "0 nodes",
        ),
        (FileNotFoundError("File does not exist: /a\n\tat org.apache"), FileNotFoundError, "File does not exist"),
        (OSError("Connection refused (os error 111)"), ConnectionError, "Connection refused"),
        (OSError("RPC listener disconnected"), ConnectionError, "disconnected"),
        (RuntimeError('OperationFailed("Failed to complete file in time")'), ConnectionError, "in time"),
    ],
)
def test_errors_of_hdfs_are_pythons_own_in_one_line(raised: Exception, kind: type[Exception], said: str) -> None:
    hdfs = pytest.importorskip("transforms.hdfs", reason="hdfs-native is not installed: pip install 'dglmnet[hdfs]'")
    with pytest.raises(kind, match=said) as caught, hdfs.python_errors("/a"):
        raise raised
    assert "\tat " not in str(caught.value)
    assert "org.apache" not in str(caught.value)


def test_paths_on_hdfs_keep_their_characters() -> None:
    hdfs = pytest.importorskip("transforms.hdfs", reason="hdfs-native is not installed: pip install 'dglmnet[hdfs]'")
    assert hdfs.Hdfs._strip_protocol("hdfs://host:9000/day-?/part#1") == "/day-?/part#1"
    assert hdfs.Hdfs._strip_protocol("hdfs:///a/") == "/a"
    assert hdfs.Hdfs._strip_protocol("hdfs://host") == "/"


def test_a_file_that_cannot_be_filled_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty claim, left on a full disk, would keep the next writer waiting."""

    def fail(self: Any, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fs, path = open_storage(str(tmp_path / "claim.json"))
    monkeypatch.setattr("fsspec.implementations.local.LocalFileOpener.write", fail)
    with pytest.raises(UserError, match="No space left"):
        create_exclusively(fs, path, b"mine")
    assert not list(tmp_path.iterdir())


# --- servers that fail on the way ---

CUT = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


def test_connections_are_tried_anew_for_a_while_where_the_endpoint_was_heard_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(stores, "_cuts", stores._Cuts())
    monkeypatch.setattr(stores, "_answering", set())
    assert not stores._is_servers_fault(CUT)  # a wrong address, for all that is known
    stores._answering.add("http://127.0.0.1:1")
    assert stores._is_servers_fault(CUT)
    now += stores.CUT_SECONDS - 1
    assert stores._is_servers_fault(CUT)
    now += 2
    assert not stores._is_servers_fault(CUT)
    now += stores.CUT_SECONDS + 1  # what was cut long ago is another matter
    assert stores._is_servers_fault(CUT)


@pytest.mark.parametrize(("status", "again"), [(500, True), (503, True), (403, False), (404, False)])
def test_only_errors_of_the_server_itself_are_tried_anew(status: int, again: bool) -> None:
    error = ClientError({"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")
    assert stores._is_servers_fault(error) is again
