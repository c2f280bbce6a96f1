"""A data set by example again: Map cuts a partition's nonzeros by ranges of examples, Reduce joins those of a range.

Within an example, features stand in the order of the partitions, and of their rows there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from transforms.compiled import kernel
from transforms.dataset import Partition
from transforms.fragments import transpose


@dataclass(frozen=True)
class RowPiece:
    """The nonzeros of some neighbouring examples, by example. values: empty where every value is 1."""

    indptr: np.ndarray = field(repr=False)  # int64
    features: np.ndarray = field(repr=False)  # int32 or int64: position over all partitions
    values: np.ndarray = field(repr=False)  # float32


def split_by_example(partition: Partition, first: int, cuts: Sequence[int]) -> list[RowPiece]:
    """Map: a partition, whose features begin at position `first`, as a piece for each range of examples."""
    csc = partition.read()
    indptr = np.concatenate(([0], np.cumsum(np.bincount(csc.indices, minlength=cuts[-1]))))
    features: np.ndarray = np.empty(csc.indices.size, np.int32 if first + csc.features.size < 1 << 31 else np.int64)
    values = np.empty(0 if csc.data is None else csc.indices.size, np.float32)
    given = values if csc.data is None else csc.data
    transpose(csc.indptr, csc.indices, given, indptr[:-1].copy(), features, values)
    features = features + features.dtype.type(first)
    return [_cut(indptr, features, values, lo, hi) for lo, hi in pairwise(cuts)]


def _cut(indptr: np.ndarray, features: np.ndarray, values: np.ndarray, lo: int, hi: int) -> RowPiece:
    """Copied: a view would keep the whole partition in memory."""
    inside = slice(indptr[lo], indptr[hi])
    return RowPiece(indptr[lo : hi + 1] - indptr[lo], features[inside].copy(), values[inside].copy())


def join_by_example(pieces: Sequence[RowPiece]) -> RowPiece:
    """Reduce: the pieces of one range of examples, in the order of the partitions, as one."""
    indptr = np.sum([piece.indptr for piece in pieces], axis=0)
    valued = any(piece.values.size for piece in pieces)
    features = np.empty(indptr[-1], np.result_type(*(piece.features for piece in pieces)))
    values = np.empty(indptr[-1] if valued else 0, np.float32)
    place = indptr[:-1].copy()
    for piece in pieces:
        _append(piece.indptr, piece.features, piece.values, place, features, values)
    return RowPiece(indptr, features, values)


@kernel
def _append(indptr, features, values, place, out_features, out_values):  # type: ignore[no-untyped-def]
    """Append each row's nonzeros at place[row], which moves on; where others have values, ones stand for none."""
    for row in range(indptr.size - 1):
        at = place[row]
        for k in range(indptr[row], indptr[row + 1]):
            out_features[at] = features[k]
            if out_values.size > 0:
                out_values[at] = values[k] if values.size > 0 else np.float32(1.0)
            at += 1
        place[row] = at
