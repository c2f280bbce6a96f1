"""Predict: probabilities for text or data sets, as one Parquet file in the order of the examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

from pipeline.margins import PROBABILITIES
from pipeline.metrics import BINARY, NUMBER
from pipeline.model import PathModel
from pipeline.scoring import Reading, Scored, Scorer, Source, Tally, client_for, find_sources
from transforms import Dataset, OutputExists, UserError
from transforms.claim import claimed
from transforms.dataset import UNREADABLE
from transforms.folders import refuse_pipes
from transforms.progress import NoProgress, Progress
from transforms.reading import MAX_LINE
from transforms.storage import (
    StorageOptions,
    display,
    explained,
    is_local,
    make_folder,
    open_storage,
    real_path,
    redact,
    remove_leftovers,
    whole_file,
)

# What is written for each example, by the kind of label that the model is for.
_FIELDS = {
    BINARY: [("example", pa.int64()), ("margin", pa.float64()), ("probability", pa.float64())],
    NUMBER: [("example", pa.int64()), ("prediction", pa.float64())],
}


@dataclass(frozen=True)
class Prediction:
    """What was predicted, and by which model."""

    output: str
    lambda_index: int
    lam: float
    tally: Tally


def predict(
    run: str | PathModel,
    inputs: str | Sequence[str],
    output: str,
    *,
    lambda_index: int | None = None,
    overwrite: bool = False,
    max_line_bytes: int = MAX_LINE,
    client: Client | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """Write the margin and the probability of the label +1 for each example of `inputs` (LIBSVM text, data sets).

    Of a model with squared loss, its prediction.

    lambda_index: which model; by default the best of an evaluation, or the last one if there was none.
    output: one Parquet file, there when it is whole and not before.
    max_line_bytes: a longer line of text is refused.
    """
    options = StorageOptions(storage_options or {})
    model = PathModel.load(run, options) if isinstance(run, str) else run
    index = choose_lambda(model, lambda_index)
    sources = find_sources([inputs] if isinstance(inputs, str) else list(inputs), options)
    reading = Reading.of(model, max_line_bytes=max_line_bytes)
    _check_output(output, options, sources, overwrite=overwrite)
    lam, tally = float(model.lambdas[index]), Tally()
    schema = pa.schema(
        _FIELDS[model.label_kind], metadata={"dglmnet.lambda_index": str(index), "dglmnet.lambda": repr(lam)}
    )
    with _only_writer(output, options), client_for(client) as client, whole_file(output, options) as file:
        scorer = Scorer(model, [index], client, options, progress or NoProgress(), tally, reading)
        with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False) as writer:
            start = 0
            for scored in scorer.score(sources):
                margins = scored.margins[:, 0]
                _refuse_overflow(margins, scored)
                examples = np.arange(start, start + margins.size)
                writer.write_table(pa.Table.from_arrays([examples, *_columns(model, margins)], schema=schema))
                start += margins.size
    return Prediction(redact(output), index, lam, tally)


def _columns(model: PathModel, margins: np.ndarray) -> list[np.ndarray]:
    return [margins] if model.label_kind == NUMBER else [margins, PROBABILITIES[model.record.loss][0](margins)]


def _refuse_overflow(margins: np.ndarray, scored: Scored) -> None:
    wrong = np.flatnonzero(~np.isfinite(margins))
    if wrong.size:
        where = scored.source_of(int(wrong[0]))
        raise UserError(f"{where}: a margin is beyond all numbers: the model's weights, or the values, are too large")


def choose_lambda(model: PathModel, lambda_index: int | None) -> int:
    if lambda_index is not None:
        return model.check_index(lambda_index)
    best = model.best()
    return len(model) - 1 if best is None else best


def _check_output(output: str, options: StorageOptions, sources: Sequence[Source], *, overwrite: bool) -> None:
    fs, path = open_storage(output, options)
    where = display(fs, path)
    with explained(where):
        fs.invalidate_cache()
        folder, exists = fs.isdir(path), fs.exists(path)
    if folder:
        raise OutputExists(
            f"{where}: is a folder; the output is a file, such as {where.rstrip('/')}/predictions.parquet"
        )
    names = [file.name for source in sources if not isinstance(source, Dataset) for file in source]
    if real_path(fs, where) in {real_path(fs, name) for name in names}:
        raise UserError(f"{where}: the output is one of the inputs: choose another output")
    if exists and not overwrite:
        raise OutputExists(f"{where}: is there already: replace it with --overwrite")
    if exists and not _holds_predictions(fs, path):
        raise OutputExists(f"{where}: is there already, and holds no predictions: choose another output, or delete it")


def _holds_predictions(fs: Any, path: str) -> bool:
    """Was this file written by a prediction? Only such a one is replaced."""
    if is_local(fs):
        refuse_pipes(path)
    try:
        with explained(display(fs, path)), fs.open(path, "rb") as file:
            return pq.read_schema(file).names in [[name for name, _ in fields] for fields in _FIELDS.values()]
    except UNREADABLE:
        return False


@contextmanager
def _only_writer(output: str, options: StorageOptions) -> Iterator[None]:
    """No other prediction writes this file meanwhile; what a killed one left beside it goes away."""
    fs, path = open_storage(output, options)
    folder, _, name = path.rpartition("/")
    make_folder(fs, folder)
    with claimed(output, options, f"{path}.claim.json"):
        remove_leftovers(fs, folder, of=f"{name}.")
        yield
