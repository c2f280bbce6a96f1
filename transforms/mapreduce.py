"""The tasks of the Map/Reduce graph, as they run on a worker (section 3 of the paper). The graph is in convert.py.

Map: a block of text -> its nonzeros by feature, one fragment. Reduce: a partition's share of all fragments, in block
order, -> one part. Names are fixed by the plan, so a task that runs again writes the same file again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from transforms.cancelled import stop_if_cancelled
from transforms.claim import Claim
from transforms.errors import UserError
from transforms.examples import BAD_LINES_NAMED, Piece
from transforms.fragments import (
    Fragment,
    Origin,
    by_feature,
    find_fragment,
    read_bucket_nnz,
    read_labels,
    read_notes,
    read_runs,
    write_fragment,
)
from transforms.holdout import training_part
from transforms.inputs import Block
from transforms.labels import (
    MIXED_WEIGHTS,
    Labels,
    LabelsInfo,
    read_label_file,
    remedy_of_text,
    write_label_file,
    wrong_labels,
)
from transforms.parser import BadSpot, join
from transforms.parts import PART_SCHEMA, PartInfo, merge_runs, part_name, write_part
from transforms.plan import BYTES_PER_NONZERO, Recipe
from transforms.schema import parse_record, record, text, whole
from transforms.secrets import without_secrets
from transforms.storage import StorageOptions, open_storage, read_whole, sha256_of, write_json

_PIECES = record({"pieces": whole(), "plan": text()})


def _part_note(value: Any, place: str) -> None:
    """What is noted beside a part that is finished."""
    PART_SCHEMA(value, place)
    record({"plan": text()})(value, place)


@dataclass(frozen=True)
class Job:
    """What every task of a conversion needs to know."""

    url: str = field(repr=False)  # may hold a password
    options: StorageOptions
    folder: str  # for fragments and unfinished parts
    claim: Claim
    plan: Recipe
    resume: bool

    def storage(self) -> Any:
        return open_storage(self.url, self.options)[0]


@dataclass(frozen=True)
class Mapped:
    """What a Map task reports of a fragment."""

    fragment: Fragment
    bucket_nnz: np.ndarray
    spots: list[BadSpot]  # lines counted from the start of their file, or of the block if it starts inside the file


@without_secrets
def map_block(job: Job, block: Block) -> list[Mapped]:
    """Parse a block and leave it by feature: one fragment, or several when there is much compressed text in it."""
    fs = job.storage()
    done = _already_mapped(fs, job, block) if job.resume else None
    if done is not None:
        return done
    results: list[Mapped] = []
    for pieces in _batches(job, block):
        results.append(_map_pieces(fs, job, block, pieces, len(results)))
    if block.compressed:
        write_json(fs, _pieces_path(job, block), {"pieces": len(results), "plan": job.plan.fingerprint})
    return results


def _batches(job: Job, block: Block) -> Iterator[list[Piece]]:
    """The block's pieces as they go into fragments: all into one, but compressed text into several if it is much."""
    batch: list[Piece] = []
    nonzeros = 0
    most = 0 if len(block.spans) == 1 else job.plan.block_size // BYTES_PER_NONZERO
    compressed = block.compressed
    for piece in job.plan.reader.pieces(block, job.options):
        batch.append(piece)
        nonzeros += piece.parsed.ids.size
        if compressed and nonzeros >= most:
            yield batch
            batch, nonzeros = [], 0
    if batch:
        yield batch


def _map_pieces(fs: Any, job: Job, block: Block, pieces: Sequence[Piece], index: int) -> Mapped:
    """Leave parsed text as a fragment."""
    _check_labels(pieces, block, job.plan.numeric_labels)
    kept = [training_part(piece.parsed, job.plan.hold_out) for piece in pieces]
    rows = np.bincount([piece.file for piece in pieces], [one.labels.size for one in kept]).astype(np.int64)
    parsed = join(kept)
    parsed = replace(parsed, bad=parsed.bad[:BAD_LINES_NAMED])
    del kept
    stop_if_cancelled()
    data = by_feature(parsed, job.plan.strategy, job.plan.buckets)
    stop_if_cancelled()
    job.claim.check(fs)
    path = _fragment_path(job, block, index)
    origin = Origin(job.plan.fingerprint.encode(), rows, job.plan.reader.max_line_bytes, job.plan.numeric_labels)
    fragment = write_fragment(fs, path, origin, parsed, data)
    return Mapped(fragment, np.diff(data.directory["nnz"]), parsed.bad)


def _check_labels(pieces: Sequence[Piece], block: Block, numeric: bool) -> None:
    """A block alone can show that there are too many labels, unless they are numbers, or weights on some lines only."""
    values: set[float] = set()
    weighted: set[bool] = set()
    for piece in pieces:
        name = block.spans[piece.file].file.name
        if not numeric:
            values.update(np.unique(piece.parsed.labels).tolist())
        weighted.update(np.unique(~np.isnan(piece.parsed.weights)).tolist())
        if len(values) > 2:
            remedy = remedy_of_text(list(values), weighted=weighted == {True})
            raise UserError(f"{name}: {wrong_labels(list(values))}{remedy}")
        if len(weighted) > 1:
            raise UserError(f"{name}: {MIXED_WEIGHTS}")


def _fragment_path(job: Job, block: Block, piece: int) -> str:
    return f"{job.folder}/block-{block.index:06d}-{piece:04d}.fragment"


def _pieces_path(job: Job, block: Block) -> str:
    return f"{job.folder}/block-{block.index:06d}.json"


def _already_mapped(fs: Any, job: Job, block: Block) -> list[Mapped] | None:
    """The block's fragments from an earlier run, if all of them are there and whole."""
    pieces = 1
    if block.compressed:
        try:
            pieces = parse_record(read_whole(fs, _pieces_path(job, block)), _PIECES)["pieces"]
        except (FileNotFoundError, ValueError):
            return None
    results = []
    for piece in range(pieces):
        fragment = find_fragment(fs, _fragment_path(job, block, piece), job.plan.fingerprint.encode())
        if fragment is None or (fragment.header["bad"] and not _same_bad_lines(job, fragment)):
            return None
        try:
            results.append(Mapped(fragment, read_bucket_nnz(fs, fragment), read_notes(fs, fragment)))
        except ValueError:  # damaged: it is made again
            return None
        if not _names_files_of(block, results[-1]):
            return None
    return results


def _names_files_of(block: Block, mapped: Mapped) -> bool:
    """Are the files that a fragment speaks of among those of the block?"""
    files: list[int] = [*mapped.fragment.header["label_files"].tolist(), *(spot.file for spot in mapped.spots)]
    return max(files) < len(block.spans)


def _same_bad_lines(job: Job, fragment: Fragment) -> bool:
    """Would the lines that were left out be left out now?"""
    return job.plan.reader.on_bad_line == "skip" and bool(fragment.header["max_line"] == job.plan.reader.max_line_bytes)


@without_secrets
def count_lines(job: Job, block: Block) -> int:
    """Lines that start in a plain block."""
    return job.plan.reader.count_lines(block, job.options)


@dataclass(frozen=True)
class Catalogue:
    """All fragments in input order, the row each starts at, and the labels' meaning."""

    fragments: list[Fragment]
    offsets: list[int]
    positive: float | None  # the label that is +1; None where labels are numbers
    weighted: bool

    @property
    def numeric(self) -> bool:
        return self.positive is None

    @property
    def rows(self) -> int:
        return self.offsets[-1]


@without_secrets
def write_labels(job: Job, catalogue: Catalogue) -> LabelsInfo:
    """Write labels.parquet from the fragments."""
    fs = job.storage()
    job.claim.check(fs)

    def chunks() -> Iterator[Labels]:
        for start in range(0, len(catalogue.fragments), 64):
            pieces = read_labels(fs, catalogue.fragments[start : start + 64])
            labels = np.concatenate([one for one, _ in pieces])
            yield (
                labels if catalogue.numeric else np.where(labels == catalogue.positive, 1, -1).astype(np.int8),
                np.concatenate([w for _, w in pieces if w is not None]) if catalogue.weighted else None,
            )

    return write_label_file(fs, job.folder, chunks(), weighted=catalogue.weighted, numeric=catalogue.numeric)


_labels_lock = threading.Lock()
_labels_kept: dict[str, Labels] = {}


def _labels(fs: Any, job: Job) -> Labels:
    """labels.parquet of this conversion, read once in a process: n bytes that all Reduce tasks share."""
    with _labels_lock:
        if job.claim.token not in _labels_kept:
            _labels_kept.clear()
            _labels_kept[job.claim.token] = read_label_file(fs, job.folder)
        return _labels_kept[job.claim.token]


@without_secrets
def reduce_partition(job: Job, index: int, catalogue: Catalogue, spans: np.ndarray) -> PartInfo:
    """Collect a partition's features from all fragments and write them as a part."""
    fs = job.storage()
    done = _already_reduced(fs, job, index) if job.resume else None
    if done is not None:
        return done
    try:
        runs = read_runs(fs, catalogue.fragments, catalogue.offsets[:-1], spans)
        labels, weights = _labels(fs, job)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or error}: a worker cannot see what another wrote: OUTPUT must be on storage that all "
            "workers share"
        ) from None
    csc = merge_runs(runs, None if catalogue.numeric else labels, weights)
    del runs
    job.claim.check(fs)
    info = write_part(fs, job.folder, index, csc)
    write_json(fs, f"{job.folder}/{info.file}.json", info.to_json() | {"plan": job.plan.fingerprint})
    return info


def _already_reduced(fs: Any, job: Job, index: int) -> PartInfo | None:
    """The part from an earlier run, if it was finished and is still there."""
    path = f"{job.folder}/{part_name(index)}"
    try:
        note = parse_record(read_whole(fs, f"{path}.json"), _part_note)
        same = note["plan"] == job.plan.fingerprint and fs.info(path)["size"] == note["bytes"]
        if not same or note["file"] != part_name(index) or sha256_of(fs, path) != note["sha256"]:
            return None
    except (FileNotFoundError, ValueError):
        return None
    return PartInfo.from_json(note)
