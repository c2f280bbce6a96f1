"""A real S3 server for tests: moto on loopback, in a process of its own, with a bucket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_SERVER = """
import sys, threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("port", server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""
SECRET = "hunter2-very-secret"


@dataclass(frozen=True)
class Bucket:
    """A bucket on the server, and what fsspec needs to reach it."""

    name: str
    options: dict[str, Any]
    fs: Any

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def write(self, path: str, content: bytes) -> str:
        self.fs.pipe_file(f"{self.name}/{path}", content)
        return f"{self.url}/{path}"

    def files(self, folder: str) -> dict[str, bytes]:
        """Every object under a folder, by its relative name."""
        self.fs.invalidate_cache()
        base = f"{self.name}/{folder}"
        return {path[len(base) + 1 :]: self.fs.cat_file(path) for path in self.fs.find(base)}


@contextmanager
def moto_server() -> Iterator[str]:
    """The server's address. It ends when its standard input does, even if this process is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        found = re.fullmatch(r"port (\d+)\n", line)
        if found is None:
            raise RuntimeError(f"moto's server did not start: {line!r}")
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_bucket(endpoint: str) -> Bucket:
    import s3fs

    options = {"key": "tester", "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}
    fs = s3fs.S3FileSystem(**options)
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    fs.call_s3("create_bucket", Bucket=name)
    return Bucket(name, options, fs)
