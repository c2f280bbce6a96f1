"""Files by URL, through fsspec: the one place that opens storage. Secrets stay inside `Storage`."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from transforms.errors import StoreUnreachable, UserError
from transforms.folders import refuse_pipes
from transforms.stores import STORES, Store, discard, is_leftover, protocol_of, store_of, temporary_name

HASHED = 1 << 20  # of a file at a time, so that it is hashed while it is in the processor's cache
GAP, REQUEST = 256 << 10, 64 << 20  # ranges of a remote file this near are read together, up to this much


class StorageOptions(dict[str, Any]):
    """What fsspec needs to open a store. Its repr hides the values, which may be secrets (Dask logs arguments)."""

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(sorted(self))})"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return StorageOptions, (dict(self),)


def redact(url: str) -> str:
    """The URL without user name, password and query (which may be a signature), chained ones included."""
    url = re.sub(r"://[^/]*@", "://", url)
    return re.sub(r"(https?://[^?]*)\?.*", r"\1", url)


def open_storage(url: str, options: dict[str, Any] | None = None) -> tuple[Any, str]:
    """The file system of a URL and the path inside it. Options are for remote stores; local files need none."""
    protocol = protocol_of(url)
    try:
        with explained(redact(url)):
            fs, path = STORES.get(protocol, Store()).open(url, dict(options or {}))
    except (ImportError, ValueError) as error:
        hint = {"s3": "pip install 'dglmnet[s3]'", "hdfs": "pip install 'dglmnet[hdfs]'"}.get(protocol)
        missing = isinstance(error, ImportError) and hint
        raise UserError(f"{redact(url)}: {error}" + (f". Try: {hint}" if missing else "")) from None
    return fs, path.rstrip("/") or path


# What the system says when the user, not the program, has to do something about it, and what that is.
_REMEDIES = {
    errno.ENOSPC: "make room, or choose another place",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EFBIG: "files may not be so large here: raise the limit (ulimit -f), or choose another place",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.EACCES: "check its permissions or your credentials",
    errno.EPERM: "check its permissions or your credentials",
    errno.ENOTDIR: "a part of its path is a file: choose another place",
    errno.EISDIR: "it is a folder: name a file",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "a symbolic link leads to itself: remove it",
    errno.EIO: "the device does not read or write: check the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EBUSY: "the store is overloaded: try again later",
    errno.EREMOTEIO: "the store failed: try again later",
    errno.ETIMEDOUT: "the store did not answer in time: check the network, or try again later",
    errno.ESTALE: "the network file system lost it: mount it again",
}
_STORE_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "s3fs", "hdfs_native")


def explain(error: BaseException, where: str = "") -> str | None:
    """One sentence with a remedy for what a store or the system says when it refuses or cannot be reached.

    None if the error is of another kind. `where` is shown if the error names no file itself. Without secrets.
    """
    module = type(error).__module__.split(".")[0]
    if isinstance(error, OSError) and (error.errno in _REMEDIES or isinstance(error, PermissionError)):
        place = re.sub(r"\.[0-9a-f]{8}\.tmp$", "", str(error.filename)) if error.filename else where
        remedy = _REMEDIES.get(error.errno or errno.EACCES, "")
        return _sentence(place, error.strerror or str(error) or "permission denied", remedy)
    if isinstance(error, ConnectionError) or module in _STORE_LIBRARIES:
        remedy = "check the address and the network"
        if "Credential" in type(error).__name__:  # of botocore, which need not be installed
            remedy = "pass credentials with --storage-options, the environment (AWS_ACCESS_KEY_ID) or a profile"
        return _sentence(where, str(error).strip() or type(error).__name__, remedy)
    return None


def _sentence(place: str, said: str, remedy: str) -> str:
    """Where, what was said, without secrets and without the stack or the advice behind it, and what to do."""
    line = said.strip().splitlines()[0].rstrip(".:")
    return f"{redact(place)}: {redact(line)}: {remedy}".removeprefix(": ")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn what a store or the system says when it refuses or cannot be reached into one sentence with a remedy."""
    try:
        yield
    except (UserError, FileNotFoundError, FileExistsError, NotADirectoryError):
        raise  # callers know what these mean to them
    except Exception as error:
        what = explain(error, where)
        if what is None:
            raise
        raise (StoreUnreachable if is_unreachable(error) else UserError)(what) from None


def is_unreachable(error: BaseException) -> bool:
    """Did the store not answer at all?"""
    return isinstance(error, ConnectionError) or "Connect" in type(error).__name__


def is_local(fs: Any) -> bool:
    return isinstance(fs, LocalFileSystem)


def display(fs: Any, path: str) -> str:
    """How a path is shown to people and stored: a plain path for local files, a URL without secrets otherwise."""
    return path if is_local(fs) else redact(fs.unstrip_protocol(path))


def real_path(fs: Any, path: str) -> str:
    """One name for a place that has many: on a disk, `..` and links are followed."""
    return os.path.realpath(path) if is_local(fs) else path


def read_ranges(fs: Any, paths: Sequence[str], starts: Sequence[int], stops: Sequence[int]) -> list[bytes]:
    """The bytes [start, stop) of each path. Remote stores are asked for all of them at once, near ones together."""
    if not is_local(fs):
        return _read_remote(fs, list(zip(paths, starts, stops, strict=True)))
    pieces = []
    for path, ranges in groupby(zip(paths, starts, stops, strict=True), key=itemgetter(0)):
        with Path(path).open("rb", buffering=0) as file:
            for _, start, stop in ranges:
                file.seek(start)
                pieces.append(_read_exactly(file, stop - start))
    return pieces


def _read_remote(fs: Any, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """A request costs as much as many kilobytes, so ranges with little between them are read as one."""
    merged: list[tuple[str, int, int]] = []
    home: dict[tuple[str, int, int], int] = {}
    for path, start, stop in sorted(set(ranges)):
        if merged and merged[-1][0] == path and start <= merged[-1][2] + GAP and stop - merged[-1][1] <= REQUEST:
            merged[-1] = (path, merged[-1][1], max(stop, merged[-1][2]))
        else:
            merged.append((path, start, stop))
        home[path, start, stop] = len(merged) - 1
    if not merged:
        return []
    bodies: list[bytes] = fs.cat_ranges(*map(list, zip(*merged, strict=True)), on_error="raise")
    pieces = []
    for path, start, stop in ranges:
        k = home[path, start, stop]
        first = merged[k][1]
        pieces.append(bodies[k][start - first : stop - first])
    return pieces


def read_whole(fs: Any, path: str) -> bytes:
    """All bytes of a file. Where a pipe or a device has its name, nobody waits for it to end."""
    if is_local(fs):
        refuse_pipes(path)
    content: bytes = fs.cat_file(path)
    return content


def read_parquet(fs: Any, path: str) -> pa.Table:
    """A whole Parquet file, decoded by this thread alone.

    Where Arrow's own threads read for it, they let go of the Python object that they read from a moment after the table
    is there; a process that ends in that moment is aborted, its work done (apache/arrow issue 33975).
    """
    return decode_parquet(read_whole(fs, path))


def decode_parquet(content: bytes) -> pa.Table:
    """The same of a file that is in memory. Pages that were written with a checksum are compared with it."""
    with pq.ParquetFile(pa.BufferReader(content), pre_buffer=False, page_checksum_verification=True) as file:
        # Older Arrow cannot read a file without row groups.
        return file.read(use_threads=False) if file.num_row_groups else file.schema_arrow.empty_table()


def _read_exactly(file: Any, size: int) -> bytes:
    """`size` bytes, or fewer at the end of the file: a raw read may return less than asked for."""
    piece: bytes = file.read(size)
    if len(piece) == size or not piece:
        return piece
    pieces = [piece]
    while piece and size > sum(map(len, pieces)):
        piece = file.read(size - sum(map(len, pieces)))
        pieces.append(piece)
    return b"".join(pieces)


class HashingFile:
    """A binary file for writing that keeps the SHA-256 and the size of what went through it."""

    def __init__(self, file: Any) -> None:
        self._file, self._hash, self.size = file, hashlib.sha256(), 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def create_hashed(fs: Any, path: str) -> Iterator[HashingFile]:
    """Write a file and know its checksum."""
    with create_file(fs, path) as raw:
        yield HashingFile(raw)


@contextmanager
def create_file(fs: Any, path: str) -> Iterator[Any]:
    """A file that is there when it is whole, and not before; one of the same name stays until then.

    So two workers may write the same file at the same time: one that was given up for lost may come back.
    """
    with explained(display(fs, path)), store_of(fs).write(fs, path) as file:
        yield file


def sha256_of(fs: Any, path: str) -> str:
    """The checksum of a file. hashlib lets other threads run meanwhile."""
    digest = hashlib.sha256()
    if is_local(fs):
        buffer = memoryview(bytearray(HASHED))
        with Path(path).open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
    else:
        with fs.open(path, "rb", block_size=16 * HASHED) as file:
            while piece := file.read(16 * HASHED):
                digest.update(piece)
    return digest.hexdigest()


def remove(fs: Any, path: str, *, recursive: bool = False) -> None:
    """Delete what may not be there."""
    try:
        fs.rm(path, recursive=recursive)
    except FileNotFoundError:
        return
    finally:
        fs.invalidate_cache()


def create_exclusively(fs: Any, path: str, data: bytes) -> bool:
    """Write a file only if it is not there; False if it is. `data` must differ from what any other writer writes.

    A store may have created the file although the answer was lost and the request was made again, which then finds the
    file there: it is ours if it holds what we wrote.
    """
    with explained(display(fs, path)):
        try:
            store_of(fs).create(fs, path, data)
        except FileExistsError:
            return _holds(fs, path, data)
    return True


def _holds(fs: Any, path: str, data: bytes) -> bool:
    try:
        fs.invalidate_cache()
        return bool(fs.cat_file(path) == data)
    except FileNotFoundError:
        return False


def replace_file(fs: Any, path: str, data: bytes) -> None:
    """Write all of a small file or nothing; those who read meanwhile see the old content or the new."""
    with explained(display(fs, path)):
        store_of(fs).replace(fs, path, data)


def move(fs: Any, source: str, target: str) -> None:
    """Give a file another name, in place of a file that has it."""
    with explained(display(fs, target)):
        store_of(fs).rename(fs, source, target)


def make_folder(fs: Any, path: str) -> None:
    """See to it that files can be written below `path`. A bucket must be there."""
    with explained(display(fs, path)):
        store_of(fs).make_folder(fs, path)


def remove_empty_folder(fs: Any, path: str) -> None:
    """Remove a folder that holds nothing, where the store has folders; leave any other alone."""
    fs.invalidate_cache()
    store_of(fs).remove_empty_folder(fs, path)


@contextmanager
def whole_file(url: str, options: dict[str, Any] | None) -> Iterator[Any]:
    """A file for writing that takes its place, and that of an old one, when it is whole; an error leaves nothing."""
    fs, path = open_storage(url, options)
    temporary = temporary_name(path)
    with explained(display(fs, path)):
        make_folder(fs, path.rpartition("/")[0])
        try:
            with fs.open(temporary, "wb") as file:
                yield file
            move(fs, temporary, path)
        except BaseException:
            discard(fs, temporary)
            raise


def remove_leftovers(fs: Any, folder: str, of: str = "") -> None:
    """Delete what killed writers left of the file `of`, or of all files. Only for who holds the claim on them."""
    fs.invalidate_cache()
    for path in fs.ls(folder, detail=False) if fs.isdir(folder) else []:
        name = path.rstrip("/").rsplit("/", 1)[-1]
        if is_leftover(name) and name.startswith(of):
            remove(fs, path)


def is_plain_name(name: object) -> bool:
    """Is this the name of a file in a folder, and no way out of it?"""
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", name) is not None


def write_json(fs: Any, path: str, content: dict[str, Any]) -> None:
    """Write all of it or nothing."""
    replace_file(fs, path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(fs: Any, path: str) -> dict[str, Any]:
    """A JSON object; ValueError if the file holds anything else."""
    try:
        content = json.loads(read_whole(fs, path))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"expected a JSON object, found {type(content).__name__}")
    return content
