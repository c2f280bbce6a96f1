"""How the seconds of a fit grow with the examples, over scales of a look-alike, as a log-log plot with its slope."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.bench_scaling import short, slope
from benchmarks.paper_sizes.stages import Experiment

STYLES = {"fit": ("#D55E00", "o"), "convert": ("#0072B2", "s")}


def seconds(experiments: Sequence[Experiment]) -> dict[str, list[float]]:
    """The path without loading, and the conversion."""
    return {
        "fit": [one.record.of("fit")["path_seconds"] for one in experiments],
        "convert": [one.record.of("convert")["seconds"] for one in experiments],
    }


def describe(rows: Sequence[int], times: dict[str, list[float]]) -> list[str]:
    lines = ["| examples | fit, s | convert, s |", "|---|---|---|"]
    lines += [f"| {n:,} | {a:.2f} | {b:.2f} |" for n, a, b in zip(rows, times["fit"], times["convert"], strict=True)]
    return [*lines, *(f"{stage}: slope {slope(rows, taken):.2f}" for stage, taken in times.items())]


def draw(name: str, rows: Sequence[int], times: dict[str, list[float]], path: Path) -> None:
    """Seconds against examples."""
    figure = Figure(figsize=(5.5, 4.2), dpi=200, layout="constrained")
    axes = figure.subplots()
    for stage, taken in times.items():
        colour, marker = STYLES[stage]
        axes.plot(rows, taken, color=colour, marker=marker, linewidth=2)
        axes.annotate(
            f"{stage}\nslope {slope(rows, taken):.2f}",
            (rows[-1], taken[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontweight="bold" if stage == "fit" else "normal",
        )
    axes.set(xscale="log", yscale="log", xlabel="examples", ylabel="seconds")
    axes.set_title(f"{name} (look-alike)", loc="left", fontsize=10, fontweight="bold")
    axes.set_xticks(rows, [short(n) for n in rows])
    axes.minorticks_off()
    axes.set_xlim(rows[0] / 1.3, rows[-1] * (rows[-1] / rows[0]) ** 0.3)  # room for the names
    axes.grid(True, color="0.92", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
