"""Score data by a path of models on a cluster: each block of text or partition is read once, all λ at a time.

Memory: a task holds its block of text, parsed, and its margins, 8 bytes × examples × λ (a compressed file is one
block). A data set is by feature, so its tasks hold the margins of all examples: λ are taken in groups that keep these
below MARGIN_BYTES, a group being one pass. Results are handed out in order, and few tasks run ahead of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed import Client

from pipeline.cluster import ClusterOptions, open_client
from pipeline.model import PathModel
from pipeline.run_record import DatasetIdentity
from pipeline.weights import WeightTable
from transforms import Dataset, Partition, UserError, open_dataset
from transforms.convert import cluster_resources
from transforms.dataset_record import DATASET_JSON
from transforms.examples import BadSpotFound, Piece, Reader, located
from transforms.holdout import held_out_part
from transforms.inputs import Block, InputFile, cut_blocks, find_inputs
from transforms.parser import ID_ZERO, Parsed
from transforms.plan import default_block_size
from transforms.progress import Progress
from transforms.reading import MAX_LINE
from transforms.secrets import without_secrets
from transforms.storage import StorageOptions, display, explained, open_storage
from transforms.tasks import Shared, Submitted, attended

MARGIN_BYTES = 64 << 20
KNOWN_FEATURES = 1 << 24  # a table of all features of the training data takes up to 48 bytes for each
PIECE = 16 << 20  # of a compressed file, taken at a time: its margins stay, its text does not
OTHER_BASE = "feature id 0, but the run was trained on data whose ids count from 1"
MIXED_FILES = "some of the test data have weights and some have none: write them on all lines or on none"
AHEAD = 2  # tasks submitted for each thread beyond what is handed out


@dataclass(frozen=True)
class Scored:
    """Examples in input order with their margins, rows × some λ from `first` on."""

    first: int
    margins: np.ndarray
    labels: np.ndarray  # float64, as in the input
    weights: np.ndarray | None
    sources: tuple[str, ...]  # the files or the data set, for people
    rows: tuple[int, ...]  # of each

    def source_of(self, row: int) -> str:
        return self.sources[int(np.searchsorted(np.cumsum(self.rows), row, side="right"))]


@dataclass
class Tally:
    """What is counted on the way."""

    examples: int = 0
    nonzeros: int = 0
    unseen: int | None = 0  # nonzeros of features that training did not see; None: not known
    bad_lines: int = 0  # left out


@dataclass(frozen=True)
class Reading:
    """Which examples of a text count: all, or those that a conversion held out; whether bad lines are passed over."""

    held_out: float | None  # the fraction of that conversion
    reader: Reader

    @classmethod
    def of(
        cls,
        model: PathModel,
        held_out: float | None = None,
        on_bad_line: str = "raise",
        max_line_bytes: int = MAX_LINE,
    ) -> Reading:
        """As a model's training data were read."""
        return cls(held_out, Reader(PIECE, model.index_base == 0, on_bad_line, max_line_bytes))

    def pieces(self, block: Block, options: StorageOptions) -> Iterator[Piece]:
        """A block's examples that count."""
        for piece in self.reader.pieces(block, options):
            counts = piece.parsed if self.held_out is None else held_out_part(piece.parsed, self.held_out)
            yield Piece(piece.file, counts)


Source = list[InputFile] | Dataset


def find_sources(urls: Sequence[str], options: StorageOptions) -> list[Source]:
    """Inputs in their order: data sets, and the files of text between them."""
    sources: list[Source] = []
    texts: list[str] = []
    for url in urls:
        if not _is_dataset(url, options):
            texts.append(url)
            continue
        if texts:
            sources.append(find_inputs(texts, options))
            texts = []
        sources.append(open_dataset(url, options))
    return sources + ([find_inputs(texts, options)] if texts else [])


def _is_dataset(url: str, options: StorageOptions) -> bool:
    fs, path = open_storage(url, options)
    with explained(display(fs, path)):
        return bool(fs.exists(f"{path}/{DATASET_JSON}"))


def source_identity(source: Source) -> list[dict[str, Any]]:
    """What run.json says of a source."""
    if isinstance(source, Dataset):
        identity = DatasetIdentity.of(source)
        return [{"path": identity.path, "sha256": identity.sha256, "examples": identity.examples}]
    return [file.identity() for file in source]


@dataclass
class Scorer:
    """Some λ of a model, a cluster, and who watches."""

    model: PathModel
    indices: list[int]
    client: Client
    options: StorageOptions
    progress: Progress
    tally: Tally
    reading: Reading | None = None  # of text; by default, all of it

    def score(self, sources: Sequence[Source]) -> Iterator[Scored]:
        """All examples, in order. For data sets with very many examples, group by group of λ."""
        known = training_features(self.model, self.options)
        if known is None:
            self.tally.unseen = None
        resources = cluster_resources(self.client)
        for source in sources:
            if isinstance(source, Dataset):
                yield from self._score_dataset(source, known, resources.threads)
            else:
                blocks = cut_blocks(source, default_block_size(source, resources))
                yield from self._score_text(blocks, known, AHEAD * resources.threads)

    def _score_text(self, blocks: Sequence[Block], known: np.ndarray | None, ahead: int) -> Iterator[Scored]:
        self.progress.phase("score", sum(block.size for block in blocks), "B")
        table = self._share(self.indices, known)
        reading = self.reading or Reading.of(self.model)
        tasks = [(block, table, self.options, reading) for block in blocks]
        lines = 0  # of the file that the next block may continue
        try:
            for block, result in zip(blocks, in_order(self.client, score_block, tasks, ahead), strict=True):
                lines = result.lines + (lines if block.continues else 0)
                self._count(result.margins.shape[0], result.nonzeros, result.unknown)
                self.tally.bad_lines += result.bad_lines
                self.progress.advance(block.size)
                names = tuple(span.file.name for span in block.spans)
                yield Scored(0, result.margins, result.labels, result.weights, names, result.rows)
        except BadSpotFound as found:
            block = blocks[found.block]
            raise located(block, found.spot, lines if block.continues else 0) from None

    def _score_dataset(self, dataset: Dataset, known: np.ndarray | None, threads: int) -> Iterator[Scored]:
        self._refuse_other_base(dataset)
        labels, weights = dataset.labels()
        size = max(1, MARGIN_BYTES // (8 * max(dataset.n, 1)))
        starts = range(0, len(self.indices), size)
        self.progress.phase("score", dataset.nnz * len(starts), "nonzeros")
        for first in starts:
            margins, unknown = self._sum_partitions(dataset, self.indices[first : first + size], known, threads)
            if first == 0:
                self._count(dataset.n, dataset.nnz, unknown)
            yield Scored(first, margins, dataset.as_written(labels), weights, (dataset.name,), (dataset.n,))

    def _sum_partitions(
        self, dataset: Dataset, indices: list[int], known: np.ndarray | None, threads: int
    ) -> tuple[np.ndarray, int]:
        table = self._share(indices, known)
        partitions = dataset.partitions
        tasks = [(partition, dataset.n, table) for partition in partitions]
        margins, unknown = np.tile(self.model.intercepts[indices], (dataset.n, 1)), 0
        # Each result is as large as the sum, so no more of them than there are threads.
        results = in_order(self.client, score_partition, tasks, threads)
        for partition, (part, of_unknown) in zip(partitions, results, strict=True):
            margins += part
            unknown += of_unknown
            self.progress.advance(partition.info.nnz)
        return margins, unknown

    def _refuse_other_base(self, dataset: Dataset) -> None:
        base = dataset.index_base
        if base != self.model.index_base:
            raise UserError(
                f"{dataset.name}: its features count from {base}, those of the run {self.model.name} from "
                f"{self.model.index_base}: convert both with --zero-based, or both without"
            )

    def _share(self, indices: list[int], known: np.ndarray | None) -> Shared:
        """The weights, sent once."""
        return Shared(self.client, lambda: WeightTable.of(self.model, indices, known))

    def _count(self, examples: int, nonzeros: int, unknown: int) -> None:
        self.tally.examples += examples
        self.tally.nonzeros += nonzeros
        if self.tally.unseen is not None:
            self.tally.unseen += unknown


def training_features(model: PathModel, options: StorageOptions) -> np.ndarray | None:
    """The ids that training saw, if its data set is still where it was and the same, and they are not too many."""
    trained_on = model.record.dataset
    if trained_on.features > KNOWN_FEATURES:
        return None
    try:
        dataset = open_dataset(trained_on.path, options)
        if DatasetIdentity.of(dataset).sha256 != trained_on.sha256:
            return None
        return np.concatenate([partition.read_features() for partition in dataset.partitions])
    except (UserError, OSError):
        return None


# --- tasks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockScores:
    """What a task reports of a block of text."""

    margins: np.ndarray  # rows × λ
    labels: np.ndarray
    weights: np.ndarray | None
    nonzeros: int
    unknown: int
    lines: int
    bad_lines: int
    rows: tuple[int, ...]  # of each file


@without_secrets
def score_block(block: Block, table: WeightTable, options: StorageOptions, reading: Reading) -> BlockScores:
    """Parse a block and multiply."""
    try:
        pieces = [(piece.file, _score(piece.parsed, table)) for piece in reading.pieces(block, options)]
    except BadSpotFound as found:
        if found.spot.code == ID_ZERO:
            raise BadSpotFound(found.block, replace(found.spot, expected=OTHER_BASE)) from None
        raise
    _refuse_mixed_weights(block, pieces)
    rows = np.bincount([file for file, _ in pieces], [one.labels.size for _, one in pieces], len(block.spans))
    return _join([one for _, one in pieces], table.count, tuple(rows.astype(np.int64).tolist()))


@dataclass(frozen=True)
class _Scores:
    """Of a piece of text. The weight of an example that has none is NaN."""

    margins: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    nonzeros: int
    unknown: int
    lines: int
    bad_lines: int


def _score(parsed: Parsed, table: WeightTable) -> _Scores:
    margins = np.tile(table.intercepts, (parsed.labels.size, 1))
    unknown = table.add_examples(parsed.indptr, parsed.ids, parsed.values, margins)
    # The parser's arrays are views of far larger ones.
    labels, weights = parsed.labels.copy(), parsed.weights.copy()
    return _Scores(margins, labels, weights, parsed.ids.size, unknown, parsed.lines, parsed.bad_count)


def _refuse_mixed_weights(block: Block, pieces: Sequence[tuple[int, _Scores]]) -> None:
    weighted: set[bool] = set()
    for file, scores in pieces:
        name, here = block.spans[file].file.name, set(np.unique(~np.isnan(scores.weights)).tolist())
        weighted |= here
        if len(here) > 1:
            raise UserError(f"{name}: some lines have a weight and some have none: write it on all or on none")
        if len(weighted) > 1:
            raise UserError(f"{name}: {MIXED_FILES}")


def _join(pieces: Sequence[_Scores], count: int, rows: tuple[int, ...]) -> BlockScores:
    weights = np.concatenate([np.empty(0, np.float32), *(piece.weights for piece in pieces)])
    margins = [piece.margins for piece in pieces]
    return BlockScores(
        margins[0] if len(margins) == 1 else np.concatenate([np.empty((0, count)), *margins]),
        np.concatenate([np.empty(0), *(piece.labels for piece in pieces)]),
        None if np.isnan(weights).any() else weights,
        sum(piece.nonzeros for piece in pieces),
        sum(piece.unknown for piece in pieces),
        sum(piece.lines for piece in pieces),
        sum(piece.bad_lines for piece in pieces),
        rows,
    )


@without_secrets
def score_partition(partition: Partition, n: int, table: WeightTable) -> tuple[np.ndarray, int]:
    """A partition's part of all margins, and the nonzeros of unknown features."""
    margins = np.zeros((n, table.count))
    unknown = sum(table.add_columns(csc, margins) for csc in partition.stream())
    return margins, unknown


# --- Dask -----------------------------------------------------------------------------------------------------------


def in_order(
    client: Client, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], ahead: int
) -> Iterator[Any]:
    """Run a task for each tuple of arguments and hand out the results in that order, `ahead` of them at work."""
    name = f"{function.__name__.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    tasks = Submitted(client, function, arguments, name)
    try:
        for k in range(min(ahead, len(arguments))):
            tasks.submit(k)
        for k in range(len(arguments)):
            result = tasks.take(k)
            if k + ahead < len(arguments):
                tasks.submit(k + ahead)
            yield result
    finally:
        tasks.close()


@contextmanager
def client_for(client: Client | ClusterOptions | None) -> Iterator[Client]:
    """The client given, that of the cluster described, the current one, or an in-process cluster for as long as needed.

    The work goes on without workers that do not answer or are lost.
    """
    if isinstance(client, ClusterOptions):
        with open_client(client) as opened, attended(opened):
            yield opened
        return
    try:
        client = client or Client.current()
    except ValueError:
        with open_client(ClusterOptions()) as embedded:
            yield embedded
        return
    with attended(client):
        yield client
