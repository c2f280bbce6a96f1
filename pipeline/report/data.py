"""What a report is about: a run as it is stored, read once, with the few figures that are derived from it."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.choice import lowest_bic
from pipeline.curves import Curve, read_curves
from pipeline.metrics import BINARY, TEST, metric_names
from pipeline.model import PathModel
from pipeline.run_record import EvaluationRecord, RunRecord
from pipeline.stored import CURVES, read_trace
from transforms.storage import StorageOptions, open_storage, redact
from transforms.streams import EARLIER

NAMED_INPUTS = 5  # in a command that is shown; of more the first, and that there are more
SMALLEST_GAP = 1e-16  # where a gap of 0 is drawn on a logarithmic axis, if no other is there to go by


@dataclass(frozen=True)
class Judgement:
    """Examples that the models were judged by, and how these examples lie along each model's margins."""

    prefix: str  # of its metrics in path.parquet: "" if it chose the best, TEST if it chose nothing
    record: EvaluationRecord
    curves: list[Curve | None]  # None of a model that came after the evaluation


@dataclass(frozen=True)
class RunData:
    """A run: its models, its rounds, and the names of features, as far as they are known."""

    model: PathModel
    trace: list[dict[str, Any]]  # trace.parquet, the rounds of the λ that are done
    names: dict[int, str]  # feature id -> name
    judgements: list[Judgement] = field(default_factory=list)  # those that stored what curves are drawn from

    @property
    def record(self) -> RunRecord:
        """run.json."""
        return self.model.record

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.model.path

    @property
    def complete(self) -> bool:
        return self.record.complete

    @property
    def planned(self) -> int | None:
        """How many λ the run is to have, once that is known."""
        return len(self.record.lambdas) if self.record.lambdas else None

    @property
    def lambda_max(self) -> float | None:
        return self.record.lambda_max

    @property
    def metrics(self) -> list[str]:
        """Those that an evaluation stored; none if there was no evaluation."""
        names = metric_names(self.record.label_kind)
        return [name for name in names if any(row.get(name) is not None for row in self.rows)]

    @property
    def metric(self) -> str | None:
        """What the best is best by: what the evaluation was asked for, where it is defined."""
        return self.model.metric if self.model.metric in self.metrics else next(iter(self.metrics), None)

    @property
    def best(self) -> int | None:
        return self.model.best() if self.metric else None

    @property
    def featured(self) -> int:
        """The model that the report speaks of first, as `predict` chooses: the best, or the one with the lowest BIC.

        Of a run of a version that did not compute BIC, the last.
        """
        if self.best is not None:
            return self.best
        found = lowest_bic(self.rows)
        return len(self.rows) - 1 if found is None else found

    @property
    def searches(self) -> str:
        """What the driver does between two sweeps of the blocks."""
        return "line search" if self.record.options.get("algorithm") == "paper" else "subspace search"

    def name_of(self, feature: int) -> str:
        return self.names.get(feature, f"feature {feature}")


def read_run(run: str, options: StorageOptions) -> RunData:
    """The run at a URL. Raises UserError if it is missing or damaged."""
    model = PathModel.load(run, options)
    fs, path = open_storage(run, options)
    lambdas, record = model.lambdas.tolist(), model.record
    judgements = []
    for prefix, judged in (("", record.evaluation), (TEST, record.test)):
        if judged is not None and judged.curves is not None:
            again = _evaluate_command(model.name, judged, prefix)
            curves = read_curves(fs, f"{path}/{prefix}{CURVES}", judged.curves, lambdas, again)
            judgements.append(Judgement(prefix, judged, curves))
    return RunData(model, read_trace(fs, path, lambdas), {}, judgements)


def _evaluate_command(run: str, judged: EvaluationRecord, prefix: str) -> str:
    """The command that repeats an evaluation by two labels, for people."""
    inputs = [EARLIER.sub("-", redact(one["path"])) for one in judged.inputs]
    words = ["dask-submit", "evaluate", run, *inputs[:NAMED_INPUTS]]
    shown = shlex.join(words) + (" ..." if len(inputs) > NAMED_INPUTS else "")
    shown += " --held-out" if judged.held_out else ""
    shown += " --no-choose" if prefix == TEST else ""
    shown += "" if judged.metric == metric_names(BINARY)[0] else f" --metric {judged.metric}"
    return f"{shown} --on-bad-line skip" if judged.on_bad_line == "skip" else shown


def relative_gap(row: dict[str, Any]) -> float | None:
    """The share of the objective by which no other weights can be better."""
    gap, objective = row.get("gap"), row["objective"]
    return None if gap is None or not math.isfinite(gap) else max(gap, 0.0) / objective if objective else 0.0


def halvings(lam: float, largest: float | None) -> int | None:
    """k where λ is λmax/2^k; None for other λ."""
    if not largest or lam <= 0:
        return None
    k = math.log2(largest / lam)
    return round(k) if abs(k - round(k)) < 1e-6 else None


def rounds_of(data: RunData) -> list[dict[str, Any]]:
    """The rounds of all λ in the order they ran, each with its relative gap.

    The paper's algorithm computes a gap only when a λ is done: its last round gets that of path.parquet.
    """
    last = {row["lambda_index"]: k for k, row in enumerate(data.trace)}
    found = []
    for k, row in enumerate(data.trace):
        final = last[row["lambda_index"]] == k
        gap = relative_gap(row)
        if gap is None and final:
            gap = relative_gap(data.rows[row["lambda_index"]])
        found.append(row | {"position": k + 1, "final": final, "relative_gap": gap})
    return found


def strongest(data: RunData, lambda_index: int, count: int) -> list[int]:
    """Features with the largest weights at a λ, strongest first; at another λ if this one has no feature at all."""
    features, weights = data.model.coefficients(lambda_index)
    if not features.size and data.model.features.size:
        fullest = int(np.argmax(np.diff(data.model.starts)))
        features, weights = data.model.coefficients(fullest)
    order = np.lexsort((features, -np.abs(weights)))[:count]
    return [int(feature) for feature in features[order]]


def weights_along(data: RunData, features: list[int]) -> np.ndarray:
    """The weights of some features at every λ: features × λ."""
    table = np.zeros((len(features), len(data.rows)))
    for k in range(len(data.rows)):
        ids, weights = data.model.coefficients(k)
        if not ids.size:
            continue
        place = np.searchsorted(ids, features).clip(max=ids.size - 1)
        table[:, k] = np.where(ids[place] == features, weights[place], 0.0)
    return table


def above_zero(values: list[float | None]) -> list[float]:
    """Values for a logarithmic axis: 0 a decade below the smallest, null as NaN, which is not drawn."""
    positive = [value for value in values if value is not None and value > 0]
    floor = min(positive) / 10 if positive else SMALLEST_GAP
    return [math.nan if value is None else max(value, floor) for value in values]
