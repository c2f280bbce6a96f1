"""Random numbers by counting: number k of a stream is a hash of (key, k), so any piece of it can be drawn by itself.

The same key and counter give the same number in every process and thread, in any order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW_16 = np.uint64(0xFFFF)
_UNIT = 2.0**-53
_NORMAL_MEAN, _NORMAL_SCALE = 131070.0, 3.0**0.5 / 65536.0  # of the sum of four 16-bit numbers


@njit(nogil=True, inline="always")
def word(key, counter):  # type: ignore[no-untyped-def]
    """64 random bits: the generator SplitMix64 at position `counter`."""
    z = key + np.uint64(counter) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, inline="always")
def uniform(key, counter):  # type: ignore[no-untyped-def]
    """In (0, 1), never 0, so that it has a logarithm."""
    return (np.float64(word(key, counter) >> np.uint64(11)) + 0.5) * _UNIT


@njit(nogil=True, inline="always")
def normal(key, counter):  # type: ignore[no-untyped-def]
    """Nearly normal: the sum of four uniform numbers, mean 0 and deviation 1."""
    z = word(key, counter)
    total = (z & _LOW_16) + ((z >> np.uint64(16)) & _LOW_16) + ((z >> np.uint64(32)) & _LOW_16) + (z >> np.uint64(48))
    return (np.float64(total) - _NORMAL_MEAN) * _NORMAL_SCALE


@njit(nogil=True, cache=True)
def fill_normal(key, out):  # type: ignore[no-untyped-def]
    """out[k] = normal(key, k)"""
    for k in range(out.size):
        out[k] = normal(key, k)


def key_of(*parts: int) -> np.uint64:
    """The key of a stream that is named by small numbers."""
    key = 0
    for part in parts:
        key = (key ^ part) * int(_MIX_1) % 2**64
        key ^= key >> 32
    return np.uint64(key)


def normals(key: np.uint64, size: int) -> np.ndarray:
    out = np.empty(size)
    fill_normal(key, out)
    return out
