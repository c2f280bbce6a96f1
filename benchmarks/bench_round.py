"""What one round costs beyond the kernel: messages, sums and the line search, with next to nothing to compute.

    python -m benchmarks.bench_round

Two blocks of two features each over n examples, so that the cycle itself is a few vector passes; rounds on two
process workers, on two in-process workers, and on threads without Dask, side by side in one run. Medians.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import scipy.sparse as sp

from pipeline.blocks import DaskBlocks
from pipeline.cluster import ClusterOptions, open_client
from pipeline.placement import list_workers, make_groups
from solver import Blocks, Coefficients, Examples, Step, ThreadBlocks
from transforms import Dataset, from_arrays


def make_dataset(n: int, url: str) -> Dataset:
    """Four features of few nonzeros."""
    rng = np.random.default_rng(0)
    X = sp.random_array((n, 4), density=100 / n, rng=rng, format="csc", dtype=np.float32)
    return from_arrays(X, np.where(rng.random(n) < 0.5, 1, -1), url, partitions=2, strategy="neighbours")


def round_ms(blocks: Blocks, examples: Examples, rounds: int) -> float:
    """Median milliseconds of one call of all blocks, Δm summed, as the outer loop makes it."""
    blocks.set_margins(blocks.start(Coefficients.empty()))
    sums = np.zeros(examples.n), np.zeros(examples.n)
    step, taken = None, []
    for k in range(rounds):
        began = time.perf_counter()
        total = sums[k % 2]
        total[:] = 0.0
        for update in blocks.cycle(step, 1e9, 1e-6):
            total += update.dmargins
        step = Step(1.0, total)
        taken.append(time.perf_counter() - began)
    return 1e3 * float(np.median(taken))


@click.command()
@click.option("--rounds", default=60, show_default=True, help="Rounds for a median.")
def main(rounds: int) -> None:
    """Print the table."""
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    click.echo("| n | threads, no Dask, ms (kernel) | in-process, ms | beyond | two processes, ms | beyond |")
    click.echo("|---|---|---|---|---|---|")
    try:
        for n in (100_000, 1_000_000):
            dataset = make_dataset(n, str(scratch / str(n)))
            examples = Examples.of(*dataset.labels())
            result = {}
            for name, processes in (("in-process", False), ("processes", True)):
                with open_client(ClusterOptions(workers=2, processes=processes)) as client:
                    workers = list_workers(client)
                    groups = make_groups(2, None, workers)
                    with DaskBlocks(client, dataset, groups, "memory", workers=workers) as blocks:
                        round_ms(blocks, examples, 10)
                        result[name] = round_ms(blocks, examples, rounds)
            csc = sp.csc_array((n, 2), dtype=np.float32)
            with ThreadBlocks.from_csc(csc, examples, 2) as threads:
                round_ms(threads, examples, 10)
                kernel = round_ms(threads, examples, rounds)
            inside, outside = result["in-process"], result["processes"]
            cells = (kernel, inside, inside - kernel, outside, outside - kernel)
            click.echo(f"| {n:,} | {' | '.join(f'{cell:.1f}' for cell in cells)} |")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
