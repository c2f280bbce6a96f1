"""Reading and converting LIBSVM text, against scikit-learn's and xgboost's readers, side by side in one run.

    python -m benchmarks.bench_convert [--data DIR] [--memory]

Three tables: the parser on one core; the whole conversion with two workers, Parquet written, against loading the file
with scikit-learn and turning it into columns; and with --memory, 2 GB of text through two workers of 512 MB each.
Every contender reads the same file from the page cache; the best of several interleaved repetitions counts.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import numpy as np

from benchmarks.lookalikes import find_or_make
from pipeline.cluster import ClusterOptions, open_client
from transforms import convert_libsvm
from transforms.parser import PADDING, parse

NAMES = ("splice", "imdb", "news20")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best(contenders: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The best time of each contender, taken in turns so that a noisy minute hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeat):
        for name, work in contenders.items():
            times[name].append(seconds(work))
    return {name: min(taken) for name, taken in times.items()}


def read_with_sklearn(path: Path) -> object:
    from sklearn.datasets import load_svmlight_file

    return load_svmlight_file(str(path), dtype=np.float32)


def read_with_xgboost(path: Path) -> object:
    import xgboost

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xgboost.DMatrix(f"{path}?format=libsvm", nthread=1, silent=True)


def read_with_dglmnet(path: Path, block: int = 32 << 20) -> int:
    """Read and parse a file block by block, as a Map task does, on one core."""
    nnz, rest = 0, b""
    with path.open("rb") as file:
        while piece := file.read(block):
            end = piece.rfind(b"\n") + 1
            size = len(rest) + end
            text = np.empty(size + PADDING, dtype=np.uint8)
            text[: len(rest)] = np.frombuffer(rest, dtype=np.uint8)
            text[len(rest) : size] = np.frombuffer(piece, dtype=np.uint8, count=end)
            nnz += parse(text, size).ids.size
            rest = piece[end:]
    return nnz


def bench_parser(paths: dict[str, Path], repeat: int) -> None:
    click.echo("| parser, one core, MB/s | dglmnet | xgboost | scikit-learn | × xgboost | × scikit-learn |")
    click.echo("|---|---|---|---|---|---|")
    for name, path in paths.items():
        size = path.stat().st_size / 1e6
        readers = {"dglmnet": read_with_dglmnet, "xgboost": read_with_xgboost, "sklearn": read_with_sklearn}
        read_with_dglmnet(path)
        taken = best({who: partial(read, path) for who, read in readers.items()}, repeat)
        speed = {who: size / t for who, t in taken.items()}
        ours, xgboost, sklearn = (speed[who] for who in readers)
        click.echo(
            f"| {name} ({size:.0f} MB) | {ours:.0f} | {xgboost:.0f} | {sklearn:.0f} | {ours / xgboost:.1f} "
            f"| {ours / sklearn:.1f} |"
        )


def bench_conversion(paths: dict[str, Path], scratch: Path, repeat: int) -> None:
    click.echo("\n| conversion, two workers | dglmnet, s | MB/s | scikit-learn load + tocsc, s | ratio |")
    click.echo("|---|---|---|---|---|")
    with open_client(ClusterOptions(workers=2)) as client:
        for name, path in paths.items():
            output = scratch / "out" / name

            def convert(path: Path = path, output: Path = output) -> None:
                convert_libsvm(str(path), str(output), overwrite=True, client=client)

            def load(path: Path = path) -> None:
                read_with_sklearn(path)[0].tocsc()  # type: ignore[index]

            convert()
            taken = best({"dglmnet": convert, "sklearn": load}, repeat)
            size = path.stat().st_size / 1e6
            click.echo(
                f"| {name} | {taken['dglmnet']:.2f} | {size / taken['dglmnet']:.0f} | {taken['sklearn']:.2f} "
                f"| {taken['sklearn'] / taken['dglmnet']:.1f} |"
            )


def peak_memory() -> tuple[int, int]:
    """This process and the most memory it ever had, in bytes (getrusage would count its parent's from before exec)."""
    status = Path("/proc/self/status").read_text()
    return os.getpid(), 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0])


def bench_memory(source: Path, scratch: Path, limit: str = "512MB", total: float = 2e9) -> None:
    text = scratch / "large"
    text.mkdir()
    size = source.stat().st_size
    for k in range(int(-(-total // size))):
        (text / f"{k:02d}.svm").symlink_to(source.resolve())
    with open_client(ClusterOptions(workers=2, processes=True, memory_limit=limit)) as client:
        before = client.run(peak_memory)
        taken = seconds(lambda: convert_libsvm(str(text), str(scratch / "out" / "large"), client=client))
        after = client.run(peak_memory)
    restarted = {pid for pid, _ in before.values()} != {pid for pid, _ in after.values()}
    peaks = ", ".join(f"{peak / 1e6:.0f} MB" for _, peak in after.values())
    idle = ", ".join(f"{peak / 1e6:.0f} MB" for _, peak in before.values())
    gigabytes = size * (k + 1) / 1e9
    click.echo(
        f"\n{gigabytes:.1f} GB of text, two workers limited to {limit}: {taken:.1f} s "
        f"({1e3 * gigabytes / taken:.0f} MB/s); peak resident memory {peaks} (idle: {idle}); "
        f"workers restarted: {'yes' if restarted else 'none'}"
    )


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm; else look-alikes."
)
@click.option("--repeat", default=3, show_default=True, help="Repetitions; the best counts.")
@click.option("--memory", is_flag=True, help="Also convert 2 GB under a memory limit.")
def main(data: Path | None, repeat: int, memory: bool) -> None:
    """Run the benchmark and print its tables."""
    scratch = Path(tempfile.mkdtemp(prefix="dglmnet-bench-"))
    try:
        paths = {name: find_or_make(name, data, scratch) for name in NAMES}
        bench_parser(paths, repeat)
        bench_conversion(paths, scratch, repeat)
        if memory:
            bench_memory(paths["splice"], scratch)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
