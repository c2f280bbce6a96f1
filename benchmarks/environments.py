"""A virtual environment for each peer, under benchmarks/.envs, made on demand: their dependencies do not agree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.measure import Peer

FOLDER = Path(__file__).parent / ".envs"
SHARED = ("numpy>=2.0", "scipy>=1.13", "psutil>=5.9")  # what measure.py needs


class CannotInstall(Exception):
    """pip could not install a peer; the message says why."""


def python_of(peer: Peer) -> str:
    """The interpreter of the environment that holds the peer."""
    if not peer.requirements:
        return sys.executable
    folder = FOLDER / peer.name
    wanted, stamp = "\n".join((*peer.requirements, *SHARED)), folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        _make(folder, wanted.split("\n"))
        stamp.write_text(wanted)
    return str(folder / "bin" / "python")


def _make(folder: Path, wanted: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *wanted,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotInstall(_reason(done.stderr))


def _reason(text: str) -> str:
    """The line of pip's output that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "× "))]
    return (errors or lines or ["pip said nothing"])[0]
