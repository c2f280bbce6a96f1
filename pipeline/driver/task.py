"""The driver of a run as a Dask task: the outer loop beside the workers, so that vectors stay in the cluster's network.

It secedes from its worker's threads, so that blocks of the same worker go on, tells the scheduler how it goes
(driver_events), keeps driver.json (driver_record), and ends when it is asked to. A thread cannot be killed, so it looks
whether it is still wanted at each event, and then unwinds as by Ctrl-C: what is done is kept, the rest is released.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from distributed import Client, get_client, get_worker, secede
from distributed.worker import WORKER_ANY_RUNNING

from pipeline.driver.events import EventDisplay, topic
from pipeline.driver.log import logs_told
from pipeline.driver.record import (
    CANCELLED,
    CUT_OFF,
    FAILED,
    FINISHED,
    RUNNING,
    SUBMITTED,
    DriverRecord,
    RunFolder,
    now,
)
from transforms import UserError
from transforms.errors import ClusterLost, SchedulerLost
from transforms.liveness import scheduler_answers
from transforms.secrets import make_scrubber

logger = logging.getLogger("dglmnet")
LIMIT_SECONDS = 20.0  # for the scheduler to say what is published, or to publish something


@dataclass(frozen=True)
class Job:
    """The work of a run: a function of this package, called with the client, a display and these arguments."""

    command: str
    function: Callable[..., Any]
    arguments: dict[str, Any] = field(repr=False)  # may hold secrets


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


@dataclass
class _Driver:
    """A driver at work in this process, for those who ask it from outside (client.run)."""

    display: EventDisplay
    cancelled: threading.Event


_AT_WORK: dict[str, _Driver] = {}


def cancel_driver(key: str) -> bool:
    """Run on the driver's worker: ask it to end. False if it is not at work here."""
    driver = _AT_WORK.get(key)
    if driver is not None:
        driver.cancelled.set()
    return driver is not None


def driver_summary(key: str) -> tuple[int, list[dict[str, Any]]] | None:
    """Run on the driver's worker: how far it is (EventDisplay.summary), or None if it is not at work here."""
    driver = _AT_WORK.get(key)
    return None if driver is None else driver.display.summary()


def drive(job: Job, folder: RunFolder) -> Outcome:
    """The task. It raises nothing: Dask would log its arguments, and a terminal shows the outcome as its own error."""
    secede()
    worker = get_worker()
    client = get_client()
    key = str(worker.get_current_task())
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise Unwanted(CANCELLED, "it was asked to end")
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise Unwanted(CANCELLED, "the scheduler was told to forget the run's driver")
        if worker.status not in WORKER_ANY_RUNNING:
            raise Unwanted(CUT_OFF, f"its worker {worker.name} was closed, or lost its scheduler")

    display = EventDisplay(lambda event: worker.log_event(topic(key), event), check)
    _AT_WORK[key] = _Driver(display, cancelled)
    scrub = make_scrubber(folder.storage)
    try:
        with logs_told(lambda level, text: display.log(level, scrub(text))):
            outcome = _work(job, folder, client, display, key, f"{worker.name} at {worker.address}")
        outcome = replace(
            outcome, message=outcome.message and scrub(outcome.message), trace=outcome.trace and scrub(outcome.trace)
        )
        _close(folder, client, key, outcome)
        display.end()
    finally:
        del _AT_WORK[key]
    return outcome


def _work(job: Job, folder: RunFolder, client: Client, display: EventDisplay, key: str, where: str) -> Outcome:
    """Do the job unless another attempt at this task did it before."""
    try:
        record = _own_record(folder, key)
        if record.state == CANCELLED:
            return Outcome(CANCELLED, record.message)
        if record.state != SUBMITTED:
            return Outcome(CUT_OFF, lost_driver(record))
        folder.write(replace(record, state=RUNNING, started=now(), worker=where))
        return _do(job, client, display, record)
    except UserError as error:
        return Outcome(FAILED, str(error), usage=True)
    except ClusterLost as error:
        return Outcome(FAILED, str(error))
    except Exception as error:
        return Outcome(FAILED, f"{type(error).__name__}: {error}", trace=traceback.format_exc())


def _do(job: Job, client: Client, display: EventDisplay, record: DriverRecord) -> Outcome:
    """Do the job. That it was not wanted any more, or lost its scheduler, is no failure of its own."""
    try:
        job.function(client=client, display=display, **job.arguments)
    except Unwanted as reason:
        return Outcome(reason.state, f"{reason}. {record.again}")
    except SchedulerLost as error:
        return Outcome(CUT_OFF, f"{error.what}. {record.again}")
    except Exception:
        # When a client loses its scheduler, Dask cancels its calls, and they raise whatever they happen to raise.
        if client.status == "running":
            raise
        return Outcome(CUT_OFF, f"the scheduler was lost. {record.again}", trace=traceback.format_exc())
    return Outcome(FINISHED)


def lost_driver(record: DriverRecord) -> str:
    """What to say of a driver that is gone."""
    where = f" {record.worker}" if record.worker else ""
    return f"the driver was lost with its worker{where}. Was it killed, or out of memory? {record.again}"


def _own_record(folder: RunFolder, key: str) -> DriverRecord:
    """driver.json as the terminal wrote it; not to find it means that the driver looks at another folder."""
    record = folder.read()
    if record is not None and record.key == key:
        return record
    if folder.local:
        raise UserError(
            f"{folder.shown} is a local path that the cluster does not share: use shared storage, or --driver local"
        )
    raise UserError(f"{folder.shown}: the cluster does not see what was written here: does it use the same storage?")


def _close(folder: RunFolder, client: Client, key: str, outcome: Outcome) -> None:
    """Leave driver.json saying how it ended, and nothing on the scheduler."""
    try:
        record = folder.read()
        if record is not None and record.key == key:
            folder.write(record.end(outcome.state, outcome.message, usage=outcome.usage))
        found = published(client, folder)
        if getattr(found, "key", found) == key:
            unpublish(client, folder)
    except Exception as error:  # the outcome is worth more than the note about it; whoever follows still gets it
        logger.warning("cannot note in %s how the run ended: %s", folder.shown, type(error).__name__)


def published(client: Client, folder: RunFolder) -> Any:
    """What the scheduler keeps under the run's name: a driver's task, its key while it is being submitted, or None."""
    with scheduler_answers(client):
        return client.get_dataset(folder.name, default=None, callback_timeout=LIMIT_SECONDS)


def unpublish(client: Client, folder: RunFolder) -> None:
    with scheduler_answers(client):
        client.unpublish_dataset(folder.name, callback_timeout=LIMIT_SECONDS)
