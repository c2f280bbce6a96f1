"""Plots of one model's predictions, drawn empty: the page's script fills them with the model that is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bokeh.models import ColumnDataSource, NumeralTickFormatter, Range1d

from pipeline.report import format as fmt
from pipeline.report.data import RunData
from pipeline.report.figure import Plot, Series, add_hover, new_figure, tooltip_of
from pipeline.report.words import judges

SHARE = "0 %"
CHANCE = Series("chance", "chance", "--muted", "none", dashed=True)
THRESHOLD = Series("threshold", "at the threshold", "--s1", "ring")


def plot_judged(data: RunData) -> list[Plot]:
    """Precision-recall, ROC, calibration, scores by class; none if no evaluation stored what they are drawn from."""
    if not data.judgements:
        return []
    return [_precision_recall(data), _roc(data), _calibration(data), _scores(data)]


def _precision_recall(data: RunData) -> Plot:
    plot = _unit_square("recall: share of the positives that are found", "precision")
    _curve(plot, "--s0")
    rows = [("precision", "@y{0.0000}"), ("recall", "@x{0.0000}"), ("probability above", "@threshold{0.0000}")]
    add_hover(plot, tooltip_of("@called", rows), "mouse", only=1)
    return Plot(
        "precision",
        "Precision and recall",
        "Of those that are called positive, how many are; of those that are positive, how many are found.",
        _alternative(data, "Precision against recall", "auprc"),
        plot,
        [Series("curve", "this model", "--s0", "none"), CHANCE, THRESHOLD],
    )


def _roc(data: RunData) -> Plot:
    plot = _unit_square("false positive rate", "true positive rate")
    _curve(plot, "--s2")
    rows = [("true positive rate", "@y{0.0000}"), ("false positive rate", "@x{0.0000}")]
    rows.append(("probability above", "@threshold{0.0000}"))
    add_hover(plot, tooltip_of("@called", rows), "mouse", only=1)
    return Plot(
        "roc",
        "ROC curve",
        "How many positives are found at the price of how many false alarms.",
        _alternative(data, "True positive rate against false positive rate", "auc"),
        plot,
        [Series("curve", "this model", "--s2", "none"), CHANCE, THRESHOLD],
    )


def _calibration(data: RunData) -> Plot:
    plot = _unit_square("mean predicted probability", "share that is positive")
    _line(plot, "chance", "--muted", line_width=1.5, line_dash="dashed")
    source = _source("x", "y", "weight_text")
    plot.line("x", "y", source=source, line_width=2).tags = ["--s3", "curve"]
    plot.scatter("x", "y", source=source, size=7, marker="square", name="points").tags = ["--s3", "curve"]
    rows = [("predicted", "@x{0.0000}"), ("positive", "@y{0.0000}"), ("examples", "@weight_text")]
    add_hover(plot, tooltip_of("a group of examples", rows), "mouse")
    return Plot(
        "calibration",
        "Calibration",
        "Do probabilities mean what they say? A point is at least a tenth of the examples, by predicted probability; "
        "the leftmost is what is left over.",
        _alternative(data, "Share of positives against predicted probability", "log_loss"),
        plot,
        [Series("curve", "this model", "--s3", "square"), replace(CHANCE, label="perfect")],
    )


def _scores(data: RunData) -> Plot:
    plot = new_figure("predicted probability", "share of the class", x_range=Range1d(-0.01, 1.01))
    plot.y_range.start = 0
    _in_per_cent(plot.xaxis[0], plot.yaxis[0])
    series = [Series("positives", "positive", "--s0", bar=True), Series("negatives", "negative", "--s1", bar=True)]
    for one in series:
        source = _source("x", "top", "range", "text")
        bars = plot.vbar("x", top="top", width=0.02, source=source, line_width=0, name="points")
        bars.tags = [one.colour, one.key]
    add_hover(plot, tooltip_of("@range", [("of the class", "@top{0.0 %}"), ("examples", "@text")]), "mouse")
    return Plot(
        "scores",
        "Predicted probability by class",
        "The further apart the two classes lie, the better the model tells them apart.",
        _alternative(data, "Histogram of predicted probabilities by class", "accuracy"),
        plot,
        series,
    )


def _unit_square(x_label: str, y_label: str) -> Any:
    """From 0 to 100 % both ways."""
    plot = new_figure(x_label, y_label, x_range=Range1d(-0.02, 1.02), y_range=Range1d(-0.02, 1.04))
    _in_per_cent(plot.xaxis[0], plot.yaxis[0])
    return plot


def _in_per_cent(*axes: Any) -> None:
    for axis in axes:
        axis.formatter = NumeralTickFormatter(format=SHARE)


def _curve(plot: Any, colour: str) -> None:
    """A curve, what chance would give, and where the threshold is."""
    _line(plot, "chance", "--muted", line_width=1.5, line_dash="dashed")
    plot.line(
        "x", "y", source=_source("x", "y", "threshold", "called"), line_width=2.5, line_join="round", name="points"
    ).tags = [colour, "curve"]
    ring = plot.scatter("x", "y", source=_source("x", "y"), size=13, line_width=2.5, fill_alpha=0)
    ring.tags = [THRESHOLD.colour, THRESHOLD.key]


def _line(plot: Any, key: str, colour: str, **style: Any) -> None:
    plot.line("x", "y", source=_source("x", "y"), **style).tags = [colour, key]


def _source(*columns: str) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in columns})


def _alternative(data: RunData, what: str, metric: str) -> str:
    """Of the model that is shown first; the script changes the number when another is chosen."""
    row = data.rows[data.featured]
    value = row.get(data.judgements[0].prefix + metric)
    return (
        f"{what}, model {row['index']}, {judges(data)} examples; {fmt.metric_title(metric)} {fmt.metric(value)}. The "
        "figures below the plots are those at the threshold."
    )
