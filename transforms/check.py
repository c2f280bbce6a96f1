"""Check a data set's integrity: checksums, counts, order. What is wrong is named file by file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.dataset import Dataset, Partition
from transforms.errors import DatasetError
from transforms.labels import LABELS_PARQUET
from transforms.parts import Csc
from transforms.progress import NoProgress, Progress
from transforms.storage import display, open_storage, sha256_of


@dataclass(frozen=True)
class Problem:
    """A file of a data set and what is wrong with it."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def check_dataset(dataset: Dataset, progress: Progress | None = None) -> list[Problem]:
    """All that is wrong with a data set; an empty list if nothing is."""
    progress = progress or NoProgress()
    partitions = dataset.partitions
    progress.phase("check", sum(part.info.bytes for part in partitions), "B")
    problems = _check_labels(dataset)
    seen = 0
    with ThreadPoolExecutor(2) as pool:
        for partition, found in zip(
            partitions, pool.map(lambda part: _check_part(dataset, part), partitions), strict=True
        ):
            problems += found
            seen += partition.info.features
            progress.advance(partition.info.bytes)
    totals = {"features": seen, "nnz": sum(part.info.nnz for part in partitions)}
    for name, total in totals.items():
        if total != dataset.description[name]:
            problems.append(Problem("dataset.json", f"{dataset.description[name]} {name}, but the parts hold {total}"))
    if not problems:
        problems += _check_distinct(partitions)
    return problems


def _check_file(dataset: Dataset, info: dict[str, Any]) -> str | None:
    """Is the file there, of the right size and checksum?"""
    fs, path = open_storage(f"{dataset.url.rstrip('/')}/{info['file']}", dataset.options)
    try:
        size = fs.info(path)["size"]
    except FileNotFoundError:
        return "missing"
    if size != info["bytes"]:
        return f"{size} bytes, expected {info['bytes']}"
    if sha256_of(fs, path) != info["sha256"]:
        return "its checksum differs: the file was changed or damaged"
    return None


def _check_labels(dataset: Dataset) -> list[Problem]:
    info = dataset.description["labels"]
    name = _name(dataset, LABELS_PARQUET)
    wrong = _check_file(dataset, info)
    if wrong:
        return [Problem(name, wrong)]
    labels, _ = dataset.labels()
    if not np.isin(labels, (-1, 1)).all():
        return [Problem(name, "labels other than -1 and +1")]
    if int((labels > 0).sum()) != info["positives"]:
        return [Problem(name, f"{int((labels > 0).sum())} positive labels, expected {info['positives']}")]
    return []


def _check_part(dataset: Dataset, partition: Partition) -> list[Problem]:
    name = _name(dataset, partition.info.file)
    wrong = _check_file(dataset, partition.info.to_json())
    if wrong:
        return [Problem(name, wrong)]
    features = nnz = 0
    last = (np.inf, -1)
    try:
        counts = partition.read_counts()
        for csc in partition.stream():
            what = _check_group(csc, dataset.n, last)
            if not np.array_equal(np.diff(csc.indptr), counts[features : features + csc.features.size]):
                what = "nnz differs from the length of examples"
            if what:
                return [Problem(name, what)]
            features += csc.features.size
            nnz += csc.indices.size
            last = (float(csc.bounds[-1]), int(csc.features[-1]))
    except DatasetError as error:
        return [Problem(name, str(error))]
    if (features, nnz) != (partition.info.features, partition.info.nnz):
        return [
            Problem(
                name,
                f"{features} features and {nnz} nonzeros, expected {partition.info.features}, {partition.info.nnz}",
            )
        ]
    return []


def _check_group(csc: Csc, n: int, last: tuple[float, int]) -> str | None:
    """Order and ranges inside a row group."""
    bounds = np.concatenate(([last[0]], csc.bounds))
    features = np.concatenate(([last[1]], csc.features))
    if (np.diff(bounds) > 0).any() or ((np.diff(bounds) == 0) & (np.diff(features) <= 0)).any():
        return "features are not sorted by falling bound and rising id"
    if csc.indices.size and (csc.indices.min() < 0 or csc.indices.max() >= n):
        return f"example ids outside 0..{n - 1}"
    inner = np.ones(csc.indices.size, dtype=bool)
    inner[csc.indptr[:-1][np.diff(csc.indptr) > 0] - csc.indptr[0]] = False
    if (np.diff(csc.indices, prepend=-1)[inner] <= 0).any():
        return "example ids are not rising within a feature"
    if csc.data is not None and not (np.isfinite(csc.data).all() and csc.data.all()):
        return "values that are zero or not finite"
    return None


def _check_distinct(partitions: list[Partition]) -> list[Problem]:
    """No feature may stand in two parts."""
    features = np.sort(np.concatenate([part.read_features() for part in partitions] or [np.empty(0, np.int64)]))
    twice = features[1:][features[1:] == features[:-1]]
    return [Problem("dataset.json", f"feature {twice[0]} stands in more than one part")] if twice.size else []


def _name(dataset: Dataset, file: str) -> str:
    fs, path = open_storage(dataset.url, dataset.options)
    return f"{display(fs, path)}/{file}"
