"""Is there a Dask scheduler at an address? If not, say within seconds why: Dask itself retries, or waits for ever.

A scheduler that is there answers at once. If none has within a second, the address is probed with plain sockets to find
the reason: nothing listens, TLS on one side only, another server, silence.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from distributed.core import rpc
from distributed.security import Security

from transforms import UserError
from transforms.storage import redact

HEAD_START_SECONDS = 1.0  # for a scheduler that is well, which is not probed
LIMIT_SECONDS = 5.0  # so that a user knows within ten, start-up included
SOCKET_SECONDS = 1.5  # for each step of the probe
SCHEMES = ("tcp", "tls")


def reach_scheduler(address: str, security: Security) -> None:
    """Return if a Dask scheduler answers at the address; or else raise, saying what was found there."""
    shown = redact(address)
    host, port = _host_and_port(address)
    reason = asyncio.run(_reach(address, host, port, security))
    if reason is not None:
        raise UserError(f"cannot reach a Dask scheduler at {shown}: {reason}")


def _host_and_port(address: str) -> tuple[str, int]:
    expected = f"--scheduler {redact(address)}: expected an address such as tcp://host:8786 or tls://host:8786"
    try:
        parts = urlsplit(address)
    except ValueError:  # brackets that do not match
        raise UserError(expected) from None
    try:
        port = parts.port
    except ValueError:
        raise UserError(f"{expected}; the port is no number up to 65535") from None
    if parts.scheme not in SCHEMES or not (parts.hostname and port) or parts.path not in ("", "/"):
        raise UserError(expected)
    if "@" in parts.netloc:
        raise UserError(f"{expected}, without a user name")
    return parts.hostname, port


async def _reach(address: str, host: str, port: int, security: Security) -> str | None:
    """None if a scheduler answers, or the reason why it does not."""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            unresolved = await _in_thread(_resolve, host, port)
            return unresolved or await _knock_or_probe(address, host, port, security)
    except TimeoutError:
        return "it accepts connections, but does not answer. Is it a Dask scheduler, and is it running?"


async def _knock_or_probe(address: str, host: str, port: int, security: Security) -> str | None:
    knock = asyncio.ensure_future(_knock(address, security))
    try:
        await asyncio.wait({knock}, timeout=HEAD_START_SECONDS)
        if knock.done() and knock.exception() is None:
            return knock.result()
        context = security.get_connection_args("client")["ssl_context"] if address.startswith("tls:") else None
        reason: str | None = await _in_thread(_probe, host, port, context)
        if reason is not None:
            return reason
        return await knock
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        return (str(error) or type(error).__name__).splitlines()[0]
    finally:
        knock.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await knock


async def _knock(address: str, security: Security) -> str | None:
    """Ask who is there, as a Dask client does."""
    server: Any = rpc(address, timeout=LIMIT_SECONDS, connection_args=security.get_connection_args("client"))
    try:
        kind = (await server.identity())["type"]
    finally:
        await server.close_rpc()
    return None if kind == "Scheduler" else f"a Dask {kind.lower()} answers there: give the scheduler's address"


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """In a daemon thread: a name server that does not answer must not keep this process from ending."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        result = function(*args)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, answer, result)

    threading.Thread(target=run, name="dglmnet-probe", daemon=True).start()
    return await answer


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _resolve(host: str, port: int) -> str | None:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return f"the host name {host} does not resolve. Is it spelled right, and known on this machine?"
    return None


def _probe(host: str, port: int, context: ssl.SSLContext | None) -> str | None:
    """What is wrong at the address, or None if that cannot be seen. `context`: the client wants to use TLS."""
    try:
        with socket.create_connection((host, port), SOCKET_SECONDS) as connection:
            connection.settimeout(SOCKET_SECONDS)
            return _listen_first(connection, context) or _try_tls(connection, context)
    except ConnectionRefusedError:
        return "nothing listens there. Is `dask scheduler` running, and is the port right?"
    except TimeoutError:
        return None
    except OSError as error:
        return f"{error.strerror or type(error).__name__}. Is `dask scheduler` running there?"


def _listen_first(connection: socket.socket, context: ssl.SSLContext | None) -> str | None:
    """A Dask server without TLS speaks first; one with TLS, or a web server, waits."""
    try:
        greeting = connection.recv(64)
    except TimeoutError:
        return None
    if not greeting:
        return "it closes the connection. Is it a Dask scheduler?"
    if greeting.isascii():
        return "another server than Dask's answers there. Is the port right?"
    return None if context is None else "it does not use TLS: give its address as tcp:// and leave the TLS options out"


def _try_tls(connection: socket.socket, context: ssl.SSLContext | None) -> str | None:
    """The reason why a TLS connection does not come about, or should not."""
    wanted = context is not None
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection) as wrapped:
            if wanted:
                wrapped.recv(1)  # with TLS 1.3, a refused certificate shows only here
    except TimeoutError:
        return None
    except ssl.SSLCertVerificationError as error:
        return f"its certificate does not fit the CA that was given: {error.verify_message}"
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return "another server than Dask's answers there, a web server perhaps. Is the port right?"
        if wanted:
            return f"it does not accept the certificate of this client ({error.reason or 'TLS error'})"
    if wanted:
        return None
    return "it uses TLS: give its address as tls:// with --tls-ca-file, --tls-cert and --tls-key"
