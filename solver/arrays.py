"""The array types that the mathematics is written in, and a sparse vector.

Vectors over examples and coefficients are float64 throughout; only the data themselves are float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
UInt64 = NDArray[np.uint64]


class Coefficients(NamedTuple):
    """A sparse vector: positions, rising, and the values there. What is not listed is zero."""

    position: Int64
    value: Float64

    @classmethod
    def empty(cls) -> Coefficients:
        return cls(np.empty(0, np.int64), np.empty(0, np.float64))

    @classmethod
    def from_dense(cls, vector: Float64) -> Coefficients:
        index = np.flatnonzero(vector).astype(np.int64)
        return cls(index, vector[index])

    def dense(self, size: int) -> Float64:
        vector = np.zeros(size)
        vector[self.position] = self.value
        return vector

    def on(self, space: Int64) -> Float64:
        """As a vector over these positions, which rise; what lies outside them is left out."""
        vector = np.zeros(space.size)
        here = np.isin(self.position, space, assume_unique=True)
        vector[np.searchsorted(space, self.position[here])] = self.value[here]
        return vector

    def moved(self, step: Coefficients, alpha: float = 1.0) -> Coefficients:
        """This vector plus α times another."""
        space = np.union1d(self.position, step.position)
        value = self.on(space) + alpha * step.on(space)
        kept = np.flatnonzero(value)
        return Coefficients(space[kept], value[kept])

    def among(self, position: Int64) -> Coefficients:
        """The part at these positions."""
        here = np.isin(self.position, position)
        return Coefficients(self.position[here], self.value[here])

    def apart_from(self, position: Int64) -> Coefficients:
        """The part at all other positions."""
        here = ~np.isin(self.position, position)
        return Coefficients(self.position[here], self.value[here])

    def merged(self, other: Coefficients) -> Coefficients:
        """With coefficients of other features."""
        position = np.concatenate((self.position, other.position))
        order = np.argsort(position, kind="stable")
        return Coefficients(position[order], np.concatenate((self.value, other.value))[order])
