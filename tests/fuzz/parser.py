"""A fuzzer for the parser: what it reads must be what the slow reader of tests/reference.py reads, and nothing beyond.

    python -m tests.fuzz.parser [--cases N] [--seed S] [--first K] [--bounds-check]

Cases come in three flavours in turn: the text ends right before a page that cannot be read (with the padding that the
parser may touch), it starts right behind one, or it stands in an array of numpy's. With --bounds-check the parser is
compiled so that every index into an array is checked. The work is done in a process of its own: a read beyond the text
kills it, and the case is named. A case is fixed by its seed and number.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from tests.fuzz.lines import make_text
from tests.reference import NotLibsvm, read_line
from transforms.parser import PADDING, Parsed, padded, parse

ROOT = Path(__file__).resolve().parents[2]
ROOM = 1 << 18  # for a text; longer ones stand in an array
KEPT = 10  # bad lines that the parser is asked to note
PROT_NONE = 0

Row = tuple[float, float | None, dict[int, float]]


class Difference(AssertionError):
    """The parser and the reference do not agree."""


# --- memory with an edge --------------------------------------------------------------------------------------------


class GuardedRoom:
    """Memory between two pages that cannot be touched."""

    def __init__(self) -> None:
        self._page = mmap.PAGESIZE
        self._map = mmap.mmap(-1, ROOM + 2 * self._page)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        for offset in (0, self._page + ROOM):
            address = ctypes.c_void_p(self._bytes.ctypes.data + offset)
            if libc.mprotect(address, ctypes.c_size_t(self._page), PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, text: bytes, *, at_end: bool) -> np.ndarray:
        """The text with PADDING behind it, up against one of the two pages. What was there before is overwritten."""
        size = len(text) + PADDING
        start = self._page + (ROOM - size if at_end else 0)
        array: np.ndarray = self._bytes[start : start + size]
        array[:] = 0xAA
        array[: len(text)] = np.frombuffer(text, dtype=np.uint8)
        return array


# --- one case -------------------------------------------------------------------------------------------------------


def read_slowly(text: bytes, *, zero_based: bool) -> tuple[list[tuple[int, Row]], list[int], int]:
    """(line, row) of every good line, the bad lines, and how many lines there are."""
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    rows: list[tuple[int, Row]] = []
    bad: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            read = read_line(line, zero_based=zero_based)
        except NotLibsvm:
            bad.append(number)
            continue
        if read is not None:
            label, weight, features = read
            rows.append((number, (label, weight, {name: value for name, value in features.items() if value})))
    return rows, bad, len(lines)


def rows_of(parsed: Parsed) -> list[Row]:
    rows: list[Row] = []
    for k, label in enumerate(parsed.labels.tolist()):
        span = slice(int(parsed.indptr[k]), int(parsed.indptr[k + 1]))
        weight = float(parsed.weights[k])
        pairs = dict(zip(parsed.ids[span].tolist(), parsed.values[span].tolist(), strict=True))
        rows.append((label, None if np.isnan(weight) else weight, pairs))
    return rows


def check(text: bytes, array: np.ndarray, *, zero_based: bool, first_only: bool) -> None:
    """Parse the text in `array`, and raise unless the result is the reference's."""
    expected, bad, lines = read_slowly(text, zero_based=zero_based)
    parsed = parse(array, len(text), zero_based=zero_based, bad_lines=1 if first_only else KEPT)
    if first_only and bad:
        expected, bad, lines = [one for one in expected if one[0] < bad[0]], bad[:1], bad[0]
    _same("rows", rows_of(parsed), [row for _, row in expected])
    _same("lines", parsed.lines, lines)
    _same("bad lines", (parsed.bad_count, [spot.line for spot in parsed.bad]), (len(bad), bad[:KEPT]))
    ones = all(value == 1 for _, (_, _, pairs) in expected for value in pairs.values())
    _same("all ones", parsed.all_ones, ones)
    for spot in parsed.bad:
        length = len(text.split(b"\n")[spot.line - 1])
        _same(f"column {spot.column} in its line", 1 <= spot.column <= length + 1, True)


def _same(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Difference(f"{what}: the parser has {got!r}, the reference {wanted!r}")


def run_case(room: GuardedRoom, seed: int, case: int) -> None:
    """One case; a difference is told with the smallest text found that shows it."""
    rng = random.Random(f"{seed}-{case}")
    text = make_text(rng)
    flavour = case % 3 if len(text) + PADDING <= ROOM else 2
    options = {"zero_based": rng.random() < 0.3, "first_only": rng.random() < 0.4}

    def difference(text: bytes) -> str:
        array = padded(text) if flavour == 2 else room.place(text, at_end=flavour == 0)
        try:
            check(text, array, **options)
        except (Difference, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    if difference(text):
        small = _shrunk(text, difference)
        raise Difference(f"seed {seed}, case {case}, {options}: {small!r}: {difference(small)}")


def _shrunk(text: bytes, shows: object) -> bytes:
    """A smaller text that shows the difference still: pieces are left out as long as one can be."""
    assert callable(shows)
    size = max(1, len(text) // 2)
    while size:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if shows(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


# --- many cases, in a process of their own --------------------------------------------------------------------------


def work(seed: int, first: int, cases: int, progress: str) -> None:
    """What the child does. The case at hand is in a file, where it can be found if the process dies."""
    faulthandler.enable()
    room = GuardedRoom()
    with Path(progress).open("r+b") as file, mmap.mmap(file.fileno(), 8) as current:
        for case in range(first, first + cases):
            struct.pack_into("<q", current, 0, case)
            run_case(room, seed, case)


@contextmanager
def _progress_file() -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="dglmnet-fuzz-") as file:
        file.write(struct.pack("<q", -1))
        file.flush()
        yield file.name


def fuzz(seed: int, first: int, cases: int, *, bounds_check: bool, cache: str | None = None) -> str:
    """Run the cases; what went wrong, or nothing. `cache`: where compiled code with checks is kept."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="dglmnet-fuzz-") as scratch, _progress_file() as progress:
        if bounds_check:  # numba would take code without checks from its usual cache
            environment |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": cache or scratch}
        call = f"from tests.fuzz.parser import work; work({seed}, {first}, {cases}, {progress!r})"
        done = subprocess.run(
            [sys.executable, "-c", call], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False
        )
        (case,) = struct.unpack("<q", Path(progress).read_bytes())
    return verdict(seed, case, done.returncode, done.stderr)


def verdict(seed: int, case: int, returncode: int, stderr: str) -> str:
    """What is wrong, if a process ended like this."""
    if returncode < 0:
        name, again = signal.Signals(-returncode).name, f"--seed {seed} --first {case} --cases 1"
        return f"seed {seed}, case {case}: the process died of {name}; again with {again}\n{stderr[-2000:]}"
    return stderr.strip().splitlines()[-1] if returncode else ""


@click.command()
@click.option("--cases", default=200_000, show_default=True, help="How many texts.")
@click.option("--seed", default=1, show_default=True)
@click.option("--first", default=0, show_default=True, help="The number of the first case.")
@click.option("--bounds-check", is_flag=True, help="Check every index into an array; slower.")
def main(cases: int, seed: int, first: int, bounds_check: bool) -> None:
    """Fuzz the parser, and end with 1 if something is wrong."""
    wrong = fuzz(seed, first, cases, bounds_check=bounds_check)
    click.echo(wrong or f"{cases:,} cases from {first:,} on, seed {seed}: parser and reference agree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
