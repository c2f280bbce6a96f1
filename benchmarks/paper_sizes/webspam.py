"""Like webspam: counts of trigrams with power-law frequencies, rows of unit length, six in ten positive.

Each octave of ids is as frequent as the next, as words roughly are: id 1 is in every row, most are in a few rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.paper_sizes.chance import key_of, normals, uniform, word
from benchmarks.paper_sizes.labels import Odds, draw_label
from benchmarks.paper_sizes.lines import UNIT, Rows

FEATURES = 16_600_000
DRAWS = 5_600  # trigrams of a row on average, from half of it to one and a half times as many
USED, AMONG = 2_000, 20_000  # features of the true model, and the frequent ones that they are among
STRIDE = 1 << 14  # numbers that a row may draw
SEED = 2


@njit(nogil=True, cache=True)
def draw_rows(key, first, features, weights, scale, shift, labels, margins, indptr, ids, values, sizes):  # type: ignore[no-untyped-def]
    """A row: points of density 1/x in [1, features + 1), cut to ids; a value is (1 + log count) / norm.

    Sums of exponential gaps, divided by the last sum, are uniform points in rising order: nothing needs sorting.
    """
    octaves = np.log(features + 1.0)
    sums = np.empty(2 * DRAWS)
    at = 0
    for row in range(labels.size):
        start = (first + row) * STRIDE
        draws = DRAWS // 2 + np.int64(word(key, start) % np.uint64(DRAWS))
        total = 0.0
        for k in range(draws):
            total -= np.log(uniform(key, start + 1 + k))
            sums[k] = total
        total -= np.log(uniform(key, start + 1 + draws))
        begin, last = at, 0
        for k in range(draws):
            feature = min(np.int64(np.exp(sums[k] / total * octaves)), features)
            if feature != last:
                ids[at], sizes[at] = feature, 1.0
                at, last = at + 1, feature
            else:
                sizes[at - 1] += 1.0
        square = 0.0
        margin = 0.0
        for k in range(begin, at):
            if sizes[k] > 1.0:
                sizes[k] = 1.0 + np.log(sizes[k])
            square += sizes[k] * sizes[k]
            if ids[k] < weights.size:
                margin += weights[ids[k]] * sizes[k]
        size = 1.0 / np.sqrt(square)
        for k in range(begin, at):
            values[k] = np.int32(np.rint(sizes[k] * size * UNIT))
        indptr[row + 1] = at
        margins[row] = margin * size
        labels[row] = draw_label(margin * size, scale, shift, key, start + 2 + draws)


class Webspam:
    """Draws rows of the look-alike; with fewer rows there are fewer ids in proportion."""

    piece_rows = 1_250
    batch_rows = 16

    def __init__(self, scale: float) -> None:
        self.features = max(1, round(FEATURES * scale))
        self._weights = np.zeros(AMONG)
        self._weights[1 :: AMONG // USED] = normals(key_of(SEED, 1), USED)
        self._odds = Odds(1.0, 0.0)
        self._odds = Odds.of(self._draw(key_of(SEED, 2), 0, 1_000)[0], spread=3.0, positive=0.6)

    def draw(self, part: int, piece: int, first: int, count: int) -> Rows:
        """Rows first … first + count of a piece."""
        return self._draw(key_of(SEED, 3, part, piece), first, count)[1]

    def _draw(self, key: np.uint64, first: int, count: int) -> tuple[np.ndarray, Rows]:
        labels, margins, indptr = np.empty(count, np.int8), np.empty(count), np.zeros(count + 1, np.int64)
        room = count * 3 * DRAWS // 2
        ids, values, sizes = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room)
        odds = self._odds
        draw_rows(
            key,
            first,
            self.features,
            self._weights,
            odds.scale,
            odds.shift,
            labels,
            margins,
            indptr,
            ids,
            values,
            sizes,
        )
        return margins, Rows(labels, indptr, ids[: indptr[-1]], values[: indptr[-1]])
