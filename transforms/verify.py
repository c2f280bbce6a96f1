"""What is read of a data set is what its dataset.json says, or reading stops.

A file is hashed once for each opening of the data set in each process that reads it, by the thread that is about to
decode it. From then on it is known by its identity (size, time and inode on a disk, etag in a bucket). A file of
another identity is hashed again, so that a copy of the same bytes may take its place, and nothing else. The identity is
looked at once more after reading, so that a file which is replaced or written to in the meantime does not pass.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from transforms.folders import refuse_pipes
from transforms.storage import is_local, read_whole, sha256_of

WHOLE = 256 << 20  # a remote file up to this size is fetched once, hashed, and decoded from memory
REMEMBERED = 1 << 16  # files of which a process keeps the identity
_KEYS = ("size", "ETag", "etag", "version_id", "LastModified", "last_modified", "mtime", "modification_time", "created")

Identity = tuple[Any, ...]


class Changed(ValueError):
    """A file that is not the one that dataset.json describes."""


@dataclass(frozen=True)
class Expected:
    """What dataset.json says of a file, and the opening of the data set that it was said in."""

    bytes: int
    sha256: str
    session: str


_known: OrderedDict[tuple[str, str], Identity] = OrderedDict()


@contextmanager
def verified(fs: Any, path: str, expected: Expected) -> Iterator[pa.NativeFile]:
    """The file, for Arrow to read from. It has the size and the checksum expected, when it is opened and at the end."""
    before = identity_of(fs, path)
    if _known.get((expected.session, path)) == before:
        source = _opened(fs, path)
    else:
        _refuse_other_size(before[0], expected)
        source = _hashed(fs, path, expected)
        refuse_changed(fs, path, before)
        _remember(path, expected, before)
    with source:
        yield source
    refuse_changed(fs, path, before)


@contextmanager
def unhashed(fs: Any, path: str, expected: Expected) -> Iterator[pa.NativeFile]:
    """The file, for a reader that checks what it reads by another checksum: only size and identity are looked at."""
    before = identity_of(fs, path)
    _refuse_other_size(before[0], expected)
    with _opened(fs, path) as source:
        yield source
    refuse_changed(fs, path, before)


def _hashed(fs: Any, path: str, expected: Expected) -> pa.NativeFile:
    """The file, once it was hashed: to be read again, or in memory if it had to be fetched."""
    if is_local(fs) or expected.bytes > WHOLE:
        _refuse_other_hash(sha256_of(fs, path), expected)
        return _opened(fs, path)
    content = fs.cat_file(path)
    _refuse_other_hash(hashlib.sha256(content).hexdigest(), expected)
    return pa.BufferReader(content)


def read_verified(fs: Any, path: str, expected: Expected) -> bytes:
    """All of a small file: the very bytes that were hashed."""
    content = read_whole(fs, path)
    _refuse_other_size(len(content), expected)
    _refuse_other_hash(hashlib.sha256(content).hexdigest(), expected)
    return content


def identity_of(fs: Any, path: str) -> Identity:
    """What tells a file from another of the same name, and from itself before it was written to; its size first."""
    if is_local(fs):
        refuse_pipes(path)
        found = Path(path).stat()
        return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev
    fs.invalidate_cache()
    info = fs.info(path)
    return tuple(str(info.get(key)) if key != "size" else info["size"] for key in _KEYS)


def refuse_changed(fs: Any, path: str, before: Identity) -> None:
    if identity_of(fs, path) != before:
        raise Changed("it was replaced or written to while it was read")


def _opened(fs: Any, path: str) -> pa.NativeFile:
    return pa.OSFile(path) if is_local(fs) else pa.PythonFile(fs.open(path, "rb", cache_type="none"), "r")


def _remember(path: str, expected: Expected, identity: Identity) -> None:
    _known[expected.session, path] = identity
    if len(_known) > REMEMBERED:
        _known.popitem(last=False)


def _refuse_other_size(size: int, expected: Expected) -> None:
    if size != expected.bytes:
        raise Changed(f"{size} bytes, expected {expected.bytes}")


def _refuse_other_hash(sha256: str, expected: Expected) -> None:
    if sha256 != expected.sha256:
        raise Changed("its checksum differs: the file was changed or damaged")
