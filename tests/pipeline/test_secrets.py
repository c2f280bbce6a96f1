"""Secrets (storage keys, passwords in URLs, signatures, TLS keys) are nowhere to be read: not in files, logs, errors,
process lists, nor on the scheduler. Every planted secret holds the same word, which is then searched for."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

from pipeline.commands.convert import command as convert
from pipeline.commands.shared import errors_as_exit_codes
from pipeline.commands.submit import command as dask_submit
from tests.pipeline.hand_made import HandMade
from tests.pipeline.runs import make_rows, to_text
from tests.services.s3 import Bucket
from transforms import UserError
from transforms.secrets import make_scrubber, without_secrets
from transforms.storage import StorageOptions

pytestmark = pytest.mark.timeout(300)
PLANTED = re.compile(rb"planted", re.IGNORECASE)
PLANTED_OPTIONS = {"key": "PLANTEDkeyid", "secret": "planted/Secret+1", "token": "plantedtoken=="}
SIGNED = "X-Amz-Credential=PLANTEDid&X-Amz-Signature=plantedsignature"
LOUD = ("--log-level", "debug", "--log-json")


@pytest.fixture
def options(bucket: Bucket, tmp_path: Path) -> str:
    """A file of storage options, outside the folder that is searched."""
    path = tmp_path.parent / f"{tmp_path.name}-options.json"
    path.write_text(json.dumps(bucket.options | PLANTED_OPTIONS))
    return f"@{path}"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Text by HTTP at /train.svm, for whoever brings the signature; /bad.svm has a bad line. Returns host:port."""
    content = {"/train.svm": to_text(*make_rows()), "/bad.svm": b"1 1:1\n1 nonsense\n", "/fails.svm": b"1 1:1\n"}

    class Signed(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, _, query = self.path.partition("?")
            allowed = (query == SIGNED or "Authorization" in self.headers) and name != "/refused.svm"
            body = content.get(name, b"") if allowed else b""
            failing = name == "/fails.svm" and self.command == "GET"
            self.send_response(500 if failing else 200 if body else 404 if allowed else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Signed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Call a command at its loudest, in this process; it must end with this code. Returns what it prints."""
    terminated = signal.getsignal(signal.SIGTERM)

    def called(command: click.Command, *words: str, code: int) -> str:
        with pytest.raises(SystemExit) as ended, errors_as_exit_codes("dglmnet"):
            sys.exit(command.main([*words, *LOUD], standalone_mode=False))
        told = "".join(capfd.readouterr())
        assert ended.value.code == code, told
        assert not leaks(told.encode())
        return told

    yield called
    signal.signal(signal.SIGTERM, terminated)


def leaks(text: bytes) -> list[str]:
    """Each place where a secret stands, with what is around it."""
    return [
        text[max(0, found.start() - 100) : found.end() + 60].decode(errors="replace")
        for found in PLANTED.finditer(text)
    ]


def leaks_of_folder(folder: Path) -> dict[str, list[str]]:
    files = {str(path): leaks(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    return {path: found for path, found in files.items() if found}


def leaks_of_scheduler(cluster: HandMade) -> list[str]:
    def told(dask_scheduler: Any) -> str:
        names = [(str(ts.key), str(ts.group_key), str(ts.prefix)) for ts in dask_scheduler.tasks.values()]
        datasets = list(dask_scheduler.extensions["publish"].datasets)
        groups, clients = list(dask_scheduler.task_groups), list(dask_scheduler.clients)
        return str((names, datasets, groups, clients, dask_scheduler.get_events()))

    return leaks(cluster.client.run_on_scheduler(told).encode())


def test_run_in_a_bucket_leaves_no_secret_anywhere(
    run: Callable[..., str], cluster: HandMade, bucket: Bucket, options: str, tmp_path: Path
) -> None:
    text = bucket.write("train.svm", to_text(*make_rows()))
    there = ("--storage-options", options, "--scheduler", cluster.address)
    url = f"{bucket.url}/run"
    run(dask_submit, "pipeline", "--train", text, "--output", url, "--path-length", "2", *there, code=0)
    run(dask_submit, "predict", url, text, "--output", f"{bucket.url}/p.parquet", *there, code=0)
    run(dask_submit, "fit", f"{url}/data", "--output", url, "--path-length", "2", *there, code=2)  # it is there already
    run(dask_submit, "status", url, "--storage-options", options, code=0)
    files = bucket.files("run")
    assert {"driver.json", "run.json", "report.html", "path.parquet"} <= set(files)
    assert {name: leaks(content) for name, content in files.items() if leaks(content)} == {}
    assert leaks_of_scheduler(cluster) == []
    assert leaks_of_folder(tmp_path) == {}
    assert leaks_of_folder(cluster.folder) == {}, "the logs of the scheduler and the workers"


def test_store_that_refuses_is_told_without_secrets(
    run: Callable[..., str], cluster: HandMade, bucket: Bucket, tmp_path: Path
) -> None:
    def there(**options: Any) -> tuple[str, ...]:
        path = tmp_path.parent / f"{tmp_path.name}-options.json"
        path.write_text(json.dumps(bucket.options | PLANTED_OPTIONS | options))
        return "--storage-options", f"@{path}", "--scheduler", cluster.address

    (tmp_path / "train.svm").write_bytes(to_text(*make_rows()))
    train = str(tmp_path / "train.svm")
    wrong = {"client_kwargs": {"endpoint_url": "planteduser:plantedpassword@nowhere"}}
    told = run(convert, "s3://bucket/x.svm", str(tmp_path / "data"), *there(**wrong), code=1)
    assert "Invalid endpoint: ***@nowhere" in told
    run(convert, train, "s3://no-such-bucket/data", *there(), code=2)
    assert leaks_of_folder(tmp_path) == {}
    assert leaks_of_folder(cluster.folder) == {}


@pytest.mark.parametrize("kind", ["signed", "password"])
def test_secrets_in_addresses_are_not_told(
    run: Callable[..., str], cluster: HandMade, web: str, kind: str, tmp_path: Path
) -> None:
    def address(name: str, server: str = web) -> str:
        signed = f"http://{server}/{name}?{SIGNED}"
        return signed if kind == "signed" else f"http://planteduser:plantedpassword@{server}/{name}"

    there = ("--scheduler", cluster.address)
    data = str(tmp_path / "data")
    told = run(convert, address("bad.svm"), data, *there, code=2)
    assert "bad.svm, line 2, column 3: " in told
    run(convert, address("absent.svm"), data, *there, code=2)
    run(convert, address("refused.svm"), data, *there, code=2)
    run(convert, address("x.svm", "127.0.0.1:1"), data, *there, code=2)
    run(convert, address("train.svm"), data, "--partitions", "2", *there, code=0)
    run(convert, address("fails.svm"), str(tmp_path / "other"), *there, code=2)  # on a worker
    assert leaks_of_folder(tmp_path) == {}
    assert leaks_of_scheduler(cluster) == []
    assert leaks_of_folder(cluster.folder) == {}


def test_secret_on_the_command_line_is_warned_of_once(run: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_bytes(b"1 1:1\n-1 2:1\n")
    words = (str(tmp_path / "train.svm"), str(tmp_path / "data"), "--workers", "1")
    typed = json.dumps(PLANTED_OPTIONS)
    told = run(convert, *words, "--storage-options", typed, code=0)
    assert told.count("--storage-options @FILE") == 1
    (tmp_path.parent / f"{tmp_path.name}-options.json").write_text(typed)
    file = f"@{tmp_path.parent / tmp_path.name}-options.json"
    assert "@FILE" not in run(convert, *words, "--overwrite", "--storage-options", file, code=0)
    assert "@FILE" not in run(convert, *words, "--overwrite", "--storage-options", '{"anon": true}', code=0)


def test_error_of_a_task_tells_no_secret_and_stays_the_users_own() -> None:
    @without_secrets
    def task(options: StorageOptions, error: Exception) -> None:
        raise error

    options = StorageOptions(PLANTED_OPTIONS)
    plain = KeyError("as it was")
    with pytest.raises(KeyError) as kept:
        task(options, plain)
    assert kept.value is plain
    for error, kind in (
        (FileNotFoundError(2, "no", f"http://host/x?{SIGNED}"), OSError),
        (UserError("the key PLANTEDkeyid is wrong"), UserError),
        (ConnectionError(f"http://planteduser:plantedpassword@host/?{SIGNED}"), UserError),
        (RuntimeError("token plantedtoken%3D%3D has expired"), OSError),
    ):
        with pytest.raises(kind) as caught:
            task(options, error)
        assert not leaks(str(caught.value).encode())
        assert caught.value.__suppress_context__


def test_scrubber_leaves_where_a_store_is() -> None:
    options = {"key": "tester", "client_kwargs": {"endpoint_url": "http://me:word@store:9000", "region_name": "eu-1"}}
    scrub = make_scrubber(options)
    assert scrub("cannot connect to http://me:word@store:9000/x in eu-1 as tester") == (
        "cannot connect to http://store:9000/x in eu-1 as ***"
    )
    assert scrub("word and me:word, from https://host/a?sig=1&b=2, that is all") == (
        "*** and ***, from https://host/a?*** that is all"
    )


def test_workers_that_a_command_starts_have_no_secrets_in_the_process_list(
    bucket: Bucket, options: str, tmp_path: Path
) -> None:
    text = bucket.write("train.svm", to_text(*make_rows()))
    environment = {"DASK_DGLMNET__STORAGE_OPTIONS": Path(options[1:]).read_text()}
    words = (text, f"{bucket.url}/data", "--processes", "--workers", "2", "--partitions", "2", *LOUD)
    command = subprocess.Popen(
        [sys.executable, "-c", "from pipeline.commands.convert import main; main()", *words],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    seen: dict[int, str] = {}
    process = psutil.Process(command.pid)
    while command.poll() is None:
        for one in [process, *process.children(recursive=True)]:
            try:
                seen[one.pid] = " ".join(one.cmdline())
            except psutil.NoSuchProcess:
                continue
    told = command.stdout.read() if command.stdout else b""
    assert command.returncode == 0, told
    assert len(seen) >= 3, "the command and its workers"
    assert not leaks(json.dumps(seen).encode())
    assert not leaks(told)
