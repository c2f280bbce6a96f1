"""The paper's experiment (Algorithm 5, Table 3): the 20-point path in paper mode, round by round.

    python -m benchmarks.bench_paper [--data DIR] [--names splice,imdb] [--max-rounds 100]

For each λ: nonzeros, objective, relative gap, rounds, seconds, share of the line search; two in-process workers.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path

import click

from benchmarks.lookalikes import find_or_make
from pipeline import PathOptions, fit_path
from pipeline.cluster import ClusterOptions, open_client
from solver import ConvergenceWarning, SolverOptions
from transforms import convert_libsvm


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm; else look-alikes."
)
@click.option("--names", default="splice,imdb", show_default=True, help="Data sets, separated by commas.")
@click.option("--max-rounds", default=100, show_default=True, help="Rounds for one λ, at the most.")
def main(data: Path | None, names: str, max_rounds: int) -> None:
    """Print a table for each data set."""
    warnings.simplefilter("ignore", ConvergenceWarning)  # the table says where the limit was hit
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    try:
        for name in names.split(","):
            text = find_or_make(name, data, scratch)
            with open_client(ClusterOptions(workers=2)) as client:
                dataset = convert_libsvm(str(text), str(scratch / name), client=client)
                options = SolverOptions.paper(max_rounds=max_rounds)
                run = fit_path(
                    dataset, str(scratch / f"{name}-run"), options=options, path=PathOptions(), client=client
                )
            total, seconds = sum(row["rounds"] for row in run.path), sum(row["seconds"] for row in run.path)
            click.echo(f"\n{name}: {total} rounds, {seconds:.1f} s, {1e3 * seconds / total:.0f} ms a round\n")
            click.echo("| λ | nonzeros | objective | relative gap | rounds | seconds | line search |")
            click.echo("|---|---|---|---|---|---|---|")
            for row in run.path:
                share = row["line_search_seconds"] / row["seconds"]
                click.echo(
                    f"| λmax/2^{row['index'] + 1} | {row['nonzeros']:,} | {row['objective']:.8g} "
                    f"| {row['gap'] / row['objective']:.1e} | {row['rounds']}{'' if row['converged'] else ' (limit)'} "
                    f"| {row['seconds']:.2f} | {100 * share:.0f} % |"
                )
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
