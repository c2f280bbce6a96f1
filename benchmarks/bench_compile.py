"""What the first commands on a machine compile: CPU seconds by function, with an empty cache.

    python -m benchmarks.bench_compile --data a9a.svm [--top 30]

Each command runs in a process of its own. Kernels are counted as numba says that it compiles them: `own` is without the
functions that are compiled on the way, `signatures` how many a function was compiled for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

COMMANDS = {"convert-libsvm": "pipeline.commands.convert", "dask-submit": "pipeline.commands.submit"}


@contextmanager
def counted() -> Iterator[list[dict[str, Any]]]:
    """What is compiled meanwhile, in CPU seconds of the thread that does it."""
    from numba.core import event

    done: list[dict[str, Any]] = []
    stack: list[list[float]] = []  # begin, and what was spent on functions within; numba compiles under one lock

    class Counter(event.Listener):  # type: ignore[misc]
        def on_start(self, one: Any) -> None:
            stack.append([time.thread_time(), 0.0])

        def on_end(self, one: Any) -> None:
            begin, within = stack.pop()
            took = time.thread_time() - begin
            if stack:
                stack[-1][1] += took
            function = one.data["dispatcher"].py_func
            name = f"{function.__module__}.{function.__name__}"
            signature = ", ".join(str(argument) for argument in one.data["args"])
            done.append({"name": name, "signature": signature, "own": took - within, "depth": len(stack)})

    with event.install_listener("numba:compile", Counter()):
        yield done


def run_here(program: str, words: list[str], result: Path) -> None:
    """Run a command in this process, and store what it compiled."""
    from importlib import import_module

    main = import_module(COMMANDS[program]).main
    sys.argv = [program, *words]
    with counted() as done:
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise
    result.write_text(json.dumps({"compiled": done, "cpu": time.process_time()}))


def measure(cache: str, program: str, *words: str) -> dict[str, Any]:
    """Run a command in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        child = [sys.executable, "-m", "benchmarks.bench_compile", "--child", str(result), program, *words]
        started = time.monotonic()
        subprocess.run(child, check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache}, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(result.read_text())
    return found | {"wall": time.monotonic() - started}


def show(title: str, first: dict[str, Any], again: dict[str, Any], top: int, signatures: bool) -> None:
    compiled = first["compiled"]
    seconds: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    for one in compiled:
        name = f"{one['name']}({one['signature']})" if signatures else one["name"]
        seconds[name] += one["own"]
        count[name] += 1
    outer = sum(one["depth"] == 0 for one in compiled)
    click.echo(
        f"{title}: first {first['cpu']:.1f} s CPU ({first['wall']:.1f} s by the clock), again {again['cpu']:.1f} s; "
        f"{sum(seconds.values()):.1f} s compiling {outer} kernels, {len(compiled)} functions in all"
    )
    for name in sorted(seconds, key=lambda one: -seconds[one])[:top]:
        click.echo(f"  {seconds[name]:6.2f} s  {count[name]:>2}  {name}")


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--data", type=click.Path(exists=True), help="LIBSVM text.")
@click.option("--top", default=30, show_default=True, help="Functions to list.")
@click.option("--signatures", is_flag=True, help="List each signature by itself.")
@click.option("--child", type=click.Path(path_type=Path), hidden=True)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def main(data: str | None, top: int, signatures: bool, child: Path | None, words: tuple[str, ...]) -> None:
    """Measure the first conversion and the first fit of some text."""
    if child is not None:
        run_here(words[0], list(words[1:]), child)
        return
    if data is None:
        raise click.UsageError("--data FILE is needed")
    with tempfile.TemporaryDirectory() as folder:
        cache, dataset, run = (f"{folder}/{name}" for name in ("cache", "data", "run"))
        for program, *rest in (
            ("convert-libsvm", data, dataset, "--overwrite", "--quiet"),
            ("dask-submit", "fit", dataset, "--output", run, "--overwrite", "--quiet"),
        ):
            first = measure(cache, program, *rest)
            again = measure(cache, program, *rest)
            show(f"{program} {rest[0] if program == 'dask-submit' else ''}".strip(), first, again, top, signatures)


if __name__ == "__main__":
    main()
