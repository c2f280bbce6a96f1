"""A small data set, and the pipeline run on it: what `make demo` does."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np

from pipeline.cli import run_command
from pipeline.convert_cli import command as convert


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
    """Generate text in FOLDER and convert it."""
    folder.mkdir(parents=True, exist_ok=True)
    text, dataset = folder / "train.svm", folder / "train"
    click.echo(f"Writing {text}: 20,000 examples of up to 5,000 features, generated ...")
    write_text(text, 20_000, 5_000, seed=7)
    click.echo(f"\n$ convert-libsvm {text} {dataset} --partitions 4 --overwrite")
    convert.main([str(text), str(dataset), "--partitions", "4", "--overwrite"], standalone_mode=False)
    click.echo(f"\nThe data set is in {dataset}:")
    for file in sorted(dataset.iterdir()):
        click.echo(f"  {file.name:<22} {file.stat().st_size:>9,} bytes")
    click.echo("\nLook at it again, and check that it is whole:")
    click.echo(f"  {Path(sys.prefix).name}/bin/convert-libsvm --inspect {dataset}")
    return 0


if __name__ == "__main__":
    run_command(command)
