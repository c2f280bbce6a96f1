"""A fit on a running cluster that notes what the network interface of its own host has carried, round by round.

    python -m benchmarks.net_fit SCHEDULER DATASET OUTPUT --algorithm paper --path-length 4

One line of JSON for the fit up to λmax, for each round and for each λ: bench_net.py reads them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from pipeline import PathOptions, Watcher, exchange, fit_path
from pipeline.cluster import ClusterOptions, open_client
from solver import RoundRecord, Solution

COUNTERS = Path("/sys/class/net/eth0/statistics")


class Meter(Watcher):
    """Says what was carried, and how long it took, since it was last asked."""

    def __init__(self) -> None:
        self._last = (*carried(), time.perf_counter())

    def say(self, what: str, rounds: int = 0) -> None:
        sent, received, now = *carried(), time.perf_counter()
        before, self._last = self._last, (sent, received, now)
        row = {"sent": sent - before[0], "received": received - before[1], "seconds": now - before[2]}
        click.echo(json.dumps({"what": what, "rounds": rounds} | row))

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        self.say("start")

    def round(self, record: RoundRecord) -> None:
        self.say("round")

    def solution(self, solution: Solution) -> None:
        self.say("end", solution.rounds)


def carried() -> tuple[int, int]:
    """Bytes sent and received since the host was made."""
    sent, received = (int((COUNTERS / f"{way}_bytes").read_text()) for way in ("tx", "rx"))
    return sent, received


@click.command()
@click.argument("scheduler")
@click.argument("dataset")
@click.argument("output")
@click.option("--algorithm", required=True)
@click.option("--path-length", required=True, type=int)
@click.option("--direct", is_flag=True, help="The driver sends vectors to each worker, and receives them from each.")
def main(scheduler: str, dataset: str, output: str, algorithm: str, path_length: int, direct: bool) -> None:
    """Fit, and print what was carried."""
    if direct:
        exchange.LEAST = sys.maxsize
    with open_client(ClusterOptions(scheduler=scheduler)) as client:
        path = PathOptions(length=path_length)
        fit_path(dataset, output, algorithm=algorithm, path=path, client=client, watcher=Meter())


if __name__ == "__main__":
    main()
