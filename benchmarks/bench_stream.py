"""Out of core: data four times larger than the workers' memory, streamed, against the same path from memory.

    python -m benchmarks.bench_stream

Two worker processes limited to 400 MB each, and columns of 3.2 GB, against two that may hold them all. Says the
workers' peak memory, whether any was restarted, the seconds of the rounds alone, and whether coefficients are equal.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import process_time

import click
import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from distributed import Client

from benchmarks.bench_convert import peak_memory
from pipeline import PathOptions, fit_path
from pipeline.cluster import ClusterOptions, open_client
from pipeline.events import Watcher
from solver import Solution
from transforms import Dataset, from_arrays

LIMIT = "400MB"


def make_dataset(n: int, p: int, url: str) -> Dataset:
    """Valued columns, two in five entries nonzero: too few for the dense form, 8 bytes a nonzero as a list."""
    rng = np.random.default_rng(0)
    room = int(n * p * 0.41) + n  # in place: memory for one copy
    indptr, indices, data = np.zeros(p + 1, dtype=np.int64), np.empty(room, np.int32), np.empty(room, np.float32)
    margin = np.zeros(n)
    for j in range(p):
        rows = np.flatnonzero(rng.random(n, dtype=np.float32) < 0.4)
        lo, hi = indptr[j], indptr[j] + rows.size
        indptr[j + 1], indices[lo:hi] = hi, rows
        data[lo:hi] = rng.normal(size=rows.size)
        if j < 20:
            margin[rows] += data[lo:hi] * rng.normal()
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-margin)), 1, -1)
    X = sp.csc_array((data[: indptr[-1]], indices[: indptr[-1]], indptr), shape=(n, p))
    return from_arrays(X, y, url, partitions=8)


class WorkerTime(Watcher):
    """The workers' CPU seconds after each λ. Those of the first are left out: every row group is new there."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.after: list[float] = []

    def solution(self, solution: Solution) -> None:
        self.after.append(sum(self._client.run(process_time).values()))


@dataclass
class Outcome:
    """What is told of a fit."""

    rounds: list[float]  # seconds
    cpu: float  # seconds of the workers, in the rounds of all λ but the first
    peaks: list[int]  # bytes of the workers
    restarted: bool


def fit(dataset: Dataset, run: Path, residency: str, limit: str | None) -> Outcome:
    """Fit in two processes."""
    with open_client(ClusterOptions(workers=2, processes=True, memory_limit=limit)) as client:
        before, times = client.run(peak_memory), WorkerTime(client)
        path = PathOptions(length=3)
        fit_path(dataset, str(run), path=path, blocks=2, residency=residency, client=client, watcher=times)
        after = client.run(peak_memory)
    rounds = pq.read_table(run / "trace.parquet")["seconds"].to_pylist()
    restarted = {pid for pid, _ in before.values()} != {pid for pid, _ in after.values()}
    return Outcome(rounds, times.after[-1] - times.after[0], [peak for _, peak in after.values()], restarted)


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Share of the full size.")
@click.option("--repeat", default=1, show_default=True, help="Fits of each kind, by turns; the best is told.")
def main(scale: float, repeat: int) -> None:
    """Run both and compare."""
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    kinds = {"streamed": ("auto" if scale == 1.0 else "stream", LIMIT), "memory": ("memory", None)}
    try:
        dataset = make_dataset(int(200_000 * scale), 5000, str(scratch / "dataset"))
        click.echo(f"{dataset.nnz:,} nonzeros: {8 * dataset.nnz / 1e9:.1f} GB as columns; two workers of {LIMIT}")
        best: dict[str, Outcome] = {}
        for k in range(repeat):
            for kind, (residency, limit) in kinds.items():
                found = fit(dataset, scratch / f"{kind}-{k}", residency, limit)
                best[kind] = min(found, best.get(kind, found), key=lambda one: one.cpu)
        for kind, one in best.items():
            peaks = ", ".join(f"{peak / 1e6:.0f} MB" for peak in one.peaks)
            click.echo(
                f"{kind}: {sum(one.rounds):.2f} s in {len(one.rounds)} rounds; the workers' CPU time after the first λ "
                f"{one.cpu:.2f} s, their peak memory {peaks}, restarted: {'yes' if one.restarted else 'none'}"
            )
        ratio = best["streamed"].cpu / best["memory"].cpu
        click.echo(f"streamed / memory, CPU time of the workers: {ratio:.2f}")
        weights = [pq.read_table(scratch / f"{kind}-0" / "coefficients.parquet") for kind in kinds]
        click.echo(f"coefficients equal to the last bit: {weights[0].equals(weights[1])}")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
