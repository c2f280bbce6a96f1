"""What a driver on the cluster tells its display, as events: small plain data that a terminal replays on a real one.

An event is {"seq": n, "call": a method of Display, "args": [...]}, or "log", or "ended". The scheduler passes events on
to those who subscribed, and keeps only the last thousand or so; the driver keeps a summary that says what matters of
all of them, for those who come late.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from pipeline.blocks import Placement, WorkerInfo
from pipeline.display import Display
from solver import Coefficients, RoundRecord, Solution

logger = logging.getLogger("dglmnet")
Event = dict[str, Any]


def topic(key: str) -> str:
    """Where the events of a driver are told."""
    return f"{key}-events"


class EventDisplay:
    """A display whose calls become events. `check` is called with each, and may raise to end the work."""

    def __init__(self, send: Callable[[Event], None], check: Callable[[], None]) -> None:
        self._send, self._check = send, check
        self._lock = threading.Lock()
        self._next = 0
        self._summary = Summary()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def stage(self, name: str) -> None:
        self._tell("stage", name)

    def note(self, text: str) -> None:
        self._tell("note", text)

    def phase(self, name: str, total: int, unit: str) -> None:
        self._tell("phase", name, int(total), unit)

    def advance(self, amount: int) -> None:
        self._tell("advance", int(amount))

    def placed(self, placements: Sequence[Placement]) -> None:
        self._tell("placed", [_plain(asdict(one)) for one in placements])

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        self._tell("begin", [float(one) for one in lambdas], done, float(largest))

    def round(self, record: RoundRecord) -> None:
        self._tell("round", _plain(asdict(record)))

    def solution(self, solution: Solution) -> None:
        names = ("lambda_index", "lam", "objective", "gap", "rounds", "stop", "seconds", "line_search_seconds")
        row = {name: getattr(solution, name) for name in names} | {"nonzeros": solution.nonzeros}
        self._tell("solution", _plain(row))

    def log(self, level: int, text: str) -> None:
        """A line of the driver's log; it ends no work."""
        self.tell_all("log", level, text)

    def tell_all(self, call: str, *args: Any) -> None:
        """Send an event, whether the work is wanted or not."""
        with self._lock:  # a claim's keeper logs from a thread of its own
            event = {"seq": self._next, "call": call, "args": list(args)}
            self._next += 1
            self._summary.add(event)
            self._send(event)

    def summary(self) -> tuple[int, list[Event]]:
        """The number of the next event, and what matters of those before it."""
        with self._lock:
            return self._next, self._summary.events()

    def _tell(self, call: str, *args: Any) -> None:
        self.tell_all(call, *args)
        self._check()


class Summary:
    """What matters of all events so far: the stage and its phase, the path and its λ, the last round."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._stage: list[Event] = []  # and what belongs to it, once each
        self._solutions: list[Event] = []
        self._phase: list[Event] = []
        self._done = 0
        self._round: list[Event] = []

    def add(self, event: Event) -> None:
        call = event["call"]
        if call == "stage":
            self._forget()
        if call in ("stage", "placed", "begin"):
            self._stage.append(event)
        elif call == "phase":
            self._phase, self._done = [event], 0
        elif call == "advance":
            self._done += event["args"][0]
        elif call == "solution":
            self._solutions.append(event)
            self._round = []
        elif call == "round":
            self._round = [event]

    def events(self) -> list[Event]:
        advanced = [{"seq": -1, "call": "advance", "args": [self._done]}] if self._phase and self._done else []
        return [*self._stage, *self._phase, *advanced, *self._solutions, *self._round]


class Replay:
    """Does to a real display what the driver did to its own. What came before an event that was lost is passed over."""

    _NEEDS: ClassVar = {"advance": "phase", "round": "begin", "solution": "begin"}

    def __init__(self, display: Display) -> None:
        self._display = display
        self._seen: set[str] = set()

    def show(self, event: Event) -> None:
        call, args = event["call"], event["args"]
        if call == "stage":
            self._seen.clear()
        self._seen.add(call)
        if call == "log":
            logger.log(args[0], "%s", args[1])
        elif call in self._NEEDS and self._NEEDS[call] not in self._seen:
            return
        elif call in _DECODE:
            getattr(self._display, call)(_DECODE[call](args[0]))
        elif call in ("stage", "note", "phase", "advance", "begin"):
            getattr(self._display, call)(*args)


def _placement(content: dict[str, Any]) -> Placement:
    return Placement(**(content | {"worker": WorkerInfo(**content["worker"])}))


def _solution(row: dict[str, Any]) -> Solution:
    """A solution as a display needs it: how many coefficients there are, but not which."""
    known = {name: value for name, value in row.items() if name != "nonzeros"}
    size = (row["nonzeros"],)
    return Solution(
        beta=Coefficients(np.broadcast_to(np.int64(0), size), np.broadcast_to(np.float64("nan"), size)), **known
    )


_DECODE: dict[str, Callable[[Any], Any]] = {
    "placed": lambda placements: [_placement(one) for one in placements],
    "round": lambda row: RoundRecord(**row),
    "solution": _solution,
}


def _plain(value: Any) -> Any:
    """The same without numpy's types and tuples."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
