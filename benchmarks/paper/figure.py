"""Figure 1: test AUPRC against nonzeros, a panel for each data set; d-GLMNET's path over the cloud of online models."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.paper.claims import Found, cloud_of, points
from benchmarks.paper.settings import DECAY, POWER

PAPER, DEFAULT, VW = "#D55E00", "#0072B2", "#009E73"
ONLINE = {DECAY: "#9A9A9A", POWER: "#C9A0C8"}

MANY = 2_000  # models: more are drawn smaller


def draw(found: list[Found], path: Path | None = None) -> Figure:
    """A panel for each data set, side by side."""
    mpl.rcParams.update({"font.size": 9, "font.family": "DejaVu Sans"})
    figure = Figure(figsize=(4.6 * len(found), 3.9), dpi=200, layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(found)))
    for axes, one in zip(panels, found, strict=True):
        _panel(axes, one)
    panels[0].set_ylabel("test AUPRC")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5 if len(found) > 1 else 2, frameon=False)
    if path is not None:
        figure.savefig(path)
    return figure


def _panel(axes: Axes, found: Found) -> None:
    for reading, colour in ONLINE.items():
        cloud = points(cloud_of(found.online, reading))
        if cloud.size:
            area, alpha = (7, 0.6) if len(cloud) < MANY else (3, 0.25)
            label = f"online, {reading}"
            axes.scatter(
                cloud[:, 0], cloud[:, 1], s=area, color=colour, alpha=alpha, linewidths=0, label=label, rasterized=True
            )
    if found.vw:
        theirs = points(cloud_of(found.vw))
        axes.scatter(
            theirs[:, 0],
            theirs[:, 1],
            s=13,
            facecolors="none",
            edgecolors=VW,
            linewidths=0.8,
            label="Vowpal Wabbit, one worker",
        )
    for mode, shade, style, marker in (("default", DEFAULT, "--", "s"), ("paper", PAPER, "-", "o")):
        own = points(found.paths[mode])
        label = f"d-GLMNET, {mode} mode"
        axes.plot(*own.T, style, color=shade, marker=marker, markersize=4.5, linewidth=1.6, label=label)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    low, high = _limits(found)
    axes.set_ylim(low, high)
    axes.set_xlabel("nonzero coefficients")
    kind = " (look-alike)" if found.about["generated"] else ""
    size = f"{found.about['examples']:,} × {found.about['features']:,}"
    axes.set_title(f"{found.name}{kind}, {size}", loc="left", fontsize=10, fontweight="bold")
    axes.grid(True, color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _limits(found: Found) -> tuple[float, float]:
    """From the worst model of d-GLMNET, a little below: online models may be far worse than any worth showing."""
    quality = np.concatenate([points(rows)[:, 1] for rows in found.paths.values()])
    cloud = points(cloud_of(found.online))[:, 1]
    top, bottom = max(quality.max(), cloud.max()), min(quality.min(), float(np.quantile(cloud, 0.05)))
    room = 0.05 * (top - bottom)
    return float(bottom - room), float(top + room)
