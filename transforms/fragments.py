"""Fragments: what a Map task leaves for the Reduce tasks, one file for each block of input.

A fragment holds the block's nonzeros by feature, features ordered by (bucket, id), behind a directory of the
buckets: a Reduce task reads only the ranges that belong to its partition. It also holds the block's labels and
weights. Temporary: the layout is nobody's business but this module's, and may change with any version. A fragment
that was cut off lacks its end mark and counts as not there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.assign import order_by_bucket
from transforms.compiled import kernel
from transforms.errors import UserError
from transforms.parser import BadSpot, Parsed, are_labels
from transforms.schema import Check, listed, parse, record, text, whole
from transforms.sorting import argsort
from transforms.storage import create_file, read_ranges

MAGIC = b"dglmfrg3"
_NUMBERS = ("rows", "features", "nnz", "buckets", "lines", "bad", "max_line", "labels", "weighted")
_SIZES = ("example_bytes", "value_bytes", "label_bytes", "note_bytes")
HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("plan", "S16"),
        *((name, "<i8") for name in _NUMBERS + _SIZES),
        ("label_values", "<f8", (2,)),  # what the codes 0 and 1 stand for, where labels are codes
        ("label_files", "<i8", (2,)),  # position among the block's files of the first that has this label
    ]
)
_SPOT: dict[str, Check] = {"line": whole(), "column": whole(), "text": text(), "expected": text(), "file": whole()}
_SPOTS = listed(record(_SPOT))
DIRECTORY = np.dtype([("features", "<u4"), ("nnz", "<u4")])


@kernel
def _compact(ids, table, slots, found):  # type: ignore[no-untyped-def]
    """np.unique(ids, return_inverse=True) by open addressing, unsorted: ids becomes the inverse, in place."""
    mask = np.uint64(table.size - 1)
    count = 0
    for k in range(ids.size):
        feature = ids[k]
        at = (np.uint64(feature) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
        while slots[at] >= 0 and table[at] != feature:
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at], table[at], found[count] = count, feature, feature
            count += 1
        ids[k] = slots[at]
    return count


@kernel
def _count(local, counts):  # type: ignore[no-untyped-def]
    """counts = np.bincount(local)"""
    for k in range(local.size):
        counts[local[k]] += 1


@kernel
def transpose(indptr, local, values, place, examples, out):  # type: ignore[no-untyped-def]
    """CSR to CSC, or back: each nonzero goes to place[its feature], which moves on. An empty `out` takes no values."""
    valued = out.size > 0
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            at = place[local[k]]
            place[local[k]] = at + 1
            examples[at] = row
            if valued:
                out[at] = values[k]


@dataclass(frozen=True)
class ByFeature:
    """A block's nonzeros by feature."""

    features: np.ndarray  # int64, ordered by (bucket, id)
    counts: np.ndarray  # int32
    examples: np.ndarray  # uint16 or int32, row in the block
    values: np.ndarray  # float32, empty when all are one
    directory: np.ndarray  # where each bucket starts, and the end


def by_feature(parsed: Parsed, strategy: str, buckets: int) -> ByFeature:
    """Sort a block's nonzeros by (bucket, feature), examples rising: a counting sort. Uses up parsed.ids."""
    local, nnz = parsed.ids, parsed.ids.size
    largest = int(local.max(initial=0))
    found = order = np.empty(0, dtype=np.int64)
    if largest < 16 * nnz + (1 << 16):  # a table by id is then no larger than a hash table of the nonzeros
        counts = np.zeros(largest + 1, dtype=np.int32)
    else:
        size = 1 << (2 * nnz).bit_length()
        found = np.empty(nnz, dtype=np.int64)
        found = found[: _compact(local, np.empty(size, np.int64), np.full(size, -1, np.int32), found)]
        order = argsort(found.view(np.uint64))
        counts = np.zeros(found.size, dtype=np.int32)
    _count(local, counts)
    present = int(np.count_nonzero(counts))
    features, ordered = np.empty(present, dtype=np.int64), np.empty(present, dtype=np.int32)
    starts = np.zeros((2, buckets + 1), dtype=np.int64)
    spread, bits = strategy == "spread", buckets.bit_length() - 1
    order_by_bucket(found, order, counts, spread, bits, features, ordered, starts[0], starts[1])
    rows = parsed.indptr.size - 1
    examples = np.empty(nnz, dtype=np.uint16 if rows <= 1 << 16 else np.int32)
    values = np.empty(0 if parsed.all_ones else nnz, dtype=np.float32)
    transpose(parsed.indptr, local, parsed.values, counts, examples, values)
    directory = np.empty(buckets + 1, dtype=DIRECTORY)
    directory["features"], directory["nnz"] = starts
    return ByFeature(features, ordered, examples, values, directory)


@dataclass(frozen=True)
class Fragment:
    """What is known of a fragment without reading its nonzeros."""

    path: str
    header: np.ndarray  # of HEADER, zero-dimensional

    @property
    def rows(self) -> int:
        return int(self.header["rows"])

    @property
    def nnz(self) -> int:
        return int(self.header["nnz"])

    @property
    def label_values(self) -> np.ndarray:
        return np.asarray(self.header["label_values"])[: int(self.header["labels"])]

    def file_of(self, label: float) -> int | None:
        """Position among the block's files of the first that has this label; None if none has."""
        found = np.flatnonzero(self.label_values == label)
        return int(self.header["label_files"][found[0]]) if found.size else None

    def layout(self) -> list[int]:
        """Where the sections start: directory, features, counts, examples, values, labels, weights, notes, end."""
        h = self.header
        sizes = (
            DIRECTORY.itemsize * (int(h["buckets"]) + 1),
            8 * int(h["features"]),
            4 * int(h["features"]),
            int(h["example_bytes"]) * self.nnz,
            int(h["value_bytes"]) * self.nnz,
            int(h["label_bytes"]) * self.rows,
            4 * self.rows if h["weighted"] else 0,
            int(h["note_bytes"]),
        )
        starts: list[int] = np.cumsum((HEADER.itemsize, *sizes)).tolist()
        return starts


@dataclass(frozen=True)
class Origin:
    """What a fragment was made of."""

    plan: bytes  # its fingerprint
    rows: np.ndarray  # of each file of the block
    max_line: int = 0
    numeric_labels: bool = False


def write_fragment(fs: Any, path: str, origin: Origin, parsed: Parsed, data: ByFeature) -> Fragment:
    """Write a block's fragment; the end mark goes last."""
    labels, label_values, first = _label_section(parsed.labels, origin.numeric_labels)
    weighted = int((~np.isnan(parsed.weights)).sum())
    header = np.zeros((), dtype=HEADER)
    header["magic"], header["plan"], header["max_line"] = MAGIC, origin.plan, origin.max_line
    header["rows"], header["features"], header["nnz"] = labels.size, data.features.size, data.examples.size
    header["buckets"], header["lines"], header["bad"] = (
        data.directory.size - 1,
        parsed.lines,
        parsed.bad_count,
    )
    header["labels"], header["weighted"] = label_values.size, weighted
    header["example_bytes"], header["value_bytes"] = data.examples.itemsize, 4 if data.values.size else 0
    header["label_bytes"] = labels.itemsize
    header["label_values"][: label_values.size] = label_values
    header["label_files"][: first.size] = np.searchsorted(np.cumsum(origin.rows), first, side="right")
    spots = [{name: getattr(spot, name) for name in _SPOT} for spot in parsed.bad]
    notes = json.dumps(spots).encode() if spots else b""
    header["note_bytes"] = len(notes)
    sections = [header, data.directory, data.features, data.counts, data.examples, data.values]
    sections += [labels] + ([parsed.weights] if weighted else [])
    with create_file(fs, path) as file:
        for section in sections:
            if section.nbytes:
                file.write(np.ascontiguousarray(section).reshape(-1).view(np.uint8).data)
        file.write(notes + MAGIC)
    return Fragment(path, header)


def _label_section(labels: np.ndarray, numeric: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels as they are stored: numbers, or codes; what the codes stand for; the row where each first stands."""
    if numeric:
        return labels, np.empty(0), np.empty(0, dtype=np.int64)
    # The caller saw to it that there are at most two labels.
    values, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    return codes.astype(np.uint8), values, first


def find_fragment(fs: Any, path: str, plan: bytes) -> Fragment | None:
    """The fragment at `path` if it is whole and of this plan."""
    try:
        size = fs.info(path)["size"]
    except FileNotFoundError:
        return None
    if size < HEADER.itemsize + len(MAGIC):
        return None
    head, end = read_ranges(fs, [path, path], [0, size - len(MAGIC)], [HEADER.itemsize, size])
    fragment = Fragment(path, np.frombuffer(head, dtype=HEADER).reshape(()))
    complete = end == MAGIC and head.startswith(MAGIC) and _is_sound(fragment.header)
    complete = complete and fragment.layout()[-1] + len(MAGIC) == size
    return fragment if complete and fragment.header["plan"] == plan.rstrip(b"\0") else None


def _is_sound(header: np.ndarray) -> bool:
    """Can a layout be computed from these numbers?"""
    numbers = [int(header[name]) for name in _NUMBERS + _SIZES]
    sizes = int(header["example_bytes"]) in (2, 4) and int(header["value_bytes"]) in (0, 4)
    sizes = sizes and int(header["label_bytes"]) in (1, 8)
    labels = int(header["labels"]) <= 2 and bool(np.isfinite(header["label_values"]).all())
    return sizes and min(numbers) >= 0 and labels and bool((header["label_files"] >= 0).all())


def read_notes(fs: Any, fragment: Fragment) -> list[BadSpot]:
    """The first bad lines of the block, if any were skipped. Raises ValueError if they are not what they must be."""
    at = fragment.layout()
    raw = read_ranges(fs, [fragment.path], [at[7]], [at[8]])[0] if at[8] > at[7] else b"[]"
    spots = parse(raw)
    _SPOTS(spots, "notes")
    return [BadSpot(**{name: spot[name] for name in _SPOT}) for spot in spots]


def read_bucket_nnz(fs: Any, fragment: Fragment) -> np.ndarray:
    """Nonzeros in each bucket."""
    at = fragment.layout()
    raw = read_ranges(fs, [fragment.path], [at[0]], [at[1]])[0]
    return np.diff(np.frombuffer(raw, dtype=DIRECTORY)["nnz"])


def read_labels(fs: Any, fragments: Sequence[Fragment]) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Per fragment: the label of each row as written, and its weight if there are weights."""
    layouts = [fragment.layout() for fragment in fragments]
    paths = [fragment.path for fragment in fragments]
    pieces = read_ranges(fs, paths, [at[5] for at in layouts], [at[7] for at in layouts])
    result = []
    for fragment, piece in zip(fragments, pieces, strict=True):
        size = int(fragment.header["label_bytes"]) * fragment.rows
        weights = np.frombuffer(piece[size:], np.float32) if fragment.header["weighted"] else None
        result.append((_labels_of(fragment, piece[:size]), weights))
    return result


def _labels_of(fragment: Fragment, raw: bytes) -> np.ndarray:
    if fragment.header["label_bytes"] == 8:
        labels = np.frombuffer(raw, np.float64)
        if not are_labels(labels):
            raise _damaged(fragment)
        return labels
    codes = np.frombuffer(raw, np.uint8)
    if codes.size and codes.max() >= fragment.label_values.size:
        raise _damaged(fragment)
    return fragment.label_values[codes]


@dataclass(frozen=True)
class Run:
    """The features of some neighbouring buckets in one fragment."""

    features: np.ndarray
    counts: np.ndarray
    examples: np.ndarray
    values: np.ndarray | None
    row_offset: int


def read_runs(fs: Any, fragments: Sequence[Fragment], offsets: Sequence[int], spans: np.ndarray) -> list[Run]:
    """Of every fragment, the buckets [first, stop) of each span, in fragment order."""
    ats = [fragment.layout() for fragment in fragments]
    if not spans.size:
        return []
    low, high = int(spans.min()), int(spans.max())
    width = DIRECTORY.itemsize
    directories = read_ranges(
        fs,
        [fragment.path for fragment in fragments],
        [at[0] + width * low for at in ats],
        [at[0] + width * (high + 1) for at in ats],
    )
    wanted: list[tuple[Fragment, int, int, int]] = []  # fragment, row offset, features, nonzeros
    paths: list[str] = []
    starts: list[int] = []
    stops: list[int] = []
    for fragment, offset, at, raw in zip(fragments, offsets, ats, directories, strict=True):
        directory = np.frombuffer(raw, dtype=DIRECTORY)
        begin, end = directory[spans[:, 0] - low], directory[spans[:, 1] - low]
        if not _are_sound(fragment, begin, end):
            raise _damaged(fragment)
        held = begin["features"] < end["features"]  # of many buckets a block has no feature
        for (f0, n0), (f1, n1) in zip(begin[held].tolist(), end[held].tolist(), strict=True):
            example, value = int(fragment.header["example_bytes"]), int(fragment.header["value_bytes"])
            wanted.append((fragment, offset, f1 - f0, n1 - n0))
            for section, size, a, b in (
                (1, 8, f0, f1),
                (2, 4, f0, f1),
                (3, example, n0, n1),
                (4, value, n0, n1),
            ):
                paths.append(fragment.path)
                starts.append(at[section] + size * a)
                stops.append(at[section] + size * b)
    pieces = iter(read_ranges(fs, paths, starts, stops))
    runs = []
    for fragment, offset, features, nnz in wanted:
        ids, counts, examples, values = (next(pieces) for _ in range(4))
        kind = np.uint16 if fragment.header["example_bytes"] == 2 else np.int32
        run = Run(
            np.frombuffer(ids, np.int64),
            np.frombuffer(counts, np.int32),
            np.frombuffer(examples, kind),
            np.frombuffer(values, np.float32) if fragment.header["value_bytes"] else None,
            offset,
        )
        if run.features.size != features or run.examples.size != nnz:
            raise OSError(f"{fragment.path}: cut off while it was read")
        if not _is_within(run, fragment.rows):
            raise _damaged(fragment)
        runs.append(run)
    return runs


def _are_sound(fragment: Fragment, begin: np.ndarray, end: np.ndarray) -> bool:
    """Do these entries of its directory lie within the fragment, each end at or behind its begin?"""
    return all(
        bool((begin[name] <= end[name]).all() and (end[name] <= int(fragment.header[name])).all())
        for name in ("features", "nnz")
    )


def _is_within(run: Run, rows: int) -> bool:
    """May kernels use these numbers as sizes and places?"""
    return bool(
        run.features.min() >= 0
        and run.counts.min() >= 0
        and run.counts.sum(dtype=np.int64) == run.examples.size
        and run.examples.min(initial=0) >= 0
        and run.examples.max(initial=0) < max(rows, 1)
    )


def _damaged(fragment: Fragment) -> UserError:
    return UserError(f"{fragment.path}: damaged: start over with --overwrite")
