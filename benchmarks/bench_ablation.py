"""What a constant of the certified search decides: paths with it changed, beside paths with it as it is.

    python -m benchmarks.bench_ablation [--data DIR] [--names splice,factors,...] [--length 10] NEWTON.max_turns*2 ...

A change is GROUP.constant*FACTOR, or GROUP.constant=VALUE (inf is one), of solver/algorithms/certified/tuning.py;
several at once are joined by "+". With --subspace-memory 0 there is no store, and rounds are split by feature.

A cell has passes over the data, Newton steps, cycles and CPU seconds, each as a ratio to the path without the change,
and last the largest distance from the optimum as a share of tol, where 1 and less keeps the promise. All but the
seconds are the same at every run. Paths alternate, and the least CPU time of --repeats counts.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np

from benchmarks.check_estimate import KINDS
from benchmarks.check_hard import SETS
from benchmarks.reference import read_data
from benchmarks.two_blocks import TwoBlocks, filled_columns
from solver import DefaultOptions
from solver.algorithms.certified import tuning
from solver.algorithms.certified.model import Model
from solver.algorithms.certified.subspace import Subspace

REAL = ("splice", "imdb", "news20", "a9a")
SMALL = {f"small {kind}": make for kind, make in KINDS.items()}
GENERATED = (*SETS, *SMALL)


@dataclass(frozen=True)
class Counts:
    """What a path took."""

    passes: int
    steps: int
    cycles: int
    seconds: float
    objectives: np.ndarray
    all_met: bool


class Counter:
    """Counts Newton steps and cycles of the searches that run meanwhile."""

    def __init__(self) -> None:
        self.steps = self.cycles = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        descend: Any = Model.descend
        step: Any = Subspace._newton_step

        def counted_descend(model: Model, *limits: Any) -> Any:
            ended = descend(model, *limits)
            self.cycles += model.cycles
            return ended

        def counted_step(search: Subspace, *limits: Any, **named: Any) -> Any:
            self.steps += 1
            return step(search, *limits, **named)

        with patch.object(Model, "descend", counted_descend), patch.object(Subspace, "_newton_step", counted_step):
            yield


class Data:
    """A data set in two blocks, columns by turns, and f at the optimum of each λ."""

    def __init__(self, X: Any, y: np.ndarray, length: int, options: DefaultOptions) -> None:
        X = filled_columns(X)
        order = np.concatenate([np.arange(first, X.shape[1], 2) for first in range(2)])
        self._both, self._options = TwoBlocks(X[:, order], y, length), options
        self.blocks = self._both.blocks
        self.optima = self._both.optima(gap=1e-6)

    def run(self) -> Counts:
        counted = Counter()
        with counted.counting():
            began = time.process_time()
            path = self._both.path(self._options)
            seconds = time.process_time() - began
        passes, met = sum(one.rounds for one in path), all(one.converged for one in path)
        objectives = np.array([one.objective for one in path])
        return Counts(passes, counted.steps, counted.cycles, seconds, objectives, met)

    def worst(self, counts: Counts) -> float:
        """The largest distance from the optimum, as a share of tol."""
        return float((counts.objectives / self.optima - 1.0).max() / DefaultOptions().tol)


def make_data(name: str, folder: Path | None, length: int, options: DefaultOptions) -> Data:
    if name in SETS:
        return Data(*SETS[name](np.random.default_rng(0), 10), length, options)
    if name in SMALL:
        return Data(*SMALL[name](np.random.default_rng(1000)), length, options)
    return Data(*read_data(name, folder), length, options)


@contextmanager
def changed(changes: str) -> Iterator[None]:
    """Change constants everywhere. All modules share a group's one instance, which is frozen for everyone else."""
    with ExitStack() as stack:
        for change in changes.split("+"):
            group, name, value = parsed(change)
            stack.callback(object.__setattr__, group, name, getattr(group, name))
            object.__setattr__(group, name, value)
        yield


def parsed(change: str) -> tuple[Any, str, Any]:
    """The group, the constant's name and its new value, of the type that it has."""
    found = re.fullmatch(r"([A-Z_]+)\.([a-z_0-9]+)([*=])(.+)", change)
    group = getattr(tuning, found[1], None) if found else None
    if found is None or group is None or found[2] not in {one.name for one in fields(group)}:
        raise click.UsageError(f"{change}: not GROUP.constant*FACTOR or GROUP.constant=VALUE of tuning.py")
    before, number = getattr(group, found[2]), float(found[4])
    if isinstance(before, tuple):
        return group, found[2], tuple(one * number for one in before) if found[3] == "*" else (number,)
    value = before * number if found[3] == "*" else number
    return group, found[2], round(value) if isinstance(before, int) and np.isfinite(value) else value


def least(runs: Sequence[Counts]) -> Counts:
    return min(runs, key=lambda one: one.seconds)


def cell(data: Data, base: Counts, counts: Counts) -> str:
    ratios = [
        getattr(counts, name) / max(getattr(base, name), 1e-9) for name in ("passes", "steps", "cycles", "seconds")
    ]
    missed = "" if counts.all_met else ", not all met"
    return " ".join(f"{one:.2f}" for one in ratios) + f" ({data.worst(counts):.2f}{missed})"


def measure(data: Data, changes: Sequence[str], repeats: int) -> tuple[Counts, dict[str, Counts]]:
    """The path as it is and with each change, by turns."""
    data.run()  # compiles what is not compiled
    base, found = [], dict[str, list[Counts]]()
    for _ in range(repeats):
        base.append(data.run())
        for change in changes:
            with changed(change):
                found.setdefault(change, []).append(data.run())
    return least(base), {change: least(runs) for change, runs in found.items()}


@click.command()
@click.argument("changes", nargs=-1, required=True)
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm.")
@click.option("--names", help=f"Separated by commas; {', '.join(GENERATED)}; and with --data {', '.join(REAL)}.")
@click.option("--length", default=14, show_default=True, help="λ in the path.")
@click.option("--repeats", default=1, show_default=True, help="Runs of each path.")
@click.option("--subspace-memory", type=int, help="Bytes of the driver's store.")
@click.option("--gap", type=float, help="Go on to this relative gap.")
def main(
    changes: tuple[str, ...],
    data: Path | None,
    names: str | None,
    length: int,
    repeats: int,
    subspace_memory: int | None,
    gap: float | None,
) -> None:
    """Print a line for each data set and change."""
    warnings.simplefilter("ignore")  # λ that did not converge are told
    options = DefaultOptions(subspace_memory=subspace_memory, gap=gap, max_rounds=500)
    click.echo("| data | change | passes, steps, cycles, CPU s: as ratios (distance / tol) |\n|---|---|---|")
    for name in names.split(",") if names else (*GENERATED, *(REAL if data else ())):
        made = make_data(name, data, length, options)
        with made.blocks:
            base, found = measure(made, changes, repeats)
        own = f"{base.passes} {base.steps} {base.cycles} {base.seconds:.2f} s ({made.worst(base):.2f})"
        click.echo(f"| {name} | none | {own} |")
        for change, counts in found.items():
            click.echo(f"| {name} | {change} | {cell(made, base, counts)} |")


if __name__ == "__main__":
    main()
