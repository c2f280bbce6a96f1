"""record.json of a folder: which stages are finished, and what each took."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.paper_sizes.usage import Usage

FILE = "record.json"


class OtherData(Exception):
    """The folder holds another data set, or another scale of it."""


class Record:
    """Kept on disk, and written anew whenever something is added."""

    def __init__(self, folder: Path, name: str, scale: float) -> None:
        self._path = folder / FILE
        self._content: dict[str, Any] = {"name": name, "scale": scale, "stages": {}}
        if self._path.exists():
            stored = json.loads(self._path.read_text())
            if (stored["name"], stored["scale"]) != (name, scale):
                raise OtherData(f"{folder} holds {stored['name']} at scale {stored['scale']}: choose another folder")
            self._content = stored

    def of(self, stage: str) -> dict[str, Any]:
        """What is known of a stage; empty if it was never begun."""
        known: dict[str, Any] = self._content["stages"].get(stage, {})
        return known

    def is_finished(self, stage: str) -> bool:
        return bool(self.of(stage).get("finished"))

    def note(self, stage: str, **facts: Any) -> None:
        self._content["stages"][stage] = self.of(stage) | facts
        self._write()

    def add_usage(self, stage: str, usage: Usage) -> None:
        """Seconds add up over the attempts at a stage; peaks are those of the worst."""
        before = Usage(**{name: self.of(stage).get(name, 0) for name in asdict(Usage())})
        self.note(
            stage,
            seconds=round(before.seconds + usage.seconds, 2),
            cpu=round(before.cpu + usage.cpu, 2),
            memory=max(before.memory, usage.memory),
            disk=max(before.disk, usage.disk),
        )

    def forget(self, stages: list[str]) -> None:
        for stage in stages:
            self._content["stages"].pop(stage, None)
        self._write()

    def _write(self) -> None:
        unfinished = self._path.with_name(f".{FILE}")
        unfinished.write_text(json.dumps(self._content, indent=1))
        unfinished.replace(self._path)
