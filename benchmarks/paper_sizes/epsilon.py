"""Like epsilon: dense, correlated columns, rows of unit length, as many positives as negatives."""

from __future__ import annotations

import numpy as np
from numba import njit

from benchmarks.paper_sizes.chance import key_of, normal, normals
from benchmarks.paper_sizes.labels import Odds, draw_label
from benchmarks.paper_sizes.lines import UNIT, Rows

FEATURES = 2_000
FACTORS = 40  # that all columns share
SHARED, OWN = 0.6, 0.8  # weights of what is shared and of what is a column's own
USED = 200  # features of the true model
STRIDE = 1 << 12  # numbers that a row may draw
SEED = 1


@njit(nogil=True, cache=True)
def draw_rows(key, first, loadings, weights, scale, shift, labels, margins, values):  # type: ignore[no-untyped-def]
    """x = SHARED · loadingsᵀ s + OWN · e, scaled to ‖x‖ = 1; s and e normal."""
    factors, p = loadings.shape
    x = np.empty(p, np.float32)
    for row in range(labels.size):
        start = (first + row) * STRIDE
        for j in range(p):
            x[j] = np.float32(OWN * normal(key, start + j))
        for f in range(factors):
            s = np.float32(normal(key, start + p + f))
            for j in range(p):
                x[j] += s * loadings[f, j]
        square = 0.0
        margin = 0.0
        for j in range(p):
            square += np.float64(x[j]) * x[j]
            margin += weights[j] * x[j]
        size = 1.0 / np.sqrt(square)
        for j in range(p):
            values[row, j] = np.int32(np.rint(x[j] * size * UNIT))
        margins[row] = margin * size
        labels[row] = draw_label(margin * size, scale, shift, key, start + p + factors)


class Epsilon:
    """Draws rows of the look-alike; `scale` changes nothing but how many are asked for."""

    features = FEATURES
    piece_rows = 2_500
    batch_rows = 32

    def __init__(self, scale: float) -> None:
        rescale = SHARED / np.sqrt(FACTORS)
        self._loadings = (rescale * normals(key_of(SEED, 1), FACTORS * FEATURES)).astype(np.float32)
        self._loadings = self._loadings.reshape(FACTORS, FEATURES)
        self._weights = np.zeros(FEATURES)
        self._weights[:: FEATURES // USED] = normals(key_of(SEED, 2), USED)
        self._ids = np.tile(np.arange(1, FEATURES + 1, dtype=np.int32), self.batch_rows)
        self._odds = Odds(1.0, 0.0)
        self._odds = Odds.of(self._draw(key_of(SEED, 3), 0, 1_000)[0], spread=2.0, positive=0.5)

    def draw(self, part: int, piece: int, first: int, count: int) -> Rows:
        """Rows first … first + count of a piece."""
        labels, values = self._draw(key_of(SEED, 4, part, piece), first, count)[1:]
        indptr = np.arange(0, values.size + 1, FEATURES)
        return Rows(labels, indptr, self._ids[: values.size], values.ravel())

    def _draw(self, key: np.uint64, first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        labels, margins = np.empty(count, np.int8), np.empty(count)
        values = np.empty((count, FEATURES), np.int32)
        odds = self._odds
        draw_rows(key, first, self._loadings, self._weights, odds.scale, odds.shift, labels, margins, values)
        return margins, labels, values
