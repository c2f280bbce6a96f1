"""labels.parquet: one row per example, in input order, and what the labels of the input mean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.errors import UserError
from transforms.parser import are_labels
from transforms.records import PERHAPS, Record
from transforms.schema import Mismatch
from transforms.storage import create_hashed, read_parquet
from transforms.validation import refuse_nulls, refuse_other_columns

LABELS_PARQUET = "labels.parquet"
LABELS_LISTED = 10
MIXED_WEIGHTS = (
    "some lines start with label:weight and some with a label alone. Write a weight on every line or on none "
    "(a line that lacks its label looks like this, too)"
)

LABEL_MISSING = (
    ". Lines begin with a word such as 12:0.5, which is read as label:weight. If it is a feature, the label is "
    "missing: write one in front of each line"
)

NUMBER = "number"  # the kind of labels that are no classes

Labels = tuple[np.ndarray, np.ndarray | None]  # int8 -1/+1 or float64 numbers, float32 weights


@dataclass(frozen=True)
class LabelMap:
    """What the labels -1 and +1 are in the input."""

    negative: float
    positive: float

    def to_json(self) -> dict[str, float]:
        return {"-1": self.negative, "+1": self.positive}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> LabelMap:
        return cls(content["-1"], content["+1"])


@dataclass(frozen=True, kw_only=True)
class LabelsInfo(Record):
    """labels.parquet as dataset.json describes it."""

    file: str = LABELS_PARQUET
    bytes: int
    sha256: str
    weighted: bool
    kind: str | None = field(default=None, metadata=PERHAPS)  # NUMBER; absent: -1 and +1
    # Of -1 and +1.
    negatives: int | None = field(default=None, metadata=PERHAPS)
    positives: int | None = field(default=None, metadata=PERHAPS)
    weight_of_negatives: float | None = field(default=None, metadata=PERHAPS)
    weight_of_positives: float | None = field(default=None, metadata=PERHAPS)
    # Of numbers.
    smallest: float | None = field(default=None, metadata=PERHAPS)
    largest: float | None = field(default=None, metadata=PERHAPS)
    weight: float | None = field(default=None, metadata=PERHAPS)  # of all examples

    @property
    def numeric(self) -> bool:
        return self.kind == NUMBER


def wrong_labels(values: list[float]) -> str:
    """What to say of values that are not two."""
    shown = ", ".join(f"{value:g}" for value in sorted(values)[:LABELS_LISTED])
    more = ", …" if len(values) > LABELS_LISTED else ""
    return f"expected exactly two distinct labels, found {len(values)}: {shown or 'none'}{more}"


def remedy_of_text(values: list[float], *, weighted: bool) -> str:
    """What to do about text with these labels. weighted: lines begin with label:weight, or with a feature."""
    if weighted:
        return LABEL_MISSING
    if len(values) < 2:
        return ". A model needs examples of both classes"
    one = f"one class against the rest: awk '{{$1 = ($1 == {max(values):g})}} 1'"
    return f". For numbers, pass --numeric-labels (pipeline: --loss squared); for classes, write {one}"


def choose_positive(values: list[float], positive_label: float | None) -> float:
    """Which of the two label values, given in rising order, is +1: the larger one unless chosen."""
    if positive_label is None:
        return values[1]
    if positive_label not in values:
        raise UserError(
            f"the positive label {positive_label:g} is not in the data; found {values[0]:g} and {values[1]:g}"
        )
    return positive_label


def write_label_file(
    fs: Any, folder: str, chunks: Iterable[Labels], *, weighted: bool, numeric: bool = False
) -> LabelsInfo:
    """Write labels chunk by chunk; returns what dataset.json says of them."""
    schema = _schema(weighted, numeric)
    tally: _Sides | _Range = _Range() if numeric else _Sides()
    with create_hashed(fs, f"{folder}/{LABELS_PARQUET}") as file:
        with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False) as writer:
            for labels, weights in chunks:
                columns = [pa.array(labels)] + ([pa.array(weights)] if weighted else [])
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                tally.add(labels, weights)
        size, sha256 = file.size, file.sha256
    return LabelsInfo(bytes=size, sha256=sha256, weighted=weighted, **tally.facts(weighted))


class _Sides:
    """How many labels are -1 and +1, and what these examples weigh."""

    def __init__(self) -> None:
        self._counts, self._sums = np.zeros(2, dtype=np.int64), np.zeros(2)

    def add(self, labels: np.ndarray, weights: np.ndarray | None) -> None:
        sides = (labels > 0).astype(np.int8)
        self._counts += np.bincount(sides, minlength=2)
        if weights is not None:
            self._sums += np.bincount(sides, weights=weights, minlength=2)

    def facts(self, weighted: bool) -> dict[str, Any]:
        facts: dict[str, Any] = {"negatives": int(self._counts[0]), "positives": int(self._counts[1])}
        if weighted:
            facts |= {"weight_of_negatives": float(self._sums[0]), "weight_of_positives": float(self._sums[1])}
        return facts


class _Range:
    """Between which numbers labels lie, and what their examples weigh."""

    def __init__(self) -> None:
        self._smallest, self._largest, self._weight = np.inf, -np.inf, 0.0

    def add(self, labels: np.ndarray, weights: np.ndarray | None) -> None:
        self._smallest = min(self._smallest, float(labels.min(initial=np.inf)))
        self._largest = max(self._largest, float(labels.max(initial=-np.inf)))
        if weights is not None:
            self._weight += float(weights.sum(dtype=np.float64))

    def facts(self, weighted: bool) -> dict[str, Any]:
        facts: dict[str, Any] = {"kind": NUMBER, "smallest": self._smallest, "largest": self._largest}
        return facts | ({"weight": self._weight} if weighted else {})


def _schema(weighted: bool, numeric: bool) -> pa.Schema:
    fields = [pa.field("label", pa.float64() if numeric else pa.int8(), nullable=False)]
    return pa.schema(fields + ([pa.field("weight", pa.float32(), nullable=False)] if weighted else []))


def checked_labels(table: pa.Table, info: LabelsInfo, n: int) -> Labels:
    """The labels of a data set, if they are what dataset.json says of them; raises Mismatch if not."""
    refuse_other_columns(table.schema, _schema(info.weighted, info.numeric))
    refuse_nulls(table)
    labels: np.ndarray = table["label"].to_numpy()
    if labels.size != n:
        raise Mismatch(f"{labels.size} labels for {n} examples")
    if info.numeric:
        _refuse_other_numbers(labels, info)
    else:
        _refuse_other_sides(labels, info)
    weights = table["weight"].to_numpy() if info.weighted else None
    if weights is not None and not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise Mismatch("weights that are negative or not finite")
    return labels, weights


def _refuse_other_sides(labels: np.ndarray, info: LabelsInfo) -> None:
    positives, negatives = int((labels == 1).sum()), int((labels == -1).sum())
    if positives + negatives != labels.size:
        raise Mismatch("labels other than -1 and +1")
    if positives != info.positives:
        raise Mismatch(f"{positives} positive labels, expected {info.positives}")


def _refuse_other_numbers(labels: np.ndarray, info: LabelsInfo) -> None:
    if not are_labels(labels):
        raise Mismatch("labels that are not finite, or beyond 3.4e38")
    found = float(labels.min()), float(labels.max())
    if found != (info.smallest, info.largest):
        raise Mismatch(f"labels from {found[0]:g} to {found[1]:g}, expected {info.smallest:g} to {info.largest:g}")


def read_label_file(fs: Any, folder: str) -> Labels:
    table = read_parquet(fs, f"{folder}/{LABELS_PARQUET}")
    return table["label"].to_numpy(), table["weight"].to_numpy() if "weight" in table.column_names else None
