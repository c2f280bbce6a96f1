"""Inputs of a conversion: which files there are, how they are cut into blocks, and how a block is read.

A plain file is cut into byte ranges. A range owns the lines that *start* in it, so ranges can be cut anywhere,
even inside a line, and every line belongs to exactly one. A compressed file is one block, read in pieces.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.errors import BrokenArchive, UserError
from transforms.parser import PADDING
from transforms.storage import StorageOptions, display, explained, is_local, open_storage, read_ranges

SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
MAGIC = {
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\x00": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PAR1": ".parquet",
}
BOM = b"\xef\xbb\xbf"
READ = 1 << 20  # decompress this much at a time: what is lost at a break
TAIL = 1 << 16  # read this much past a range, to find the end of its last line in the same request


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
class Block:
    """A byte range of a plain file, or a whole compressed one."""

    index: int
    file: InputFile
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def find_inputs(urls: Sequence[str], options: StorageOptions) -> list[InputFile]:
    """Files, globs and folders as the files they stand for, in a stable order, each once."""
    found: dict[str, InputFile] = {}
    for url in urls:
        fs, path = open_storage(url, options)
        path = os.path.normpath(path) if is_local(fs) else path
        with explained(display(fs, path)):
            infos = _matches(fs, path)
        for info in infos:
            file = InputFile(fs.unstrip_protocol(info["name"]), display(fs, info["name"]), info["size"], _version(info))
            found.setdefault(file.name, file)
    return list(found.values())


def _matches(fs: Any, path: str) -> list[dict[str, Any]]:
    try:
        if any(c in path for c in "*?[") and not fs.exists(path):
            infos = fs.glob(path, detail=True)
            entries = [entry for name in sorted(infos) for entry in _files(fs, infos[name])]
        elif fs.isdir(path):
            entries = _files(fs, {"name": path, "type": "directory"})
        else:
            entries = [fs.info(path)]
    except FileNotFoundError:
        raise UserError(f"{display(fs, path)}: no such file or folder{_nearest(fs, path)}") from None
    if not entries:
        raise UserError(f"{display(fs, path)}: nothing matches")
    # A listing shows a local link's own date, not its target's; asking again costs nothing there.
    return [fs.info(entry["name"]) for entry in entries] if is_local(fs) else entries


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
    """Names that systems put beside data: _SUCCESS, _temporary, .part-0.crc."""
    return any(part.startswith(("_", ".")) for part in relative.strip("/").split("/"))


def _version(info: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "mtime", "LastModified", "last_modified", "modification_time"):
        value = info.get(key)
        if value is not None:
            return value.isoformat() if isinstance(value, datetime) else str(value).strip('"')
    return ""


def cut_blocks(files: Sequence[InputFile], block_size: int) -> list[Block]:
    """Byte ranges of about block_size, all ranges of a file alike; an empty file has none."""
    blocks: list[Block] = []
    for file in files:
        count = 1 if file.compression else -(-file.size // block_size)
        for k in range(count if file.size else 0):
            blocks.append(Block(len(blocks), file, file.size * k // count, file.size * (k + 1) // count))
    return blocks


@dataclass
class Text:
    """Whole lines in an array with room behind them, as the parser wants them."""

    array: np.ndarray
    size: int


def read_lines(block: Block, options: StorageOptions, piece_size: int) -> Iterator[Text]:
    """The lines that a block owns: in one piece, or piece by piece when the file is compressed."""
    fs, path = open_storage(block.file.url, options)
    if block.file.compression:
        yield from _decompressed(fs, path, block.file, piece_size)
    else:
        yield _range_lines(fs, path, block)


def _range_lines(fs: Any, path: str, block: Block) -> Text:
    """Lines that start in [start, stop): from behind the first newline at or after start - 1 to one past stop."""
    before = 1 if block.start else 0
    reach = min(block.file.size, block.stop + TAIL)
    data, size = _read_padded(fs, path, block.start - before, reach)
    if size < reach - block.start + before:
        raise UserError(f"{block.file.name}: the file became shorter while it was read")
    if not block.start:
        _refuse_binary(data[:8], block.file.name)
    first = data.find(b"\n", 0, block.size) + 1 if before else (len(BOM) if data.startswith(BOM) else 0)
    if before and not first:
        return _text([b""])  # the range lies inside one long line
    last = data.find(b"\n", before + block.size - 1, size)
    if last >= 0 or reach == block.file.size:
        end = last + 1 if last >= 0 else size
        return Text(np.frombuffer(data, dtype=np.uint8)[first:], end - first)
    return _text([data[first:size], *_rest_of_line(fs, path, reach, block.file.size)])


def _read_padded(fs: Any, path: str, start: int, stop: int) -> tuple[bytearray, int]:
    """The bytes [start, stop) with PADDING behind them, and how many there were."""
    if not is_local(fs):
        piece = read_ranges(fs, [path], [start], [stop])[0]
        return bytearray(piece + bytes(PADDING)), len(piece)
    data = bytearray(stop - start + PADDING)
    view, size = memoryview(data)[: stop - start], 0
    with Path(path).open("rb", buffering=0) as file:
        file.seek(start)
        while size < len(view) and (count := file.readinto(view[size:])):
            size += count
    return data, size


def _rest_of_line(fs: Any, path: str, start: int, size: int) -> Iterator[bytes]:
    step = 16 * TAIL
    while start < size:
        piece = read_ranges(fs, [path], [start], [min(size, start + step)])[0]
        end = piece.find(b"\n") + 1
        yield piece[:end] if end else piece
        if end or not piece:
            return
        start += len(piece)


def _text(pieces: Sequence[Any]) -> Text:
    size = sum(len(piece) for piece in pieces)
    array = np.empty(size + PADDING, dtype=np.uint8)
    at = 0
    for piece in pieces:
        array[at : at + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        at += len(piece)
    return Text(array, size)


def _refuse_binary(head: bytearray, name: str) -> None:
    for magic, suffix in MAGIC.items():
        if head.startswith(magic):
            raise UserError(f"{name}: not text, it looks like a {suffix} file" + _advice(suffix))


def _advice(suffix: str) -> str:
    return f": rename it to end in {suffix} so that it is decompressed" if suffix in SUFFIXES else ""


def _decompressed(fs: Any, path: str, file: InputFile, piece_size: int) -> Iterator[Text]:
    """Pieces of about piece_size, each of whole lines. What comes out before a break in the archive is given out."""
    first, kept = True, bytearray()
    with fs.open(path, "rb") as raw, _decompressor(raw, file.compression) as stream:
        broken: BrokenArchive | None = None
        while broken is None:
            try:
                piece = _read_compressed(stream, piece_size, file.name)
            except BrokenArchive as error:
                broken, piece = error, b""
            kept += piece
            if piece and len(kept) < piece_size:
                continue
            # At the end of the file the last newline may be missing; at a break the last line is not whole.
            end = len(kept) if not piece and broken is None else kept.rfind(b"\n") + 1
            if end:
                text = _text([memoryview(kept)[:end]])
                yield _without_bom(text) if first else text
                first, kept = False, kept[end:]
            if not piece and broken is None:
                return
        raise broken


def _without_bom(text: Text) -> Text:
    marked = text.array[: min(text.size, len(BOM))].tobytes() == BOM
    return Text(text.array[len(BOM) :], text.size - len(BOM)) if marked else text


def _decompressor(raw: Any, kind: str | None) -> Any:
    if kind == "zstd":
        return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
    openers: dict[str | None, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    return openers[kind](raw, "rb")


def _read_compressed(stream: Any, size: int, name: str) -> bytes:
    try:
        data: bytes = stream.read(min(size, READ))
    except (EOFError, OSError, lzma.LZMAError, ValueError, zlib.error) as error:
        raise BrokenArchive(f"{name}: damaged or cut-off archive: {error}. Fetch or compress it again") from None
    return data
