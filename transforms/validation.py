"""The columns of a part as they were decoded: everything that kernels take for granted, looked at once, in one place.

A checksum tells that a file is the one that was written; this tells that it was written well. Fits, scoring and
check_dataset all read through it, so a kernel never sees an index outside its arrays.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transforms.compiled import kernel
from transforms.parts import Csc
from transforms.schema import Mismatch

LARGEST_ID = 2**62
_LISTS, _COUNT, _ID, _BOUND, _ORDER, _RANGE, _RISING, _VALUE = range(1, 9)
_FAULTS = {
    _LISTS: "the lists of examples are broken",
    _COUNT: "nnz differs from the length of examples",
    _ID: f"feature ids outside 0..{LARGEST_ID}",
    _BOUND: "bounds that are negative or not finite",
    _ORDER: "features are not sorted by falling bound and rising id",
    _RANGE: "example ids outside 0..{last}",
    _RISING: "example ids are not rising within a feature",
    _VALUE: "values that are zero or not finite",
}


@kernel
def _first_fault(features, counts, bounds, indptr, indices, data, n, bound, feature):  # type: ignore[no-untyped-def]
    """The first thing that is wrong, 0 if nothing is. `bound` and `feature` are those of the row before the first."""
    for j in range(features.size):
        lo, hi = indptr[j], indptr[j + 1]
        if lo < 0 or hi <= lo or hi > indices.size:
            return _LISTS
        if counts[j] != hi - lo:
            return _COUNT
        if features[j] < 0 or features[j] > LARGEST_ID:
            return _ID
        if not (bounds[j] >= 0 and bounds[j] < np.inf):
            return _BOUND
        if bounds[j] > bound or (bounds[j] == bound and features[j] <= feature):
            return _ORDER
        bound, feature = bounds[j], features[j]
    return _first_fault_of_lists(indptr, indices, data, n)


@kernel
def _first_fault_of_lists(indptr, indices, data, n):  # type: ignore[no-untyped-def]
    """The first thing that is wrong with positions or values, whose lists do not lie outside their arrays."""
    for j in range(indptr.size - 1):
        lo, hi = indptr[j], indptr[j + 1]
        examples, rising = indices[lo:hi], True  # a slice, as loops that begin at 0 or 1 are vectorised
        for k in range(1, examples.size):
            rising &= examples[k - 1] < examples[k]
        if not rising:
            return _RISING
        if indices[lo] < 0 or indices[hi - 1] >= n:
            return _RANGE
        if data.size > 0 and not _are_sound(data[lo:hi]):
            return _VALUE
    return 0


@kernel
def _are_sound(values):  # type: ignore[no-untyped-def]
    sound = True
    for k in range(values.size):
        size = abs(values[k])
        sound &= (size > np.float32(0)) & (size < np.float32(np.inf))
    return sound


def refuse_malformed(csc: Csc, counts: np.ndarray, n: int, before: tuple[float, int] = (np.inf, -1)) -> None:
    """Raise Mismatch unless these are columns over n examples. `before`: bound and id of the row before the first."""
    data = np.empty(0, np.float32) if csc.data is None else csc.data
    if csc.data is not None and data.size != csc.indices.size:
        raise Mismatch("examples and values differ in length")
    fault = _first_fault(csc.features, counts, csc.bounds, csc.indptr, csc.indices, data, n, *before)
    if fault:
        raise Mismatch(_FAULTS[fault].format(last=n - 1))


def refuse_malformed_lists(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray | None, n: int) -> None:
    """Raise Mismatch unless positions over n examples and values are what kernels expect; indptr was checked before."""
    fault = _first_fault_of_lists(indptr, indices, np.empty(0, np.float32) if data is None else data, n)
    if fault:
        raise Mismatch(_FAULTS[fault].format(last=n - 1))


def refuse_malformed_values(data: np.ndarray) -> None:
    """Raise Mismatch unless the values of nonzeros are such."""
    if not _are_sound(data):
        raise Mismatch(_FAULTS[_VALUE])


def refuse_other_columns(found: pa.Schema, expected: pa.Schema) -> None:
    """Raise Mismatch unless a table has these very columns, of these types, in this order."""
    if found.names != expected.names:
        raise Mismatch(f"its columns must be {', '.join(expected.names)}, found {_clipped(', '.join(found.names))}")
    for name in expected.names:
        if not _same_type(found.field(name).type, expected.field(name).type):
            wrong = _clipped(str(found.field(name).type))
            raise Mismatch(f"column {name} must be of type {expected.field(name).type}, found {wrong}")


def refuse_nulls(table: pa.Table, nullable: tuple[str, ...] = ()) -> None:
    """Raise Mismatch where a value is missing, also inside lists."""
    for name in table.column_names:
        for chunk in table[name].chunks if name not in nullable else ():
            if chunk.null_count or (pa.types.is_large_list(chunk.type) and chunk.values.null_count):
                raise Mismatch(f"column {name} has values that are missing")


def _same_type(found: pa.DataType, expected: pa.DataType) -> bool:
    """Parquet may name the items of a list otherwise, or call them nullable."""
    if pa.types.is_large_list(expected):
        return bool(pa.types.is_large_list(found) and found.value_type == expected.value_type)
    return bool(found == expected)


def _clipped(text: str, longest: int = 80) -> str:
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= longest else f"{shown[:longest]}…"
