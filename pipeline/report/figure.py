"""What the plots of a report share: figures without colours, axes, lines, marks and tooltips, all of them bokeh's.

The page's script paints them in the theme's colours: a renderer's first tag is the CSS variable of its colour, its
second the series that a button of the legend hides and shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bokeh.models import (
    BasicTickFormatter,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    InlineStyleSheet,
    LogAxis,
    NumeralTickFormatter,
    Range1d,
    Span,
)
from bokeh.plotting import figure

from pipeline.report import format as fmt
from pipeline.report.data import RunData

LOG_FROM = 30  # values that span more than this factor get a logarithmic axis
NO_FEATURE = 0.5  # where a model without features stands on a logarithmic axis


@dataclass(frozen=True)
class Series:
    """An entry of a plot's legend."""

    key: str
    label: str
    colour: str  # a CSS variable
    marker: str = "circle"
    dashed: bool = False
    bar: bool = False


@dataclass(frozen=True)
class Plot:
    """A figure, what it shows in a sentence, what is to be seen in it, and its legend."""

    key: str
    title: str
    caption: str
    alternative: str
    figure: Any
    series: list[Series] = field(default_factory=list)
    wide: bool = False


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    plots: list[Plot]


def lambda_range(data: RunData) -> Range1d:
    """One range for all plots along λ, so that they zoom together: λ falls from left to right, as the path does."""
    lambdas = [row["lambda"] for row in data.rows]
    room = max((max(lambdas) / min(lambdas)) ** 0.04, 1.3)
    return Range1d(start=max(lambdas) * room, end=min(lambdas) / room)


def new_figure(x_label: str, y_label: str, *, x_log: bool = False, y_log: bool = False, **options: Any) -> Any:
    """A figure that is as wide as its place and leaves scrolling to the page."""
    plot = figure(
        x_axis_type="log" if x_log else "linear",
        y_axis_type="log" if y_log else "auto",
        sizing_mode="stretch_width",
        tools="pan,box_zoom,wheel_zoom,reset,save",
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_right=12,
        stylesheets=[InlineStyleSheet(css=".bk-ToolbarPanel { opacity: 0.65; }")],
        **({"height": 320} | options),
    )
    plot.toolbar.logo = None
    plot.toolbar.stylesheets = [InlineStyleSheet(css=".bk-divider { opacity: 0.3; }")]
    plot.xaxis.axis_label, plot.yaxis.axis_label = x_label, y_label
    plot.xgrid.visible = False
    for axis in (*plot.xaxis, *plot.yaxis):
        _plain_axis(axis)
    return plot


def _plain_axis(axis: Any) -> None:
    font = "system-ui, sans-serif"
    axis.axis_label_text_font = axis.major_label_text_font = font
    axis.axis_label_text_font_style = "normal"
    axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
    axis.axis_label_standoff = 8
    axis.major_tick_in, axis.major_tick_out = 0, 5
    axis.minor_tick_out = 0
    if isinstance(axis.formatter, BasicTickFormatter):
        axis.formatter.use_scientific = False


def new_lambda_figure(data: RunData, lambdas: Range1d, y_label: str, *, y_log: bool = False, height: int = 320) -> Any:
    """λ below as a number, above as λmax/2^k."""
    plot = new_figure("penalty λ", y_label, x_log=True, y_log=y_log, x_range=lambdas, height=height)
    hints = {row["lambda"]: fmt.lambda_hint(row["lambda"], data.lambda_max) for row in data.rows}
    hints = {lam: hint for lam, hint in hints.items() if hint}
    if hints:
        ticks = list(hints)[:: math.ceil(len(hints) / 4)]  # four fit on a phone
        axis = LogAxis(ticker=FixedTicker(ticks=ticks), major_label_overrides={lam: hints[lam] for lam in ticks})
        _plain_axis(axis)
        axis.axis_line_alpha = 0
        plot.add_layout(axis, "above")
    return plot


def spans_decades(values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) / min(positive) > LOG_FROM


def count_on(axis: Any, sizes: list[int]) -> None:
    """Whole numbers on a logarithmic axis, with a place for 0 where a model has no features."""
    axis.formatter = NumeralTickFormatter(format="0,0")
    if 0 in sizes:
        decades = [10**k for k in range(len(str(max(sizes))) + 1)]
        axis.ticker = FixedTicker(ticks=[NO_FEATURE, *decades])
        axis.major_label_overrides = {NO_FEATURE: "0"}


def draw_line(plot: Any, source: ColumnDataSource, x: str, y: str, series: Series, size: int = 7) -> None:
    dash = "dashed" if series.dashed else "solid"
    line = plot.line(x, y, source=source, line_width=2, line_dash=dash)
    size += 4 if series.marker == "diamond" else 0  # bokeh draws it narrow
    points = plot.scatter(x, y, source=source, size=size, marker=series.marker, name="points")
    line.tags = points.tags = [series.colour, series.key]


def ring_best(plot: Any, data: RunData, source: ColumnDataSource, x: str, y: str) -> None:
    """A ring round the best model."""
    if data.best is None:
        return
    at = {axis: [source.data[column][data.best]] for axis, column in (("x", x), ("y", y))}
    plot.scatter(**at, size=17, line_width=2.5, fill_alpha=0).tags = ["--s1", "best"]


def mark_best(plot: Any, data: RunData) -> None:
    if data.best is not None:
        lam = data.rows[data.best]["lambda"]
        plot.add_layout(Span(location=lam, dimension="height", line_width=1.5, line_dash="dotted", tags=["--muted"]))


def add_hover(plot: Any, tooltip: str, mode: str, only: int | None = None) -> None:
    """A tooltip at the points. `only`: of so many series, where one tooltip tells of all of them."""
    points = [renderer for renderer in plot.renderers if renderer.name == "points"]
    plot.add_tools(HoverTool(renderers=points[:only], tooltips=tooltip, mode=mode, visible=False))


def path_tooltip(data: RunData, metrics: list[str]) -> str:
    rows = [(fmt.metric_title(name), f"@{name}_text") for name in metrics]
    return tooltip_of(
        "model @index", [*rows, ("nonzeros", "@nonzeros{0,0}"), ("λ", "@lambda_text"), ("relative gap", "@gap_text")]
    )


def tooltip_of(title: str, rows: list[tuple[str, str]]) -> str:
    """bokeh escapes what it puts in for @names."""
    cells = "".join(
        f'<span style="color:var(--muted)">{label}</span><span style="text-align:right;overflow-wrap:anywhere">{value}'
        "</span>"
        for label, value in rows
    )
    return (
        f'<div style="font:13px/1.5 system-ui,sans-serif"><b style="overflow-wrap:anywhere">{title}</b>'
        f'<div style="display:grid;grid-template-columns:auto 1fr;gap:0 12px">{cells}</div></div>'
    )
