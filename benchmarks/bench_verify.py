"""What it costs to check a data set while it is loaded: hashing its parts, and looking at the columns.

    python -m benchmarks.bench_verify DATASET

CPU time of one thread, the least of several runs, each with a new opening of the data set, files in the page cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import numpy as np

from transforms import open_dataset
from transforms.storage import open_storage, sha256_of
from transforms.validation import refuse_malformed

REPEATS = 15


def least(work: Callable[[], object]) -> float:
    """CPU seconds."""
    times = []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


@click.command()
@click.argument("url")
def command(url: str) -> None:
    dataset = open_dataset(url)
    columns = [(part.read(), part.n) for part in dataset.partitions]
    counts = [np.diff(csc.indptr) for csc, _ in columns]

    def load() -> None:
        for part in open_dataset(url).partitions:
            part.read()

    def hash_all() -> None:
        for part in dataset.partitions:
            sha256_of(*open_storage(part.url))

    def look() -> None:
        for (csc, n), count in zip(columns, counts, strict=True):
            refuse_malformed(csc, count, n)

    total, hashing, looking = least(load), least(hash_all), least(look)
    size = sum(part.info.bytes for part in dataset.partitions)
    click.echo(f"{dataset!r}, {size / 1e6:.1f} MB")
    click.echo(f"loading            {1e3 * total:7.1f} ms")
    click.echo(f"of which hashing   {1e3 * hashing:7.1f} ms ({100 * hashing / total:.0f} %)")
    click.echo(f"and checks         {1e3 * looking:7.1f} ms ({100 * looking / total:.0f} %)")


if __name__ == "__main__":
    command()
