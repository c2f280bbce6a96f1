"""python -m benchmarks.paper_sizes: see the package."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

import click

from benchmarks.paper_sizes import growth, table
from benchmarks.paper_sizes.published import PUBLISHED
from benchmarks.paper_sizes.record import OtherData
from benchmarks.paper_sizes.stages import STAGES, CommandFailed, Experiment

HOME = Path("paper-sizes")
MEASURED = ("text", "convert", "fit")
which = click.option("--name", type=click.Choice(list(PUBLISHED)), required=True, help="The data set.")


def _listed(kind: type, allowed: tuple[str, ...] = ()) -> object:
    def parse(_: click.Context, parameter: click.Parameter, value: str) -> list[object]:
        try:
            found = [kind(word) for word in value.split(",")]
        except ValueError as error:
            raise click.BadParameter(str(error), param=parameter) from None
        unknown = [word for word in found if allowed and word not in allowed]
        if unknown:
            raise click.BadParameter(f"{unknown[0]} is none of {', '.join(allowed)}", param=parameter)
        return found

    return parse


class _Main(click.Group):
    """A command by itself, with one more below it."""

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        if words[:1] != ["growth"]:
            words = ["run", *words]
        return super().parse_args(context, words)


@click.group(cls=_Main, context_settings={"help_option_names": []})
def main() -> None:
    """Either of two commands."""


@main.command()
@which
@click.option("--scale", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Share of rows.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where all is kept. [default: paper-sizes/NAME-SCALE]")
@click.option("--stages", default=",".join(STAGES), callback=_listed(str, STAGES), show_default=True, help="Which.")
@click.option("--delete-text", is_flag=True, help="Delete the training text once it is converted.")
def run(name: str, scale: float, folder: Path | None, stages: list[str], delete_text: bool) -> None:
    """Make a look-alike of a data set of the paper, fit it, and print what each stage took.

    With `growth` as the first word: see `growth --help`.
    """
    experiment = Experiment(name, scale, folder or HOME / f"{name}-{scale:g}")
    for stage in stages:
        experiment.run([stage])
        if delete_text:
            experiment.delete_text()
    click.echo("\n".join(table.describe(experiment)))


@main.command("growth")
@which
@click.option("--scales", callback=_listed(float), required=True, help="Scales, such as 0.01,0.03,0.1.")
@click.option("--folder", type=click.Path(path_type=Path), default=HOME, show_default=True, help="Where all is kept.")
@click.option("--output", type=click.Path(path_type=Path), help="The plot. [default: FOLDER/NAME-growth.png]")
def grow(name: str, scales: list[float], folder: Path, output: Path | None) -> None:
    """Fit over several scales, print the seconds, and draw them against the examples with their slope."""
    experiments = [Experiment(name, scale, folder / f"{name}-{scale:g}") for scale in sorted(scales)]
    with tempfile.TemporaryDirectory(prefix="paper-sizes-") as scratch:
        Experiment(name, min(scales), Path(scratch)).run(MEASURED)  # compiles kernels, which later fits find on disk
    for experiment in experiments:
        experiment.run(MEASURED)
    rows = [experiment.rows["train"] for experiment in experiments]
    times = growth.seconds(experiments)
    click.echo("\n".join(growth.describe(rows, times)))
    growth.draw(name, rows, times, output or folder / f"{name}-growth.png")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what a stage took so far is recorded
    try:
        main()
    except (CommandFailed, OtherData) as error:
        sys.exit(f"error: {error}")
