"""The embedded clusters: who may reach them. Running ones: what is said of an address where there is none."""

from __future__ import annotations

import gc
import http.server
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

import psutil
import pytest
from distributed import Client
from distributed.security import Security

from pipeline.cluster import ClusterOptions, open_client
from pipeline.reach import reach_scheduler
from transforms import UserError
from transforms.convert import client_or_embedded

EMBEDDED = {
    "threads": lambda: open_client(ClusterOptions(workers=2)),
    "processes": lambda: open_client(ClusterOptions(workers=2, processes=True)),
    "of a call": lambda: client_or_embedded(None),
}


def listening() -> set[tuple[str, int]]:
    """Where this process and its children listen."""
    me = psutil.Process()
    family = [me, *me.children(recursive=True)]
    return {(*one.laddr,) for process in family for one in process.net_connections() if one.status == "LISTEN"}


@pytest.mark.parametrize("kind", EMBEDDED)
def test_they_listen_on_this_machine_only(kind: str) -> None:
    embedded: AbstractContextManager[Client] = EMBEDDED[kind]()
    before = listening()
    with embedded:
        addresses = {ip for ip, port in listening() - before}
    assert addresses == {"127.0.0.1"}


class Web(http.server.BaseHTTPRequestHandler):
    """A web server, such as a dashboard."""


@pytest.fixture
def web() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts and says nothing, as a scheduler that is stopped does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture
def chatty() -> Iterator[int]:
    """A port that greets, as a mail server does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def greet() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.sendall(b"220 mail.example ESMTP\r\n")

        threading.Thread(target=greet, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://127.0.0.1:1", "nothing listens there"),
        ("127.0.0.1:1", "nothing listens there"),
        ("tcp://no-such-host.invalid:8786", "the host name no-such-host.invalid does not resolve"),
        ("tcp://127.0.0.1:{web}", "a web server perhaps. Is the port right"),
        ("tcp://127.0.0.1:{chatty}", "another server than Dask's answers there"),
        ("tcp://127.0.0.1:{silent}", "it accepts connections, but does not answer"),
        ("http://127.0.0.1:{web}", "expected an address such as tcp://host:8786"),
        ("tcp://user:hunter2@127.0.0.1:1", "expected an address such as tcp://host:8786"),
        ("tcp://127.0.0.1", "expected an address such as tcp://host:8786"),
        ("tcp://127.0.0.1:99999", "the port is no number up to 65535"),
        ("tcp://[::1", "expected an address such as tcp://host:8786"),
        ("inproc://x", "expected an address such as tcp://host:8786"),
        ("foo", "expected an address such as tcp://host:8786"),
        ("", "expected an address such as tcp://host:8786"),
    ],
)
def test_wrong_address_is_told_with_the_reason(address: str, reason: str, request: pytest.FixtureRequest) -> None:
    ports = {name: request.getfixturevalue(name) for name in ("web", "silent", "chatty") if f"{{{name}}}" in address}
    with pytest.raises(UserError) as caught, open_client(ClusterOptions(scheduler=address.format(**ports))):
        pass
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", ["foo", "tcp://127.0.0.1:{silent}"])
def test_wrong_address_is_one_line_of_a_command(address: str, silent: int) -> None:
    words = ["fit", "data", "--output", "run", "--scheduler", address.format(silent=silent)]
    done = subprocess.run(
        [sys.executable, "-c", "from pipeline.commands.submit import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dask-submit: error: ") and "scheduler" in done.stderr
    assert done.stderr.count("\n") == 1, "nothing of Dask's behind it"


def test_worker_is_not_taken_for_a_scheduler(process_client: Client) -> None:
    address = next(iter(process_client.nthreads()))
    with pytest.raises(UserError, match="a Dask worker answers there"):
        reach_scheduler(address, Security())


def test_scheduler_that_is_there_is_not_probed(process_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.reach.HEAD_START_SECONDS", 60)
    monkeypatch.setattr("pipeline.reach.LIMIT_SECONDS", 60)
    monkeypatch.setattr("pipeline.reach._probe", lambda *args: pytest.fail("it would only fill the scheduler's log"))
    reach_scheduler(process_client.scheduler.address, Security())


@pytest.mark.parametrize("kind", ["threads", "of a call"])
def test_nothing_of_them_stays_in_memory(kind: str) -> None:
    """A call that makes a cluster of its own may be made again and again."""
    with EMBEDDED[kind]() as client:
        kept = [weakref.ref(client.cluster.scheduler), *map(weakref.ref, client.cluster.workers.values())]
        assert client.submit(int, 3).result() == 3
    del client
    gc.collect()
    assert not any(one() for one in kept)
