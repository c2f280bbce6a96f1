"""python -m benchmarks.paper: see the package."""

from __future__ import annotations

import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import click

from benchmarks.paper.claims import Found
from benchmarks.paper.data import find_data, names_in
from benchmarks.paper.figure import draw
from benchmarks.paper.runs import Bench
from benchmarks.paper.settings import READINGS, SETTINGS, Setting
from benchmarks.paper.tables import describe
from benchmarks.paper.vw import is_there, vowpal_wabbit
from benchmarks.paper_sizes.published import PUBLISHED
from pipeline.cluster import ClusterOptions, open_client
from pipeline.commands.options import Numbers
from transforms import open_dataset

WORKERS = 2


def _to_stderr(text: str) -> None:
    click.echo(text, err=True)


def measure(bench: Bench, with_vw: bool, tell: Callable[[str], object]) -> Found:
    """All runs of one data set, as far as they are not done."""
    data, setting = bench.data, bench.setting
    tell(f"{data.name}: d-GLMNET")
    paths = {mode: bench.path(mode) for mode in ("paper", "default")}
    tell(f"{data.name}: the online learner, {len(setting.steps)} pairs of learning rate and decay")
    online = bench.online(setting.steps)
    vw = {}
    if with_vw and setting.vw:
        tell(f"{data.name}: Vowpal Wabbit, {len(setting.vw_steps)} pairs")
        vw = vowpal_wabbit(bench, setting.vw_steps)
    tell(f"{data.name}: CPU seconds, and precautions on and off")
    about = {
        "generated": data.generated,
        "examples": data.train.n,
        "test_examples": open_dataset(str(data.folder / "test")).n,
        "features": data.train.p,
        "nonzeros": data.train.nnz,
    }
    return Found(data.name, about, paths, online, vw, bench.cpu(), bench.precautions())


def run(
    names: list[str],
    source: Path | None,
    setting: Setting,
    output: Path,
    with_vw: bool = True,
    tell: Callable[[str], object] = _to_stderr,
) -> list[Found]:
    """The experiment on these data sets; what was done is taken from the output folder. tell: is told what begins."""
    with open_client(ClusterOptions(workers=WORKERS)) as client:
        found = []
        for name in names:
            scale = None if source else setting.scales.get(name)
            kind = "" if source else "like-"
            data = find_data(name, source, scale, output / f"{name}-{kind}{setting.name}", client)
            found.append(measure(Bench(data, setting, client, WORKERS), with_vw, tell))
        return found


def versions() -> str:
    names = ("dglmnet", "dask", "numba", "numpy")
    listed = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {listed}"


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="A folder of real sets. [default: generated]"
)
@click.option("--names", help="Data sets, separated by commas. [default: all of --data, or all that can be generated]")
@click.option("--full", "size", flag_value="full", help="The paper's whole grid: hours.")
@click.option("--quick", "size", flag_value="quick", default="quick", help="A part of the grid: minutes. The default.")
@click.option(
    "--scale",
    type=click.FloatRange(0, 1, min_open=True),
    help="Of look-alikes, the share of the paper's examples; 1 is its own size. [default: that of the setting]",
)
@click.option("--rates", type=Numbers(), metavar="R,R,...", help="Learning rates, other than those of the setting.")
@click.option("--decays", type=Numbers(), metavar="D,D,...", help="Decays, other than those of the setting.")
@click.option("--passes", type=click.IntRange(1), help="Passes, other than those of the setting.")
@click.option(
    "--reading",
    "readings",
    type=click.Choice(READINGS),
    multiple=True,
    help="What the paper's decay is of Vowpal Wabbit's: decay_learning_rate or power_t. [default: one after the other]",
)
@click.option("--no-vw", is_flag=True, help="Leave out the real Vowpal Wabbit.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("paper-experiment"), show_default=True)
def main(
    data: Path | None,
    names: str | None,
    size: str,
    scale: float | None,
    rates: tuple[float, ...] | None,
    decays: tuple[float, ...] | None,
    passes: int | None,
    readings: tuple[str, ...],
    no_vw: bool,
    output: Path,
) -> None:
    """Run the paper's experiment as far as it is not done; write figure-1.png and tables.md.

    \b
    Examples:
      python -m benchmarks.paper
      python -m benchmarks.paper --data DIR --names splice,imdb
      python -m benchmarks.paper --full --data DIR
      python -m benchmarks.paper --full --scale 1 --names epsilon
      python -m benchmarks.paper --names epsilon --rates 5,50 --no-vw --output beyond
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = names.split(",") if names else names_in(data) if data else list(PUBLISHED)
    with_vw = not no_vw and is_there()
    if not (no_vw or with_vw):
        _to_stderr("Vowpal Wabbit cannot be installed here: its rows are left out")
    setting = SETTINGS[size]
    setting = replace(
        setting,
        rates=rates or setting.rates,
        decays=decays or setting.decays,
        passes=passes or setting.passes,
        readings=readings or setting.readings,
    )
    if scale is not None:
        setting = replace(setting, name=f"{setting.name}-{scale:g}", scales=dict.fromkeys(PUBLISHED, scale))
    found = run(chosen, data, setting, output, with_vw)
    draw(found, output / "figure-1.png")
    text = describe(found)
    (output / "tables.md").write_text(text)
    click.echo(f"{text}\n{versions()}\nFigure: {output / 'figure-1.png'}")


if __name__ == "__main__":
    sys.exit(main())
