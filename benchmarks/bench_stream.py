"""Out of core: data four times larger than the workers' memory, streamed, against the same path from memory.

    python -m benchmarks.bench_stream

Two worker processes limited to 400 MB each, and columns of 3.2 GB. Says what `auto` chose, the workers' peak memory,
whether any was restarted, and whether the coefficients equal those of an in-process run that keeps all in memory.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

from benchmarks.bench_convert import peak_memory
from pipeline import PathOptions, fit_path
from pipeline.cluster import ClusterOptions, open_client
from transforms import Dataset, from_arrays

LIMIT = "400MB"


def make_dataset(n: int, p: int, url: str) -> Dataset:
    """Valued columns, two in five entries nonzero: too few for the dense form, 8 bytes a nonzero as a list."""
    rng = np.random.default_rng(0)
    indptr, indices, data = np.zeros(p + 1, dtype=np.int64), [], []
    margin = np.zeros(n)
    for j in range(p):
        rows = np.flatnonzero(rng.random(n, dtype=np.float32) < 0.4).astype(np.int32)
        values = rng.normal(size=rows.size).astype(np.float32)
        if j < 20:
            margin[rows] += values * rng.normal()
        indptr[j + 1] = indptr[j] + rows.size
        indices.append(rows)
        data.append(values)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-margin)), 1, -1)
    X = sp.csc_array((np.concatenate(data), np.concatenate(indices), indptr), shape=(n, p))
    return from_arrays(X, y, url, partitions=8)


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Share of the full size.")
def main(scale: float) -> None:
    """Run both and compare."""
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    path = PathOptions(length=3)
    try:
        dataset = make_dataset(int(200_000 * scale), 5000, str(scratch / "dataset"))
        click.echo(f"{dataset.nnz:,} nonzeros: {8 * dataset.nnz / 1e9:.1f} GB as columns; two workers of {LIMIT}")
        with open_client(ClusterOptions(workers=2, memory_limit=LIMIT, processes=True)) as client:
            before = client.run(peak_memory)
            began = time.perf_counter()
            fit_path(dataset, str(scratch / "streamed"), path=path, client=client, blocks=2)
            streamed = time.perf_counter() - began
            after = client.run(peak_memory)
        with open_client(ClusterOptions(workers=2)) as client:
            began = time.perf_counter()
            fit_path(dataset, str(scratch / "memory"), path=path, client=client, blocks=2, residency="memory")
            memory = time.perf_counter() - began
        weights = [pq.read_table(scratch / name / "coefficients.parquet") for name in ("streamed", "memory")]
        rounds = pq.read_table(scratch / "streamed" / "trace.parquet").num_rows
        restarted = {pid for pid, _ in before.values()} != {pid for pid, _ in after.values()}
        click.echo(
            f"streamed: {streamed:.0f} s for {rounds} rounds; in memory (in-process): {memory:.0f} s with loading"
        )
        click.echo(f"peak memory of the workers: {', '.join(f'{peak / 1e6:.0f} MB' for _, peak in after.values())}")
        click.echo(f"workers restarted: {'yes' if restarted else 'none'}")
        click.echo(f"coefficients equal to the last bit: {weights[0].equals(weights[1])}")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
