"""Open a data set: labels, and partitions as CSC arrays that view what Parquet was decoded into, without copying.

An Arrow large_list column is a CSC matrix: its offsets are indptr, its child is indices or data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.errors import DatasetError
from transforms.labels import LABELS_PARQUET, Labels, read_label_file
from transforms.parts import PART_SCHEMA, Csc, PartInfo, part_name
from transforms.plan import INPUTS_SCHEMA
from transforms.schema import (
    SHA256,
    Check,
    Mismatch,
    flag,
    listed,
    number,
    read_record,
    record,
    shown,
    text,
    whole,
)
from transforms.storage import StorageOptions, display, is_local, open_storage, redact
from transforms.version import FORMAT_VERSION

DATASET_JSON = "dataset.json"
MAX_EXAMPLES = 2**31 - 1  # they are numbered by int32


@dataclass(frozen=True)
class Partition:
    """One feature partition: S_m of the paper, X_m on disk."""

    url: str = field(repr=False)  # may hold a password
    options: StorageOptions
    info: PartInfo

    def read(self, bound_above: float | None = None) -> Csc:
        """The partition, or the features with bound > bound_above: a prefix; row groups behind it stay unread."""
        with self._open() as file:
            groups = list(range(self._groups(file, bound_above)))
            # Older Arrow cannot read no row groups at all.
            table = file.read_row_groups(groups) if groups else file.schema_arrow.empty_table()
            return _prefix(_to_csc(table), bound_above)

    def stream(self, bound_above: float | None = None) -> Iterator[Csc]:
        """The same features in the same order, one row group at a time."""
        with self._open() as file:
            for group in range(self._groups(file, bound_above)):
                yield _prefix(_to_csc(file.read_row_group(group)), bound_above)

    def read_groups(self, chosen: Iterable[int]) -> Iterator[Csc]:
        """These row groups, each read when it is asked for."""
        with self._open() as file:
            for group in chosen:
                yield _to_csc(file.read_row_group(group))

    def read_bounds(self) -> list[np.ndarray]:
        """The bounds alone, of each row group."""
        with self._open() as file:
            groups = range(file.metadata.num_row_groups)
            return [file.read_row_group(group, columns=["bound"])["bound"].to_numpy() for group in groups]

    def read_counts(self) -> np.ndarray:
        """The nonzeros of each feature, as the part itself counts them."""
        with self._open() as file:
            return _read_column(file, "nnz")

    def read_features(self) -> np.ndarray:
        """The feature ids alone, in the order of the rows."""
        with self._open() as file:
            return _read_column(file, "feature")

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        """The Parquet file; whatever is wrong with it comes out as one sentence that names it."""
        fs, path = open_storage(self.url, self.options)
        try:
            # Row groups are asked for one after another on a disk, in a few large requests elsewhere.
            source = path if is_local(fs) else fs.open(path, "rb", cache_type="none")
            with pq.ParquetFile(source, pre_buffer=not is_local(fs)) as file:
                yield file
        except FileNotFoundError:
            raise DatasetError(f"{display(fs, path)}: this part of the data set is missing: convert again") from None
        except (pa.ArrowInvalid, pa.ArrowIOError, OSError) as error:
            raise DatasetError(f"{display(fs, path)}: this part is damaged ({error}): convert again") from error

    def _groups(self, file: pq.ParquetFile, bound_above: float | None) -> int:
        """How many row groups, from the first, hold a feature with bound > bound_above."""
        total: int = file.metadata.num_row_groups
        if bound_above is None:
            return total
        column = file.schema_arrow.names.index("bound")
        for group in range(total):
            statistics = file.metadata.row_group(group).column(column).statistics
            if statistics is not None and statistics.max <= bound_above:
                return group
        return total


def _read_column(file: pq.ParquetFile, name: str) -> np.ndarray:
    table = file.read(columns=[name]) if file.metadata.num_row_groups else file.schema_arrow.empty_table()
    column: np.ndarray = table[name].to_numpy()
    return column


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


def _to_csc(table: pa.Table) -> Csc:
    def column(name: str) -> pa.Array:
        chunked = table[name]
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()

    examples = column("examples")
    if len(examples) == 0:
        data = np.empty(0, dtype=np.float32) if "values" in table.column_names else None
        return Csc(np.empty(0, np.int64), np.empty(0), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32), data)
    indptr = examples.offsets.to_numpy(zero_copy_only=True)
    data = column("values").values.to_numpy(zero_copy_only=True) if "values" in table.column_names else None
    if data is not None and data.size != len(examples.values):
        raise pa.ArrowInvalid("examples and values differ in length")
    return Csc(
        column("feature").to_numpy(zero_copy_only=True),
        column("bound").to_numpy(zero_copy_only=True),
        indptr,
        examples.values.to_numpy(zero_copy_only=True),
        data,
    )


@dataclass(frozen=True, repr=False)
class Dataset:
    """A data set on disk. `description` is dataset.json."""

    url: str  # may hold a password: show `name` instead
    options: StorageOptions
    description: dict[str, Any]

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}: {self.n:,} examples, {self.p:,} features, {self.nnz:,} nonzeros)"

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return redact(self.url)

    @property
    def n(self) -> int:
        """Examples."""
        return int(self.description["examples"])

    @property
    def p(self) -> int:
        """Distinct features."""
        return int(self.description["features"])

    @property
    def nnz(self) -> int:
        return int(self.description["nnz"])

    @property
    def weighted(self) -> bool:
        return bool(self.description["labels"]["weighted"])

    @property
    def partitions(self) -> list[Partition]:
        base = self.url.rstrip("/")
        return [
            Partition(f"{base}/{info['file']}", self.options, PartInfo.from_json(info))
            for info in self.description["partitions"]
        ]

    def labels(self) -> Labels:
        """Labels (int8, -1 or +1) and example weights (float32), or None if there are none."""
        fs, path = open_storage(self.url, self.options)
        where = f"{display(fs, path)}/{LABELS_PARQUET}"
        try:
            labels, weights = read_label_file(fs, path)
        except FileNotFoundError:
            raise DatasetError(f"{where}: missing: convert again") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise DatasetError(f"{where}: damaged ({error}): convert again") from error
        if labels.size != self.n:
            raise DatasetError(f"{where}: {labels.size} labels for {self.n} examples: convert again")
        return labels, weights


def open_dataset(url: str, storage_options: dict[str, Any] | None = None) -> Dataset:
    """Open a data set made by convert_libsvm or from_arrays. Raises DatasetError, saying what is wrong."""
    options = StorageOptions(storage_options or {})
    fs, path = open_storage(url, options)
    fs.invalidate_cache()
    try:
        return Dataset(url, options, read_description(fs, path))
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(f"{display(fs, path)}: not a data set: {_why_not(fs, path)}") from None


def read_description(fs: Any, path: str) -> dict[str, Any]:
    """dataset.json of the folder at `path`, if all of it is as it must be; DatasetError says what is not."""
    check = _description_check(display(fs, path))
    return read_record(fs, f"{path}/{DATASET_JSON}", check, "convert again", DatasetError)


_LABELS = record(
    {
        "file": text(choices=(LABELS_PARQUET,)),
        "bytes": whole(),
        "sha256": text(SHA256),
        "weighted": flag,
        "negatives": whole(),
        "positives": whole(),
    }
)
LABEL_MAP = record({"-1": number(), "+1": number()})
_DESCRIPTION = record(
    {
        "examples": whole(high=MAX_EXAMPLES),
        "features": whole(),
        "nnz": whole(),
        "label_map": LABEL_MAP,
        "index_base": whole(high=1),
        "labels": _LABELS,
        "partitions": listed(PART_SCHEMA),
        "inputs": INPUTS_SCHEMA,
        "bad_lines": record({"count": whole(), "first": listed(text())}),
    },
    {"plan": record({"on_bad_line": text()}, {"hold_out": number(0, 1)})},
)


def _description_check(where: str) -> Check:
    """All that can be said of dataset.json alone: its format, its fields, and counts that must agree."""

    def check(description: dict[str, Any], place: str) -> None:
        if description.get("format") != "dglmnet":
            raise DatasetError(f"{where}/{DATASET_JSON}: not the description of a dglmnet data set")
        version = description.get("format_version")
        if type(version) is not int or version != FORMAT_VERSION:
            newer = isinstance(version, int) and version > FORMAT_VERSION
            remedy = "update dglmnet" if newer else "convert again"
            raise DatasetError(
                f"{where}: format version {shown(version)}, but this dglmnet reads {FORMAT_VERSION}: {remedy}"
            )
        _DESCRIPTION(description, place)
        _refuse_untrue(description)

    return check


def _refuse_untrue(description: dict[str, Any]) -> None:
    """Counts that stand in two places must agree; each part has the name of its place, so that none is there twice."""
    parts, labels = description["partitions"], description["labels"]
    for name in ("features", "nnz"):
        total = sum(part[name] for part in parts)
        if description[name] != total:
            raise Mismatch(f"{name} is {description[name]}, but the parts have {total}")
    total = labels["negatives"] + labels["positives"]
    if description["examples"] != total:
        raise Mismatch(f"examples is {description['examples']}, but there are {total} labels")
    for k, part in enumerate(parts):
        if part["file"] != part_name(k):
            raise Mismatch(f"partitions[{k}].file must be {part_name(k)}, found {part['file']}")
    if description["label_map"]["-1"] == description["label_map"]["+1"]:
        raise Mismatch("label_map gives -1 and +1 the same label")


def _why_not(fs: Any, path: str) -> str:
    if not fs.exists(path):
        return "no such folder"
    if fs.isfile(path):
        return "it is a file. Convert it with convert-libsvm first"
    if fs.exists(f"{path}/_temporary"):
        return "a conversion did not finish here. Continue it with convert-libsvm --resume"
    return f"there is no {DATASET_JSON} in it"
