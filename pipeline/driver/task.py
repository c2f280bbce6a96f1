"""The driver of a run as a Dask task: the outer loop beside the workers, so that vectors stay in the cluster's network.

It secedes from its worker's threads, so that blocks of the same worker go on, tells the scheduler how it goes
(driver/events.py), keeps driver.json (driver/record.py), and ends when it is asked to. A thread cannot be killed, so it
looks whether it is still wanted at each event, and then unwinds as by Ctrl-C: what is done is kept, the rest released.

Dask runs the task again when its worker is lost; a worker that closes, or was cut off from the scheduler, hands it back
(Reschedule). Each start counts in driver.json, resumes what the one before it stored, and takes over its claims. A
start that was lost only seemingly (its worker was stopped, or cut off) finds a later one there: it may write no more,
neither the run nor driver.json.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, Reschedule, get_client, get_worker, secede
from distributed.worker import WORKER_ANY_RUNNING

from pipeline.driver.events import EventDisplay, topic
from pipeline.driver.log import logs_told
from pipeline.driver.record import (
    CANCELLED,
    CUT_OFF,
    FAILED,
    FINISHED,
    MOST_STARTS,
    DriverRecord,
    RunFolder,
)
from pipeline.events import BlocksPlaced, Event, StartedAgain
from transforms import UserError
from transforms.claim import Start, claims_of
from transforms.errors import ClusterLost, SchedulerLost
from transforms.liveness import scheduler_answers
from transforms.secrets import make_scrubber

logger = logging.getLogger("dglmnet")
RECONNECT_SECONDS = 0.2
LAST_SECONDS = 3.0  # for a driver whose process ends
LIMIT_SECONDS = 20.0  # for the scheduler to say what is published, or to publish something


@dataclass(frozen=True)
class Job:
    """The work of a run: a function of this package, called with the client, a display and these arguments."""

    command: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(repr=False)  # may hold secrets
    further: dict[str, Any] = field(default_factory=dict)  # arguments that are others when it is started again

    def arguments_of(self, record: DriverRecord) -> dict[str, Any]:
        """A further start resumes what is stored, unless that is still what this run was asked to replace."""
        replaces = self.arguments.get("overwrite", False) and not record.begun
        return self.arguments if record.starts == 1 or replaces else self.arguments | self.further


@dataclass(frozen=True)
class Outcome:
    """How a driver ended. `usage`: the user can mend it (exit code 2)."""

    state: str
    message: str | None = None
    usage: bool = False
    trace: str | None = None


class Unwanted(KeyboardInterrupt):
    """The driver was cancelled, or its worker is closing; it unwinds as by Ctrl-C."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


class _Driver:
    """A driver at work in this process: one start of a run's driver."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.client, self._worker = folder, get_client(), get_worker()
        # So long it tries to reach a lost scheduler again. Its worker, which ends then anyway, would wait 2 s for that.
        self.client._timeout = RECONNECT_SECONDS
        self.key = str(self._worker.get_current_task())
        self.where = f"{self._worker.name} at {self._worker.address}"
        self.cancelled = threading.Event()
        self.adrift = False  # the scheduler does not answer it; if that comes back, the driver is started again
        self.display = EventDisplay(lambda event: self._worker.log_event(topic(self.key), event), self._check)

    @property
    def closing(self) -> bool:
        """Is its worker closing, asked to or without a scheduler?"""
        return self._worker.status not in WORKER_ANY_RUNNING

    def start(self, record: DriverRecord) -> DriverRecord:
        """Note in driver.json that it starts; that it was lost before is told."""
        started = record.start(self.where)
        self.display.start = started.starts
        self.folder.write(started)
        if started.starts > 1:
            self.display.tell(StartedAgain(started.started_again(record.worker)))
        return started

    def read(self) -> DriverRecord | None:
        """driver.json, if it is this driver's."""
        record = self.folder.read()
        return record if record is not None and record.key == self.key else None

    def is_earlier(self, record: DriverRecord | None) -> bool:
        """Has the driver been started again since?"""
        return record is not None and record.starts > self.display.start

    def _note_begun(self) -> None:
        record = self.read()
        if record is not None and not self.is_earlier(record):
            self.folder.write(replace(record, begun=True))

    def _check(self, event: Event) -> None:
        """Raise if the driver is not wanted any more."""
        if isinstance(event, BlocksPlaced):
            self._note_begun()
        if self.cancelled.is_set():
            raise Unwanted(CANCELLED, "it was asked to end")
        task = self._worker.state.tasks.get(self.key)
        if task is None or task.state == "cancelled":
            raise Unwanted(CANCELLED, "the scheduler was told to forget the run's driver")
        if self.closing:
            raise Unwanted(CUT_OFF, f"its worker {self._worker.name} was closed, or lost its scheduler")


_AT_WORK: dict[str, _Driver] = {}


@atexit.register
def _let_drivers_end() -> None:
    """A process that ends does not wait for its drivers, whose threads are daemons: they note how the run ended."""
    deadline = time.monotonic() + LAST_SECONDS
    while _AT_WORK and time.monotonic() < deadline:
        time.sleep(0.02)


def cancel_driver(key: str) -> bool:
    """Run on the driver's worker: ask it to end. False if it is not at work here."""
    driver = _AT_WORK.get(key)
    if driver is not None:
        driver.cancelled.set()
    return driver is not None


def driver_summary(key: str) -> tuple[tuple[int, int], list[dict[str, Any]]] | None:
    """Run on the driver's worker: how far it is (EventDisplay.summary), or None if it is not at work here."""
    driver = _AT_WORK.get(key)
    return None if driver is None else driver.display.summary()


def drive(job: Job, folder: RunFolder) -> Outcome:
    """The task. It raises nothing else: Dask would log its arguments, and a terminal shows the outcome as its error."""
    secede()
    driver = _Driver(folder)
    _AT_WORK[driver.key] = driver
    scrub = make_scrubber(folder.storage)
    try:
        with logs_told(lambda level, text: driver.display.log(level, scrub(text))):
            outcome = _work(job, driver)
        if outcome.state == FAILED and driver.closing:  # by what its own worker took away
            outcome = replace(outcome, state=CUT_OFF)
        outcome = replace(
            outcome, message=outcome.message and scrub(outcome.message), trace=outcome.trace and scrub(outcome.trace)
        )
        _close(driver, outcome)
    finally:
        if _AT_WORK.get(driver.key) is driver:
            del _AT_WORK[driver.key]
    if outcome.state == CUT_OFF and (driver.closing or driver.adrift):
        raise Reschedule  # for another worker, or for this one when its scheduler answers again
    return outcome


def _work(job: Job, driver: _Driver) -> Outcome:
    """Do the job, or what earlier starts of this task left to do."""
    try:
        record = _own_record(driver)
        driver.display.start = record.starts
        if record.over and record.state != CUT_OFF:  # it ended, and its worker went with the result
            return Outcome(record.state, record.message, record.usage)
        if record.starts >= MOST_STARTS:
            return Outcome(CUT_OFF, record.lost)
        record = driver.start(record)
        with claims_of(Start(driver.key, record.starts)):
            return _do(job, driver, record)
    except UserError as error:
        return Outcome(FAILED, str(error), usage=True)
    except ClusterLost as error:
        return Outcome(FAILED, str(error))
    except Exception as error:
        return Outcome(FAILED, f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _do(job: Job, driver: _Driver, record: DriverRecord) -> Outcome:
    """Do the job. That it was not wanted any more, or lost its scheduler, is no failure of its own."""
    try:
        job.function(client=driver.client, display=driver.display, **job.arguments_of(record))
    except Unwanted as reason:
        return Outcome(reason.state, f"{reason}. {record.again}")
    except SchedulerLost as error:
        driver.adrift = True
        return Outcome(CUT_OFF, f"{error.what}. {record.again}")
    except Exception:
        # When a client loses its scheduler, Dask cancels its calls, and they raise whatever they happen to raise.
        if driver.client.status == "running":
            raise
        driver.adrift = True
        return Outcome(CUT_OFF, f"the scheduler was lost. {record.again}", trace=traceback.format_exc())
    return Outcome(FINISHED)


def _own_record(driver: _Driver) -> DriverRecord:
    """driver.json as the terminal wrote it; not to find it means that the driver looks at another folder."""
    folder, record = driver.folder, driver.read()
    if record is not None:
        return record
    if folder.local:
        raise UserError(
            f"{folder.shown} is a local path that the cluster does not share: use shared storage, or --driver local"
        )
    raise UserError(f"{folder.shown}: the cluster does not see what was written here: does it use the same storage?")


def _close(driver: _Driver, outcome: Outcome) -> None:
    """Leave driver.json saying how it ended, and nothing on the scheduler. A later start has both for itself."""
    folder, client = driver.folder, driver.client
    try:
        record = driver.read()
        if driver.is_earlier(record):
            return
        if record is not None:
            folder.write(record.end(outcome.state, outcome.message, usage=outcome.usage))
        if driver.closing or driver.adrift:
            return  # the task is another start's now
        found = published(client, folder)
        if getattr(found, "key", found) == driver.key and not driver.is_earlier(driver.read()):
            unpublish(client, folder)
    except Exception as error:  # the outcome is worth more than the note about it; whoever follows still gets it
        logger.warning("cannot note in %s how the run ended: %s", folder.shown, type(error).__name__)
    driver.display.end()


def published(client: Client, folder: RunFolder) -> Any:
    """What the scheduler keeps under the run's name: a driver's task, its key while it is being submitted, or None."""
    with scheduler_answers(client):
        return client.get_dataset(folder.name, default=None, callback_timeout=LIMIT_SECONDS)


def unpublish(client: Client, folder: RunFolder) -> None:
    with scheduler_answers(client):
        client.unpublish_dataset(folder.name, callback_timeout=LIMIT_SECONDS)
