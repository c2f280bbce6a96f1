"""How well margins tell the labels: the one table of metrics. Whatever names metrics takes them from here.

By scikit-learn's definitions, weights as its sample_weight. Ranks are taken from margins, which still differ where
probabilities have become 1; so is the log-loss, which stays finite there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from pipeline.margins import PROBABILITIES

BINARY = "binary"  # the kind of labels that are -1 and +1
NUMBER = "number"  # the kind that squared loss is for


@dataclass(frozen=True)
class Scores:
    """What a model says of n examples (margins), what is true (labels -1/+1), and what several metrics share."""

    margins: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None
    loss: str = "logistic"  # of the model: what its margins mean

    @cached_property
    def areas(self) -> tuple[float, float]:
        """The areas under the precision-recall curve and the ROC curve; NaN where one is undefined."""
        none = np.empty(0)
        precision, roc = _areas(
            np.argsort(self.margins), self.margins, self.labels, none if self.weights is None else self.weights
        )
        return float(precision), float(roc)

    def mean(self, values: np.ndarray) -> float:
        """Over the examples, weighted."""
        return float(np.average(values, weights=self.weights))


@njit(nogil=True, cache=True)
def _areas(order, margins, labels, weights):  # type: ignore[no-untyped-def]
    """(average precision, ROC AUC) given the order of rising margins; equal margins are one threshold."""
    positives = negatives = 0.0
    for k in range(order.size):
        weight = weights[order[k]] if weights.size > 0 else 1.0
        if labels[order[k]] > 0:
            positives += weight
        else:
            negatives += weight
    true = false = precision_area = roc_area = 0.0
    k = order.size - 1
    while k >= 0:
        threshold = margins[order[k]]
        more_true = more_false = 0.0
        while k >= 0 and margins[order[k]] == threshold:
            weight = weights[order[k]] if weights.size > 0 else 1.0
            if labels[order[k]] > 0:
                more_true += weight
            else:
                more_false += weight
            k -= 1
        roc_area += more_false * (true + 0.5 * more_true)
        true += more_true
        false += more_false
        if more_true > 0:
            precision_area += more_true * true / (true + false)
    precision = precision_area / positives if positives > 0 else np.nan
    roc = roc_area / (positives * negatives) if positives > 0 and negatives > 0 else np.nan
    return precision, roc


@dataclass(frozen=True)
class Metric:
    """A figure that models are judged by."""

    name: str  # in path.parquet, on command lines, in Python
    label: str  # within a sentence
    meaning: str  # for those who do not know the label
    of: Callable[[Scores], float]  # NaN where it is undefined
    kind: str = BINARY  # of the labels that it is for
    higher_is_better: bool = True
    is_share: bool = True  # from 0 to 1: the report draws all such metrics of a run in one plot

    @property
    def title(self) -> str:
        """At the beginning of a line."""
        return self.label[0].upper() + self.label[1:]


# A new metric is one entry here. The first of its kind is what models are judged by unless another is asked for.
METRICS: tuple[Metric, ...] = (
    Metric("auprc", "AUPRC", "area under the precision-recall curve", lambda scores: scores.areas[0]),
    Metric("auc", "AUC", "ROC AUC", lambda scores: scores.areas[1]),
    Metric(
        "log_loss",
        "log-loss",
        "log-loss",
        lambda scores: scores.mean(-PROBABILITIES[scores.loss][1](scores.labels * scores.margins)),
        higher_is_better=False,
        is_share=False,
    ),
    Metric(
        "accuracy",
        "accuracy",
        "accuracy",
        lambda scores: scores.mean((scores.margins > 0) == (scores.labels > 0)),
    ),
)


def metrics_for(kind: str = BINARY) -> list[Metric]:
    """The metrics for labels of a kind."""
    return [metric for metric in METRICS if metric.kind == kind]


def metric_names(kind: str | None = None) -> list[str]:
    """The names of all metrics, or of those of a kind."""
    return [metric.name for metric in METRICS if kind in (None, metric.kind)]


def find_metric(name: str) -> Metric:
    """The metric of a name that is known to be one."""
    return next(metric for metric in METRICS if metric.name == name)


def stored_metrics(names: Iterable[str]) -> list[Metric]:
    """The metrics that a table with columns of these names has.

    A run that was evaluated before a metric existed has the others of its kind, and is not damaged.
    """
    columns = set(names)
    kinds = {metric.kind for metric in METRICS if metric.name in columns}
    return [metric for metric in METRICS if metric.kind in kinds]


def metrics_in(rows: Sequence[Mapping[str, Any]]) -> list[Metric]:
    """The metrics that the rows of a path have; none if there was no evaluation."""
    return [metric for metric in METRICS if rows and all(metric.name in row for row in rows)]


def metrics_of(
    margins: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, kind: str = BINARY, loss: str = "logistic"
) -> dict[str, float | None]:
    """The metrics of n examples, in O(n) memory; None where one is undefined (examples of one label only)."""
    scores = Scores(margins, labels, weights, loss)
    found = {metric.name: metric.of(scores) for metric in metrics_for(kind)}
    return {name: None if np.isnan(value) else value for name, value in found.items()}
