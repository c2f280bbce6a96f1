"""Inputs of a conversion: which files there are, and how they are cut into blocks. Blocks are read in reading.py.

A plain file is cut into byte ranges. A range owns the lines that *start* in it, so ranges can be cut anywhere,
even inside a line, and every line belongs to exactly one. A compressed file is not cut. Small files that follow one
another make one block together: a task costs as much as some thousand lines.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from transforms.errors import UserError
from transforms.folders import dead_link, is_hidden, matching_files, named_files
from transforms.storage import StorageOptions, display, explained, is_local, open_storage

SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
LOCAL = "file://"  # how URLs of local files begin
COMPRESSION = 5  # how much larger compressed text usually is when unpacked
FILES = 1000  # at most so many in a block: their names travel with the task


@dataclass(frozen=True)
class InputFile:
    """A file of the input and what tells whether it is still the same file later."""

    url: str = field(repr=False)  # opens it again; may hold a password
    name: str  # for people and for dataset.json
    size: int
    version: str  # etag or modification time

    @property
    def compression(self) -> str | None:
        return next((kind for suffix, kind in SUFFIXES.items() if self.name.endswith(suffix)), None)

    def identity(self) -> dict[str, Any]:
        return {"path": self.name, "size": self.size, "version": self.version}


@dataclass(frozen=True)
class Span:
    """A byte range of a plain file, or a whole compressed one."""

    file: InputFile
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Block:
    """What one task reads: a span of a file, or several whole files that follow one another in the input."""

    index: int
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        return sum(span.size for span in self.spans)

    @property
    def compressed(self) -> bool:
        return any(span.file.compression for span in self.spans)

    @property
    def continues(self) -> bool:
        """Does it start inside a file, so that lines of the file stand in blocks before it?"""
        return self.spans[0].start > 0


def find_inputs(urls: Sequence[str], options: StorageOptions) -> list[InputFile]:
    """Files, globs and folders as the files they stand for, in a stable order, each once."""
    found: dict[str, InputFile] = {}
    stores: set[int] = set()
    for url in urls:
        fs, path = open_storage(url, options)
        if id(fs) not in stores:
            fs.invalidate_cache()  # a listing from before may be out of date
            stores.add(id(fs))
        path = os.path.normpath(path) if is_local(fs) else path
        with explained(display(fs, path)):
            infos = _matches(fs, path)
        for info in infos:
            path = info["name"]
            url, name = (LOCAL + path, path) if is_local(fs) else (fs.unstrip_protocol(path), display(fs, path))
            found.setdefault(name, InputFile(url, name, info["size"], _version(info)))
    return list(found.values())


def _matches(fs: Any, path: str) -> list[dict[str, Any]]:
    pattern = any(c in path for c in "*?[") and not fs.exists(path)
    try:
        entries = _local_matches(fs, path, pattern) if is_local(fs) else _remote_matches(fs, path, pattern)
    except FileNotFoundError:
        dead = dead_link(path) if is_local(fs) else ""
        reason = dead or _missing_bucket(fs, path) or f"no such file or folder{_nearest(fs, path)}"
        raise UserError(f"{display(fs, path)}: {reason}") from None
    if not entries:
        reason = _missing_bucket(fs, path) or ("nothing matches" if pattern else _nothing_in(fs, path))
        raise UserError(f"{display(fs, path)}: {reason}")
    return entries


def _local_matches(fs: Any, path: str, pattern: bool) -> list[dict[str, Any]]:
    if not pattern:
        return named_files(path)
    return [info for name in sorted(fs.glob(path)) for info in matching_files(name)]


def _remote_matches(fs: Any, path: str, pattern: bool) -> list[dict[str, Any]]:
    if pattern:
        infos = fs.glob(path, detail=True)
        return [entry for name in sorted(infos) for entry in _files(fs, infos[name])]
    if fs.isdir(path):
        return _files(fs, {"name": path, "type": "directory"})
    return [fs.info(path)]


def _missing_bucket(fs: Any, path: str) -> str:
    """What to say if it is the bucket that is not there."""
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    bucket = path.split("/")[0]
    return "" if "s3" not in protocols or fs.exists(bucket) else f"there is no bucket {bucket}"


def _nothing_in(fs: Any, path: str) -> str:
    """Why a folder has no inputs: it is empty, or all names in it are passed over."""
    names = sorted(str(name).rsplit("/", 1)[-1] for name in fs.ls(path, detail=False))
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    if names:
        return f"nothing matches (names that start with _ or . are passed over: {shown})"
    return "the folder is empty: pass files of LIBSVM text, or the folder that holds them"


def _nearest(fs: Any, path: str) -> str:
    """The name in the same local folder that may have been meant."""
    folder = Path(path).parent
    names = [entry.name for entry in folder.iterdir()] if is_local(fs) and folder.is_dir() else []
    near = difflib.get_close_matches(Path(path).name, names, 1)
    return f". Did you mean {folder / near[0]}?" if near else ""


def _files(fs: Any, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """A file itself, or the files of a folder and those below it."""
    if entry["type"] != "directory":
        return [entry]
    infos = fs.find(entry["name"], detail=True)
    return [infos[name] for name in sorted(infos) if not _hidden(name[len(entry["name"]) :])]


def _hidden(relative: str) -> bool:
    return any(is_hidden(part) for part in relative.strip("/").split("/"))


def _version(info: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "mtime", "LastModified", "last_modified", "modification_time"):
        value = info.get(key)
        if value is not None:
            return value.isoformat() if isinstance(value, datetime) else str(value).strip('"')
    return ""


def cut_blocks(files: Sequence[InputFile], block_size: int) -> list[Block]:
    """Blocks of about block_size: all ranges of a file alike, small files together; an empty file is in none."""
    blocks: list[tuple[Span, ...]] = []
    group: list[Span] = []
    room = block_size
    for file in files:
        size = file.size * (COMPRESSION if file.compression else 1)  # of the text, as far as one can tell
        if group and (size > room or len(group) == FILES):
            blocks.append(tuple(group))
            group, room = [], block_size
        if size > block_size:
            blocks += [(span,) for span in _ranges(file, block_size)]
        elif size:
            group.append(Span(file, 0, file.size))
            room -= size
    blocks += [tuple(group)] if group else []
    return [Block(index, spans) for index, spans in enumerate(blocks)]


def _ranges(file: InputFile, block_size: int) -> list[Span]:
    count = 1 if file.compression else -(-file.size // block_size)
    return [Span(file, file.size * k // count, file.size * (k + 1) // count) for k in range(count)]
