"""HDFS through hdfs-native, which needs no JVM: its fsspec layer with what that lacks.

Added here: exclusive creation (mode "xb"), paths with the characters ? and #, the default NameNode of HADOOP_CONF_DIR,
many ranges read at once, and errors as Python has them. hdfs-native hands on Java's exceptions with their stacks;
users get the first line, under the Python exception that says the same.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import queue
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fsspec import AbstractFileSystem
from hdfs_native import Client, FileReader, WriteOptions
from hdfs_native.fsspec import HdfsFileSystem

logger = logging.getLogger("dglmnet")
SPOOL_BYTES = 64 << 20  # of a file that is being written wait in memory; what is beyond, in a temporary file
PIECE_BYTES = 8 << 20  # are sent at a time
PAUSES = (0.5, 1.0, 2.0, 3.0, 4.0)  # seconds between tries: a NameNode may learn late that a DataNode is gone
SEND_SECONDS = 12.0  # for all tries: without a NameNode each takes 7 s, and the user is to know within 30
FIRST_ANSWER_SECONDS = 15.0  # for the first question to a NameNode: hdfs-native itself waits for ever
PATIENT = 10  # times as long where the Hadoop configuration or the options ask for more tries than ATTEMPTS
READERS = 16  # ranges read at a time: each waits for a DataNode most of its time
# A NameNode that is down is told within 10 s. hdfs-native's own 15 tries, with growing pauses, take over a minute.
ATTEMPTS_KEY, ATTEMPTS = "dfs.client.failover.max.attempts", "3"
_RPC_ERROR = re.compile(r'^RPCError\("([^"]*)", "(.*)"\)$', re.DOTALL)
_NUMBERS = {
    "FileNotFoundException": errno.ENOENT,
    "FileAlreadyExistsException": errno.EEXIST,
    "AccessControlException": errno.EACCES,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "PathIsNotDirectoryException": errno.ENOTDIR,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "SafeModeException": errno.EROFS,
    "QuotaExceededException": errno.EDQUOT,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
}
_PHRASES = {  # what tells more than the exception's class
    "Path is not a file": errno.EISDIR,
    "is not a directory": errno.ENOTDIR,
    "could only be replicated to": errno.ENOSPC,
    "could only be written to": errno.ENOSPC,
}
_CONNECTION = re.compile(
    r"onnect|refused|reset|unreachable|timed out|lookup|RPC listener|Failed to complete file in time"
)


@contextmanager
def python_errors(path: str) -> Iterator[None]:
    """What hdfs-native raises, as the exception that Python would raise for a file."""
    try:
        yield
    except Exception as error:
        raise _translated(error, path) from None


def _translated(error: Exception, path: str) -> OSError:
    """hdfs-native raises Python's own exceptions for a few of Java's, and RuntimeErrors with Java's stack otherwise."""
    java = _RPC_ERROR.match(str(error))
    kind, text = (java[1].rsplit(".", 1)[-1], java[2]) if java else ("", str(error))
    line = (text.replace("\\n", "\n").splitlines() or [type(error).__name__])[0]
    number = next((code for phrase, code in _PHRASES.items() if phrase in text), _NUMBERS.get(kind))
    if number is None and isinstance(error, FileNotFoundError | FileExistsError | PermissionError):
        number = error.errno or {FileNotFoundError: errno.ENOENT, FileExistsError: errno.EEXIST}.get(type(error), 13)
    if number is not None:
        return OSError(number, line, path)  # Python makes a FileNotFoundError and so on of it
    if not java and _CONNECTION.search(text):
        return ConnectionError(line)
    return OSError(f"{path}: {kind or type(error).__name__}: {line}")


class _Reader(FileReader):  # type: ignore[misc]
    def __init__(self, inner: Any, path: str) -> None:
        super().__init__(inner)
        self._path = path

    def read(self, size: int = -1) -> bytes:
        with python_errors(self._path):
            data: bytes = super().read(-1 if size is None else size)
            return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        super().seek(offset, whence)
        return int(self.tell())

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Writer(io.RawIOBase):
    """A file that is sent to HDFS when it is closed, and sent again if a DataNode fails on the way.

    hdfs-native does not place a block elsewhere when its first DataNode refuses it, and a stream cannot be sent twice:
    so the content waits, in memory or, if it is large, in a temporary file of this machine.
    """

    def __init__(self, client: Any, path: str, *, exclusive: bool) -> None:
        self._client, self._path = client, path
        self._content = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115
        if exclusive:
            with python_errors(path):
                client.inner.create(path, WriteOptions(overwrite=False)).close()  # from here on the name is ours

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return self._content.write(data)
        except OSError as error:  # a full disk: this machine's, not HDFS
            raise OSError(error.errno, error.strerror, tempfile.gettempdir()) from None

    def tell(self) -> int:
        return self._content.tell()

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._content:
                self._send_until_it_arrives()

    def _send_until_it_arrives(self) -> None:
        deadline = time.monotonic() + SEND_SECONDS
        for wait in PAUSES:
            try:
                self._send()
            except ConnectionError as error:
                if time.monotonic() + wait > deadline:
                    raise
                logger.info("sending %s to HDFS failed (%s): trying again in %g s", self._path, error, wait)
                time.sleep(wait)
            else:
                return
        self._send()

    def _send(self) -> None:
        """One try. A writer that failed is left alone: to close it would wait in vain, and hide the error."""
        self._content.seek(0)
        with python_errors(self._path):
            inner = self._client.inner.create(self._path, WriteOptions(overwrite=True))
            while piece := self._content.read(PIECE_BYTES):
                inner.write(piece)
            inner.close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """An error in the block leaves the file unsent."""
        if kind is None:
            self.close()
        else:
            super().close()
            self._content.close()

    def __del__(self) -> None:
        """Nothing is sent that was not closed."""


class Hdfs(HdfsFileSystem):  # type: ignore[misc]
    """A file system of fsspec; instances are shared by URL and options, as fsspec does."""

    protocol = "hdfs"

    def __init__(self, authority: str = "", **options: Any) -> None:
        AbstractFileSystem.__init__(self, authority, **options)
        host, _, port = authority.partition(":")
        self.host, self.port = host or None, int(port) if port.isdigit() else None
        settings = {name: str(value) for name, value in options.items()}
        patient = ATTEMPTS_KEY in settings or _is_configured(ATTEMPTS_KEY)
        if not patient:
            settings[ATTEMPTS_KEY] = ATTEMPTS
        try:
            self.client = Client(f"hdfs://{authority}" if authority else None, settings)
        except Exception as error:
            raise ValueError(_why_no_client(error, authority)) from None
        self._refuse_silence(FIRST_ANSWER_SECONDS * (PATIENT if patient else 1))

    def _refuse_silence(self, seconds: float) -> None:
        """Ask the NameNode one question, with a limit: a port that accepts and never answers would be waited for."""
        answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

        def ask() -> None:
            try:
                with python_errors("/"):
                    self.client.get_file_info("/")
            except OSError as error:
                answers.put(error)
            else:
                answers.put(None)

        threading.Thread(target=ask, daemon=True, name="dglmnet-hdfs").start()
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise ConnectionError(f"after {seconds:g} s the NameNode still does not answer") from None
        if isinstance(answer, ConnectionError):
            raise answer

    @classmethod
    def of_url(cls, url: str, options: dict[str, Any]) -> Hdfs:
        return cls(urlsplit(url.split("?")[0].split("#")[0]).netloc, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """The path itself: the characters ? and # are names' and globs', not a query's."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(path)
        if "://" in path:
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        return path.rstrip("/") or "/"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        with python_errors(path):
            found: dict[str, Any] = super().info(path, **options)
            return found

    def exists(self, path: str, **options: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        with python_errors(path):
            found: list[Any] = super().ls(path, detail=detail, **options)
            return found

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        with python_errors(path):
            super().mkdir(path, create_parents, **options)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        with python_errors(path1):
            super().mv(path1, path2, **options)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        with python_errors(path):
            super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def rmdir(self, path: str) -> None:
        with python_errors(path):
            super().rmdir(path)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Sequence[int],
        ends: Sequence[int],
        max_gap: int | None = None,
        on_error: str = "return",
        **options: Any,
    ) -> list[Any]:
        """Ranges of files, READERS of them at a time."""

        def read(path: str, start: int, end: int) -> Any:
            try:
                return self.cat_file(path, start, end)
            except OSError as error:
                if on_error == "return":
                    return error
                raise

        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(read, paths, starts, ends))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        path = self._strip_protocol(path)
        with python_errors(path):
            if mode == "rb":
                return _Reader(self.client.read(path).inner, path)
            if mode in ("wb", "xb"):
                return _Writer(self.client, path, exclusive=mode == "xb")
        raise ValueError(f"mode {mode!r}: HDFS files are opened with rb, wb or xb")


def _why_no_client(error: Exception, authority: str) -> str:
    if authority:
        return f"hdfs-native cannot use this address ({error})"
    return "no default NameNode is configured: write hdfs://HOST:PORT/path, or let HADOOP_CONF_DIR name core-site.xml"


def _is_configured(key: str) -> bool:
    """Do the Hadoop configuration files name this key?"""
    folder = Path(os.environ.get("HADOOP_CONF_DIR") or f"{os.environ.get('HADOOP_HOME', '')}/etc/hadoop")
    files = [folder / name for name in ("core-site.xml", "hdfs-site.xml")]
    return any(file.is_file() and key in file.read_text(errors="replace") for file in files)
