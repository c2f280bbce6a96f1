"""The text of a data set in compressed pieces, each made by itself: the same bytes by any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from benchmarks.paper_sizes.dna import Dna
from benchmarks.paper_sizes.epsilon import Epsilon
from benchmarks.paper_sizes.lines import Rows
from benchmarks.paper_sizes.webspam import Webspam

PARTS = ("train", "test")
COMPRESSION = "zstd"  # level 1: 270 to 400 MB/s a core to write, a third to a seventh of the text


class Lookalike(Protocol):
    """What draws the rows of a data set."""

    features: int
    piece_rows: int  # a piece is 70 to 90 MB of text
    batch_rows: int  # drawn at a time: what a core's cache holds

    def draw(self, part: int, piece: int, first: int, count: int) -> Rows: ...


LOOKALIKES: dict[str, Callable[[float], Lookalike]] = {"epsilon": Epsilon, "webspam": Webspam, "dna": Dna}


@dataclass(frozen=True)
class Amount:
    """What was written so far, from the first piece on."""

    pieces: int = 0
    rows: int = 0
    nonzeros: int = 0
    text: int = 0  # bytes
    stored: int = 0  # bytes, compressed

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def piece_text(made: Lookalike, part: str, piece: int, rows: int) -> tuple[np.ndarray, int]:
    """The text of one piece, and its nonzeros."""
    number = PARTS.index(part)
    out, size, nonzeros = np.empty(0, np.uint8), 0, 0
    for first in range(0, rows, made.batch_rows):
        batch = made.draw(number, piece, first, min(made.batch_rows, rows - first))
        if out.size < size + batch.room:
            out = _grown(out, size, max(size + batch.room, batch.room * -(-rows // made.batch_rows)))
        size += batch.write(out[size:])
        nonzeros += batch.ids.size
    return out[:size], nonzeros


def _grown(out: np.ndarray, used: int, size: int) -> np.ndarray:
    larger = np.empty(size, np.uint8)
    larger[:used] = out[:used]
    return larger


def write_part(made: Lookalike, part: str, rows: int, folder: Path, threads: int, done: Amount) -> Iterator[Amount]:
    """Write the pieces behind those that are done; after each one, in order, how much there is."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = [min(made.piece_rows, rows - start) for start in range(0, rows, made.piece_rows)]

    def work(piece: int) -> Amount:
        return _write_piece(made, part, piece, counts[piece], folder / f"piece-{piece:05d}.svm.zst")

    pool = ThreadPoolExecutor(threads)
    try:
        for amount in pool.map(work, range(done.pieces, len(counts))):
            done += amount
            yield done
    finally:
        pool.shutdown(cancel_futures=True)


def _write_piece(made: Lookalike, part: str, piece: int, rows: int, path: Path) -> Amount:
    text, nonzeros = piece_text(made, part, piece, rows)
    packed = pa.Codec(COMPRESSION).compress(pa.py_buffer(text))
    path.write_bytes(packed)
    return Amount(1, rows, nonzeros, text.size, packed.size)
