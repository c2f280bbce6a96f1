"""The comparison as a picture: seconds for the whole path against how far the worst λ is from the best objective."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.peers import OURS
from benchmarks.standing import Standing

FLOOR, CEILING = 1e-6, 1.0  # objectives nearer than the certificate tells are all the same; and farther than this, too
# Okabe and Ito's colours, told apart by the colour-blind, without their yellow; two greys and markers besides.
STYLES = {
    OURS: ("#D55E00", "o"),
    "sklearn": ("#0072B2", "s"),
    "liblinear": ("#56B4E9", "D"),
    "glmnet": ("#009E73", "^"),
    "skglm": ("#CC79A7", "v"),
    "celer": ("#E69F00", "P"),
    "snapml": ("#000000", "X"),
    "dask_ml": ("#7F7F7F", "<"),
    "spark": ("#4B3F72", ">"),
    "vw": ("#A0A0A0", "*"),
}
NAMES = {OURS: "dglmnet", "sklearn": "scikit-learn", "dask_ml": "dask-ml", "vw": "VW", "spark": "Spark"}


def draw(sets: Sequence[list[Standing]], path: Path) -> None:
    """A panel for each data set, two in a row."""
    mpl.rcParams.update({"font.size": 9, "font.family": "DejaVu Sans"})
    columns = min(2, len(sets))
    rows = -(-len(sets) // columns)
    figure = Figure(figsize=(5.0 * columns, 3.9 * rows), dpi=200, layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes, peers in zip(panels, sets, strict=False):
        _panel(axes, peers)
    for axes in panels[len(sets) :]:
        axes.set_visible(False)
    figure.savefig(path)


def _panel(axes: Axes, peers: list[Standing]) -> None:
    labels = [label for peer in peers if (label := _line(axes, peer)) is not None]
    _frame(axes, peers[0].result["problem"])
    _say_who_is_missing(axes, peers)
    _spread(axes, labels)


def _line(axes: Axes, peer: Standing) -> Text | None:
    """A peer's curve, its name beside the last point."""
    curve = peer.curve()
    if not curve:
        return None
    name = peer.result["peer"]
    colour, marker = STYLES[name]
    ours = name == OURS
    seconds, excess = np.array(curve).T
    excess = np.clip(excess, FLOOR, CEILING)
    axes.plot(
        seconds,
        excess,
        color=colour,
        marker=marker,
        markersize=6 if ours else 4,
        linewidth=3 if ours else 1.2,
        zorder=5 if ours else 3,
    )
    return axes.annotate(
        NAMES.get(name, peer.result["label"]),
        (seconds[-1], excess[-1]),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        fontweight="bold" if ours else "normal",
        fontsize=10 if ours else 8.5,
        zorder=6,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],  # read well across lines
    )


def _frame(axes: Axes, about: dict[str, Any]) -> None:
    axes.set(xscale="log", yscale="log", ylim=(FLOOR / 2.5, CEILING * 1.8))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("seconds for the whole path")
    axes.set_ylabel("largest relative suboptimality over λ")
    size = f"{about['examples']:,} × {about['features']:,}"
    made = " (look-alike)" if about["generated"] else ""
    axes.set_title(f"{about['name']}{made}, {size}", loc="left", fontsize=10, fontweight="bold")
    for near in (1e-3, 1e-4):
        axes.axhline(near, color="0.35", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.grid(True, which="major", color="0.92", linewidth=0.6, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * (high / low) ** 0.28)  # room for the names


def _say_who_is_missing(axes: Axes, peers: list[Standing]) -> None:
    missing = [NAMES.get(peer.result["peer"], peer.result["label"]) for peer in peers if not peer.curve()]
    if missing:
        text = f"no whole path: {', '.join(missing)}"
        axes.text(0.01, 0.01, text, transform=axes.transAxes, fontsize=7.5, color="0.4", va="bottom")


def _spread(axes: Axes, labels: list[Text], rounds: int = 200) -> None:
    """Move names up and down until none covers another."""
    figure = axes.figure
    figure.draw_without_rendering()  # type: ignore[union-attr]
    for _ in range(rounds):
        boxes = [label.get_window_extent() for label in labels]
        moved = False
        for i, one in enumerate(boxes):
            for j in range(i):
                other = boxes[j]
                overlap = min(one.y1, other.y1) - max(one.y0, other.y0)
                if overlap > 0 and min(one.x1, other.x1) > max(one.x0, other.x0):
                    up, down = (i, j) if one.y0 >= other.y0 else (j, i)
                    _nudge(labels[up], 0.6)
                    _nudge(labels[down], -0.6)
                    moved = True
        if not moved:
            return


def _nudge(label: Text, points: float) -> None:
    x, y = label.xyann  # type: ignore[attr-defined]
    label.xyann = (x, y + points)  # type: ignore[attr-defined]
