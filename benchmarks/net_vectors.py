"""What it takes to give a vector to all workers of a running cluster: sent to each of them, or exchanged between them.

    python -m benchmarks.net_vectors SCHEDULER DATASET --sizes 0.125,0.5,2,8,40

By turns, so that other work on the machine slows both down alike. One line of JSON for each size in MB: bench_net.py
reads them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import click
import numpy as np

from pipeline.blocks import DaskBlocks
from pipeline.cluster import ClusterOptions, open_client
from pipeline.exchange import numbers
from pipeline.placement import list_workers, make_groups
from transforms import open_dataset


def milliseconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - began)


def measure(blocks: DaskBlocks, size: int, repeat: int) -> dict[str, float]:
    """The median and the least of each way."""
    vector = np.zeros(size, np.uint8)

    def direct() -> None:
        number = next(numbers)
        blocks._call("keep", [(number, 0, vector)] * len(blocks.sizes))
        blocks._call("give_up", [(number,)] * len(blocks.sizes))

    def exchanged() -> None:
        assert blocks._exchange is not None, "workers are on several hosts"
        blocks._call("give_up", [(blocks._exchange._scatter(vector),)] * len(blocks.sizes))

    ways = {"direct": direct, "exchanged": exchanged}
    taken = [{name: milliseconds(run) for name, run in ways.items()} for _ in range(repeat + 1)][1:]
    found = {name: [one[name] for one in taken] for name in ways}
    return {name: float(np.median(times)) for name, times in found.items()} | {
        f"least {name}": min(times) for name, times in found.items()
    }


@click.command()
@click.argument("scheduler")
@click.argument("dataset")
@click.option("--sizes", required=True, help="In MB.")
@click.option("--repeat", default=9, show_default=True)
def main(scheduler: str, dataset: str, sizes: str, repeat: int) -> None:
    """Print the milliseconds of each size."""
    opened = open_dataset(dataset)
    with open_client(ClusterOptions(scheduler=scheduler)) as client:
        workers = list_workers(client)
        groups = make_groups(len(opened.partitions), None, workers)
        with DaskBlocks(client, opened, groups, "memory", workers=workers) as blocks:
            for size in sizes.split(","):
                click.echo(json.dumps({"size": float(size)} | measure(blocks, int(float(size) * 1e6), repeat)))


if __name__ == "__main__":
    main()
