"""Server processes for tests: each ends with the test run, even where that is killed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# The kernel kills the server when the thread that started it ends (prctl's PR_SET_PDEATHSIG, 1). A small program asks
# for this and then becomes the server: code between fork and exec is not safe in a process with threads.
_LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the test run is over")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ServerFailed(RuntimeError):
    """A server ended, or did not answer in time. Its last words are in the message."""


def start_server(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Run a server that writes to `log`. It lives no longer than the calling thread, which should be the main one."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", _LAUNCH, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def stop_server(process: subprocess.Popen[bytes]) -> None:
    """End it at once, as a power cut would."""
    process.kill()
    process.wait()


@contextmanager
def python_server(*words: str, stderr: int | None = None) -> Iterator[str]:
    """The address of a Python program that prints `port N` once it listens on loopback, and ends when its input does.

    So it ends even if this process is killed. The server sees no credentials of the user's.
    """
    process = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        found = re.fullmatch(r"port (\d+)\n", line)
        if found is None:
            raise ServerFailed(f"the server did not start: {line!r}")
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            stop_server(process)
        process.stdout.close()
    if process.returncode > 0:
        raise ServerFailed(f"the server ended with {process.returncode}")


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 90) -> None:
    """Ask until the server is ready. The time limit is for a server that hangs; one that ends is noticed at once."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            state = "hangs" if process.returncode is None else f"ended with {process.returncode}"
            raise ServerFailed(f"the server {state}: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def free_port() -> int:
    """A port on loopback that is free now. Another program may take it before a server does: try again then."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether something listens on the port."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0
