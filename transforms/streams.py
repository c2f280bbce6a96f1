"""Inputs that can be read once only: standard input, pipes, what a shell's <(...) stands for.

Text is read by several tasks, ranges of it out of order, and more than once where examples are held out. So a stream is
copied to a temporary file first, a piece at a time, and the file goes away with the command. Workers on other machines
do not see it.
"""

from __future__ import annotations

import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from transforms.errors import OutputExists, UserError
from transforms.inputs import SUFFIXES

STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
PIECE = 1 << 20
PREFIX = "dglmnet-"  # of the folder that streams are copied to
EARLIER = re.compile(rf"[^\s'\[(]*/{PREFIX}[^/\s]+/standard-input[\w.-]*")
NOT_KEPT = ". A stream is not kept, so it cannot be told whether it is the same: from a file the same command goes on"
MAGIC = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00", "zstd": b"\x28\xb5\x2f\xfd"}


def is_stream(url: str) -> bool:
    """Can this be read only once?"""
    if url in STDIN:
        return True
    if "://" in url:
        return False
    try:
        mode = Path(url).stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


@contextmanager
def spooled(urls: Sequence[str], scheduler: str | None = None) -> Iterator[list[str]]:
    """The inputs, with files in place of streams for as long as the block lasts.

    scheduler: that of a cluster whose workers are to read them; streams are refused then.
    """
    streams = [url for url in urls if is_stream(url)]
    if not streams:
        yield list(urls)
        return
    _refuse(streams, scheduler)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        files = [_spool(url, Path(folder), k) if is_stream(url) else url for k, url in enumerate(urls)]
        with _told_by_their_names(dict(zip(files, urls, strict=True))):
            yield files


@contextmanager
def _told_by_their_names(urls: dict[str, str]) -> Iterator[None]:
    """Errors and warnings speak of the stream, not of the file that it was copied to, now or by an earlier command."""

    def told(text: str) -> str:
        for file, url in urls.items():
            text = text.replace(file, _name(url))
        return EARLIER.sub("standard input", text)

    shown = warnings.showwarning
    warnings.showwarning = lambda message, *rest, **more: shown(_with_text(message, told), *rest, **more)
    try:
        yield
    except UserError as error:
        if isinstance(error, OutputExists) and told(str(error)) != str(error):
            error.what += NOT_KEPT
        error.args = tuple(told(one) if isinstance(one, str) else one for one in error.args)
        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, told(value))
        raise
    finally:
        warnings.showwarning = shown


def _with_text(message: Warning | str, told: Callable[[str], str]) -> Warning | str:
    return told(message) if isinstance(message, str) else type(message)(told(str(message)))


def _refuse(streams: Sequence[str], scheduler: str | None) -> None:
    """What cannot be read here, or not by those who are to read it."""
    if scheduler is not None:
        raise UserError(
            f"{_name(streams[0])}: the workers of a cluster cannot read it: write it to a file that they all see, and "
            "pass that"
        )
    if sum(url in STDIN for url in streams) > 1 or len(set(streams)) < len(streams):
        raise UserError(f"{_name(streams[0])}: it can be read once only, and is given twice: write it to a file")
    if any(url in STDIN for url in streams) and sys.stdin is None:
        raise UserError("standard input is closed: pipe text into the command, or pass a file")
    if any(url in STDIN for url in streams) and sys.stdin.isatty():
        raise UserError("standard input is a terminal: pipe text into the command, or pass a file")


def _name(url: str) -> str:
    return "standard input" if url in STDIN else url


def _spool(url: str, folder: Path, position: int) -> str:
    """Copy a stream to a file, whose name says where it came from and, by its suffix, how it is compressed."""
    name = f"{'standard-input' if url in STDIN else Path(url).name}{f'-{position}' if position else ''}"
    if url in STDIN:
        return _copy(sys.stdin.buffer, folder, name)
    try:
        with Path(url).open("rb") as stream:
            return _copy(stream, folder, name)
    except OSError as error:
        raise UserError(f"{url}: cannot be read: {error.strerror or error}") from None


def _copy(stream: BinaryIO, folder: Path, name: str) -> str:
    piece = stream.read(PIECE)
    kind = next((kind for kind, magic in MAGIC.items() if piece.startswith(magic)), None)
    suffix = next((suffix for suffix, named in SUFFIXES.items() if named == kind), "")
    path = folder / f"{name}{suffix}"
    try:
        with path.open("wb") as file:
            while piece:
                file.write(piece)
                piece = stream.read(PIECE)
    except OSError as error:
        where = tempfile.gettempdir()
        reason = error.strerror or str(error)
        raise UserError(
            f"{where}: {reason}: what comes through a pipe waits there; TMPDIR names another place"
        ) from None
    return str(path)
