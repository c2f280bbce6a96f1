"""A data set of the experiment: text, converted by our own software, and its test rows as a matrix."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import click
import numpy as np
import scipy.sparse as sp
from distributed import Client

from benchmarks.paper_sizes.published import PUBLISHED
from benchmarks.paper_sizes.stages import Experiment
from pipeline.metrics import Scores
from solver.arrays import Coefficients
from solver.threads import Threads
from transforms import Dataset, convert_libsvm, open_dataset
from transforms.rows import join_by_example, split_by_example

COMPRESSIONS = ("", ".gz", ".xz", ".zst", ".bz2")


@dataclass(frozen=True)
class Data:
    """A data set, converted into a folder. generated: is it a look-alike?"""

    name: str
    folder: Path
    text: Path  # of the training data
    generated: bool

    @cached_property
    def train(self) -> Dataset:
        return open_dataset(str(self.folder / "train"))

    @cached_property
    def features(self) -> np.ndarray:
        """The feature ids of the training data, in the order of positions."""
        return np.concatenate([part.read_features() for part in self.train.partitions])

    @cached_property
    def labels(self) -> np.ndarray:
        return open_dataset(str(self.folder / "test")).labels()[0]

    @cached_property
    def rows(self) -> sp.csr_matrix:
        """The test examples over the training data's features; others say nothing. float64, as β is."""
        test = open_dataset(str(self.folder / "test"))
        rows, ids = by_example(test), np.concatenate([part.read_features() for part in test.partitions])
        order = np.argsort(self.features)
        place = order[np.searchsorted(self.features, ids, sorter=order).clip(max=self.features.size - 1)]
        known = self.features[place] == ids
        picks = sp.csr_matrix(
            (np.ones(int(known.sum()), np.float32), (np.flatnonzero(known), place[known])),
            shape=(ids.size, self.features.size),
        )
        return sp.csr_matrix(rows @ picks, dtype=np.float64)

    @cached_property
    def _strips(self) -> list[sp.csr_matrix]:
        """The test examples in a strip for each core."""
        cuts = Threads().even_cuts(self.rows.shape[0], 1)
        return [self.rows[lo:hi] for lo, hi in pairwise(cuts)]

    def auprcs(self, betas: np.ndarray) -> list[float]:
        """The area under the precision-recall curve on the test set of each model, a column of β.

        β is over positions of the training data. All models are scored in one pass over the examples.
        """
        with ThreadPoolExecutor(len(self._strips)) as pool:
            margins = np.concatenate(list(pool.map(lambda rows: rows @ betas, self._strips))).T.copy()
            return list(pool.map(lambda own: Scores(own, self.labels, None).areas[0], margins))

    def auprc(self, beta: Coefficients) -> float:
        return self.auprcs(beta.dense(self.features.size)[:, np.newaxis])[0]


def by_example(dataset: Dataset) -> sp.csr_matrix:
    """A data set as rows over positions, by the same Map/Reduce as on a cluster, here."""
    firsts = np.cumsum([0, *(part.info.features for part in dataset.partitions)])
    pieces = [
        split_by_example(part, int(first), [0, dataset.n])[0]
        for part, first in zip(dataset.partitions, firsts[:-1], strict=True)
    ]
    rows = join_by_example(pieces)
    values = rows.values if rows.values.size else np.ones(rows.features.size, np.float32)
    return sp.csr_matrix((values, rows.features, rows.indptr), shape=(dataset.n, dataset.p))


def find_data(name: str, source: Path | None, scale: float | None, folder: Path, client: Client) -> Data:
    """The data set in a folder of the experiment; converted, and if need be generated, unless that was done."""
    real = None if source is None else {part: _text(source, name, part) for part in ("train", "test")}
    made = Data(name, folder, real["train"] if real else folder / "text" / "train", real is None)
    if all((folder / part / "dataset.json").exists() for part in ("train", "test")):
        return made
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in (real or _lookalike(name, scale, folder / "text")).items():
        convert_libsvm(str(text), str(folder / part), client=client, overwrite=True)
    return made


def _text(source: Path, name: str, part: str) -> Path:
    for ending in COMPRESSIONS:
        found = source / f"{name}.{part}.svm{ending}"
        if found.exists():
            return found
    raise click.UsageError(f"no data set {name}: there is no {source}/{name}.{part}.svm, plain or compressed")


def _lookalike(name: str, scale: float | None, folder: Path) -> dict[str, Path]:
    if name not in PUBLISHED or scale is None:
        raise click.UsageError(f"{name} cannot be generated; what can be is {', '.join(PUBLISHED)}. Or give --data")
    experiment = Experiment(name, scale, folder)
    if scale < 1.0:  # a tenth of few examples would say little of quality
        experiment.rows["test"] = experiment.rows["train"] // 2
    experiment.run(["text"])
    return {part: folder / part for part in ("train", "test")}


def names_in(source: Path) -> list[str]:
    """The data sets that a folder has, train and test."""
    found = sorted({file.name.split(".train.svm")[0] for file in source.glob("*.train.svm*")})
    return [name for name in found if list(source.glob(f"{name}.test.svm*"))]
