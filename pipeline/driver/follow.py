"""Follow a driver on the cluster from a terminal: replay its events until it is over, and never wait for a dead one.

Dask starts a driver again whose worker is gone. One whose worker is stopped, or cut off, stays with it: whoever follows
it has it moved to another worker (driver/moving.py).
"""

from __future__ import annotations

import logging
import math
import queue
import time
from collections.abc import Iterator
from contextlib import suppress

from distributed import Client, Future

from pipeline.display import Display
from pipeline.driver.events import Message, Replay, topic
from pipeline.driver.moving import SILENCE_SECONDS, move_driver
from pipeline.driver.record import CUT_OFF, DriverRecord, RunFolder
from pipeline.driver.submission import Standing, ask_summary, give_up, kept_events, standing
from pipeline.driver.task import Outcome
from transforms.errors import ClusterLost
from transforms.liveness import NOWHERE_SECONDS, UNREACHABLE

logger = logging.getLogger("dglmnet")
IDLE_SECONDS = 2.0  # without an event, before the scheduler is asked
SCHEDULER_SECONDS = 20.0  # for a scheduler that does not answer to come back


class EventStream:
    """The events of a driver in order, from the one that `position` says."""

    def __init__(self, client: Client, key: str) -> None:
        self._client, self._topic = client, topic(key)
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.position = (0, 0)  # the start of the driver, and the event of that start
        client.subscribe_topic(self._topic, lambda event: self._queue.put(event[1]))

    def wait(self, seconds: float) -> list[Message]:
        """The next events, once there are any."""
        try:
            event = self._queue.get(timeout=seconds)
        except queue.Empty:
            return self.missed()
        if _place(event) > self.position:  # those before it came when the subscription had not taken hold
            return self.missed()
        return self._take([event])

    def missed(self) -> list[Message]:
        """Events that the scheduler has kept and that have not been taken yet."""
        return self._take([event for _, event in kept_events(self._client, self._topic)])

    def _take(self, events: list[Message]) -> list[Message]:
        """Those that are new. A start that was given up may still tell something: that is old."""
        fresh = []
        for event in events:
            start, number = _place(event)
            if (start, number) >= self.position:
                self.position = (start, number + 1)
                fresh.append(event)
        return fresh

    def close(self) -> None:
        self._client.unsubscribe_topic(self._topic)


def _place(event: Message) -> tuple[int, int]:
    """Where an event stands among all of its driver's."""
    return event["start"], event["seq"]


class Follower:
    """Watches one driver."""

    def __init__(self, client: Client, folder: RunFolder, record: DriverRecord, future: Future | None) -> None:
        self._client, self._folder, self._record, self._future = client, folder, record, future
        self._stream = EventStream(client, record.key)
        self._answered = time.monotonic()
        self._waiting: float | None = None  # since when the driver has had no worker to go on at

    def follow(self, display: Display, seconds: float = math.inf) -> Outcome | None:
        """Show how the driver goes until it is over; None if it is not after so many seconds."""
        replay = Replay(display)
        self._catch_up(replay)
        for event in self._events(time.monotonic() + seconds):
            if event is None or event["call"] == "ended":
                outcome = self._outcome(ended=event is not None)
                if outcome is not None:
                    self._show_rest(replay)
                    return outcome
            else:
                replay.show(event)
        return None

    def close(self) -> None:
        if self._client.status == "running":
            self._stream.close()

    def _events(self, deadline: float) -> Iterator[Message | None]:
        """Events as they come; None when there has been none for a while."""
        while time.monotonic() < deadline:
            try:
                events = self._stream.wait(IDLE_SECONDS)
                self._answered = time.monotonic()
            except UNREACHABLE:
                events = []
            if not events:
                yield None
            yield from events

    def _catch_up(self, replay: Replay) -> None:
        """Show where the driver is by now, as it says itself."""
        try:
            found = standing(self._client, self._record.key)
            summary = found and found.worker and ask_summary(self._client, self._record.key, found.worker)
        except UNREACHABLE:
            return  # it is asked after again when no events come
        if summary:
            (start, number), events = summary
            self._stream.position = (start, number)
            for event in events:
                replay.show(event)

    def _show_rest(self, replay: Replay) -> None:
        """What a driver told before it ended: its result may be there before its last events."""
        with suppress(*UNREACHABLE):
            for event in self._stream.missed():
                if event["call"] != "ended":
                    replay.show(event)

    def _outcome(self, *, ended: bool) -> Outcome | None:
        """How the driver ended, or None if it is at work."""
        try:
            found = standing(self._client, self._record.key)
            self._answered = time.monotonic()
        except UNREACHABLE as error:
            return self._without_scheduler(error)
        if found is not None and found.at_work and not ended:
            return self._judge(found)
        return self._result(found) or self._written() or self._give_up()

    def _judge(self, found: Standing) -> Outcome | None:
        """A driver that was lost has some time to be started again; one whose worker is silent is moved."""
        record = self._latest()
        if not (found.waits and record.starts):
            self._waiting = None
        elif self._waiting is None:
            self._waiting = time.monotonic()
        elif time.monotonic() - self._waiting > NOWHERE_SECONDS:
            return self._give_up()
        if found.worker is None or found.silent < SILENCE_SECONDS or self._move(found.worker):
            return None
        silence = f"{found.worker}, where the driver runs, has not been heard of for {found.silent:.0f} s"
        return Outcome(CUT_OFF, f"{silence}. If it comes back, attach again; if not: {record.again}")

    def _move(self, worker: str) -> bool:
        try:
            return move_driver(self._client, self._record.key, worker)
        except (ClusterLost, *UNREACHABLE):  # the scheduler: it is asked after again
            return True

    def _give_up(self) -> Outcome:
        record = self._latest()
        give_up(self._client, self._folder, record, record.lost)
        return Outcome(CUT_OFF, record.lost)

    def _result(self, found: Standing | None) -> Outcome | None:
        """What the task returned."""
        if self._future is None or found is None or found.state == "erred":
            return None
        try:
            outcome: Outcome = self._future.result(timeout=IDLE_SECONDS)
        except Exception as error:  # released, or lost with its worker: driver.json knows
            logger.debug("no result of the driver: %s", error)
            return None
        return outcome

    def _latest(self) -> DriverRecord:
        record = self._folder.read()
        return record if record is not None and record.key == self._record.key else self._record

    def _written(self) -> Outcome | None:
        record = self._latest()
        return Outcome(record.state, record.message, record.usage) if record.over else None

    def _without_scheduler(self, error: Exception) -> Outcome | None:
        written = self._written()
        if written is not None or time.monotonic() - self._answered < SCHEDULER_SECONDS:
            return written
        reason = f"the scheduler at {self._record.scheduler} does not answer ({type(error).__name__}). "
        return Outcome(CUT_OFF, reason + self._record.again)
