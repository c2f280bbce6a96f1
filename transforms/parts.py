"""Parts: one Parquet file for each feature partition, a row per feature ("by feature", Table 1 of the paper).

`bound` is a safe screening rule that costs nothing. With example weights s, the derivative of L along a feature is
-Σ sᵢ yᵢ xᵢⱼ σ(-yᵢmᵢ), and σ lies in (0, 1), so for every β it stays between -Σ sᵢ|xᵢⱼ| over yᵢxᵢⱼ > 0 and the same
sum over yᵢxᵢⱼ < 0: a feature whose larger side is at most λ is zero at λ. Rows are sorted by falling bound, so what can
matter at λ is a prefix.

Where labels are numbers, no such bound is known beforehand, and none may be used. The column then holds the norm
√(Σ sᵢxᵢⱼ²), by which rows are sorted: the derivative at β is at most that times √(Σ sᵢ(yᵢ - mᵢ)²).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.compiled import kernel
from transforms.fragments import Run
from transforms.schema import SHA256, flag, number, optional, record, text, whole
from transforms.sorting import argsort
from transforms.storage import create_hashed

ROW_GROUP_NNZ = 1 << 20
ROW_GROUP_FEATURES = 1 << 17


@dataclass(frozen=True)
class PartInfo:
    """A part as dataset.json describes it."""

    file: str
    features: int
    nnz: int
    bytes: int
    sha256: str
    values: bool  # is there a column of values, or is every value 1
    row_groups: int
    largest_bound: float
    # Of the ids alone, as int64, so that they can be checked without reading the rest; older data sets do not have it.
    features_sha256: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> PartInfo:
        """What was stored; fields that a later version added are left alone."""
        return cls(**{field.name: content[field.name] for field in fields(cls) if field.name in content})


PART_SCHEMA = record(
    {
        "file": text(re.compile(r"part-[0-9]{5,}\.parquet")),
        "features": whole(),
        "nnz": whole(),
        "bytes": whole(),
        "sha256": text(SHA256),
        "values": flag,
        "row_groups": whole(),
        "largest_bound": number(low=0),
    },
    {"features_sha256": optional(text(SHA256))},
)


def part_name(index: int) -> str:
    return f"part-{index:05d}.parquet"


@dataclass(frozen=True)
class Csc:
    """Features by falling bound, their examples rising; data is None where every value is 1."""

    features: np.ndarray  # int64
    bounds: np.ndarray  # float64
    indptr: np.ndarray  # int64
    indices: np.ndarray  # int32
    data: np.ndarray | None  # float32


@kernel
def _add_bounds(owner, counts, examples, values, labels, weights, offset, sums):  # type: ignore[no-untyped-def]
    """For a run's features f: sums[f] += (Σ s|x| over y·x > 0, Σ s|x| over y·x < 0, nonzeros, -)."""
    at = np.int64(0)
    for segment in range(counts.size):
        positive = negative = 0.0
        for k in range(at, at + counts[segment]):
            row = np.int64(examples[k]) + offset
            x = np.float64(labels[row])
            if values.size > 0:
                x *= values[k]
            if weights.size > 0:
                x *= weights[row]
            positive += max(x, 0.0)
            negative -= min(x, 0.0)
        at += counts[segment]
        feature = sums[owner[segment]]
        feature[0] += positive
        feature[1] += negative
        feature[2] += counts[segment]


@kernel
def _add_squares(owner, counts, examples, values, weights, offset, sums):  # type: ignore[no-untyped-def]
    """For a run's features f: sums[f] += (Σ s x², -, nonzeros, -)."""
    at = np.int64(0)
    for segment in range(counts.size):
        total = 0.0
        for k in range(at, at + counts[segment]):
            x = np.float64(values[k]) if values.size > 0 else np.float64(1.0)
            square = x * x
            if weights.size > 0:
                square *= weights[np.int64(examples[k]) + offset]
            total += square
        at += counts[segment]
        feature = sums[owner[segment]]
        feature[0] += total
        feature[2] += counts[segment]


@kernel
def _place(owner, counts, examples, values, offset, place, indices, data):  # type: ignore[no-untyped-def]
    """Append a run's segments to their features; a run without values adds ones."""
    at = np.int64(0)
    for segment in range(counts.size):
        to = place[owner[segment]]
        for k in range(counts[segment]):
            indices[to + k] = np.int64(examples[at + k]) + offset
            if data.size > 0:
                data[to + k] = values[at + k] if values.size > 0 else np.float32(1.0)
        at += counts[segment]
        place[owner[segment]] = to + counts[segment]


@kernel
def _number_distinct(values, order, distinct, inverse):  # type: ignore[no-untyped-def]
    """distinct, inverse = np.unique(values, return_inverse=True), given the order that sorts values."""
    count = 0
    for k in range(order.size):
        value = values[order[k]]
        if count == 0 or distinct[count - 1] != value:
            distinct[count] = value
            count += 1
        inverse[order[k]] = count - 1
    return count


@kernel
def _number_by_table(values, table, distinct, inverse, rising):  # type: ignore[no-untyped-def]
    """Number values as they first occur, for values that index a table of zeros; distinct[rising] is sorted."""
    count = 0
    for k in range(values.size):
        value = values[k]
        if table[value] == 0:
            distinct[count] = value
            count += 1
            table[value] = count
        inverse[k] = table[value] - 1
    found = 0
    for value in range(table.size):
        if table[value] > 0:
            rising[found] = table[value] - 1
            found += 1
    return count


def _union(sets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The distinct features of all sets, the order that sorts them, and where each set's features are among them.

    Runs have their features in the same order (that of the buckets), so numbering them as they first occur, where ids
    are small enough, makes going through a run's features go through memory in order, nearly.
    """
    together = np.concatenate([np.empty(0, dtype=np.int64), *sets])
    distinct, inverse = np.empty_like(together), np.empty_like(together)
    largest = int(together.max(initial=0))
    if largest < 8 * together.size + (1 << 16):
        rising = np.empty_like(together)
        count = _number_by_table(together, np.zeros(largest + 1, dtype=np.int32), distinct, inverse, rising)
    else:
        rising = np.arange(together.size)
        count = _number_distinct(together, argsort(together.view(np.uint64)), distinct, inverse)
    owners = np.split(inverse, np.cumsum([one.size for one in sets])[:-1]) if sets else []
    return distinct[:count], rising[:count], owners


def merge_runs(runs: list[Run], labels: np.ndarray | None, weights: np.ndarray | None) -> Csc:
    """The Reduce step: runs of the same features from many blocks, in block order, as one CSC sorted by bound.

    labels: -1 and +1; None where labels are numbers, which bound nothing.
    """
    none = np.empty(0, dtype=np.float32)
    features, rising, owners = _union([run.features for run in runs])
    sums = np.zeros((features.size, 4))  # a feature's sums side by side, half a cache line
    for run, owner in zip(runs, owners, strict=True):
        values = none if run.values is None else run.values
        row_weights = none if weights is None else weights
        if labels is None:
            _add_squares(owner, run.counts, run.examples, values, row_weights, run.row_offset, sums)
        else:
            _add_bounds(owner, run.counts, run.examples, values, labels, row_weights, run.row_offset, sums)
    bounds = np.sqrt(sums[:, 0]) if labels is None else np.maximum(sums[:, 0], sums[:, 1])
    order = rising[argsort(~bounds[rising].view(np.uint64))]  # bounds are >= 0, so their bits sort as they do
    indptr = np.concatenate(([0], np.cumsum(sums[order, 2].astype(np.int64))))
    place = np.empty(features.size, dtype=np.int64)
    place[order] = indptr[:-1]
    indices = np.empty(indptr[-1], dtype=np.int32)
    valued = any(run.values is not None for run in runs)
    data = np.empty(indptr[-1] if valued else 0, dtype=np.float32)
    for run, owner in zip(runs, owners, strict=True):
        values = none if run.values is None else run.values
        _place(owner, run.counts, run.examples, values, run.row_offset, place, indices, data)
    if valued and (data == 1).all():
        valued = False
    return Csc(features[order], bounds[order], indptr, indices, data if valued else None)


def _row_groups(indptr: np.ndarray) -> list[tuple[int, int]]:
    """Cut features into groups of about ROW_GROUP_NNZ nonzeros and at most ROW_GROUP_FEATURES features."""
    groups, start, stop = [], 0, indptr.size - 1
    while start < stop:
        end = int(np.searchsorted(indptr, indptr[start] + ROW_GROUP_NNZ, side="right")) - 1
        end = min(max(end, start + 1), start + ROW_GROUP_FEATURES, stop)
        groups.append((start, end))
        start = end
    return groups


def part_schema(valued: bool) -> pa.Schema:
    """The columns of a part; without values where every value is 1."""

    def list_of(kind: pa.DataType) -> pa.DataType:
        return pa.large_list(pa.field("item", kind, nullable=False))

    fields = [
        ("feature", pa.int64()),
        ("nnz", pa.int64()),
        ("bound", pa.float64()),
        ("examples", list_of(pa.int32())),
    ]
    fields += [("values", list_of(pa.float32()))] if valued else []
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in fields])


def _table(csc: Csc, start: int, stop: int, schema: pa.Schema) -> pa.Table:
    """Rows start to stop as Arrow, without copying the nonzeros."""
    first, last = csc.indptr[start], csc.indptr[stop]
    offsets = pa.array(csc.indptr[start : stop + 1] - first)
    columns = [pa.array(csc.features[start:stop]), pa.array(np.diff(csc.indptr[start : stop + 1]))]
    columns += [pa.array(csc.bounds[start:stop])]
    for array, field in zip((csc.indices, csc.data), list(schema)[3:], strict=False):
        assert array is not None
        columns.append(pa.LargeListArray.from_arrays(offsets, pa.array(array[first:last]), type=field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def write_part(fs: Any, folder: str, index: int, csc: Csc) -> PartInfo:
    """Write a part's Parquet file."""
    name = part_name(index)
    schema, groups = part_schema(csc.data is not None), _row_groups(csc.indptr)
    with create_hashed(fs, f"{folder}/{name}") as file:
        with pq.ParquetWriter(file, schema, **_encoding()) as writer:
            for start, stop in groups:
                writer.write_table(_table(csc, start, stop, schema), row_group_size=stop - start)
        size, digest = file.size, file.sha256
    return PartInfo(
        name,
        csc.features.size,
        csc.indices.size,
        size,
        digest,
        csc.data is not None,
        len(groups),
        float(csc.bounds.max(initial=0.0)),
        hash_ids(csc.features),
    )


def hash_ids(features: np.ndarray) -> str:
    """The checksum of feature ids in the order of a part's rows."""
    return hashlib.sha256(np.ascontiguousarray(features, dtype="<i8").data).hexdigest()


def _encoding() -> dict[str, Any]:
    """Measured: delta-packed examples without compression are read faster than the solver uses them."""
    return {
        "version": "2.6",
        "data_page_version": "2.0",
        "compression": "none",
        "use_dictionary": ["bound"],
        "column_encoding": {
            "feature": "DELTA_BINARY_PACKED",
            "nnz": "DELTA_BINARY_PACKED",
            "examples.list.element": "DELTA_BINARY_PACKED",
            "values.list.element": "PLAIN",
        },
        "write_statistics": ["feature", "nnz", "bound"],
    }
