"""Play many cases: `python -m tests.fuzz.run --count 100000`. Batches run in processes of their own.

A case that ends its process, or does not end, is noticed and told like any other failure. What a failing case wrote
is kept in --keep; `--play KIND FIRST COUNT` plays single cases again.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from distributed import Client

from tests.fuzz.world import JSON_KINDS, KINDS, Case, Failure, World, build, quiet

MEMORY = 12 << 30  # bytes of address space for a batch: what asks for more than that fails
STILL = 120.0  # seconds after which a case that does not end is given up
JSON_SHARE = 2  # for one case of Parquet, which takes longer
CRASHED = "ended its process"


def embedded() -> Client:
    pages = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
    return Client(processes=False, n_workers=1, threads_per_worker=1, memory_limit=0, set_as_default=False, **pages)


def play(root: Path, kind: str, first: int, count: int, keep: Path, note: Path) -> None:
    """In a process of its own: a batch of cases. `note` gets the number of each before it is played."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    made: list[Client] = []

    def client() -> Client:
        if not made:
            made.append(embedded())
        return made[0]

    world = World(root, client)
    with quiet(), note.open("w") as log:
        for seed in range(first, first + count):
            case = Case(kind, seed)
            log.write(f"{seed}\n")
            log.flush()
            try:
                world.play(case)
            except Failure as failure:
                _keep(keep, case, world.spoiled(case), str(failure))
    for one in made:
        one.close()


def _keep(folder: Path, case: Case, content: bytes, what: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = str(case).replace("/", "_")
    (folder / f"{name}.bin").write_bytes(content)
    (folder / f"{name}.txt").write_text(what + "\n")


class Batches:
    """Runs batches and starts a new process behind a case that ended one."""

    def __init__(self, template: Path, work: Path, keep: Path) -> None:
        self._template, self._work, self._keep = template, work, keep
        self.played = dict.fromkeys(KINDS, 0)

    def run(self, kind: str, first: int, count: int) -> None:
        end = first + count
        while first < end:
            root = Path(tempfile.mkdtemp(dir=self._work)) / "root"
            shutil.copytree(self._template, root)
            last = self._process(root, kind, first, end - first)
            self.played[kind] += last + 1 - first
            first = last + 1
            shutil.rmtree(root.parent)

    def _process(self, root: Path, kind: str, first: int, count: int) -> int:
        """The last case that was played."""
        note, said = root.parent / "note", root.parent / "said"
        arguments = [kind, str(first), str(count), "--root", str(root), "--note", str(note), "--keep", str(self._keep)]
        with said.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.run", "--play", *arguments], stdout=log, stderr=log
            )
            before, since = "", time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                now = note.read_text()[-40:] if note.exists() else ""
                if now != before:
                    before, since = now, time.monotonic()
                if time.monotonic() - since > STILL:
                    process.kill()
        played = note.read_text().split() if note.exists() else []
        if not played:
            raise SystemExit(f"a batch could not begin:\n{said.read_text()}")
        last = int(played[-1])
        if process.returncode:
            what = f"{kind}-{last}: {CRASHED} with {process.returncode}\n{said.read_text()[-3000:]}"
            _keep(self._keep, Case(kind, last), b"", what)
        return last


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="cases in all [default: 100000]")
    parser.add_argument("--seed", type=int, default=0, help="the first case of each kind [default: 0]")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", choices=list(KINDS), action="append")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--play", nargs=3, metavar=("KIND", "FIRST", "COUNT"))
    parser.add_argument("--root", type=Path)
    parser.add_argument("--note", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        work = Path(folder)
        if given.play and given.root:
            play(given.root, given.play[0], int(given.play[1]), int(given.play[2]), given.keep, given.note)
            return 0
        with embedded() as client:
            build(work / "template", client)
        if given.play:
            kind, first, count = given.play[0], int(given.play[1]), int(given.play[2])
            Batches(work / "template", work, given.keep).run(kind, first, count)
            return _tell({}, given.keep)
        return _many(work, given.kind or list(KINDS), given)


def _many(work: Path, kinds: list[str], given: argparse.Namespace) -> int:
    batches = Batches(work / "template", work, given.keep)
    shares = {kind: JSON_SHARE if kind in JSON_KINDS else 1 for kind in kinds}
    each = {kind: -(-given.count * share // sum(shares.values())) for kind, share in shares.items()}
    spans = [
        (kind, given.seed + first, min(given.batch, each[kind] - first))
        for first in range(0, max(each.values()), given.batch)
        for kind in kinds
        if first < each[kind]
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        done = [pool.submit(batches.run, *span) for span in spans]
        for (kind, first, count), future in zip(spans, done, strict=True):
            future.result()
            _say(f"{kind}: {first} to {first + count - 1}, {sum(batches.played.values())} in all")
    return _tell(batches.played, given.keep)


def _tell(played: dict[str, int], keep: Path) -> int:
    failures = sorted(keep.glob("*.txt")) if keep.exists() else []
    for kind, count in played.items():
        _say(f"{kind:14} {count:8} cases")
    for failure in failures:
        _say(failure.read_text().splitlines()[0])
    _say(f"{len(failures)} failures" + (f", kept in {keep}" if failures else ""))
    return 1 if failures else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
