"""From blocks of text to parsed examples: the one reader, of conversions and of scoring alike.

Blocks, compression, encodings, long lines and bad lines are the same whatever a line says; how a line is parsed is the
format's affair. A new format of text is one entry of FORMATS.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from transforms.errors import BadLine, UserError
from transforms.inputs import SUFFIXES, Block, InputFile
from transforms.parser import BAD_ID, BAD_LABEL, NO_COLON, BadSpot, Parsed, bad_line, parse, trimmed
from transforms.reading import MAX_LINE, Limits, Text, read_lines
from transforms.storage import StorageOptions

BAD_LINES_NAMED = 10


class Parse(Protocol):
    """Parse text[:stop], whole lines; see transforms.parser.parse."""

    def __call__(self, text: np.ndarray, stop: int, *, zero_based: bool, bad_lines: int) -> Parsed: ...


@dataclass(frozen=True)
class Format:
    """A way to write examples, one a line."""

    name: str
    suffix: str  # of names of files, before that of a compression; "" fits all
    parse: Parse


FORMATS: tuple[Format, ...] = (Format("LIBSVM", "", parse),)  # the first whose suffix fits counts


def format_of(file: InputFile) -> Format:
    """The format of a file, by its name."""
    name = file.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return next(one for one in FORMATS if name.endswith(one.suffix))


class BadSpotFound(UserError):
    """A bad line, its number counted from the start of its block: the driver knows where that is."""

    def __init__(self, block: int, spot: BadSpot) -> None:
        super().__init__(block, spot)
        self.block, self.spot = block, spot


def located(block: Block, spot: BadSpot, lines_before: int) -> BadLine:
    """The bad line with its number in the file, given how many lines of the file stand before the block."""
    name = block.spans[spot.file].file.name
    return BadLine(name, spot.line + lines_before, spot.column, spot.text, spot.expected, looks_like(spot))


AS_LIBSVM = "write lines as '1 3:0.5 7:1', a label and id:value pairs"


def looks_like(spot: BadSpot) -> str:
    """What a line seems to be instead of LIBSVM text, and what to do; nothing where that cannot be said."""
    text = spot.text
    if spot.code == BAD_LABEL and text[:1] in ("{", "["):
        return f"It looks like JSON: {AS_LIBSVM}"
    if spot.code == BAD_LABEL and ("," in text or ";" in text):
        return f"It looks like CSV: {AS_LIBSVM}"
    if spot.code == BAD_LABEL and text[:1].isalpha():
        return "Labels are numbers: write 1 for one of the two classes and 0 or -1 for the other"
    if spot.code == BAD_ID and text.startswith("|"):
        return f"It looks like Vowpal Wabbit's format: {AS_LIBSVM}"
    if spot.code == BAD_ID and text[:1].isalpha():
        return "Features have numbers: number them, and keep their names in a file for --feature-names"
    if spot.code in (NO_COLON, BAD_ID) and text[:1] in "0123456789.+-" and ":" not in text:
        return f"It looks like a table of values without ids: {AS_LIBSVM}"
    return ""


def check_reading(on_bad_line: str, max_line_bytes: int) -> None:
    """Refuse options by which nothing can be read."""
    if on_bad_line not in ("raise", "skip"):
        raise UserError(f"on_bad_line must be raise or skip, got {on_bad_line!r}")
    if max_line_bytes < 1:
        raise UserError(f"the longest line must be at least 1 byte, got {max_line_bytes}")


@dataclass(frozen=True)
class Piece:
    """What was parsed of one file of a block: all of it, or, of a large compressed one, a part."""

    file: int  # its position among the files of the block
    parsed: Parsed


@dataclass(frozen=True)
class Reader:
    """How text becomes examples. It is small, and travels with every task."""

    piece_bytes: int  # of a compressed file, taken at a time
    zero_based: bool = False
    on_bad_line: str = "raise"  # or "skip"
    max_line_bytes: int = MAX_LINE  # a longer line is a bad one

    def __post_init__(self) -> None:
        check_reading(self.on_bad_line, self.max_line_bytes)

    def pieces(self, block: Block, options: StorageOptions) -> Iterator[Piece]:
        """Read a block and parse it; bad lines are counted and the first of them noted, or the first one is raised."""
        skip = self.on_bad_line == "skip"
        file = lines = 0
        for text in read_lines(block, options, self._limits, skip=skip):
            if text.file != file:
                file, lines = text.file, 0
            parsed = self._parse(text, block.spans[file].file)
            # The parser counts lines from the piece of text it is given; people count them from the file's start.
            spots = [replace(spot, line=spot.line + lines, file=file) for spot in parsed.bad]
            if spots and not skip:
                raise BadSpotFound(block.index, spots[0])
            lines += parsed.lines
            parsed = replace(parsed, bad=spots)
            yield Piece(file, trimmed(parsed) if len(block.spans) > 1 else parsed)

    def count_lines(self, block: Block, options: StorageOptions) -> int:
        """Lines that start in a plain block."""
        return sum(_count_lines(text) for text in read_lines(block, options, self._limits))

    @property
    def _limits(self) -> Limits:
        return Limits(self.piece_bytes, self.max_line_bytes)

    def _parse(self, text: Text, file: InputFile) -> Parsed:
        if text.flaw:
            return bad_line(text.flaw)
        keep = BAD_LINES_NAMED if self.on_bad_line == "skip" else 1
        return format_of(file).parse(text.array, text.size, zero_based=self.zero_based, bad_lines=keep)


def _count_lines(text: Text) -> int:
    if text.flaw:
        return 1
    unfinished = text.size > 0 and text.array[text.size - 1] != ord("\n")
    return int(np.count_nonzero(text.array[: text.size] == ord("\n"))) + int(unfinished)
