"""One test body for every store: a place on a real server, and the commands that work there."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

# A dead writer is known for dead when its claim stands still: here for three seconds, not for twenty.
_QUICK_CLAIMS = "from transforms import claim; claim.HEARTBEAT_SECONDS, claim.PATIENCE_SECONDS = 0.5, 3.0"
_PROGRAM = f"{_QUICK_CLAIMS}; from pipeline.commands import submit, convert; {{}}.main()"
HERE = ("--workers", "2", "--quiet")  # a cluster of the command's own


class Place(Protocol):
    """A folder or bucket that nobody else uses."""

    @property
    def url(self) -> str: ...
    @property
    def options(self) -> dict[str, Any]: ...
    @property
    def fs(self) -> Any: ...
    def write(self, path: str, content: bytes) -> str: ...
    def names(self, folder: str) -> list[str]: ...
    def files(self, folder: str) -> dict[str, bytes]: ...


class Disk:
    """A folder of this machine, to compare stores with."""

    def __init__(self, folder: Path) -> None:
        self.url, self.options, self.fs = str(folder), dict[str, Any](), LocalFileSystem()

    def write(self, path: str, content: bytes) -> str:
        Path(self.url, path).parent.mkdir(parents=True, exist_ok=True)
        Path(self.url, path).write_bytes(content)
        return f"{self.url}/{path}"

    def names(self, folder: str) -> list[str]:
        base = Path(self.url, folder)
        return sorted(str(file.relative_to(base)) for file in base.rglob("*") if file.is_file())

    def files(self, folder: str) -> dict[str, bytes]:
        return {name: Path(self.url, folder, name).read_bytes() for name in self.names(folder)}


def call(place: Place, *words: str) -> None:
    """Run a command in this process; its errors are raised."""
    from pipeline.commands import convert, submit

    program, words = (convert, words[1:]) if words[0] == "convert" else (submit, words)
    code = program.command.main([*words, *_options(place)], standalone_mode=False)
    assert not code


def spawn(place: Place, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Run a command as a process, which can be killed."""
    program, words = ("convert", words[1:]) if words[0] == "convert" else ("submit", words)
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(program), *words, *_options(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def done(process: subprocess.Popen[str]) -> str:
    """Wait for a command that should succeed; what it printed."""
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def wait_for_event(process: subprocess.Popen[str], **wanted: Any) -> None:
    """Wait until a command with --log-json tells of such an event."""
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line)
        if all(event.get(name) == value for name, value in wanted.items()):
            return
    raise AssertionError(f"the command ended before {wanted}: {process.wait()}")


def rows(run: dict[str, bytes], name: str, without: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A table of a run, without times."""
    table = pq.read_table(io.BytesIO(run[f"{name}.parquet"]))
    dropped = [column for column in table.column_names if "seconds" in column or column in without]
    return table.drop_columns(dropped).to_pylist()  # type: ignore[no-any-return]


def assert_same_run(mine: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    """The same models, to the last bit, and the same measures."""
    assert rows(mine, "coefficients") == rows(theirs, "coefficients")
    assert rows(mine, "path") == rows(theirs, "path")


def assert_same_models(mine: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    """But for the rounds: a λ that is taken up needs one more, as the columns of the active set are fetched anew."""
    for name in ("path", "coefficients"):
        for one, other in zip(rows(mine, name, ["rounds"]), rows(theirs, name, ["rounds"]), strict=True):
            assert one == pytest.approx(other, rel=1e-6, abs=1e-9)


def data_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """A data set's files but its description, which names its inputs."""
    return {name: content for name, content in files.items() if name != "dataset.json"}


def _options(place: Place) -> list[str]:
    return ["--storage-options", json.dumps(place.options)] if place.options else []
