"""Rows as LIBSVM text, written byte by byte. Values are whole multiples of 10⁻⁷, as in files with few digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

UNIT = 10_000_000  # a value of 1
LONGEST = 20  # bytes of an entry: a blank, eight digits, a colon, a sign, 0. and seven digits
_FOUR = np.array([list(f"{k:04d}".encode()) for k in range(10_000)], dtype=np.uint8)


@dataclass(frozen=True)
class Rows:
    """Some examples in CSR form: labels −1 or +1, ids from 1 and rising in a row, values in units of 1 / UNIT."""

    labels: np.ndarray  # int8
    indptr: np.ndarray  # int64
    ids: np.ndarray  # int32
    values: np.ndarray  # int32

    def write(self, out: np.ndarray) -> int:
        """The rows as text at the start of `out`, which must have room; returns the bytes written."""
        return int(write_rows(self.labels, self.indptr, self.ids, self.values, _FOUR, out))

    @property
    def room(self) -> int:
        """Bytes that their text takes at the most."""
        return LONGEST * self.ids.size + 4 * self.labels.size


@njit(nogil=True, inline="always")
def _put_four(number, four, out, at):  # type: ignore[no-untyped-def]
    """f"{number:04d}" """
    for k in range(4):
        out[at + k] = four[number, k]


@njit(nogil=True, inline="always")
def _put_id(number, four, out, at):  # type: ignore[no-untyped-def]
    """str(number) of at most eight digits; returns the place behind it."""
    high, low = number // 10_000, number % 10_000
    leading = high if high > 0 else low
    skip = 0 if leading >= 1000 else 1 if leading >= 100 else 2 if leading >= 10 else 3
    for k in range(skip, 4):
        out[at] = four[leading, k]
        at += 1
    if high > 0:
        _put_four(low, four, out, at)
        at += 4
    return at


@njit(nogil=True, inline="always")
def _put_value(number, four, out, at):  # type: ignore[no-untyped-def]
    """1, or a fraction with seven digits behind the point; returns the place behind it."""
    if number == UNIT:
        out[at] = 49
        return at + 1
    if number < 0:
        out[at] = 45
        at += 1
        number = -number
    _put_four(number // 10_000, four, out, at + 1)  # its leading zero is overwritten by the point
    out[at], out[at + 1] = 48, 46
    _put_four(number % 10_000, four, out, at + 5)
    return at + 9


@njit(nogil=True, cache=True)
def write_rows(labels, indptr, ids, values, four, out):  # type: ignore[no-untyped-def]
    """ "+1 id:value id:value\n" for each row; returns the bytes written."""
    at = 0
    for row in range(labels.size):
        out[at] = 43 if labels[row] > 0 else 45
        out[at + 1] = 49
        at += 2
        for k in range(indptr[row], indptr[row + 1]):
            out[at] = 32
            at = _put_id(ids[k], four, out, at + 1)
            out[at] = 58
            at = _put_value(values[k], four, out, at + 1)
        out[at] = 10
        at += 1
    return at
