"""Many small inputs: how time and memory of a conversion grow with the number of files.

    python -m benchmarks.bench_files [--files N]... [--lines K] [--gz]

Each size runs in a process of its own, on an in-process cluster of two workers; files are written to a temporary folder
first. Peak memory is that of the process, Dask included.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

SIZES = (1_000, 4_000, 20_000)


def write_files(folder: Path, files: int, lines: int, *, packed: bool) -> int:
    """Small files of LIBSVM text; returns their bytes."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    size = 0
    for k in range(files):
        ids = np.sort(rng.choice(10_000, size=(lines, 10)), axis=1) + np.arange(1, 11)
        rows = (" ".join(f"{j}:{j % 7 + 1}" for j in row) for row in ids.tolist())
        text = "".join(f"{'+1' if (k + i) % 3 else '-1'} {row}\n" for i, row in enumerate(rows)).encode()
        data = gzip.compress(text, mtime=0) if packed else text
        (folder / f"{k:06d}.svm{'.gz' if packed else ''}").write_bytes(data)
        size += len(data)
    return size


def convert(source: str, output: str) -> None:
    """Convert, and print what it took as JSON; runs in a process of its own."""
    from pipeline.cluster import ClusterOptions, open_client
    from transforms import convert_libsvm

    with open_client(ClusterOptions(workers=2)) as client:
        started = time.perf_counter()
        dataset = convert_libsvm(source, output, client=client)
        taken = time.perf_counter() - started
    peak = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) * 1024
    click.echo(json.dumps({"seconds": taken, "peak": peak, "examples": dataset.n}))


@click.command()
@click.option("--files", "sizes", multiple=True, type=int, default=SIZES, show_default=True, help="How many files.")
@click.option("--lines", default=5, show_default=True, help="Lines of each file.")
@click.option("--gz", "packed", is_flag=True, help="Compress each file.")
def main(sizes: tuple[int, ...], lines: int, packed: bool) -> None:
    """Run the benchmark and print its table."""
    click.echo("| files | MB | seconds | files/s | peak memory, MB |\n|---|---|---|---|---|")
    for files in sizes:
        with tempfile.TemporaryDirectory(prefix="dglmnet-bench-") as scratch:
            source, output = Path(scratch) / "in", Path(scratch) / "out"
            size = write_files(source, files, lines, packed=packed)
            work = f"from benchmarks.bench_files import convert; convert({str(source)!r}, {str(output)!r})"
            done = subprocess.run([sys.executable, "-c", work], stdout=subprocess.PIPE, text=True, check=True)
            told = json.loads(done.stdout.splitlines()[-1])
            click.echo(
                f"| {files:,} | {size / 1e6:.1f} | {told['seconds']:.1f} | {files / told['seconds']:.0f} "
                f"| {told['peak'] / 1e6:.0f} |"
            )


if __name__ == "__main__":
    main()
