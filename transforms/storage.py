"""Files by URL, through fsspec: the one place that opens storage. Secrets stay inside `Storage`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from transforms.errors import UserError

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
    local = "://" not in url or url.startswith(("file://", "local://"))
    try:
        fs, path = fsspec.url_to_fs(url, **({} if local else dict(options or {})))
    except (ImportError, ValueError) as error:
        hint = {"s3": "pip install 'dglmnet[s3]'", "hdfs": "pip install 'dglmnet[hdfs]'"}.get(url.split("://")[0])
        raise UserError(f"{redact(url)}: {error}" + (f". Try: {hint}" if hint else "")) from None
    return fs, path.rstrip("/") or path


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn what a store says when it refuses or cannot be reached into one sentence with a remedy."""
    try:
        yield
    except PermissionError as error:
        raise UserError(f"{where}: permission denied: check its permissions or your credentials. {error}") from None
    except Exception as error:
        module = type(error).__module__.split(".")[0]
        if module not in ("botocore", "aiobotocore", "aiohttp", "hdfs_native"):
            raise
        remedy = "check the address and the network"
        if "credential" in f"{type(error).__name__} {error}".lower():
            remedy = "pass credentials with --storage-options, the environment (AWS_ACCESS_KEY_ID) or a profile"
        raise UserError(f"{where}: {error}: {remedy}") from None


def is_local(fs: Any) -> bool:
    return isinstance(fs, LocalFileSystem)


def display(fs: Any, path: str) -> str:
    """How a path is shown to people and stored: a plain path for local files, a URL without secrets otherwise."""
    return path if is_local(fs) else redact(fs.unstrip_protocol(path))


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


def read_parquet(fs: Any, path: str) -> pa.Table:
    """A whole Parquet file, decoded by this thread alone.

    Where Arrow's own threads read for it, they let go of the Python object that they read from a moment after the table
    is there; a process that ends in that moment is aborted, its work done (apache/arrow issue 33975).
    """
    return decode_parquet(fs.cat_file(path))


def decode_parquet(content: bytes) -> pa.Table:
    """The same of a file that is in memory."""
    with pq.ParquetFile(pa.BufferReader(content), pre_buffer=False) as file:
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
    """Write a file and know its checksum. An error leaves no file behind that looks whole."""
    try:
        with fs.open(path, "wb") as raw:
            file = HashingFile(raw)
            yield file
    except BaseException:
        remove(fs, path)
        raise


def sha256_of(fs: Any, path: str, chunk: int = 8 << 20) -> str:
    digest = hashlib.sha256()
    with fs.open(path, "rb") as file:
        while piece := file.read(chunk):
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


def write_json(fs: Any, path: str, content: dict[str, Any]) -> None:
    """Write all of it or nothing: by renaming on a disk; object stores show an object only when it is whole."""
    data = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
    if is_local(fs):
        temporary = Path(path + ".tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    else:
        fs.pipe_file(path, data)


def read_json(fs: Any, path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(fs.cat_file(path))
    return content
