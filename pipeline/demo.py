"""A small data set, and the pipeline run on it: what `make demo` does."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

from pipeline.cli import run_command
from pipeline.convert_cli import command as convert
from pipeline.submit_cli import command as submit


def write_text(path: Path, rows: int, features: int, seed: int) -> None:
    """LIBSVM text: power-law features, values 1 + log tf, labels from a sparse logistic model."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(features)
    strong = np.random.default_rng(0).choice(features // 4, 40, replace=False)  # the same model for every seed
    truth[strong] = np.random.default_rng(1).normal(0, 2, 40)
    popularity = 1.0 / np.arange(2, features + 2) ** 0.8
    popularity /= popularity.sum()
    with path.open("w") as file:
        for _ in range(rows):
            ids, counts = np.unique(rng.choice(features, rng.integers(10, 60), p=popularity), return_counts=True)
            values = 1 + np.log(counts)
            label = "+1" if rng.random() < 1 / (1 + np.exp(-truth[ids] @ values)) else "-1"
            pairs = " ".join(f"{feature + 1}:{value:.6g}" for feature, value in zip(ids, values, strict=True))
            file.write(f"{label} {pairs}\n")


@click.command("demo")
@click.argument("folder", type=click.Path(path_type=Path))
def command(folder: Path) -> int:
    """Generate text in FOLDER, convert it, fit the path, and judge its models by test data."""
    folder.mkdir(parents=True, exist_ok=True)
    text, test, dataset, run = folder / "train.svm", folder / "test.svm", folder / "train", folder / "run"
    click.echo(f"Writing {text}: 20,000 examples of up to 5,000 features, 40 of which matter ...")
    write_text(text, 20_000, 5_000, seed=7)
    write_text(test, 5_000, 5_000, seed=8)
    _show(convert, str(text), str(dataset), "--partitions", "4", "--overwrite", "--log-level", "warning")
    words = ("--path-length", "10", "--overwrite", "--log-level", "warning")
    _show(submit, "fit", str(dataset), "--output", str(run), *words)
    _show(submit, "evaluate", str(run), str(test), "--log-level", "warning")
    click.echo(f"\nThe data set is in {dataset}, the models are in {run}:")
    for file in sorted([*dataset.iterdir(), *run.iterdir()]):
        click.echo(f"  {file!s:<32} {file.stat().st_size:>9,} bytes")
    click.echo("\nNext: docs/format.md and docs/operations.md, or")
    click.echo(f"  {Path(sys.prefix).name}/bin/dask-submit fit --help")
    return 0


def _show(program: click.Command, *words: str) -> None:
    """Show a command as one would type it, and run it."""
    click.echo(f"\n$ {program.name} {' '.join(words)}")
    program.main(list(words), standalone_mode=False)


if __name__ == "__main__":
    run_command(command)
