"""A proxy in front of an S3 server that passes requests on, and fails a fixed share of them in the ways networks do."""

from __future__ import annotations

import http.client
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

SLOW_DOWN = "503 SlowDown"
INTERNAL_ERROR = "500 InternalError"
RESET_AT_ONCE = "reset before the request is read"
RESET_IN_REQUEST = "reset in the middle of the request's body"
RESET_IN_ANSWER = "reset in the middle of the answer's body"
LOST_ANSWER = "the server did it, the answer is lost"
FAULTS = (SLOW_DOWN, INTERNAL_ERROR, RESET_AT_ONCE, RESET_IN_REQUEST, RESET_IN_ANSWER, LOST_ANSWER)
PASSED = "passed"
# About one connection, not about the request: each side of the proxy has its own.
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "te", "trailer", "upgrade", "content-length"}


class _Reset(ConnectionAbortedError):
    """The client's connection is to be cut, or was."""


class FaultyProxy:
    """Its address is `url`. `rate`, `faults` and `delay` may be changed while it runs; `counts` says what it did."""

    def __init__(self, upstream: str, rate: float = 0.25, seed: int = 1, faults: Sequence[str] = FAULTS) -> None:
        address = urlsplit(upstream).netloc
        self.rate, self.faults, self.delay = rate, tuple(faults), 0.0
        self.counts: Counter[str] = Counter()
        self.errors: list[BaseException] = []  # of the proxy itself
        self._random, self._lock = random.Random(seed), threading.Lock()
        proxy = self

        class Handler(_Handler):
            def choose(self) -> str:
                return proxy._choose()

            def upstream(self) -> http.client.HTTPConnection:
                time.sleep(proxy.delay)
                return http.client.HTTPConnection(address, timeout=60)

        self._server = _Server(self.errors, Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True, name="faulty proxy").start()

    @property
    def failed(self) -> int:
        return self.counts.total() - self.counts[PASSED]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        if self.errors:
            raise self.errors[0]

    def _choose(self) -> str:
        with self._lock:
            fate = self._random.choice(self.faults) if self._random.random() < self.rate else PASSED
            self.counts[fate] += 1
            return fate


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, errors: list[BaseException], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._errors = errors

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken connection is nothing of note here; anything else is the proxy's own fault."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self._errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body leave together

    def choose(self) -> str:
        raise NotImplementedError

    def upstream(self) -> http.client.HTTPConnection:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle_expect_100(self) -> bool:
        """Answered when the body is read, so that a fault may come before."""
        self._expected = True
        return True

    def do_GET(self) -> None:
        fate = self.choose()
        try:
            self._serve(fate)
        except _Reset:
            self._cut()
            raise

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _serve(self, fate: str) -> None:
        if fate == RESET_AT_ONCE:
            raise _Reset
        body = self._read_body(half=fate == RESET_IN_REQUEST)
        if fate == RESET_IN_REQUEST:
            raise _Reset
        if fate in (SLOW_DOWN, INTERNAL_ERROR):
            self._refuse(fate)
            return
        status, headers, answer = self._ask(body)
        if fate == LOST_ANSWER:
            raise _Reset
        self._answer(status, headers, answer, half=fate == RESET_IN_ANSWER)
        if fate == RESET_IN_ANSWER:
            raise _Reset

    def _read_body(self, *, half: bool) -> bytes:
        if getattr(self, "_expected", False):
            self._expected = False
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._chunks())
        size = int(self.headers.get("Content-Length", 0))
        return self.rfile.read(size // 2 if half else size)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Pass the request on as it came: its signature covers the host that the client named."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        connection = self.upstream()
        try:
            if body or self.command in ("PUT", "POST"):
                headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, half: bool = False) -> None:
        self.send_response_only(status)
        told = [value for name, value in headers if name.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        size = told[0] if self.command == "HEAD" and told else str(len(body))
        if status not in (204, 304):
            self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        self.wfile.flush()

    def _refuse(self, fate: str) -> None:
        status, code = fate.split()
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>from the faulty proxy</Message></Error>"
        content = b"" if self.command == "HEAD" else body.encode()
        self._answer(int(status), [("Content-Type", "application/xml")], content)

    def _cut(self) -> None:
        """Close with a reset, not politely: nothing is sent that still waits."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.wfile.close()
        self.connection.close()


@contextmanager
def faulty_proxy(
    upstream: str, rate: float = 0.25, seed: int = 1, faults: Sequence[str] = FAULTS
) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(upstream, rate, seed, faults)
    try:
        yield proxy
    finally:
        proxy.close()


def main() -> None:
    """python -m tests.services.faulty_proxy UPSTREAM SEED: a process of its own, until its standard input ends."""
    with faulty_proxy(sys.argv[1], seed=int(sys.argv[2])) as proxy:
        sys.stdout.write(f"port {proxy.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
