"""What crosses the network in a fit, and how long that takes: hosts are network namespaces on links of 1 Gbit/s.

    python -m benchmarks.bench_net [--examples 5000000] [--workers 4] [--path-length 6] [--algorithms default,paper]

Driver, scheduler and each worker have a host of their own; the data are on a disk that all of them see. Few columns of
few nonzeros, so that vectors over the examples are what is carried: by the driver to and from each worker, and
exchanged between the workers (pipeline/exchange.py). For each λ: rounds, seconds, and what the driver's
host sent and received, in all and for each round in vectors of one float64 per example. And for vectors of several
sizes, what it takes to give one to all workers. Needs root and iproute2.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import scipy.sparse as sp

from tests.net.hosts import FAST, Network, missing
from transforms import from_arrays

FEATURES, DENSITY = 32, 0.01
START_SECONDS = 120.0
WAYS = ("sent", "received")
SIZES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # MB


def make_dataset(n: int, partitions: int, url: str) -> None:
    """Columns of ones, some of which tell the label, each a little less than the one before."""
    rng = np.random.default_rng(0)
    columns, margins = [], np.full(n, -0.3)
    for j in range(FEATURES):
        rows = np.unique(rng.integers(n, size=max(8, int(DENSITY * n))))
        margins[rows] += 2.0 * (-0.8) ** j
        columns.append(rows.astype(np.int32))
    indptr = np.cumsum([0, *(rows.size for rows in columns)])
    indices = np.concatenate(columns)
    X = sp.csc_array((np.ones(indices.size, np.float32), indices, indptr), shape=(n, FEATURES))
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-margins)), 1, -1)
    from_arrays(X, y, url, partitions=partitions)


def start_cluster(network: Network, workers: int) -> str:
    """The scheduler's address, once the workers have registered there."""
    host = network.add_host("scheduler")
    address = f"tcp://{host}:8786"
    dask = [sys.executable, "-m", "dask"]
    network.start(
        "scheduler", [*dask, "scheduler", "--host", host, "--port", "8786", "--dashboard-address", f"{host}:0"]
    )
    for k in range(workers):
        where = ["--host", network.add_host(f"w{k}"), "--name", str(k), "--nthreads", "1", "--no-nanny"]
        network.start(f"w{k}", [*dask, "worker", address, *where, "--dashboard-address", ":0"])
    network.add_host("driver")
    wait = "import sys; from distributed import Client; Client(sys.argv[1]).wait_for_workers(int(sys.argv[2]))"
    waiting = network.start("driver", [sys.executable, "-c", wait, address, str(workers)])
    if waiting.wait(timeout=START_SECONDS):
        raise RuntimeError(network.log_of(waiting))
    return address


def drive(network: Network, *words: str) -> list[dict[str, Any]]:
    """What a program said on the driver's host."""
    process = network.start("driver", [sys.executable, "-m", *words])
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(network.log_of(process))
    return [json.loads(line) for line in said.splitlines()]


def fit(network: Network, address: str, scratch: Path, algorithm: str, length: int, *how: str) -> list[dict[str, Any]]:
    output = scratch / f"{algorithm}-{time.monotonic_ns()}"
    words = ["benchmarks.net_fit", address, str(scratch / "data"), str(output)]
    return drive(network, *words, "--algorithm", algorithm, "--path-length", str(length), *how)


def vectors(network: Network, address: str, scratch: Path, largest: float) -> None:
    """A vector to all workers, by its size."""
    sizes = ",".join(f"{size:g}" for size in (*(size for size in SIZES if size < largest), largest))
    click.echo("\n| MB to all workers | sent to each, ms | exchanged, ms | least of each |\n|---|---|---|---|")
    for row in drive(network, "benchmarks.net_vectors", address, str(scratch / "data"), "--sizes", sizes):
        least = f"{row['least direct']:.0f}, {row['least exchanged']:.0f}"
        click.echo(f"| {row['size']:g} | {row['direct']:.0f} | {row['exchanged']:.0f} | {least} |")


def by_lambda(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What came up to λmax, and then what came with each λ."""
    found: list[dict[str, Any]] = []
    sums = {"sent": 0, "received": 0, "seconds": 0.0}
    for row in rows:
        sums = {key: value + row[key] for key, value in sums.items()}
        if row["what"] != "round":
            found.append(sums | {"rounds": row["rounds"]})
            sums = dict.fromkeys(sums, 0)
    return found


def table(title: str, found: list[dict[str, Any]], n: int) -> None:
    click.echo(f"\n{title}\n")
    click.echo("| λ | rounds | seconds | MB from the driver | MB to the driver | vectors a round, from | to |")
    click.echo("|---|---|---|---|---|---|---|")
    total = {key: sum(row[key] for row in found[1:]) for key in ("sent", "received", "seconds", "rounds")}
    names = ["to λmax", *(f"λmax/2^{k}" for k in range(1, len(found))), "all λ"]
    for name, row in zip(names, [*found, total], strict=True):
        vectors = [f"{row[way] / (8 * n * row['rounds']):.2f}" if row["rounds"] else "–" for way in WAYS]
        carried = [f"{row[way] / 1e6:.1f}" for way in WAYS]
        click.echo(f"| {name} | {row['rounds']} | {row['seconds']:.2f} | {' | '.join([*carried, *vectors])} |")


@click.command()
@click.option("--examples", default=5_000_000, show_default=True, help="n: a vector takes 8 bytes for each.")
@click.option("--workers", default=4, show_default=True, help="Hosts with one worker each.")
@click.option("--path-length", default=6, show_default=True, help="λ in the path.")
@click.option("--algorithms", default="default,paper", show_default=True, help="Separated by commas.")
@click.option("--rate", default=FAST, show_default=True, help="Of every host's link, both ways, as tc writes it.")
def main(examples: int, workers: int, path_length: int, algorithms: str, rate: str) -> None:
    """Print a table for each algorithm."""
    if reason := missing():
        raise click.UsageError(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that hosts and their processes are removed
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    try:
        make_dataset(examples, 2 * workers, str(scratch / "data"))
        with Network(scratch, {"PYTHONPATH": str(Path.cwd())}) as network:
            address = start_cluster(network, workers)
            for host in ("driver", "scheduler", *(f"w{k}" for k in range(workers))):
                network.shape(host, rate)
            size = f"a vector is {8e-6 * examples:.1f} MB"
            click.echo(f"{examples:,} examples, {workers} workers, links of {rate}; {size}")
            vectors(network, address, scratch, 8e-6 * examples)
            for algorithm in filter(None, algorithms.split(",")):
                fit(network, address, scratch, algorithm, 2)  # kernels are compiled, or loaded
                for title, how in (("sent to each worker", ["--direct"]), ("exchanged", [])):
                    found = by_lambda(fit(network, address, scratch, algorithm, path_length, *how))
                    table(f"{algorithm}, vectors {title}", found, examples)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
