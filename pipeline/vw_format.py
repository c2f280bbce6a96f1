"""The model file of Vowpal Wabbit 9: a header with a checksum, then (index, weight) for each weight that is not 0."""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np

VERSION = b"9.0.0\0"
OPTIONS = {True: b" --link logistic\0", False: b" --link logistic --noconstant\0"}  # with a constant, and without
CONSTANT = 11650396  # the index of the constant feature, which every example has, before it is cut to the bits
LARGEST_MARGIN = 50.0  # predictions are held within it, as in models of its own that learned by logistic loss
MOST_BITS = 30
_WORD = 0xFFFFFFFF


def bits_for(largest: int) -> int:
    """Vowpal Wabbit takes a feature whose name is a number for the weight of that index, if there are enough bits."""
    return max(largest.bit_length(), 1)


def write_vw(file: BinaryIO, features: np.ndarray, weights: np.ndarray, bits: int, *, constant: bool) -> None:
    fields = [
        *_sized(b"\0"),  # the model's id: none
        b"m",
        struct.pack("<f", -LARGEST_MARGIN),
        struct.pack("<f", LARGEST_MARGIN),
        struct.pack("<I", bits),
        *[bytes(4)] * 3,  # lda, n-grams, skips: none
        *_sized(OPTIONS[constant]),
    ]
    checksum = 0
    for field in fields:
        checksum = murmur3(field, checksum)
    file.write(b"".join([*_sized(VERSION), *fields, *_sized(struct.pack("<I", checksum))]))
    file.write(b"\0")  # weights alone, not the state of a learner
    pairs = np.empty(features.size, dtype=[("index", "<u4"), ("weight", "<f4")])
    pairs["index"], pairs["weight"] = features, weights
    file.write(pairs[pairs["weight"] != 0].tobytes())


def _sized(data: bytes) -> list[bytes]:
    return [struct.pack("<I", len(data)), data]


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3, 32 bits."""
    value, whole = seed, len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = (_rotate(value ^ _scramble(word), 13) * 5 + 0xE6546B64) & _WORD
    if len(data) > whole:
        value ^= _scramble(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = ((value ^ value >> 16) * 0x85EBCA6B) & _WORD
    value = ((value ^ value >> 13) * 0xC2B2AE35) & _WORD
    return value ^ value >> 16


def _scramble(word: int) -> int:
    return (_rotate((word * 0xCC9E2D51) & _WORD, 15) * 0x1B873593) & _WORD


def _rotate(word: int, count: int) -> int:
    return ((word << count) | (word >> (32 - count))) & _WORD
