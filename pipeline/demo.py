"""A small data set, and `dask-submit pipeline` run on it: what `make demo` does."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from pipeline.commands.shared import run_command
from pipeline.commands.submit import command as submit


def write_text(path: Path, rows: int, features: int, seed: int) -> None:
    """LIBSVM text: power-law features, values 1 + log tf, labels from a sparse logistic model."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(features)
    strong = np.random.default_rng(0).choice(features // 4, 40, replace=False)  # the same model for every seed
    truth[strong] = np.random.default_rng(1).normal(0, 2, 40)
    popularity = 1.0 / np.arange(2, features + 2) ** 0.8
    popularity /= popularity.sum()
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w") as file:
        for _ in range(rows):
            ids, counts = np.unique(rng.choice(features, rng.integers(10, 60), p=popularity), return_counts=True)
            values = 1 + np.log(counts)
            label = "+1" if rng.random() < 1 / (1 + np.exp(-truth[ids] @ values)) else "-1"
            pairs = " ".join(f"{feature + 1}:{value:.6g}" for feature, value in zip(ids, values, strict=True))
            file.write(f"{label} {pairs}\n")
    unfinished.replace(path)


@click.command("demo")
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> int:
    """Generate text in FOLDER, and run the pipeline on it: convert, fit the path, judge its models, report."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test, run = folder / "train.svm", folder / "test.svm", folder / "run"
    for path, rows, seed in ((train, 20_000, 7), (test, 5_000, 8)):
        if not path.exists():  # a second demo shows that there is nothing left to do
            click.echo(f"Writing {path}: {rows:,} examples of up to 5,000 features, 40 of which matter ...")
            write_text(path, rows, 5_000, seed)
    words = ("--train", str(train), "--test", str(test), "--output", str(run), "--path-length", "10", "--overwrite")
    _show(submit, "pipeline", *words)
    click.echo(f"\nOpen {run / 'report.html'} in a browser. More: README.md, docs/operations.md, dask-submit --help")
    return 0


def _show(program: click.Command, *words: str) -> None:
    """Show a command as one would type it, and run it."""
    click.echo(f"\n$ {program.name} {' '.join(words)}")
    program.main(list(words), standalone_mode=False)


if __name__ == "__main__":
    run_command(command)
