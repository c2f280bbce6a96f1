"""The peers, and how one is run: a process in its own environment, its lines read, killed at the limit."""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from benchmarks.environments import CannotInstall, python_of
from benchmarks.measure import Peer

ROOT = Path(__file__).parents[1]
SETUP = 900.0  # seconds for loading and compiling, which are not part of the limit, unless told otherwise
OURS = "dglmnet"
NAMES = (OURS, "sklearn", "liblinear", "glmnet", "skglm", "celer", "snapml", "dask_ml", "spark", "vw")


def find_peer(name: str) -> Peer:
    """The peer that bench_<name>.py describes."""
    peer: Peer = importlib.import_module(f"benchmarks.bench_{name}").PEER
    return peer


def run_peer(peer: Peer, problem: Path, limit: float, setup: float = SETUP) -> dict[str, Any]:
    """Measure a peer on a problem. `status` says how it ended: done, limit, unfit, failed or not installed."""
    found: dict[str, Any] = {"peer": peer.name, "label": peer.label, "warm": peer.warm, "limit": limit, "fits": []}
    try:
        python = python_of(peer)
    except CannotInstall as error:
        return {**found, "status": "not installed", "reason": str(error)}
    with tempfile.TemporaryFile("w+") as complaints:
        process = _start(python, peer, problem, complaints)
        try:
            _follow(process, found, limit, setup)
        finally:
            _end(process)
        if found.get("status") is None:
            found["status"] = "done" if process.returncode == 0 else "failed"
        if found["status"] == "failed":
            found["reason"] = _last_line(complaints)
    return found


def _start(python: str, peer: Peer, problem: Path, complaints: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-m", f"benchmarks.bench_{peer.name}", str(problem)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=complaints,
        text=True,
        start_new_session=True,  # so that what it starts, a JVM say, ends with it
    )


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _follow(process: subprocess.Popen[str], found: dict[str, Any], limit: float, setup: float) -> None:
    """Read lines into `found`. The limit counts from when all is loaded and compiled."""
    lines = _lines_of(process)
    deadline, begun = time.monotonic() + setup, None
    while True:
        try:
            line = lines.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            if found.get("climbed"):  # all was measured once, at least
                found["status"] = "done"
                return
            found["status"], found["reason"] = "limit", f"{limit:g} s"
            if begun is None:
                found["reason"] = f"{setup:g} s for loading and compiling"
            elif begun["event"] == "begin":
                cut = {"rung": begun["rung"], "lambda_index": begun["lambda_index"]}
                found["fits"].append({**cut, "wall": time.monotonic() - begun["at"], "cut": True})
            return
        if line is None:
            process.wait()
            return
        event = json.loads(line)
        if event["event"] == "ready":
            deadline = time.monotonic() + limit
        begun = {**event, "at": time.monotonic()}
        _note(event, found)


def _lines_of(process: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """The lines of a process as they come, then None."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _note(event: dict[str, Any], found: dict[str, Any]) -> None:
    kind = event.pop("event")
    if kind == "ready":
        found.update(event)
    elif kind == "fit":
        found["fits"].append(event)
    elif kind == "unfit":
        found.update(event, status="unfit")
    elif kind == "error":
        found.setdefault("errors", []).append(event)
    elif kind == "climbed":
        found["climbed"] = True
    elif kind == "after":
        found["after"] = event


def _last_line(complaints: IO[str]) -> str:
    """What a peer said at last: of Java's stack traces the last cause, not what follows it."""
    complaints.seek(0)
    lines = [line.strip() for line in complaints if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes or lines or ["no message"])[-1][:200]
