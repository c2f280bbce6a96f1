"""Predict: labels and probabilities for text or data sets, as one file in the order of the examples."""

from __future__ import annotations

import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client

from pipeline.choice import choose_model
from pipeline.cluster import ClusterOptions
from pipeline.margins import PROBABILITIES, labels_of
from pipeline.metrics import NUMBER
from pipeline.model import PathModel
from pipeline.prediction_files import CLASSES, NUMBERS, STDOUT, holds_predictions, kind_of, open_writer, schema_of
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


@dataclass(frozen=True)
class Prediction:
    """What was predicted, and by which model."""

    output: str
    lambda_index: int
    lam: float
    why: str  # it is this one
    tally: Tally


def predict(
    run: str | PathModel,
    inputs: str | Sequence[str],
    output: str,
    *,
    lambda_index: int | None = None,
    overwrite: bool = False,
    max_line_bytes: int = MAX_LINE,
    client: Client | ClusterOptions | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """Write the margin, the probability of the label +1, the likelier label as it was in training, and the true label.

    Of a model with squared loss, its prediction and the true label. A row for each example of `inputs` (LIBSVM text,
    data sets).

    lambda_index: which model; by default the best of an evaluation, or the one with the lowest BIC if there was none.
    output: one file, there when it is whole and not before: .csv, .csv.gz, .jsonl or .parquet, Parquet if its name has
    no suffix; "-" is standard output, as CSV.
    max_line_bytes: a longer line of text is refused.
    client: a Dask client, or a description of a cluster, which is started once nothing is left to be refused.
    """
    kind_of(output)  # refuses what cannot be written
    options = StorageOptions(storage_options or {})
    model = PathModel.load(run, options) if isinstance(run, str) else run
    choice = choose_model(model, lambda_index)
    index = choice.index
    sources = find_sources([inputs] if isinstance(inputs, str) else list(inputs), options)
    reading = Reading.of(model, max_line_bytes=max_line_bytes)
    _check_output(output, options, sources, overwrite=overwrite)
    lam, tally = float(model.lambdas[index]), Tally()
    names = NUMBERS if model.label_kind == NUMBER else CLASSES
    schema = schema_of(names, {"dglmnet.lambda_index": str(index), "dglmnet.lambda": repr(lam)})
    with _only_writer(output, options), client_for(client) as at_work, _file_for(output, options) as file:
        scorer = Scorer(model, [index], at_work, options, progress or NoProgress(), tally, reading)
        with open_writer(file, output, schema) as write:
            start = 0
            for scored in scorer.score(sources):
                _refuse_weights(model, sources, scored, start)
                margins = scored.margins[:, 0]
                _refuse_overflow(margins, scored)
                examples = np.arange(start, start + margins.size)
                write(pa.Table.from_arrays([examples, *_columns(model, margins, scored.labels)], schema=schema))
                start += margins.size
    return Prediction(redact(output), index, lam, choice.why, tally)


def _columns(model: PathModel, margins: np.ndarray, truth: np.ndarray) -> list[np.ndarray | pa.Array]:
    """A label of the input that training did not have stands for "not known" there."""
    if model.label_kind == NUMBER:
        return [margins, truth]
    labels = np.array([model.label_map["-1"], model.label_map["+1"]])
    known = pa.array(truth, mask=~np.isin(truth, labels))
    return [margins, PROBABILITIES[model.record.loss][0](margins), labels_of(margins, labels), known]


def _refuse_weights(model: PathModel, sources: Sequence[Source], scored: Scored, start: int) -> None:
    """Text whose labels were left away looks like this, and a prediction has no use for weights.

    Where training had weights they are probably meant, and only told.
    """
    is_text = any(not isinstance(source, Dataset) for source in sources)
    if start or not is_text or scored.weights is None or not scored.weights.size:
        return
    where, first = scored.source_of(0), f"{scored.labels[0]:g}:{scored.weights[0]:g}"
    found = f"{where}: the first word of a line, such as {first}, is read as label:weight"
    remedy = "If it is a feature, the label is missing: write 0 in front of each line"
    if model.record.dataset.weighted is False:
        raise UserError(f"{found}, but the training data had no weights. {remedy}; if it is a weight, leave it away")
    warnings.warn(f"{found}. {remedy}", UserWarning, stacklevel=3)


def _refuse_overflow(margins: np.ndarray, scored: Scored) -> None:
    wrong = np.flatnonzero(~np.isfinite(margins))
    if wrong.size:
        where = scored.source_of(int(wrong[0]))
        raise UserError(f"{where}: a margin is beyond all numbers: the model's weights, or the values, are too large")


def _check_output(output: str, options: StorageOptions, sources: Sequence[Source], *, overwrite: bool) -> None:
    if output == STDOUT:
        return
    fs, path = open_storage(output, options)
    where = display(fs, path)
    with explained(where):
        fs.invalidate_cache()
        folder, exists = fs.isdir(path), fs.exists(path)
    if is_local(fs) and exists and not folder and not Path(path).is_file():
        raise UserError(f"{where}: no file, but a device or a pipe: name a file, or pass - for standard output")
    if folder:
        raise OutputExists(f"{where}: is a folder; the output is a file, such as {where.rstrip('/')}/predictions.csv")
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
            return holds_predictions(file, path)
    except (*UNREADABLE, EOFError, zlib.error):
        return False


@contextmanager
def _only_writer(output: str, options: StorageOptions) -> Iterator[None]:
    """No other prediction writes this file meanwhile; what a killed one left beside it goes away."""
    if output == STDOUT:
        yield
        return
    fs, path = open_storage(output, options)
    folder, _, name = path.rpartition("/")
    make_folder(fs, folder)
    with claimed(output, options, f"{path}.claim.json"):
        remove_leftovers(fs, folder, of=f"{name}.")
        yield


@contextmanager
def _file_for(output: str, options: StorageOptions) -> Iterator[Any]:
    if output == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with whole_file(output, options) as file:
        yield file
