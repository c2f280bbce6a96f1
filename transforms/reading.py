"""How a block is read: as whole lines, in arrays that the parser takes, with a limit on the length of a line.

Time is linear in what is read, and memory bounded: by the block, by a piece of a compressed file, or, where a line is
longer than that, by a small multiple of the limit. A line beyond the limit is not kept: its place is marked.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from dask.utils import format_bytes

from transforms.cancelled import stop_if_cancelled
from transforms.errors import BrokenArchive, UserError
from transforms.inputs import LOCAL, SUFFIXES, Block, InputFile, Span
from transforms.parser import PADDING
from transforms.storage import StorageOptions, explained, is_local, open_storage, read_ranges

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
LONGEST_READ = 16 << 20  # of a line that goes on beyond the tail, read at most this much at a time
MAX_LINE = 1 << 30
SHORTER = "{}: the file became shorter while it was read"


@dataclass(frozen=True)
class Limits:
    """How much text is taken at a time."""

    piece: int  # of a compressed file
    line: int = MAX_LINE  # the longest line that is read


@dataclass
class Text:
    """Whole lines of one file in an array with room behind them, as the parser wants them."""

    array: np.ndarray
    size: int
    file: int = 0  # its position among the files of the block
    flaw: str = ""  # stands in place of the text where one line, or the rest of an archive, could not be read


def read_lines(block: Block, options: StorageOptions, limits: Limits, *, skip: bool = False) -> Iterator[Text]:
    """The lines that a block owns, file by file. With `skip` a broken archive is a flaw; without, an error."""
    if len(block.spans) == 1:
        texts = _read_span(block.spans[0], options, limits, skip)
    else:
        texts = _read_files(block, options, limits, skip)
    for text in texts:
        stop_if_cancelled()
        yield text


def _read_span(span: Span, options: StorageOptions, limits: Limits, skip: bool) -> Iterator[Text]:
    fs, path = open_storage(span.file.url, options)
    with _explained([span]):
        if not span.file.compression:
            yield from _range_lines(fs, path, span, limits.line)
            return
        with fs.open(path, "rb") as raw:
            yield from _decompressed(raw, span.file, limits, skip)


def _read_files(block: Block, options: StorageOptions, limits: Limits, skip: bool) -> Iterator[Text]:
    """Several whole files, one after the other."""
    for position, (span, body) in enumerate(_bodies(block, options)):
        for text in _file_lines(body, span.file, limits, skip):
            text.file = position
            yield text


def _bodies(block: Block, options: StorageOptions) -> Iterator[tuple[Span, bytes]]:
    """Each file's content. A remote store is asked for all of its files at once."""
    for local, members in groupby(block.spans, key=lambda span: span.file.url.startswith(LOCAL)):
        spans = tuple(members)
        yield from _local_bodies(spans) if local else _remote_bodies(spans, options)


def _local_bodies(spans: Sequence[Span]) -> Iterator[tuple[Span, bytes]]:
    """One after the other, without fsspec, which takes longer to open a small file than the disk to read it."""
    for span in spans:
        with _explained([span]), Path(span.file.url.removeprefix(LOCAL)).open("rb", buffering=0) as file:
            body = file.read(span.stop)
        yield span, body


def _remote_bodies(spans: Sequence[Span], options: StorageOptions) -> Iterator[tuple[Span, bytes]]:
    opened = [(span, *open_storage(span.file.url, options)) for span in spans]
    for _, members in groupby(opened, key=lambda one: id(one[1])):
        some, stores, paths = zip(*members, strict=True)
        with _explained(some):
            bodies = read_ranges(stores[0], paths, [0] * len(some), [span.stop for span in some])
        yield from zip(some, bodies, strict=True)


@contextmanager
def _explained(spans: Sequence[Span]) -> Iterator[None]:
    """Turn what a store says of inputs into one sentence."""
    name = spans[0].file.name if len(spans) == 1 else f"{spans[0].file.name} … {spans[-1].file.name}"
    try:
        with explained(name):
            yield
    except FileNotFoundError as error:
        which = "" if len(spans) == 1 else f" ({error})"  # of objects that are read together the store names the one
        raise UserError(
            f"{name}: a worker cannot see it{which}: inputs must be on storage that all workers share, and stay there "
            "while they are read"
        ) from None


def _file_lines(body: bytes, file: InputFile, limits: Limits, skip: bool) -> Iterator[Text]:
    if file.compression:
        yield from _decompressed(io.BytesIO(body), file, limits, skip)
        return
    if len(body) < file.size:
        raise UserError(SHORTER.format(file.name))
    _refuse_binary(body[:8], file.name)
    data = bytearray(body + bytes(PADDING))
    yield from _texts(data, len(BOM) if body.startswith(BOM) else 0, len(body), limits.line)


# --- ranges of plain files ------------------------------------------------------------------------------------------


def _range_lines(fs: Any, path: str, span: Span, limit: int) -> Iterator[Text]:
    """Lines that start in [start, stop): from behind the first newline at or after start - 1 to one past stop."""
    before = 1 if span.start else 0
    reach = min(span.file.size, span.stop + TAIL)
    data, size = _read_padded(fs, path, span.start - before, reach)
    if size < reach - span.start + before:
        raise UserError(SHORTER.format(span.file.name))
    if not span.start:
        _refuse_binary(data[:8], span.file.name)
    first = data.find(b"\n", 0, span.size) + 1 if before else (len(BOM) if data.startswith(BOM) else 0)
    if before and not first:
        return  # the range lies inside one long line
    end = data.find(b"\n", before + span.size - 1, size) + 1
    if not end and reach < span.file.size:
        line = max(first, data.rfind(b"\n", 0, size) + 1)
        del data[size:]
        end = _read_on(fs, path, data, reach, span.file.size, line + limit)
        data += bytes(PADDING)
    yield from _texts(data, first, end or size, limit)


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


def _read_on(fs: Any, path: str, data: bytearray, start: int, size: int, enough: int) -> int:
    """Add to data what follows in the file, up to a newline, or to more than is `enough`. Returns where it ends."""
    step = 16 * TAIL
    while start < size and len(data) <= enough:
        stop_if_cancelled()
        piece = read_ranges(fs, [path], [start], [min(size, start + step)])[0]
        end = piece.find(b"\n") + 1
        data += piece[:end] if end else piece
        if end or not piece:
            break
        start, step = start + len(piece), min(2 * step, LONGEST_READ)
    return len(data)


def _texts(data: bytearray, start: int, end: int, limit: int) -> Iterator[Text]:
    """The lines data[start:end], PADDING behind them, in one text; cut where a line is longer than the limit."""
    at = start
    while end - at > limit:
        newline = data.rfind(b"\n", at, at + limit + 1)
        if newline >= 0:
            at = newline + 1
            continue
        if at > start:
            yield _text(memoryview(data)[start:at])
        yield _flaw(_too_long(limit))
        start = at = data.find(b"\n", at + limit, end) + 1 or end
    if end > start:
        yield Text(np.frombuffer(data, dtype=np.uint8)[start:], end - start)


def _text(piece: memoryview) -> Text:
    array = np.empty(len(piece) + PADDING, dtype=np.uint8)
    array[: len(piece)] = np.frombuffer(piece, dtype=np.uint8)
    return Text(array, len(piece))


def _flaw(what: str) -> Text:
    return Text(np.zeros(PADDING, dtype=np.uint8), 0, flaw=what)


def _too_long(limit: int) -> str:
    return f"the line is longer than {format_bytes(limit)}: if it is meant to be, allow more with --max-line"


def _refuse_binary(head: bytes | bytearray, name: str) -> None:
    for magic, suffix in MAGIC.items():
        if head.startswith(magic):
            raise UserError(f"{name}: not text, it looks like a {suffix} file" + _advice(suffix))


def _advice(suffix: str) -> str:
    return f": rename it to end in {suffix} so that it is decompressed" if suffix in SUFFIXES else ""


# --- compressed files -----------------------------------------------------------------------------------------------


def _decompressed(raw: Any, file: InputFile, limits: Limits, skip: bool) -> Iterator[Text]:
    """Pieces of about limits.piece, each of whole lines. What comes out before a break in the archive is given out."""
    lines = _Lines(limits.line)
    broken: BrokenArchive | None = None
    with _decompressor(raw, file.compression) as stream:
        while True:
            stop_if_cancelled()
            try:
                piece = _read_compressed(stream, limits.piece, file.name)
            except BrokenArchive as error:
                broken = error
                break
            if not piece:
                lines.finish()
                break
            lines.add(piece)
            if lines.too_long:
                yield from lines.drop()
            elif lines.size >= limits.piece:
                yield from lines.take()
        yield from lines.take()
    if broken is not None:
        if not skip:
            raise broken
        yield _flaw(broken.what)


class _Lines:
    """Text that arrives in pieces and is handed out in whole lines. Nothing is searched or copied over and over."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept, self._whole = bytearray(), 0  # not handed out yet, and how much of it is whole lines
        self._begun = self._dropping = False  # dropping: inside a line that was too long

    @property
    def size(self) -> int:
        return len(self._kept)

    @property
    def too_long(self) -> bool:
        return self.size - self._whole > self._limit

    def add(self, piece: bytes) -> None:
        if self._dropping:
            end = piece.find(b"\n") + 1
            self._dropping, piece = not end, piece[end:] if end else b""
        newline = piece.rfind(b"\n") + 1
        if newline:
            self._whole = self.size + newline
        self._kept += piece

    def finish(self) -> None:
        """Nothing follows: the last line is whole, even without a newline."""
        self._whole = self.size

    def take(self) -> Iterator[Text]:
        """The whole lines that there are."""
        data, end = self._kept, self._whole
        start = len(BOM) if not self._begun and data.startswith(BOM) else 0
        if not end:
            return
        self._kept, self._whole, self._begun = data[end:], 0, True
        del data[end:]
        data += bytes(PADDING)
        yield from _texts(data, start, end, self._limit)

    def drop(self) -> Iterator[Text]:
        """The whole lines, and a mark in place of the one behind them, which is too long; its end is still to come."""
        yield from self.take()
        yield _flaw(_too_long(self._limit))
        self._kept, self._begun, self._dropping = bytearray(), True, True


def _decompressor(raw: Any, kind: str | None) -> Any:
    if kind == "zstd":
        return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
    openers: dict[str | None, Any] = {"gzip": gzip.open, "bz2": bz2.open, "xz": lzma.open}
    return openers[kind](raw, "rb")


def _read_compressed(stream: Any, size: int, name: str) -> bytes:
    try:
        data: bytes = stream.read(min(size, READ))
    except (EOFError, OSError, lzma.LZMAError, ValueError, zlib.error) as error:
        raise BrokenArchive(name, f"damaged or cut-off archive: {error}. Fetch or compress it again") from None
    return data
