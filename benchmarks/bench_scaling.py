"""How the time of a path grows with n, p, the nonzeros and the number of blocks: a doubling series for each.

    python -m benchmarks.bench_scaling [--quick] [--output docs/scaling.png]

One of the four is doubled while the others stay; two threads in one process; λmax/2 … λmax/2^5, both algorithms. Prints
the seconds and the slope fitted through them in log-log (1 is proportional, 0 is no growth), and draws them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from solver import (
    Blocks,
    ConvergenceWarning,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
    null_model,
    solve_path,
)

STYLES = {"default": ("#D55E00", "o"), "paper": ("#0072B2", "s")}
AXES = {"n": "examples", "p": "features", "nnz": "nonzeros", "blocks": "blocks, M"}
Times = dict[str, list[float]]


@dataclass(frozen=True)
class Size:
    """A generated problem."""

    n: int = 50_000
    p: int = 20_000
    nnz: int = 4_000_000
    blocks: int = 2

    def make(self) -> tuple[sp.csc_matrix, Examples]:
        """Nonzeros anywhere with the same chance, real values, labels that follow 50 features."""
        rng = np.random.default_rng(5)
        places = rng.integers(0, self.n, self.nnz), rng.integers(0, self.p, self.nnz)
        X = sp.csc_matrix((rng.normal(size=self.nnz).astype(np.float32), places), shape=(self.n, self.p))
        weights = np.zeros(self.p)
        weights[:50] = rng.normal(size=50)
        margins = X @ weights
        chance = 1.0 / (1.0 + np.exp(-2.0 * margins / margins.std()))
        return X, Examples.of(np.where(rng.random(self.n) < chance, 1.0, -1.0))


def series(name: str, steps: int, quick: bool) -> list[Size]:
    """Sizes in which one number doubles."""
    base = Size(5_000, 2_000, 40_000) if quick else Size()
    if name == "blocks":
        return [replace(base, blocks=2**k) for k in range(4)]
    middle = getattr(base, name)
    return [replace(base, **{name: middle * 2**k // 2 ** (steps // 2)}) for k in range(steps)]


def seconds(size: Size, repeat: int) -> dict[str, float]:
    """The fastest path by each algorithm, loading left out."""
    X, examples = size.make()
    with ThreadBlocks.from_csc(X, examples, size.blocks, threads=2) as blocks:
        return {mode: min(_times(mode, blocks, examples, repeat)) for mode in STYLES}


def _times(mode: str, blocks: Blocks, examples: Examples, repeat: int) -> Iterator[float]:
    problem = Problem(examples, Penalty(blocks.layout.size))
    null = null_model(blocks, problem)
    lambdas = lambda_grid(null.lambda_max, 5)
    options = DefaultOptions() if mode == "default" else SolverOptions.paper()
    for _ in range(repeat):
        began = time.perf_counter()
        list(solve_path(blocks, problem, lambdas, options, null=null))
        yield time.perf_counter() - began


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent of y ~ xᵃ."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def draw(found: dict[str, tuple[list[int], Times]], path: Path) -> None:
    """Four panels, each with both algorithms."""
    figure = Figure(figsize=(10, 7), dpi=200, layout="constrained")
    panels = figure.subplots(2, 2, sharey=True)
    for axes, (name, (x, times)) in zip(panels.ravel(), found.items(), strict=True):
        _panel(axes, name, x, times)
    for axes in panels[:, 0]:
        axes.set_ylabel("seconds for five λ")
    figure.savefig(path)


def _panel(axes: Axes, name: str, x: list[int], times: Times) -> None:
    for mode, taken in times.items():
        colour, marker = STYLES[mode]
        axes.plot(x, taken, color=colour, marker=marker, linewidth=2)
        label = f"{mode}\nslope {slope(x, taken):.2f}"
        upper = taken[-1] >= max(row[-1] for row in times.values())
        axes.annotate(
            label,
            (x[-1], taken[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            va="bottom" if upper else "top",
            color=colour,
            fontweight="bold" if mode == "default" else "normal",
        )
    axes.set(xscale="log", yscale="log", xlabel=AXES[name])
    axes.set_xticks(x, [short(value) for value in x])
    axes.minorticks_off()
    axes.set_xlim(x[0] * (x[0] / x[-1]) ** 0.05, x[-1] * (x[-1] / x[0]) ** 0.3)  # room for the names
    axes.grid(True, color="0.92", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def short(value: int) -> str:
    for unit, letter in ((10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:g} {letter}"
    return str(value)


@click.command()
@click.option("--quick", is_flag=True, help="A hundredth of the nonzeros, to try it.")
@click.option("--steps", default=5, show_default=True, help="Sizes in a series.")
@click.option("--repeat", default=2, show_default=True, help="Paths; the fastest counts.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("docs/scaling.png"), show_default=True, help="The plot."
)
def main(quick: bool, steps: int, repeat: int, output: Path) -> None:
    """Measure, print, draw."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # paper mode may stop at its limit of rounds
    seconds(Size(2_000, 500, 40_000), 1)  # compiles
    found: dict[str, tuple[list[int], Times]] = {}
    for name in AXES:
        sizes = series(name, steps, quick)
        x = [getattr(size, name) for size in sizes]
        each = [seconds(size, repeat) for size in sizes]
        times = {mode: [one[mode] for one in each] for mode in STYLES}
        found[name] = x, times
        for mode, taken in times.items():
            points = ", ".join(f"{short(a)}: {b:.2f} s" for a, b in zip(x, taken, strict=True))
            click.echo(f"{AXES[name]}, {mode}: slope {slope(x, taken):.2f} ({points})")
    draw(found, output)


if __name__ == "__main__":
    main()
