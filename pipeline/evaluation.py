"""Evaluate: score test data by all λ in one pass, and add what each is worth to the run's path.parquet.

Where labels are two, the bins that its curves are drawn from are stored beside it (pipeline/curves.py).

Memory: margins wait in a temporary file; the metrics of a λ need its n margins, their order and the labels, about 40
bytes an example for each of up to THREADS λ at a time, 60 with weights.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask.system import CPU_COUNT
from distributed import Client

from pipeline.cluster import ClusterOptions
from pipeline.curves import Curve, curve_of, curve_table
from pipeline.metrics import NUMBER, TEST, Scores, metric_names, metrics_for, metrics_from, metrics_in
from pipeline.model import PathModel, best_of
from pipeline.run_record import EvaluationRecord, claimed_run, spent
from pipeline.scoring import (
    MIXED_FILES,
    Reading,
    Scored,
    Scorer,
    Source,
    Tally,
    client_for,
    find_sources,
    source_identity,
)
from pipeline.stored import CURVES, PATH, judged_schema
from solver.compiling import COMPILING, working_seconds
from transforms import Dataset, UserError
from transforms.progress import NoProgress, Progress
from transforms.reading import MAX_LINE
from transforms.storage import StorageOptions, explained, whole_file

THREADS = min(CPU_COUNT, 4)


@dataclass(frozen=True)
class Evaluation:
    """The path with its metrics, and the index of the best λ (None if the metric is undefined for these data).

    chose: whether the run's best is now this one; if not, these data judge the models and choose none. `before` is what
    the best was.
    """

    path: list[dict[str, Any]]
    metric: str
    best: int | None
    tally: Tally
    weighted: bool
    chose: bool = True
    before: int | None = None


def evaluate(
    run: str,
    inputs: str | Sequence[str],
    *,
    metric: str | None = None,
    held_out: bool = False,
    choose: bool | None = None,
    on_bad_line: str = "raise",
    max_line_bytes: int = MAX_LINE,
    client: Client | ClusterOptions | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Judge every model of a run by test data (LIBSVM text, data sets), and store the metrics in the run.

    metric: what the best model is best by; by default the first for the kind of labels, AUPRC, or RMSE of numbers.
    Labels mean what they meant in training. Where the examples carry weights, metrics are weighted.
    choose: whether the best model is chosen by these data, or they only judge. By default they choose, unless it was
    chosen by examples that were held out, and these are other data. Data of one class never choose.
    held_out: the inputs are the text that the training data were converted from, and only the examples count that were
    held out then. on_bad_line: "skip" leaves bad lines of text out, and counts them; a line
    longer than max_line_bytes is a bad one.
    """
    started, compiled = working_seconds(), COMPILING.seconds
    options, progress = StorageOptions(storage_options or {}), progress or NoProgress()
    PathModel.load(run, options)  # a folder that is no run is left alone
    # No fit may write the run's files meanwhile: each would undo what the other wrote.
    with claimed_run(run, options) as stored:
        model = PathModel.load(run, options)
        metric = metric or metric_names(model.label_kind)[0]
        best_of(model.path, metric, model.label_kind)
        sources = find_sources([inputs] if isinstance(inputs, str) else list(inputs), options)
        reading = Reading.of(model, _fraction(model, sources) if held_out else None, on_bad_line, max_line_bytes)
        tally = Tally()
        with client_for(client) as at_work, MarginStore(model) as store:
            scorer = Scorer(model, list(range(len(model))), at_work, options, progress, tally, reading)
            for scored in scorer.score(sources):
                store.add(scored)
            metrics, curves = _judge(model, store, progress)
        chose = _chooses(model, store, choose, held_out)
        rows = [row | found for row, found in zip(model.path, metrics, strict=True)]
        best = None if store.one_class else best_of(rows, metric, model.label_kind)
        result = Evaluation(rows, metric, best, tally, store.weights is not None, chose, model.best())
        # A run that is cut off here says of no metrics that they are of other data.
        slot, prefix = ("evaluation", "") if chose else ("test", TEST)
        nothing: dict[str, Any] = {slot: None}
        stored.update(lambda record: replace(record, **nothing))
        _write_path(run, options, model.path, metrics, prefix)
        drawn = _write_curves(run, options, model, curves, prefix)
        judged: dict[str, Any] = {slot: replace(_judged(result, sources, reading), curves=drawn)}
        took = f"{prefix}evaluate", working_seconds() - started, COMPILING.seconds - compiled
        stored.update(lambda record: replace(record, **judged, seconds=spent(record.seconds, *took)))
    return result


def _chooses(model: PathModel, store: MarginStore, asked: bool | None, held_out: bool) -> bool:
    """Do these data choose the best model, or only judge? Those of one class choose none, and move none."""
    before = model.record.evaluation
    if store.one_class:
        return asked is not False and (before is None or before.best is None)
    return held_out or before is None or before.held_out is None if asked is None else asked


def evaluate_new(
    run: str,
    *,
    client: Client | ClusterOptions | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Evaluation | None:
    """Judge a run again that got more models since its evaluations, by the same data. None if there is nothing to do.

    Raises UserError if the data are not what they were.
    """
    options = StorageOptions(storage_options or {})
    model = PathModel.load(run, options)
    done: Evaluation | None = None
    for judged, prefix in ((model.record.test, TEST), (model.record.evaluation, "")):
        if judged is None or not has_unjudged(model.path, prefix):
            continue
        urls = [one["path"] for one in judged.inputs]
        found = [identity for source in find_sources(urls, options) for identity in source_identity(source)]
        if found != judged.inputs:
            raise UserError(f"{', '.join(urls[:3])}: changed since the evaluation")
        done = evaluate(
            run,
            urls,
            metric=judged.metric,
            held_out=judged.held_out is not None,
            choose=prefix != TEST,
            on_bad_line=judged.on_bad_line or "raise",
            client=client,
            storage_options=options,
            progress=progress,
        )
    return done


def has_unjudged(rows: Sequence[dict[str, Any]], prefix: str = "") -> bool:
    """Are there models that came after the evaluation? prefix: TEST, after that by test data."""
    judged = [prefix + metric.name for metric in metrics_in(rows, prefix)]
    return any(all(row[name] is None for name in judged) for row in rows)


_TOO_LARGE = "the weights are too large for these data; nothing was stored. Is it the right run? If so, fit again"


class MarginStore:
    """Labels and weights in memory, margins in a temporary file, from which those of one λ can be had."""

    def __init__(self, model: PathModel) -> None:
        self._labels: list[np.ndarray] = []
        self._weights: list[np.ndarray | None] = []
        self._pieces: list[tuple[int, int, int, int]] = []  # offset in numbers, rows, first λ, λ after the last
        self._kind = model.label_kind
        self._names = model.label_map
        self._name = model.name

    def __enter__(self) -> MarginStore:
        self._file = tempfile.TemporaryFile(prefix="dglmnet-margins-")
        self._numbers = 0
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def add(self, scored: Scored) -> None:
        rows, count = scored.margins.shape
        if rows == 0:
            return
        if not np.isfinite(scored.margins).all():  # on NaN the metrics' loops would not end
            raise UserError(f"{self._name}: margins are not finite: {_TOO_LARGE}")
        if scored.first == 0:
            self._labels.append(scored.labels if self._kind == NUMBER else self._signs(scored))
            self._weights.append(scored.weights)
        with explained(f"{tempfile.gettempdir()} (margins wait there; TMPDIR names another place)"):
            self._file.write(np.ascontiguousarray(scored.margins.T).data)
        self._pieces.append((self._numbers, rows, scored.first, scored.first + count))
        self._numbers += rows * count

    def _signs(self, scored: Scored) -> np.ndarray:
        """-1 and +1 for the labels of the training data; others are refused."""
        positive, negative = scored.labels == self._names["+1"], scored.labels == self._names["-1"]
        other = np.flatnonzero(~(positive | negative))
        if other.size:
            where, label = scored.source_of(other[0]), scored.labels[other[0]]
            raise UserError(
                f"{where}: label {label:g}, but the run was trained on the labels {self._names['-1']:g} and "
                f"{self._names['+1']:g}: write the test data with the same labels"
            )
        return np.where(positive, 1, -1).astype(np.int8)

    def settle(self) -> None:
        """All examples are in: join what is needed for every λ."""
        if not self._labels:
            raise UserError(
                "the test data have no examples: pass other files, or hold out a larger fraction if they were held out"
            )
        weights = [one for one in self._weights if one is not None]
        if weights and len(weights) < len(self._weights):
            raise UserError(MIXED_FILES)
        self.labels = np.concatenate(self._labels)
        self.weights = np.concatenate(weights).astype(np.float64) if weights else None
        if self.weights is not None and not self.weights.any():
            raise UserError("the weights of the test data are all 0")
        self._file.flush()
        self._map = np.memmap(self._file, dtype=np.float64, mode="r")

    @property
    def only_label(self) -> Any:
        """The label of all examples that have a weight; None if they have several."""
        counted = self.labels if self.weights is None else self.labels[self.weights > 0]
        return counted[0] if (counted == counted[0]).all() else None

    @property
    def one_class(self) -> bool:
        return self._kind != NUMBER and self.only_label is not None

    def margins(self, k: int) -> np.ndarray:
        """Those of λ k, in the order of the labels."""
        pieces = [
            self._map[offset + (k - first) * rows : offset + (k - first + 1) * rows]
            for offset, rows, first, stop in self._pieces
            if first <= k < stop
        ]
        return np.concatenate(pieces)


def _judge(
    model: PathModel, store: MarginStore, progress: Progress
) -> tuple[list[dict[str, float | None]], list[Curve]]:
    """The metrics of each λ, and its curve where labels are two."""
    store.settle()
    progress.phase("judge", len(model), "models")
    rows, curves = [], []
    with ThreadPoolExecutor(THREADS) as pool:
        kind, loss = model.label_kind, model.record.loss

        def judge(k: int) -> tuple[dict[str, float | None], Curve | None]:
            scores = Scores(store.margins(k), store.labels, store.weights, loss)
            return metrics_from(scores, kind), None if kind == NUMBER else curve_of(scores)

        results = pool.map(judge, range(len(model)))
        for row, (metrics, curve) in zip(model.path, results, strict=True):
            _refuse_infinite(metrics, f"{model.name}: model {row['index']}")
            rows.append(metrics)
            curves += [] if curve is None else [curve]
            progress.advance(1)
    undefined = [metric.label for metric in metrics_for(kind) if rows[0][metric.name] is None]
    first = store.only_label
    if undefined and first is not None:
        label = first if kind == NUMBER else model.label_map["+1" if first > 0 else "-1"]
        what = f"{' and '.join(undefined)} {'is' if len(undefined) == 1 else 'are'} undefined"
        warnings.warn(f"every test example has the label {label:g}: {what}", stacklevel=3)
    return rows, curves


def _refuse_infinite(metrics: dict[str, Any], where: str) -> None:
    """A run that held such metrics could not be read."""
    for name, value in metrics.items():
        if value is not None and not np.isfinite(value):
            raise UserError(f"{where}: {name} is not finite: {_TOO_LARGE}")


def _fraction(model: PathModel, sources: Sequence[Source]) -> float:
    """What was held out when the run's data set was made."""
    fraction = model.record.dataset.hold_out
    if fraction is None:
        raise UserError(
            f"{model.name}: no examples were held out when its data set was made: pass test data without --held-out, "
            "or convert again with --hold-out and fit again"
        )
    for source in sources:
        if isinstance(source, Dataset):
            raise UserError(
                f"{source.name}: a data set does not hold what was held out: pass the text it was made from"
            )
    return fraction


def _judged(result: Evaluation, sources: Sequence[Source], reading: Reading) -> EvaluationRecord:
    """What run.json says of the evaluation."""
    return EvaluationRecord(
        inputs=[identity for source in sources for identity in source_identity(source)],
        held_out=reading.held_out,
        on_bad_line=reading.reader.on_bad_line,
        bad_lines=result.tally.bad_lines,
        examples=result.tally.examples,
        nonzeros=result.tally.nonzeros,
        unseen_nonzeros=result.tally.unseen,
        weighted=result.weighted,
        metric=result.metric,
        best=result.best,
    )


def _write_path(
    run: str,
    options: StorageOptions,
    path: list[dict[str, Any]],
    metrics: Sequence[dict[str, float | None]],
    prefix: str,
) -> None:
    """path.parquet with the metrics among its last columns."""
    named = [{prefix + name: value for name, value in found.items()} for found in metrics]
    rows = [row | found for row, found in zip(path, named, strict=True)]
    table = pa.Table.from_pylist(rows, schema=judged_schema(rows))
    with whole_file(f"{run.rstrip('/')}/{PATH}", options) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def _write_curves(run: str, options: StorageOptions, model: PathModel, curves: list[Curve], prefix: str) -> str | None:
    """The file that curves are drawn from. Returns its checksum; None where labels are numbers."""
    if not curves:
        return None
    content = io.BytesIO()
    table = curve_table(curves, [row["lambda"] for row in model.path])
    pq.write_table(table, content, compression="zstd", write_page_checksum=True)
    with whole_file(f"{run.rstrip('/')}/{prefix}{CURVES}", options) as file:
        file.write(content.getvalue())
    return hashlib.sha256(content.getvalue()).hexdigest()
