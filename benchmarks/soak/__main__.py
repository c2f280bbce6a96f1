"""python -m benchmarks.soak: see the package."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks.soak.cluster import SoakCluster, soak_cluster
from benchmarks.soak.growth import Growth
from benchmarks.soak.steps import Mismatch, Steps
from tests.services.processes import python_server
from tests.services.s3 import make_bucket, moto_server


@click.command()
@click.option("--minutes", type=float, default=10.0, show_default=True, help="How long.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is disturbed, when and how.")
@click.option("--workers", type=click.IntRange(2), default=3, show_default=True, help="The first is left in peace.")
def main(minutes: float, seed: int, workers: int) -> None:
    """Disturb a cluster at work for minutes or hours, and compare every result."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # by way of all that has to be cleaned up
    folder = Path(tempfile.mkdtemp(prefix="dglmnet-soak-"))
    growth = Growth()
    try:
        with soak_cluster(folder, workers) as cluster, _failing_store(folder, seed) as endpoint:
            steps = Steps(folder, cluster, random.Random(seed), endpoint)
            faults = _soak(steps, cluster, growth, minutes)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(folder)
        raise
    if cluster.left:
        faults.append(f"processes {cluster.left} are left")
    lines, flat = growth.report()
    counted = [f"{count:>6} {name}" for name, count in sorted(steps.counts.items())]
    click.echo("\n".join([*counted, *lines, *(f"WRONG: {fault}" for fault in faults)]))
    if faults:
        click.echo(f"logs and files are in {folder}")
    else:
        shutil.rmtree(folder)
    sys.exit(1 if faults or not flat else 0)


def _soak(steps: Steps, cluster: SoakCluster, growth: Growth, minutes: float) -> list[str]:
    """Turn after turn until the time is over; what went wrong is told, and the work goes on."""
    faults = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for step in steps.all():
            try:
                step()
            except Mismatch as fault:
                faults.append(str(fault))
                click.echo(f"WRONG: {fault}", err=True)
            cluster.wait()
            growth.sample({"driver": psutil.Process()} | cluster.workers())
            if time.monotonic() > end:
                break
    return faults


@contextlib.contextmanager
def _failing_store(folder: Path, seed: int) -> Iterator[dict[str, Any]]:
    """A bucket behind a proxy that fails a quarter of the requests, and the file of its options."""
    proxy = ("-m", "tests.services.faulty_proxy")  # a process of its own: its threads are not the driver's
    with moto_server() as server, python_server(*proxy, server, str(seed)) as address:
        bucket = make_bucket(server)
        options = bucket.options | {"client_kwargs": {"endpoint_url": address}}
        (folder / "s3.json").write_text(json.dumps(options))
        yield {"url": bucket.url, "options": options, "file": f"@{folder / 's3.json'}"}


if __name__ == "__main__":
    main()
