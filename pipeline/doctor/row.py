"""What an examination found: a row for each thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, WRONG = "ok", "warn", "wrong"


@dataclass(frozen=True)
class Row:
    """`wrong`: a job would fail or give a wrong result. `warn`: it may be slow, or fail later."""

    what: str
    where: str  # "here", "scheduler", or a worker's name
    found: str
    verdict: str = OK
    remedy: str = ""
