"""The plots of a report, each with its caption and a text for those who do not see it."""

from __future__ import annotations

import math
from typing import Any

from bokeh.models import ColumnDataSource, FixedTicker, NumeralTickFormatter, Range1d, Span

from pipeline.metrics import NUMBER, Metric, metrics_for
from pipeline.report import format as fmt
from pipeline.report.data import RunData, above_zero, relative_gap, rounds_of, strongest, weights_along
from pipeline.report.figure import (
    NO_FEATURE,
    Plot,
    Section,
    Series,
    add_hover,
    count_on,
    draw_line,
    lambda_range,
    mark_best,
    new_figure,
    new_lambda_figure,
    path_tooltip,
    ring_best,
    spans_decades,
    tooltip_of,
)
from pipeline.report.judged import plot_judged
from pipeline.report.words import judges, lambda_text, stage_seconds

COLOURS = 5  # --s0 to --s4 of the style sheet
PATHS = 10  # features whose coefficients are drawn
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle")


def make_sections(data: RunData) -> list[Section]:
    """All plots that the run has data for."""
    source, lambdas = _path_source(data), lambda_range(data)
    sections = [Section("size", "Size", [plot_nonzeros(data, source, lambdas)])]
    if data.metrics:
        plots = [plot_quality_by_size(data, source), *plot_quality(data, source, lambdas)]
        sections = [Section("quality", "Quality", [plot for plot in plots if plot] + sections[0].plots)]
    if data.record.label_kind != NUMBER:
        sections.append(Section("predictions", "Predictions", plot_judged(data)))
    if data.model.features.size:
        sections.append(Section("coefficients", "Coefficients", [plot_coefficients(data, lambdas)]))
    if data.trace:
        sections.append(Section("convergence", "Convergence", plot_rounds(data)))
    sections.append(Section("time", "Time", [plot_stages(data), plot_search(data, source)]))
    return sections


# Figure 1 of the paper, and the metrics along the path.


def plot_quality_by_size(data: RunData, source: ColumnDataSource) -> Plot | None:
    """Test AUPRC against nonzeros: the paper's Figure 1. For labels of another kind, the first metric of that kind."""
    shown = metrics_for(data.record.label_kind)[0]
    if shown.name not in data.metrics:
        return None
    sizes = [row["nonzeros"] for row in data.rows]
    plot = new_figure("features with a weight", shown.title, x_log=True)
    count_on(plot.xaxis[0], sizes)
    plot.y_range.default_span = 0.2  # of a single model
    draw_line(plot, source, "size", shown.name, Series(shown.name, shown.title, "--s0"))
    ring_best(plot, data, source, "size", shown.name)
    add_hover(plot, path_tooltip(data, [shown.name]), "mouse")
    values = _known(data, shown)
    best, superlative = _best_value(values, shown), "highest" if shown.higher_is_better else "lowest"
    return Plot(
        "figure1",
        f"{judges(data).capitalize()} {shown.label} by number of features",
        f"A point is a model: the {'higher' if shown.higher_is_better else 'lower'} the better, the further left the "
        "simpler.",
        f"{judges(data).capitalize()} {shown.label} against the number of features with a weight, for "
        f"{fmt.count(len(values), 'model')}. From "
        f"{fmt.metric(values[0][1])} with {sizes[values[0][0]]:,} to {fmt.metric(values[-1][1])} with "
        f"{sizes[values[-1][0]]:,} features; {superlative} {fmt.metric(best[1])} with {sizes[best[0]]:,}.",
        plot,
        [Series(shown.name, "models, λ falling", "--s0"), Series("best", _best_label(data, shown), "--s1", "ring")],
    )


def _best_label(data: RunData, shown: Metric) -> str:
    by = data.metric or shown.name
    return "best model" if by == shown.name else f"best by {fmt.metric_title(by)}"


def plot_quality(data: RunData, source: ColumnDataSource, lambdas: Range1d) -> list[Plot]:
    """Metrics along λ: shares, of which 1 is perfect, together; every other one, such as the log-loss, by itself."""
    known = [metric for metric in metrics_for(data.record.label_kind) if metric.name in data.metrics]
    shares = [metric for metric in known if metric.is_share and metric.higher_is_better]
    plots = []
    if shares:
        plots.append(
            _quality_plot(
                data, source, lambdas, shares, "quality", f"{judges(data).capitalize()} quality along the path"
            )
        )
    for metric in known:
        if metric not in shares:
            key, title = metric.name.replace("_", ""), f"{judges(data).capitalize()} {metric.label} along the path"
            plots.append(_quality_plot(data, source, lambdas, [metric], key, title))
    return plots


def _quality_plot(
    data: RunData, source: ColumnDataSource, lambdas: Range1d, metrics: list[Metric], key: str, title: str
) -> Plot:
    plot = new_lambda_figure(data, lambdas, metrics[0].title if len(metrics) == 1 else "")
    styles = range(len(metrics)) if len(metrics) > 1 else [3]
    series = [
        Series(one.name, one.title, f"--s{k % COLOURS}", MARKERS[k % COLOURS], dashed=k >= COLOURS)
        for k, one in zip(styles, metrics, strict=True)
    ]
    plot.y_range.default_span = 0.2  # of a single model
    for one in series:
        draw_line(plot, source, "lambda", one.key, one)
    mark_best(plot, data)
    add_hover(plot, path_tooltip(data, [one.name for one in metrics]), "vline", only=1)
    better = "higher" if metrics[0].higher_is_better else "lower"
    return Plot(
        key,
        title,
        f"The penalty falls from left to right; {better} is better. {_best_words(data)}".strip(),
        " ".join(_spread(data, one) for one in metrics),
        plot,
        series if len(series) > 1 else [],
    )


def _spread(data: RunData, metric: Metric) -> str:
    """Where a metric begins, ends, and is best."""
    values = _known(data, metric)
    best = _best_value(values, metric)
    return (
        f"{metric.title} from {fmt.metric(values[0][1])} at λ = "
        f"{fmt.number(data.rows[values[0][0]]['lambda'])} to {fmt.metric(values[-1][1])} at λ = "
        f"{fmt.number(data.rows[values[-1][0]]['lambda'])}, best {fmt.metric(best[1])} at model {best[0]}."
    )


def plot_nonzeros(data: RunData, source: ColumnDataSource, lambdas: Range1d) -> Plot:
    sizes = [row["nonzeros"] for row in data.rows]
    log = spans_decades(sizes)
    plot = new_lambda_figure(data, lambdas, "features with a weight", y_log=log)
    if log:
        count_on(plot.yaxis[0], sizes)
    else:
        plot.yaxis[0].formatter = NumeralTickFormatter(format="0,0")
        plot.yaxis[0].ticker.min_interval = 1
    draw_line(plot, source, "lambda", "size" if log else "nonzeros", Series("nonzeros", "nonzeros", "--s2", "triangle"))
    mark_best(plot, data)
    add_hover(plot, path_tooltip(data, []), "vline", only=1)
    return Plot(
        "nonzeros",
        "Features with a weight along the path",
        f"A weaker penalty lets more features in. {_best_words(data)}".strip(),
        f"Nonzero weights from {sizes[0]:,} at the largest λ to {sizes[-1]:,} at the smallest.",
        plot,
        wide=not data.metrics,
    )


# Coefficients.


def plot_coefficients(data: RunData, lambdas: Range1d) -> Plot:
    """The weights of the strongest features at every λ."""
    features = strongest(data, data.featured, PATHS)
    plot = new_lambda_figure(data, lambdas, "weight", height=420)
    plot.add_layout(Span(location=0, dimension="width", line_width=1, tags=["--axis"]))
    series = []
    for k, (feature, along) in enumerate(zip(features, weights_along(data, features), strict=True)):
        name = data.name_of(feature)
        marker = MARKERS[k % COLOURS]
        one = Series(f"w{k}", name, f"--s{k % COLOURS}", marker, dashed=k >= COLOURS)
        source = ColumnDataSource(
            {
                "lambda": [row["lambda"] for row in data.rows],
                "text": [lambda_text(data, row) for row in data.rows],
                "weight": along.tolist(),
                "name": [name] * len(data.rows),
                "id": [feature] * len(data.rows),
            }
        )
        draw_line(plot, source, "lambda", "weight", one, size=6)
        series.append(one)
    mark_best(plot, data)
    rows = [("λ", "@text"), ("weight", "@weight{+0.0000}")]
    add_hover(plot, tooltip_of("@name", [("feature id", "@id"), *rows] if data.names else rows), "mouse")
    which = "The largest weight" if len(features) == 1 else f"The {len(features)} largest weights"
    listed = ", ".join(data.name_of(feature) for feature in features[:5])
    return Plot(
        "paths",
        "Weights of the strongest features",
        f"{which} of model {data.rows[data.featured]['index']}, along the path. {_signs(data)} A name in the legend "
        "hides or shows its line.",
        f"Weights along λ of {fmt.count(len(features), 'feature')}, strongest first: {listed}"
        f"{' and others' if len(features) > 5 else ''}. The table below the plot has the weights of all.",
        plot,
        series,
        wide=True,
    )


def _signs(data: RunData) -> str:
    """What the sign of a weight means."""
    if data.record.label_kind == NUMBER:
        return "Above zero a feature raises the prediction, below it lowers it."
    return "Above zero a feature speaks for the label +1, below against it."


# Rounds.


def plot_rounds(data: RunData) -> list[Plot]:
    """Objective and gap, round by round."""
    rounds = rounds_of(data)
    gaps = [row["relative_gap"] for row in rounds]
    columns: dict[str, list[Any]] = {
        "position": [row["position"] for row in rounds],
        "objective": [row["objective"] for row in rounds],
        "gap": above_zero(gaps),
        "final": [row["final"] for row in rounds],
        "round": [row["round"] for row in rounds],
        "model": [row["lambda_index"] for row in rounds],
        "lambda_text": [lambda_text(data, data.rows[row["lambda_index"]]) for row in rounds],
        "objective_text": [fmt.number(row["objective"], 6) for row in rounds],
        "gap_text": [fmt.short(gap) for gap in gaps],
        "nonzeros": [row.get("nonzeros") for row in rounds],
        "seconds_text": [fmt.duration(row["seconds"]) for row in rounds],
    }
    plots = [_objective_plot(columns)]
    if any(gap is not None for gap in gaps):
        plots.append(_gap_plot(data, columns, gaps))
    return plots


def _round_tooltip() -> str:
    rows = [("λ", "@lambda_text"), ("objective", "@objective_text"), ("relative gap", "@gap_text")]
    return tooltip_of("model @model, round @round", [*rows, ("nonzeros", "@nonzeros{0,0}"), ("time", "@seconds_text")])


def _objective_plot(columns: dict[str, list[Any]]) -> Plot:
    objective = columns["objective"]
    log = spans_decades(objective) and min(objective) > 0
    plot = new_figure("round, counted over all λ", "objective", y_log=log)
    plot.yaxis[0].formatter = NumeralTickFormatter(format="0,0.[000]")
    _round_lines(plot, columns, "objective", "--s0", joined=True)
    add_hover(plot, _round_tooltip(), "mouse")
    return Plot(
        "objective",
        "Objective by round",
        "What the fit minimises: loss plus penalty. It steps down whenever λ does.",
        f"Objective over {fmt.count(len(objective), 'round')}, from {fmt.number(objective[0], 6)} to "
        f"{fmt.number(objective[-1], 6)}.",
        plot,
        _round_series("--s0"),
    )


def _gap_plot(data: RunData, columns: dict[str, list[Any]], gaps: list[float | None]) -> Plot:
    plot = new_figure("round, counted over all λ", "relative gap", y_log=True)
    _round_lines(plot, columns, "gap", "--s1", joined=False)
    add_hover(plot, _round_tooltip(), "mouse")
    options = data.record.options
    limit = options.get("gap") or options.get("max_gap")
    asked = ""
    if limit:
        plot.add_layout(Span(location=limit, dimension="width", line_width=1.5, line_dash="dashed", tags=["--muted"]))
        asked = f" A λ may end below the dashed line, {fmt.percent(limit)}."
    ends = [gap for row in data.rows if (gap := relative_gap(row)) is not None]
    zero = " A gap of 0 is drawn a decade below the smallest." if any(gap == 0 for gap in gaps) else ""
    return Plot(
        "gap",
        "Relative gap by round",
        f"How far from the optimum the model can be at most, as a share of the objective.{asked}{zero}",
        f"Relative duality gap by round; at the end of each λ it lies between {fmt.short(min(ends))} and "
        f"{fmt.short(max(ends))}."
        if ends
        else "Relative duality gap by round.",
        plot,
        _round_series("--s1"),
    )


def _round_series(colour: str) -> list[Series]:
    return [Series("final", "last round of a λ", colour), Series("inner", "earlier round", colour, "ring")]


def _round_lines(plot: Any, columns: dict[str, list[Any]], y: str, colour: str, *, joined: bool) -> None:
    """Rounds as points, joined by a line; the last of a λ filled. Not joined: the line breaks where λ changes."""
    xs: list[float] = []
    ys: list[float] = []
    for x, value, final in zip(columns["position"], columns[y], columns["final"], strict=True):
        gap = [] if joined or not final else [math.nan]
        xs += [x, *gap]
        ys += [value, *gap]
    plot.line(xs, ys, line_width=1.5, line_alpha=0.7).tags = [colour, "line"]
    for key, final in (("inner", False), ("final", True)):
        chosen = [k for k, value in enumerate(columns["final"]) if value is final]
        source = ColumnDataSource({name: [column[k] for k in chosen] for name, column in columns.items()})
        points = plot.scatter("position", y, source=source, size=7, line_width=1.5, name="points")
        points.tags = [colour, key] if final else [colour, key, "hollow"]
    plot.xaxis[0].ticker.min_interval = 1


# Time.


def plot_search(data: RunData, source: ColumnDataSource) -> Plot:
    """Seconds of each λ, split as the paper splits them."""
    beside = 0.6 + max(6 - len(data.rows), 0) / 2  # few bars are no walls
    models = Range1d(start=-beside, end=len(data.rows) - 1 + beside)
    plot = new_figure("model (λ falls to the right)", "seconds", x_range=models)
    plot.xaxis[0].ticker = FixedTicker(ticks=list(range(0, len(data.rows), math.ceil(len(data.rows) / 20))))
    plot.y_range.start = 0
    series = [
        Series("sweep_seconds", "sweeps of the blocks", "--s0", bar=True),
        Series("search_seconds", data.searches, "--s1", bar=True),
    ]
    stacked = plot.vbar_stack([one.key for one in series], x="index", width=0.72, source=source, line_width=0)
    for one, renderer in zip(series, stacked, strict=True):
        renderer.tags, renderer.name = [one.colour, one.key], "points"
    rows = [("sweeps", "@sweep_text"), (data.searches, "@search_text"), ("rounds", "@rounds"), ("λ", "@lambda_text")]
    add_hover(plot, tooltip_of("model @index: @seconds_text", rows), "mouse")
    spent = sum(row["seconds"] or 0.0 for row in data.rows)
    search = sum(row.get("line_search_seconds") or 0.0 for row in data.rows)
    share = fmt.percent(min(search / spent, 1.0) if spent else None)
    return Plot(
        "search",
        "Time of each model",
        f"Sweeps run on the workers, the {data.searches} beside the scheduler: {share} of the time.",
        f"Seconds for each model, {fmt.duration(spent)} in all; the {data.searches} takes {share} of them.",
        plot,
        series,
        wide=True,
    )


def plot_stages(data: RunData) -> Plot:
    stages = stage_seconds(data)
    names = list(stages)
    plot = new_figure("seconds", "", y_range=names[::-1], height=84 + 36 * len(names))
    plot.x_range.start = 0
    plot.ygrid.visible = False
    columns = {"stage": names, "seconds": list(stages.values()), "text": [fmt.duration(s) for s in stages.values()]}
    source = ColumnDataSource(columns)
    bars = plot.hbar(y="stage", right="seconds", height=0.6, source=source, line_width=0, name="points")
    bars.tags = ["--s2", "stage"]
    add_hover(plot, tooltip_of("@stage", [("time", "@text")]), "mouse")
    listed = ", ".join(f"{name} {fmt.duration(seconds)}" for name, seconds in stages.items())
    told = "fit" in data.record.seconds
    return Plot(
        "stages",
        "Time of each stage",
        f"By the clock: {listed}." if told else f"The run recorded the time of its models only: {listed}.",
        f"Time by stage: {listed}.",
        plot,
        wide=True,
    )


# What the plots share.


def _path_source(data: RunData) -> ColumnDataSource:
    """A row per λ, with values to draw and values to read."""
    rows = data.rows
    search = [min(row.get("line_search_seconds") or 0.0, row["seconds"] or 0.0) for row in rows]
    sweeps = [(row["seconds"] or 0.0) - taken for row, taken in zip(rows, search, strict=True)]
    columns: dict[str, list[Any]] = {
        "index": [row["index"] for row in rows],
        "lambda": [row["lambda"] for row in rows],
        "lambda_text": [lambda_text(data, row) for row in rows],
        "nonzeros": [row["nonzeros"] for row in rows],
        "size": [row["nonzeros"] or NO_FEATURE for row in rows],
        "gap_text": [fmt.short(relative_gap(row)) for row in rows],
        "rounds": [row["rounds"] for row in rows],
        "seconds_text": [fmt.duration(row["seconds"]) for row in rows],
        "search_seconds": search,
        "search_text": [fmt.duration(seconds) for seconds in search],
        "sweep_seconds": sweeps,
        "sweep_text": [fmt.duration(seconds) for seconds in sweeps],
    }
    for name in data.metrics:
        columns[name] = [math.nan if row.get(name) is None else row[name] for row in rows]
        columns[f"{name}_text"] = [fmt.metric(row.get(name)) for row in rows]
    return ColumnDataSource(columns)


def _known(data: RunData, metric: Metric) -> list[tuple[int, float]]:
    """The models that have a metric, and its values."""
    return [(k, row[metric.name]) for k, row in enumerate(data.rows) if row.get(metric.name) is not None]


def _best_value(values: list[tuple[int, float]], metric: Metric) -> tuple[int, float]:
    return (max if metric.higher_is_better else min)(values, key=lambda pair: pair[1])


def _best_words(data: RunData) -> str:
    return "" if data.best is None else "The dotted line marks the best model."
