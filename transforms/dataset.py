"""Open a data set: labels, and partitions as CSC arrays that view what Parquet was decoded into, without copying.

An Arrow large_list column is a CSC matrix: its offsets are indptr, its child is indices or data.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.dataset_record import DatasetRecord, read_dataset_record
from transforms.errors import DatasetError
from transforms.folders import why_no_dataset
from transforms.labels import LABELS_PARQUET, Labels, checked_labels
from transforms.pages import Lists, PageReader
from transforms.parts import Csc, PartInfo, hash_ids, part_schema
from transforms.schema import Mismatch
from transforms.storage import StorageOptions, decode_parquet, display, explained, is_local, open_storage, redact
from transforms.validation import LARGEST_ID, refuse_malformed, refuse_nulls, refuse_other_columns
from transforms.verify import Expected, read_verified, unhashed, verified


@dataclass(frozen=True)
class Partition:
    """One feature partition: S_m of the paper, X_m on disk.

    Whatever it gives was checked: the file against its checksum (transforms/verify.py), the columns against what
    kernels take for granted (transforms/validation.py). DatasetError names the file and what is wrong with it.
    """

    url: str = field(repr=False)  # may hold a password
    options: StorageOptions
    info: PartInfo
    n: int  # examples of the data set
    session: str = field(repr=False)  # of the opening of the data set: a file is hashed once in each

    def read(self, bound_above: float | None = None) -> Csc:
        """The partition, or the features with bound > bound_above: a prefix; row groups behind it stay unread."""
        with self._open() as part:
            csc = part.read(range(part.groups_above(bound_above)))
            if bound_above is None:
                part.refuse_other_count(csc.indices.size)
            return _prefix(csc, bound_above)

    def stream(self, bound_above: float | None = None) -> Iterator[Csc]:
        """The same features in the same order, one row group at a time."""
        with self._open() as part:
            before, nnz = BEFORE_ALL, 0
            for group in range(part.groups_above(bound_above)):
                csc = part.read([group], before)
                nnz += csc.indices.size
                yield _prefix(csc, bound_above)
                if csc.features.size:
                    before = float(csc.bounds[-1]), int(csc.features[-1])
            if bound_above is None:
                part.refuse_other_count(nnz)

    def read_groups(self, chosen: Iterable[int], again: PageReader | None = None) -> Iterator[Lists]:
        """The lists of these row groups, each read when it is asked for.

        again: where the pages of a row group are is noted here, and it is read by them from the next time on.
        """
        with self._open() as part:
            for group in chosen:
                yield part.read_lists(group, again)

    def read_bounds(self) -> list[np.ndarray]:
        """The bounds alone, of each row group."""
        with self._open() as part:
            return part.read_bounds()

    def read_features(self) -> np.ndarray:
        """The feature ids alone, in the order of the rows. They have a checksum of their own: the rest stays unread."""
        with self._open(verified if self.info.features_sha256 is None else unhashed) as part:
            return part.read_features()

    @contextmanager
    def _open(self, how: Callable[..., AbstractContextManager[Any]] = verified) -> Iterator[_OpenPart]:
        """The Parquet file; whatever is wrong with it comes out as one sentence that names it."""
        fs, path = open_storage(self.url, self.options)
        where = display(fs, path)
        expected = Expected(self.info.bytes, self.info.sha256, self.session)
        try:
            with (
                explained(where),
                how(fs, path, expected) as source,
                # Row groups are asked for one after another on a disk, in a few large requests elsewhere.
                pq.ParquetFile(source, pre_buffer=not is_local(fs)) as file,
            ):
                yield _OpenPart(file, source, self.info, self.n)
        except FileNotFoundError:
            raise DatasetError("this part of the data set is missing: convert again", where) from None
        except UNREADABLE as error:
            raise DatasetError(f"this part is damaged ({one_line(error)}): convert again", where) from error


BEFORE_ALL = (np.inf, -1)  # bound and id that may stand before any row
UNREADABLE = (pa.ArrowException, OSError, ValueError)  # what comes of a file that is not what it should be


def one_line(error: BaseException) -> str:
    """What an error says, in at most a line."""
    words = " ".join(str(error).split())
    return words if len(words) <= 200 else f"{words[:200]}…"


class _OpenPart:
    """A part's Parquet file, its layout checked against dataset.json before anything is decoded."""

    def __init__(self, file: pq.ParquetFile, source: pa.NativeFile, info: PartInfo, n: int) -> None:
        self._file, self._source, self._info, self._n = file, source, info, n
        refuse_other_columns(file.schema_arrow, part_schema(info.values))
        found = file.metadata
        if (found.num_row_groups, found.num_rows) != (info.row_groups, info.features):
            raise Mismatch(
                f"{found.num_rows} features in {found.num_row_groups} row groups, expected {info.features} in "
                f"{info.row_groups}"
            )

    def read(self, groups: Sequence[int], before: tuple[float, int] = BEFORE_ALL, *, threads: bool = True) -> Csc:
        """Some row groups, one after another. threads: may columns be decoded side by side, in more memory?"""
        # Older Arrow cannot read no row groups at all.
        table = self._file.schema_arrow.empty_table()
        if groups:
            table = self._file.read_row_groups(list(groups), use_threads=threads)
        refuse_nulls(table)
        csc, counts = _to_csc(table)
        refuse_malformed(csc, counts, self._n, before)
        return csc

    def read_lists(self, group: int, again: PageReader | None) -> Lists:
        """One row group: by Arrow, with every check, or by its pages if they are known from an earlier time."""
        on_disk = isinstance(self._source, pa.OSFile)  # a request for each page would take longer elsewhere
        known = again.read(group, self._source, self._n) if again is not None and on_disk else None
        if known is not None:
            return known
        csc = self.read([group], threads=False)
        lists = Lists(csc.indptr, csc.indices, csc.data)
        if again is not None and on_disk:
            again.note(group, self._file.metadata, self._source, lists)
            pa.default_memory_pool().release_unused()  # Arrow may not be needed again
        return lists

    def read_bounds(self) -> list[np.ndarray]:
        groups = range(self._info.row_groups)
        self.refuse_other_count(int(self._column("nnz", list(groups)).sum()))
        found = [self._column("bound", [group]) for group in groups]
        bounds = np.concatenate([np.empty(0), *found])
        if not (np.isfinite(bounds).all() and (bounds >= 0).all()):
            raise Mismatch("bounds that are negative or not finite")
        if (np.diff(bounds) > 0).any():
            raise Mismatch("features are not sorted by falling bound and rising id")
        if float(bounds.max(initial=0.0)) != self._info.largest_bound:
            raise Mismatch(f"its largest bound is {bounds.max(initial=0.0)}, expected {self._info.largest_bound}")
        return found

    def read_features(self) -> np.ndarray:
        features = self._column("feature", list(range(self._info.row_groups)))
        if features.size and (features.min() < 0 or features.max() > LARGEST_ID):
            raise Mismatch(f"feature ids outside 0..{LARGEST_ID}")
        if self._info.features_sha256 not in (None, hash_ids(features)):
            raise Mismatch("the checksum of its feature ids differs")
        return features

    def groups_above(self, bound: float | None) -> int:
        """How many row groups, from the first, hold a feature with a larger bound."""
        if bound is None:
            return self._info.row_groups
        # Not by the footer's statistics: pyarrow lets a broken footer end the process when it is asked for a column.
        for group in range(self._info.row_groups):
            if (self._column("bound", [group]) <= bound).all():
                return group
        return self._info.row_groups

    def _column(self, name: str, groups: list[int]) -> np.ndarray:
        """One column that is not a list."""
        table = self._file.read_row_groups(groups, columns=[name]) if groups else self._empty(name)
        refuse_nulls(table)
        column: np.ndarray = table[name].to_numpy()
        return column

    def _empty(self, name: str) -> pa.Table:
        return self._file.schema_arrow.empty_table().select([name])

    def refuse_other_count(self, nnz: int) -> None:
        if nnz != self._info.nnz:
            raise Mismatch(f"{nnz} nonzeros, expected {self._info.nnz}")


def _prefix(csc: Csc, bound_above: float | None) -> Csc:
    if bound_above is None:
        return csc
    keep = int(np.searchsorted(-csc.bounds, -bound_above, side="left"))
    stop = csc.indptr[keep] if csc.indptr.size else 0
    return Csc(
        csc.features[:keep],
        csc.bounds[:keep],
        csc.indptr[: keep + 1],
        csc.indices[:stop],
        None if csc.data is None else csc.data[:stop],
    )


def _to_csc(table: pa.Table) -> tuple[Csc, np.ndarray]:
    """The arrays of a table of the right columns, viewed; beside them its own count of each feature's nonzeros."""

    def column(name: str) -> pa.Array:
        chunked = table[name]
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()

    examples = column("examples")
    if len(examples) == 0:
        data = np.empty(0, dtype=np.float32) if "values" in table.column_names else None
        none = np.empty(0, np.int64)
        return Csc(none, np.empty(0), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), data), none
    indptr = examples.offsets.to_numpy(zero_copy_only=True)
    data = None
    if "values" in table.column_names:
        values = column("values")
        if not np.array_equal(values.offsets.to_numpy(zero_copy_only=True), indptr):
            raise Mismatch("examples and values differ in length")
        data = values.values.to_numpy(zero_copy_only=True)
    csc = Csc(
        column("feature").to_numpy(zero_copy_only=True),
        column("bound").to_numpy(zero_copy_only=True),
        indptr,
        examples.values.to_numpy(zero_copy_only=True),
        data,
    )
    return csc, column("nnz").to_numpy(zero_copy_only=True)


@dataclass(frozen=True, repr=False)
class Dataset:
    """A data set on disk."""

    url: str  # may hold a password: show `name` instead
    options: StorageOptions
    record: DatasetRecord  # dataset.json
    session: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)  # of this opening

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n:,} examples, {self.p:,} features, {self.nnz:,} nonzeros)"

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return redact(self.url)

    @property
    def description(self) -> dict[str, Any]:
        """dataset.json as it is stored."""
        return self.record.to_json()

    @property
    def n(self) -> int:
        """Examples."""
        return self.record.examples

    @property
    def p(self) -> int:
        """Distinct features."""
        return self.record.features

    @property
    def nnz(self) -> int:
        return self.record.nnz

    @property
    def weighted(self) -> bool:
        return self.record.labels.weighted

    @property
    def numeric(self) -> bool:
        """Are the labels numbers, not two classes?"""
        return self.record.labels.numeric

    @property
    def index_base(self) -> int:
        """Whether feature ids count from 0 or from 1."""
        return self.record.index_base

    @property
    def partitions(self) -> list[Partition]:
        base = self.url.rstrip("/")
        return [
            Partition(f"{base}/{info.file}", self.options, info, self.n, self.session)
            for info in self.record.partitions
        ]

    def labels(self) -> Labels:
        """Labels (int8, -1 or +1; float64 if they are numbers) and weights (float32), or None if there are none."""
        fs, path = open_storage(f"{self.url.rstrip('/')}/{LABELS_PARQUET}", self.options)
        where, info = display(fs, path), self.record.labels
        try:
            with explained(where):
                content = read_verified(fs, path, Expected(info.bytes, info.sha256, self.session))
            return checked_labels(decode_parquet(content), info, self.n)
        except FileNotFoundError:
            raise DatasetError("missing: convert again", where) from None
        except UNREADABLE as error:
            raise DatasetError(f"damaged ({one_line(error)}): convert again", where) from error

    def as_written(self, labels: np.ndarray) -> np.ndarray:
        """Labels as the float64 numbers that they were in the input."""
        names = self.record.label_map
        return labels if names is None else np.where(labels > 0, float(names.positive), float(names.negative))


def open_dataset(url: str, storage_options: dict[str, Any] | None = None) -> Dataset:
    """Open a data set made by convert_libsvm or from_arrays. Raises DatasetError, saying what is wrong."""
    options = StorageOptions(storage_options or {})
    fs, path = open_storage(url, options)
    fs.invalidate_cache()
    try:
        return Dataset(url, options, read_dataset_record(fs, path))
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(f"not a data set: {why_no_dataset(fs, path)}", display(fs, path)) from None
