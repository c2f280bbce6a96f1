"""Text and data sets on S3: read and written by worker processes, against a real server."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from pipeline.commands.convert import command
from tests.reference import files_of, random_text, read_back, read_text
from tests.services.s3 import SECRET, Bucket
from transforms import (
    DatasetError,
    OutputExists,
    UserError,
    check_dataset,
    claim,
    convert_libsvm,
    from_arrays,
    open_dataset,
    reading,
)
from transforms import convert as convert_module
from transforms.claim import ClaimKeeper
from transforms.storage import StorageOptions, read_ranges

Convert = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).resolve().parents[2]
SMALL = b"1 1:1 2:2\n0 1:3\n1 4:1\n"
OTHER = b"1 7:1\n0 8:3\n0 9:1\n"


def test_text_on_s3_becomes_a_data_set_on_s3(bucket: Bucket, process_client: Client) -> None:
    first, second = random_text(1, 300, 12, 6), random_text(2, 200, 12, 6)
    bucket.write("in/day=1/part-0.svm", first)
    bucket.write("in/day=2/part-0.svm.gz", gzip.compress(second))
    bucket.write("in/_SUCCESS", b"")
    dataset = convert_libsvm(
        f"{bucket.url}/in/",
        f"{bucket.url}/data",
        partitions=3,
        block_size=6000,
        storage_options=bucket.options,
        client=process_client,
    )
    reference = read_text(first + second)
    got = read_back(dataset)
    assert (got.columns, got.labels) == (reference.columns, reference.labels)
    assert check_dataset(dataset) == []
    assert set(bucket.files("data")) == {
        "dataset.json",
        "labels.parquet",
        *(f"part-{k:05d}.parquet" for k in range(3)),
    }
    assert SECRET not in bucket.files("data")["dataset.json"].decode()
    assert [one["path"] for one in dataset.description["inputs"]] == [
        f"{bucket.url}/in/day=1/part-0.svm",
        f"{bucket.url}/in/day=2/part-0.svm.gz",
    ]


def test_a_glob_on_s3_and_parts_as_on_disk(
    bucket: Bucket, process_client: Client, client: Client, tmp_path: Path
) -> None:
    text = random_text(1, 300, 12, 6)
    bucket.write("in/a-1.svm", text)
    bucket.write("in/b-1.svm", b"not to be read")
    (tmp_path / "a-1.svm").write_bytes(text)
    options: dict[str, Any] = {"partitions": 2, "block_size": 6000}
    convert_libsvm(
        f"{bucket.url}/in/a-*.svm",
        f"{bucket.url}/data",
        storage_options=bucket.options,
        client=process_client,
        **options,
    )
    convert_libsvm(str(tmp_path / "a-1.svm"), str(tmp_path / "data"), client=client, **options)
    remote, local = bucket.files("data"), files_of(tmp_path / "data")
    remote.pop("dataset.json"), local.pop("dataset.json")
    assert remote == local


@pytest.mark.parametrize("bound", [None, 0.5, 5.0])
def test_a_prefix_is_read_from_s3(bucket: Bucket, client: Client, bound: float | None) -> None:
    source = bucket.write("in.svm", random_text(1, 300, 12, 6))
    dataset = convert_libsvm(source, f"{bucket.url}/data", partitions=1, storage_options=bucket.options, client=client)
    whole, part = dataset.partitions[0].read(), dataset.partitions[0].read(bound)
    assert part.features.size == (whole.bounds > (-1 if bound is None else bound)).sum()


def test_a_conversion_on_s3_resumes_to_the_same_bytes(
    bucket: Bucket, process_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = bucket.write("in.svm", random_text(1, 300, 12, 6))
    options: dict[str, Any] = {
        "partitions": 2,
        "block_size": 6000,
        "storage_options": bucket.options,
        "client": process_client,
    }

    def stop(*args: Any) -> None:
        raise UserError("stopped by the test")

    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "_catalogue", stop)
        with pytest.raises(UserError, match="stopped by the test"):
            convert_libsvm(source, f"{bucket.url}/data", resume=True, **options)
    left = bucket.files("data")
    fragments = sorted(name for name in left if name.endswith(".fragment"))
    assert len(fragments) > 2
    assert "_temporary/claim.json" not in left
    bucket.fs.pipe_file(f"{bucket.name}/data/{fragments[1]}", left[fragments[1]][:-20])
    with pytest.raises(DatasetError, match="--resume"):
        open_dataset(f"{bucket.url}/data", bucket.options)
    convert_libsvm(source, f"{bucket.url}/data", resume=True, **options)
    convert_libsvm(source, f"{bucket.url}/fresh", **options)
    assert bucket.files("data") == bucket.files("fresh")


def test_an_error_leaves_nothing_on_s3(bucket: Bucket, process_client: Client) -> None:
    source = bucket.write("in.svm", SMALL * 100 + b"x\n")
    with pytest.raises(UserError, match=r"in\.svm, line 301, column 1"):
        convert_libsvm(
            source, f"{bucket.url}/data", block_size=500, storage_options=bucket.options, client=process_client
        )
    assert bucket.files("data") == {}


def test_only_one_writer_gets_the_claim_on_s3(bucket: Bucket) -> None:
    path = f"{bucket.name}/data/_temporary/claim.json"
    first, second = (ClaimKeeper(f"{bucket.url}/data", StorageOptions(bucket.options), path) for _ in range(2))
    first.take(takeover=False)
    with pytest.raises(OutputExists, match=f"process {os.getpid()}"):
        second.take(takeover=False)
    first.release()
    second.take(takeover=False)
    second.release()
    assert bucket.files("data") == {}


def test_a_live_claim_on_s3_is_refused_and_a_silent_one_taken_over(
    bucket: Bucket, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(claim, "PATIENCE_SECONDS", 2.0)
    source = bucket.write("in.svm", SMALL)
    options: dict[str, Any] = {"storage_options": bucket.options, "client": client}
    keeper = ClaimKeeper(
        f"{bucket.url}/data", StorageOptions(bucket.options), f"{bucket.name}/data/_temporary/claim.json"
    )
    keeper.take(takeover=False)
    for option in ("resume", "overwrite"):
        with pytest.raises(OutputExists, match="writing here"):
            convert_libsvm(source, f"{bucket.url}/data", **(options | {option: True}))
    keeper._stop.set()  # it dies without releasing
    keeper._thread.join()
    dataset = convert_libsvm(source, f"{bucket.url}/data", overwrite=True, **options)
    assert read_back(dataset).columns == read_text(SMALL).columns
    assert not any("_temporary" in name for name in bucket.files("data"))


def test_overwrite_on_s3(bucket: Bucket, process_client: Client) -> None:
    options: dict[str, Any] = {"storage_options": bucket.options, "client": process_client}
    convert_libsvm(bucket.write("in.svm", SMALL), f"{bucket.url}/data", partitions=3, **options)
    bucket.write("data/notes.txt", b"mine")
    before = bucket.files("data")
    with pytest.raises(OutputExists, match="--overwrite"):
        convert_libsvm(f"{bucket.url}/in.svm", f"{bucket.url}/data", **options)
    with pytest.raises(UserError):
        convert_libsvm(bucket.write("bad.svm", b"x\n"), f"{bucket.url}/data", overwrite=True, **options)
    assert bucket.files("data") == before
    dataset = convert_libsvm(
        bucket.write("other.svm", OTHER), f"{bucket.url}/data", partitions=1, overwrite=True, **options
    )
    assert read_back(dataset).columns == read_text(OTHER).columns
    assert set(bucket.files("data")) == {"dataset.json", "labels.parquet", "part-00000.parquet", "notes.txt"}


def test_arrays_go_to_s3(bucket: Bucket) -> None:
    dataset = from_arrays(
        [[0, 2.0], [1.0, 0]], [0, 1], f"{bucket.url}/data", partitions=1, storage_options=bucket.options
    )
    assert read_back(dataset).columns == {0: {1: 1.0}, 1: {0: 2.0}}


def test_the_input_changed_on_s3(bucket: Bucket, client: Client) -> None:
    """Same size, same second: the etag tells."""
    source = bucket.write("in.svm", SMALL)

    class Meddler:
        def phase(self, name: str, total: int, unit: str) -> None:
            if name == "reduce":
                bucket.write("in.svm", SMALL.replace(b"1:3", b"1:9"))

        def advance(self, amount: int) -> None:
            pass

    with pytest.raises(UserError, match="changed while"):
        convert_libsvm(source, f"{bucket.url}/data", storage_options=bucket.options, client=client, progress=Meddler())
    assert bucket.files("data") == {}


def test_many_small_objects_are_read_together(bucket: Bucket, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = random_text(3, 60, 20, 5).splitlines(keepends=True)
    for k, line in enumerate(lines):
        bucket.write(f"in/{k:03d}.svm{'.gz' if k % 2 else ''}", gzip.compress(line) if k % 2 else line)
    asked: list[int] = []

    def noted(fs: Any, paths: Sequence[str], *args: Any) -> list[bytes]:
        asked.append(len(paths))
        return read_ranges(fs, paths, *args)

    monkeypatch.setattr(reading, "read_ranges", noted)
    dataset = convert_libsvm(
        f"{bucket.url}/in", f"{bucket.url}/data", storage_options=bucket.options, client=client, partitions=2
    )
    assert asked == [60]
    got, reference = read_back(dataset), read_text(b"".join(lines))
    assert (got.columns, got.labels) == (reference.columns, reference.labels)


@pytest.mark.parametrize("name", ["missing.svm", "missing/*.svm", "missing/"])
def test_a_missing_input_on_s3_is_named(bucket: Bucket, client: Client, name: str) -> None:
    with pytest.raises(UserError, match=r"s3://.*missing.*(no such file|nothing matches)"):
        convert_libsvm(f"{bucket.url}/{name}", f"{bucket.url}/data", storage_options=bucket.options, client=client)


@pytest.mark.parametrize("name", ["in.svm", "in/*.svm", "in/", ""])
def test_a_bucket_that_is_not_there_is_named(bucket: Bucket, client: Client, name: str) -> None:
    with pytest.raises(UserError, match=r"s3://no-such-bucket.*: there is no bucket no-such-bucket$"):
        convert_libsvm(
            f"s3://no-such-bucket/{name}", f"{bucket.url}/data", storage_options=bucket.options, client=client
        )


ENVIRONMENT = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    return subprocess.run(
        [sys.executable, "-c", "from pipeline.commands.convert import main; main()", *arguments, "--quiet"],
        env=clean | {"PYTHONPATH": str(ROOT)} | ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def convert(
    call: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """convert-libsvm in this process, where nothing tells of an account."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return partial(call, command)


def test_the_command_reads_and_writes_s3(convert: Convert, bucket: Bucket, tmp_path: Path) -> None:
    bucket.write("in.svm", SMALL)
    (tmp_path / "options.json").write_text(json.dumps(bucket.options))
    options = f"@{tmp_path}/options.json"
    arguments = [f"{bucket.url}/in.svm", f"{bucket.url}/data", "--workers", "1", "--processes"]
    done = in_a_process(*arguments, "--storage-options", options)
    assert (done.returncode, done.stderr) == (0, "")
    again = convert("--inspect", f"{bucket.url}/data", "--storage-options", options, "--quiet")
    assert (again.returncode, again.stderr) == (0, "")


def test_missing_credentials_are_told_in_one_line(bucket: Bucket) -> None:
    bucket.write("in.svm", SMALL)
    endpoint = json.dumps({"client_kwargs": bucket.options["client_kwargs"]})
    for arguments in (
        [f"{bucket.url}/in.svm", f"{bucket.url}/data", "--workers", "1"],
        ["--inspect", f"{bucket.url}/data"],
    ):
        done = in_a_process(*arguments, "--storage-options", endpoint)
        assert done.returncode == 2, done.stderr
        assert "credentials" in done.stderr
        assert bucket.url in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_failing_task_does_not_tell_the_secret(convert: Convert, bucket: Bucket) -> None:
    bucket.write("in.svm", b"x\n")
    arguments = [f"{bucket.url}/in.svm", f"{bucket.url}/data", "--storage-options", json.dumps(bucket.options)]
    for run, level in ((convert, "info"), (in_a_process, "debug")):
        done = run(*arguments, "--log-level", level)
        assert done.returncode != 0
        assert SECRET not in done.stderr + done.stdout
