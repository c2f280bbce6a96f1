"""The weights of many λ by feature id, and the kernels that turn examples or columns into margins of all λ at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from pipeline.model import PathModel
from transforms import Csc, UserError

EMPTY = np.int64(-1)
NO_WEIGHT, UNKNOWN = np.int32(-1), np.int32(-2)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # spreads ids that lie in patterns
SPARE = 8  # ids are their own slots where the largest is at most this many times their number


@njit(nogil=True, inline="always")
def _slot(feature, keys, shift):  # type: ignore[no-untyped-def]
    """Where a feature is, or would be: its own slot if there are no keys, else by hash."""
    if keys.size == 0:
        return np.uint64(feature)
    slot = (np.uint64(feature) * GOLDEN) >> shift
    while keys[slot] != feature and keys[slot] != EMPTY:
        slot = (slot + np.uint64(1)) & np.uint64(keys.size - 1)
    return slot


@njit(nogil=True, cache=True)
def _insert(ids, first_row, step, keys, rows, shift):  # type: ignore[no-untyped-def]
    """Give ids the rows first_row, first_row + step, ...; those that have one keep it."""
    row = first_row
    for k in range(ids.size):
        slot = _slot(ids[k], keys, shift)
        if rows[slot] == UNKNOWN:
            rows[slot] = row
            if keys.size > 0:
                keys[slot] = ids[k]
        row += step


@njit(nogil=True, cache=True)
def _add_examples(  # type: ignore[no-untyped-def]
    indptr, ids, values, keys, rows, largest, shift, starts, lambdas, weights, margins
):
    """margins += X @ W, X by example and W by feature; returns the nonzeros of unknown features."""
    unknown = 0
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            row = rows[_slot(ids[k], keys, shift)] if ids[k] <= largest else UNKNOWN
            if row < 0:
                unknown += row == UNKNOWN
                continue
            x = np.float64(values[k])
            for w in range(starts[row], starts[row + 1]):
                margins[i, lambdas[w]] += x * weights[w]
    return unknown


@njit(nogil=True, cache=True)
def _add_columns(  # type: ignore[no-untyped-def]
    features, indptr, examples, values, keys, rows, largest, shift, starts, lambdas, weights, margins
):
    """margins += X @ W, X by feature (values empty: all one); returns the nonzeros of unknown features."""
    unknown = 0
    for j in range(features.size):
        row = rows[_slot(features[j], keys, shift)] if features[j] <= largest else UNKNOWN
        if row < 0:
            unknown += (indptr[j + 1] - indptr[j]) * (row == UNKNOWN)
            continue
        for k in range(indptr[j], indptr[j + 1]):
            x = np.float64(values[k]) if values.size > 0 else 1.0
            for w in range(starts[row], starts[row + 1]):
                margins[examples[k], lambdas[w]] += x * weights[w]
    return unknown


@dataclass(frozen=True, repr=False)
class WeightTable:
    """A table from feature id to a row of weights (features × λ, sparse): what a scoring task needs."""

    keys: np.ndarray  # int64, EMPTY where there is none, a power of two of them; none at all: ids are slots
    rows: np.ndarray  # int32, by slot: the row of a feature, or NO_WEIGHT, or UNKNOWN
    largest: int
    shift: np.uint64
    starts: np.ndarray  # int64; the weights of row r are starts[r] to starts[r + 1]
    lambdas: np.ndarray  # int32, counted within this table
    weights: np.ndarray  # float64
    intercepts: np.ndarray  # float64, of each λ

    @property
    def count(self) -> int:
        """How many λ."""
        return self.intercepts.size

    @classmethod
    def of(cls, model: PathModel, indices: list[int], known: np.ndarray | None = None) -> WeightTable:
        """The weights of some λ. `known` are further ids, of features that were seen in training."""
        pairs = [model.coefficients(k) for k in indices]
        features = np.concatenate([ids for ids, _ in pairs])
        weights = np.concatenate([values for _, values in pairs])
        lambdas = np.repeat(np.arange(len(indices), dtype=np.int32), [ids.size for ids, _ in pairs])
        if features.size and features.min() < 0:
            raise UserError(f"{model.name}: feature ids below 0")
        distinct, row = np.unique(features, return_inverse=True)
        order = np.argsort(row, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=distinct.size))))
        look_up = _look_up(distinct, np.empty(0, np.int64) if known is None else known)
        return cls(*look_up, starts, lambdas[order], weights[order], model.intercepts[indices])

    def add_examples(self, indptr: np.ndarray, ids: np.ndarray, values: np.ndarray, margins: np.ndarray) -> int:
        """Add the margins (rows × λ) of examples in CSR form; returns the nonzeros of unknown features."""
        return int(_add_examples(indptr, ids, values, *self._arrays(), margins))

    def add_columns(self, csc: Csc, margins: np.ndarray) -> int:
        """The same for columns."""
        values = np.empty(0, np.float32) if csc.data is None else csc.data
        return int(_add_columns(csc.features, csc.indptr, csc.indices, values, *self._arrays(), margins))

    def _arrays(self) -> tuple[Any, ...]:
        look_up = (self.keys, self.rows, self.largest, self.shift)
        return (*look_up, self.starts, self.lambdas, self.weights)


def _look_up(weighted: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, np.uint64]:
    """The table's arrays: each id in a slot of its own where ids are dense, hashed where they are not."""
    count = weighted.size + known.size
    largest = max(int(weighted.max(initial=0)), int(known.max(initial=0)))
    direct = largest < SPARE * count + (1 << 16)
    bits = max((2 * count).bit_length(), 1)
    keys = np.full(0 if direct else 1 << bits, EMPTY)
    rows = np.full(largest + 1 if direct else keys.size, UNKNOWN)
    shift = np.uint64(64 - bits)
    _insert(weighted, np.int32(0), np.int32(1), keys, rows, shift)
    _insert(known, NO_WEIGHT, np.int32(0), keys, rows, shift)
    return keys, rows, largest, shift
