"""Like dna: one-hot nucleotides at 200 places around a splice site, values 1, one example in a hundred positive."""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.paper_sizes.chance import key_of, normals, word
from benchmarks.paper_sizes.labels import Odds, draw_label
from benchmarks.paper_sizes.lines import UNIT, Rows

PLACES, LETTERS = 200, 4
SITE, REACH = 100, 15.0  # the motif is strongest at the site and falls off by e within so many places
STRIDE = 8  # numbers that a row draws: 32 letters of two bits a word, and one for the label
SEED = 3


@njit(nogil=True, cache=True)
def draw_rows(key, first, motif, scale, shift, labels, margins, ids):  # type: ignore[no-untyped-def]
    """Letters with equal chances; the margin adds the motif's weights of the letters at their places."""
    for row in range(labels.size):
        start = (first + row) * STRIDE
        margin = 0.0
        bits = np.uint64(0)
        for place in range(PLACES):
            bits = word(key, start + place // 32) if place % 32 == 0 else bits >> np.uint64(2)
            letter = np.int64(bits & np.uint64(3))
            margin += motif[place, letter]
            ids[row, place] = LETTERS * place + letter + 1
        margins[row] = margin
        labels[row] = draw_label(margin, scale, shift, key, start + STRIDE - 1)


class Dna:
    """Draws rows of the look-alike; `scale` changes nothing but how many are asked for."""

    features = PLACES * LETTERS
    piece_rows = 60_000
    batch_rows = 250

    def __init__(self, scale: float) -> None:
        near = np.exp(-np.abs(np.arange(PLACES) - SITE) / REACH)
        self._motif = near[:, None] * normals(key_of(SEED, 1), self.features).reshape(PLACES, LETTERS)
        self._values = np.full(self.batch_rows * PLACES, UNIT, np.int32)
        self._odds = Odds(1.0, 0.0)
        self._odds = Odds.of(self._draw(key_of(SEED, 2), 0, 20_000)[0], spread=2.5, positive=0.01)

    def draw(self, part: int, piece: int, first: int, count: int) -> Rows:
        """Rows first … first + count of a piece."""
        labels, ids = self._draw(key_of(SEED, 3, part, piece), first, count)[1:]
        return Rows(labels, np.arange(0, ids.size + 1, PLACES), ids.ravel(), self._values[: ids.size])

    def _draw(self, key: np.uint64, first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        labels, margins = np.empty(count, np.int8), np.empty(count)
        ids = np.empty((count, PLACES), np.int32)
        draw_rows(key, first, self._motif, self._odds.scale, self._odds.shift, labels, margins, ids)
        return margins, labels, ids
