"""Check a data set's integrity: checksums, counts, order. What is wrong is named file by file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from transforms.dataset import Dataset, Partition
from transforms.dataset_record import DATASET_JSON
from transforms.errors import DatasetError
from transforms.labels import LABELS_PARQUET
from transforms.progress import NoProgress, Progress
from transforms.storage import display, open_storage


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
    problems = _told(dataset, LABELS_PARQUET, dataset.labels)
    with ThreadPoolExecutor(2) as pool:
        checks = pool.map(lambda part: _told(dataset, part.info.file, lambda: _read_all(part)), partitions)
        for partition, found in zip(partitions, checks, strict=True):
            problems += found
            progress.advance(partition.info.bytes)
    if not problems:
        problems += _check_distinct(dataset)
    return problems


def _told(dataset: Dataset, file: str, read: Callable[[], object]) -> list[Problem]:
    """What reading a file says is wrong with it."""
    name = _name(dataset, file)
    try:
        read()
    except DatasetError as error:
        return [Problem(name, error.what)]
    return []


def _read_all(partition: Partition) -> None:
    """Reading checks everything: checksum, layout, order and ranges."""
    partition.read_bounds()
    for _ in partition.stream():
        pass


def _check_distinct(dataset: Dataset) -> list[Problem]:
    """No feature may stand in two parts."""
    partitions = dataset.partitions
    features = np.sort(np.concatenate([part.read_features() for part in partitions] or [np.empty(0, np.int64)]))
    twice = features[1:][features[1:] == features[:-1]]
    return (
        [Problem(_name(dataset, DATASET_JSON), f"feature {twice[0]} stands in more than one part")]
        if twice.size
        else []
    )


def _name(dataset: Dataset, file: str) -> str:
    fs, path = open_storage(dataset.url, dataset.options)
    return f"{display(fs, path)}/{file}"
