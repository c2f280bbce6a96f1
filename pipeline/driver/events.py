"""How a driver on the cluster tells its terminal what happens: events as plain data, replayed on a real display.

On the wire an event is {"start": k, "seq": n, "call": its name (pipeline/events.py), "args": [...]}: k is the start of
the driver, which is started again when its worker is lost, and n counts the events of that start. "log" and "ended" are
for the terminal alone. The scheduler passes events on to those who subscribed, and keeps only the last thousand or so;
the driver keeps a summary that says what matters of all of them, for those who come late.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pipeline.display import Display
from pipeline.events import EVENTS, Event, StageBegun, StartedAgain

logger = logging.getLogger("dglmnet")
Message = dict[str, Any]


def topic(key: str) -> str:
    """Where the events of a driver are told."""
    return f"{key}-events"


class EventDisplay(Display):
    """A display that sends events on. `check` is called with each, and may raise to end the work."""

    def __init__(self, send: Callable[[Message], None], check: Callable[[Event], None]) -> None:
        self._send, self._check = send, check
        self.start = 0
        self._lock = threading.Lock()
        self._next = 0
        self._summary = Summary()

    def tell(self, event: Event) -> None:
        with self._lock:  # a claim's keeper logs from a thread of its own
            self._summary.add(self._post(event.name, event.args()))
        self._check(event)

    def log(self, level: int, text: str) -> None:
        """A line of the driver's log; it ends no work."""
        with self._lock:
            self._post("log", [level, text])

    def end(self) -> None:
        """The driver is over, however it ended."""
        with self._lock:
            self._post("ended", [])

    def _post(self, call: str, args: list[Any]) -> Message:
        message = {"start": self.start, "seq": self._next, "call": call, "args": args}
        self._next += 1
        self._send(message)
        return message

    def summary(self) -> tuple[tuple[int, int], list[Message]]:
        """The start and number of the next event, and what matters of those before it."""
        with self._lock:
            return (self.start, self._next), list(self._summary.messages)


class Summary:
    """What matters of all events so far: a lost driver, the stage and its phase, the path and its λ, the last round."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def add(self, message: Message) -> None:
        kind = EVENTS[message["call"]]
        if kind is StageBegun:
            self.messages = [one for one in self.messages if one["call"] == StartedAgain.name]
        if not kind.is_kept:
            return
        args = message["args"]
        for earlier in self.messages:
            if earlier["call"] == kind.name and kind.name in kind.replaces:
                args = kind.merge(earlier["args"], args)
        self.messages = [one for one in self.messages if one["call"] not in kind.replaces]
        self.messages.append(message | {"args": args})


class Replay:
    """Tells a real display what the driver told its own. What came before an event that was lost is passed over."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._seen: set[str] = set()

    def show(self, message: Message) -> None:
        call, args = message["call"], message["args"]
        if call == "log":
            logger.log(args[0], "%s", args[1])
        elif call in EVENTS:
            self._tell(EVENTS[call], args)

    def _tell(self, kind: type[Event], args: list[Any]) -> None:
        if kind is StageBegun:
            self._seen.clear()
        self._seen.add(kind.name)
        if not kind.needs or kind.needs in self._seen:
            self._display.tell(kind.from_args(args))
