"""What each kind of store can do: the one place that knows. A new store is a class and an entry in `STORES`.

Three things differ. *Exclusive creation*: disks and HDFS refuse to create a file that is there; object stores take a
conditional PUT. *Replacement*: an object appears whole when its writer closes it; on disks and on HDFS a file is
visible while it is written, so it is written beside and renamed over. *Folders*: disks and HDFS have them, and empty
ones are to be removed; in object stores they are only parts of names, but the bucket must be there.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from transforms.errors import UserError

SETTLING_SECONDS, SETTLING_TURNS = 1.0, 20  # for an object that two writers put at the same time to be there
logger = logging.getLogger("dglmnet")
CUT_SECONDS = 10.0  # connections are tried anew for so long; botocore's own attempts take a few seconds each time
FIRST_ANSWER_SECONDS = 15.0  # of an S3 endpoint, to any request at all
_LEFTOVER = re.compile(r".+\.[0-9a-f]{8}\.tmp")


def temporary_name(path: str) -> str:
    """A name beside `path` that no other writer uses."""
    return f"{path}.{uuid.uuid4().hex[:8]}.tmp"


def is_leftover(name: str) -> bool:
    """Is this the name of a file that a killed writer may have left?"""
    return _LEFTOVER.fullmatch(name) is not None


def discard(fs: Any, path: str) -> None:
    """Delete what is left of a write that failed. Its error matters more than that this fails, too."""
    try:
        if fs.exists(path):
            fs.rm(path)
    except Exception as error:
        logger.warning("cannot remove what is left of %s: %s", path.rsplit("/", 1)[-1], type(error).__name__)


class Store:
    """Any store that fsspec knows: a tree of files with a rename that may not replace."""

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options to open the store with, defaults included."""
        return options

    def open(self, url: str, options: dict[str, Any]) -> tuple[Any, str]:
        """The file system of a URL, and the path inside it."""
        import fsspec

        fs, path = fsspec.url_to_fs(url, **self.options(options))
        return fs, path

    def create(self, fs: Any, path: str, data: bytes) -> None:
        """Write a file that is not there yet; raise FileExistsError if it is."""
        file = fs.open(path, "xb")
        try:
            with file:
                file.write(data)
        except BaseException:  # a full disk: an empty claim would keep the next writer waiting
            discard(fs, path)
            raise

    def refuses(self, fs: Any, path: str) -> bool:
        """Does the store itself refuse to create a file that is there? If not, the file is another afterwards."""
        try:
            self.create(fs, path, b"")
        except FileExistsError:
            return True
        return False

    def replace(self, fs: Any, path: str, data: bytes) -> None:
        """Write a file, or another in its place: readers see the old one or the new one."""
        with self.write(fs, path) as file:
            file.write(data)

    @contextmanager
    def write(self, fs: Any, path: str) -> Iterator[Any]:
        """A file that takes its place, and that of another, when it is whole. An error changes nothing."""
        temporary = temporary_name(path)
        try:
            with fs.open(temporary, "wb") as file:
                yield file
            self.rename(fs, temporary, path)
        except BaseException:
            discard(fs, temporary)
            raise

    def rename(self, fs: Any, source: str, target: str) -> None:
        """Give a file another name, in place of a file that has it."""
        if fs.exists(target):
            fs.rm(target)
        fs.mv(source, target)

    def make_folder(self, fs: Any, path: str) -> None:
        """See to it that files can be written below `path`."""
        fs.makedirs(path, exist_ok=True)

    def remove_empty_folder(self, fs: Any, path: str) -> None:
        """Remove a folder that holds nothing; leave any other alone."""
        if fs.isdir(path) and not fs.ls(path, detail=False):
            fs.rmdir(path)


class LocalStore(Store):
    """A disk. Its rename replaces, at once."""

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {}  # they are for remote stores

    def rename(self, fs: Any, source: str, target: str) -> None:
        Path(source).replace(target)


class ObjectStore(Store):
    """S3 and its like. An object appears when it is whole; a conditional PUT creates; there are no folders."""

    def create(self, fs: Any, path: str, data: bytes) -> None:
        """Look, create, and look again: servers that are not Amazon's may ignore the condition of a PUT.

        With those, of two writers that look in the same moment both may believe to have created the object. What it
        says then decides, which a claim's owner reads before each write.
        """
        fs.invalidate_cache()
        if fs.exists(path):
            raise FileExistsError(path)
        fs.pipe_file(path, data, mode="create")
        if self._settled(fs, path) != data:
            raise FileExistsError(path)

    def _settled(self, fs: Any, path: str) -> bytes | None:
        """What an object says. While another is put in its place, some servers have none for a moment."""
        for _ in range(SETTLING_TURNS):
            try:
                found: bytes = fs.cat_file(path)
            except FileNotFoundError:
                time.sleep(SETTLING_SECONDS / SETTLING_TURNS)
                fs.invalidate_cache()
            else:
                return found
        return None

    def refuses(self, fs: Any, path: str) -> bool:
        """Without a look before, which `create` takes: it is the condition of the PUT that is asked about."""
        try:
            fs.pipe_file(path, b"", mode="create")
        except FileExistsError:
            return True
        return False

    def replace(self, fs: Any, path: str, data: bytes) -> None:
        fs.pipe_file(path, data)

    @contextmanager
    def write(self, fs: Any, path: str) -> Iterator[Any]:
        """An error leaves no object behind: what was written of it would look whole."""
        try:
            with fs.open(path, "wb") as file:
                yield file
        except BaseException:
            discard(fs, path)
            raise

    def rename(self, fs: Any, source: str, target: str) -> None:
        fs.mv(source, target)

    def make_folder(self, fs: Any, path: str) -> None:
        """Nothing to make. A bucket is not made unasked: its name may be mistyped."""
        bucket = path.split("/", 1)[0]
        try:
            found = fs.exists(bucket)
        except PermissionError:
            return  # a key that may write objects need not be allowed to look at the bucket
        if not found:
            url = fs.unstrip_protocol(bucket)
            raise UserError(f"{url}: there is no such bucket: check its name, or create it first")

    def remove_empty_folder(self, fs: Any, path: str) -> None:
        pass


class S3Store(ObjectStore):
    """S3. botocore and s3fs try again after resets, time-outs and throttling; they are told to after any 5xx, too."""

    def open(self, url: str, options: dict[str, Any]) -> tuple[Any, str]:
        import s3fs.core

        _refuse_silence(options.get("endpoint_url") or options.get("client_kwargs", {}).get("endpoint_url"))
        s3fs.core.set_custom_error_handler(_is_servers_fault)
        return super().open(url, options)


_answering: set[str] = set()  # endpoints that this process has heard of


def _refuse_silence(endpoint: Any) -> None:
    """An endpoint that accepts connections and never answers: botocore's and s3fs's retries would take minutes.

    Anything but silence is left to botocore, which says more of it, and so is what lies behind a proxy.
    """
    if not isinstance(endpoint, str) or endpoint in _answering or getproxies():
        return
    address = urlsplit(endpoint)
    where, limit = (address.hostname or "", address.port), FIRST_ANSWER_SECONDS
    connection = HTTPConnection(*where, timeout=limit)
    if address.scheme == "https":  # whom it belongs to is botocore's to verify: nothing is told it here
        connection = HTTPSConnection(*where, timeout=limit, context=ssl._create_unverified_context())
    try:
        connection.request("HEAD", "/")
        connection.getresponse()
    except TimeoutError:
        raise ConnectionError(f"{address.hostname}:{address.port} does not answer") from None
    except (OSError, HTTPException):
        return
    finally:
        connection.close()
    _answering.add(endpoint)


def _is_servers_fault(error: Exception) -> bool:
    """A 5xx that botocore has met several times already, or a connection cut; s3fs asks whether to begin again."""
    from botocore.exceptions import EndpointConnectionError

    answer = getattr(error, "response", None) or {}
    if int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500:
        return True
    return isinstance(error, EndpointConnectionError) and _cuts.may_end()


class _Cuts:
    """Connections to an endpoint that cannot be made, one after another: for a while it may come back."""

    def __init__(self) -> None:
        self._first, self._last = -inf, -inf

    def may_end(self) -> bool:
        """Note one. Are they too few yet to give up? Those of an endpoint that was never heard of are not looked at."""
        if not _answering:
            return False
        now = time.monotonic()
        if now - self._last > CUT_SECONDS:
            self._first = now
        self._last = now
        return now - self._first < CUT_SECONDS


_cuts = _Cuts()


class HdfsStore(Store):
    """HDFS through hdfs-native. Its rename replaces, at once; a file is visible, empty, as soon as it is created."""

    def open(self, url: str, options: dict[str, Any]) -> tuple[Any, str]:
        from transforms.hdfs import Hdfs

        return Hdfs.of_url(url, self.options(options)), Hdfs._strip_protocol(url)

    def rename(self, fs: Any, source: str, target: str) -> None:
        fs.mv(source, target, overwrite=True)


STORES: dict[str, Store] = {
    "file": LocalStore(),
    "local": LocalStore(),
    "hdfs": HdfsStore(),
    "s3": S3Store(),
    "s3a": S3Store(),
    "gs": ObjectStore(),
    "gcs": ObjectStore(),
    "abfs": ObjectStore(),
    "az": ObjectStore(),
}
_OTHER = Store()


def protocol_of(url: str) -> str:
    """The scheme of a URL; a path without one is a file's."""
    return url.split("://", 1)[0] if "://" in url else "file"


def store_of(fs: Any) -> Store:
    """What the store behind a file system can do."""
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return STORES.get(protocol, _OTHER)
