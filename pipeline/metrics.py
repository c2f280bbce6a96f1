"""How well margins tell the labels: the one table of metrics. Whatever names metrics takes them from here.

Where labels are numbers, margins are the predictions of them.

By scikit-learn's definitions, weights as its sample_weight. Ranks are taken from margins, which still differ where
probabilities have become 1; so is the log-loss, which stays finite there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

BINARY = "binary"  # the kind of labels that are -1 and +1
NUMBER = "number"  # the kind that squared loss is for
TEST = "test_"  # how columns of path.parquet begin that hold metrics of data which judge models and choose none


@dataclass(frozen=True)
class Scores:
    """What a model says of n examples (margins), what is true (labels -1/+1, or numbers), and what metrics share."""

    margins: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None
    loss: str = "logistic"  # of the model: what its margins mean

    @cached_property
    def order(self) -> np.ndarray:
        """The examples by rising margin."""
        return np.argsort(self.margins)

    @cached_property
    def areas(self) -> tuple[float, float]:
        """The areas under the precision-recall curve and the ROC curve; NaN of examples of one class."""
        from pipeline.areas import areas  # here, as commands need the names of metrics and not numba

        none = np.empty(0)
        precision, roc = areas(self.order, self.margins, self.labels, none if self.weights is None else self.weights)
        return float(precision), float(roc)

    def mean(self, values: np.ndarray) -> float:
        """Over the examples, weighted."""
        return float(np.average(values, weights=self.weights))

    @property
    def surprise(self) -> float:
        """The mean of −log probability of the true label."""
        from pipeline.margins import PROBABILITIES

        return self.mean(-PROBABILITIES[self.loss][1](self.labels * self.margins))

    @cached_property
    def squared_error(self) -> float:
        """Of predictions that are numbers, on average."""
        return self.mean((self.labels - self.margins) ** 2)

    @property
    def explained(self) -> float:
        """R²: the share of the labels' variance that predictions explain; NaN where labels do not vary."""
        variance = self.mean((self.labels - self.mean(self.labels)) ** 2)
        return 1.0 - self.squared_error / variance if variance > 0 else np.nan


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
    words: str = ""  # for those who do not know what the meaning means: which values are good

    @property
    def title(self) -> str:
        """At the beginning of a line."""
        return self.label[0].upper() + self.label[1:]


# A new metric is one entry here. The first of its kind is what models are judged by unless another is asked for.
METRICS: tuple[Metric, ...] = (
    Metric(
        "auprc",
        "AUPRC",
        "area under the precision-recall curve",
        lambda scores: scores.areas[0],
        words="Area under the precision-recall curve: 1 is perfect, the share of positive examples is chance.",
    ),
    Metric(
        "auc",
        "AUC",
        "ROC AUC",
        lambda scores: scores.areas[1],
        words="The chance that a positive example is ranked above a negative one: 1 is perfect, 0.5 is chance.",
    ),
    Metric(
        "log_loss",
        "log-loss",
        "log-loss",
        lambda scores: scores.surprise,
        higher_is_better=False,
        is_share=False,
        words="How surprised the probabilities are by the true labels, on average: 0 is perfect, 0.693 is a coin.",
    ),
    Metric(
        "accuracy",
        "accuracy",
        "accuracy",
        lambda scores: scores.mean((scores.margins > 0) == (scores.labels > 0)),
        words="The share of examples whose likelier label is the right one.",
    ),
    Metric(
        "rmse",
        "RMSE",
        "root mean squared error",
        lambda scores: np.sqrt(scores.squared_error),
        kind=NUMBER,
        higher_is_better=False,
        is_share=False,
        words="The root of the mean squared error, in units of the labels: 0 is perfect; large errors count most.",
    ),
    Metric(
        "mae",
        "MAE",
        "mean absolute error",
        lambda scores: scores.mean(np.abs(scores.labels - scores.margins)),
        kind=NUMBER,
        higher_is_better=False,
        is_share=False,
        words="The mean absolute error, in units of the labels: 0 is perfect.",
    ),
    Metric(
        "r2",
        "R²",
        "share of the labels' variance that is explained",
        lambda scores: scores.explained,
        kind=NUMBER,
        is_share=False,
        words="The share of the labels' variance that predictions explain: 1 is perfect, 0 is as good as the mean.",
    ),
)


def shown(value: float, digits: int = 4) -> str:
    """A value for people. Metrics in units of the labels may be tiny or huge."""
    return f"{value:.{digits}f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.{digits}g}"


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


def metrics_in(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> list[Metric]:
    """The metrics that the rows of a path have; none if there was no evaluation. prefix: TEST, of test data."""
    return [metric for metric in METRICS if rows and all(prefix + metric.name in row for row in rows)]


def metrics_of(
    margins: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, kind: str = BINARY, loss: str = "logistic"
) -> dict[str, float | None]:
    """The metrics of n examples, in O(n) memory; None where one is undefined (examples of one label only)."""
    return metrics_from(Scores(margins, labels, weights, loss), kind)


def metrics_from(scores: Scores, kind: str = BINARY) -> dict[str, float | None]:
    """The metrics of what a model says, where its order or areas may be needed for more than them."""
    with np.errstate(over="ignore"):  # a metric that is beyond all numbers is infinite
        found = {metric.name: float(metric.of(scores)) for metric in metrics_for(kind)}
    return {name: None if np.isnan(value) else value for name, value in found.items()}
