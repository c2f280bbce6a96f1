"""What was measured, in files: one for each piece of work, which is done again only if it was of something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def kept(path: Path, about: dict[str, Any], work: Callable[[], Rows]) -> Rows:
    """The rows of a file if it is about the same; else those of the work, which are stored there, whole or not."""
    about = json.loads(json.dumps(about))
    if path.exists():
        stored = json.loads(path.read_text())
        if stored["about"] == about:
            found: Rows = stored["rows"]
            return found
    rows = work()
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps({"about": about, "rows": rows}))
    beside.replace(path)
    return rows
