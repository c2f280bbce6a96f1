"""All peers against each other: time until the objective is within 1e-3 and 1e-4 of the best certified one.

    python -m benchmarks.compare [--data DIR] [--names a,b] [--peers a,b] [--limit S] [--length 10] [--output DIR]

Same data, same λ, no intercept, two cores, loading and compiling left out. Every peer runs with settings from loose to
tight; the fastest that is near enough counts. For each peer and data set a JSON file is kept, and what has one is not
run again: an interrupted comparison goes on where it was. The table and the plot are made from these files.
"""

from __future__ import annotations

import json
import os
import platform
import signal
from pathlib import Path
from typing import Any

import click

from benchmarks.peers import NAMES, SETUP, find_peer, run_peer
from benchmarks.reference import describe, find_problem
from benchmarks.report import write_report

REAL = ("splice", "imdb", "news20")
GENERATED = ("dna", "webspam", "epsilon")


def default_names(data: Path | None) -> list[str]:
    """What of the real data is there, and the dense look-alike; or look-alikes only."""
    if data is None:
        return list(GENERATED)
    return [*(name for name in REAL if (data / f"{name}.train.svm").exists()), "epsilon"]


def measure(peer_name: str, problem: Path, about: dict[str, Any], limit: float, setup: float) -> dict[str, Any]:
    peer = find_peer(peer_name)
    found = run_peer(peer, problem, limit, setup)
    return {**found, "problem": about, "machine": f"{platform.machine()}, {os.cpu_count()} cores"}


def is_current(path: Path, key: str, limit: float) -> bool:
    """Is there a result for the same problem, with at least the same limit or an end before it?"""
    if not path.exists():
        return False
    old = json.loads(path.read_text())
    ended = old["status"] in ("done", "unfit") or (old["status"] == "limit" and old["limit"] >= limit)
    return bool(old["problem"]["key"] == key and ended)


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="Folder with NAME.train.svm; else look-alikes."
)
@click.option("--names", help="Data sets, separated by commas; by default those of --data and a dense look-alike.")
@click.option("--peers", default=",".join(NAMES), show_default=True, help="Peers, separated by commas.")
@click.option("--limit", default=300.0, show_default=True, help="Seconds for a peer on a data set.")
@click.option("--setup", default=SETUP, show_default=True, help="Seconds for loading and compiling, not part of it.")
@click.option("--length", default=10, show_default=True, help="λ in the path: λmax/2 … λmax/2^LENGTH.")
@click.option("--gap", default=1e-6, show_default=True, help="Relative duality gap of the objectives held against.")
@click.option("--again", is_flag=True, help="Run what has a result already.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("benchmarks/results"), show_default=True, help="Results."
)
def main(
    data: Path | None,
    names: str | None,
    peers: str,
    limit: float,
    setup: float,
    length: int,
    gap: float,
    again: bool,
    output: Path,
) -> None:
    """Run what is missing; write the table and the plot."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a peer ends with us, whoever ends us
    output.mkdir(parents=True, exist_ok=True)
    for name in names.split(",") if names else default_names(data):
        click.echo(f"{name}: the problem and its certified objectives", err=True)
        problem = find_problem(name, data, length, gap)
        about = describe(name, problem)
        for peer in peers.split(","):
            path = output / f"{name}.{peer}.json"
            if again or not is_current(path, about["key"], limit):
                click.echo(f"{name}: {peer}", err=True)
                found = measure(peer, problem, about, limit, setup)
                path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        write_report(output)
    click.echo((output / "table.md").read_text())


if __name__ == "__main__":
    main()
