"""Submit a driver to a running cluster, find it again, ask after it, and cancel it.

The task is published on the scheduler under a name made of the run's address: that keeps it alive when the terminal
goes, and a second driver of the same run out.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future

from pipeline.driver.moving import ANSWER_SECONDS, SCHEDULER_SECONDS, watch_drivers
from pipeline.driver.record import (
    CANCELLED,
    CUT_OFF,
    FAILED,
    SUBMITTED,
    DriverRecord,
    RunFolder,
    is_trusted,
    now,
)
from pipeline.driver.task import LIMIT_SECONDS, Job, cancel_driver, drive, driver_summary, published, unpublish
from transforms import OutputExists, UserError
from transforms.errors import ClusterLost
from transforms.liveness import scheduler_answers
from transforms.storage import redact

LOCK_SECONDS = 5.0  # a submission takes a fraction of it
PRIORITY = 100  # before the tasks that wait already: a driver takes no thread of its worker
AT_WORK = ("processing", "queued", "waiting", "no-worker")
NOT_STARTED = ("queued", "waiting", "no-worker")


@dataclass(frozen=True)
class Standing:
    """A driver's task as the scheduler sees it."""

    state: str
    worker: str | None  # the address where it runs
    silent: float  # seconds since that worker was heard of

    @property
    def at_work(self) -> bool:
        return self.state in AT_WORK

    @property
    def started(self) -> bool:
        return self.state == "processing"

    @property
    def waits(self) -> bool:
        """Is there no worker for it?"""
        return self.state in NOT_STARTED


def kept_events(client: Client, topic: str) -> tuple[tuple[float, dict[str, Any]], ...]:
    """The latest events of a topic: Client.get_events, with a limit to its patience."""
    found: tuple[tuple[float, dict[str, Any]], ...] = client.sync(
        client.scheduler.events, topic=topic, callback_timeout=SCHEDULER_SECONDS
    )
    return found


def standing(client: Client, key: str) -> Standing | None:
    """How a driver's task stands, or None if the scheduler does not know it (any more)."""

    def look(dask_scheduler: Any) -> tuple[str, str | None, float] | None:
        import time  # the scheduler may lack this package: the function travels by value

        task = dask_scheduler.tasks.get(key)
        if task is None:
            return None
        worker = task.processing_on
        return task.state, worker and worker.address, time.time() - worker.last_seen if worker else 0.0

    found = client.run_on_scheduler(look, callback_timeout=SCHEDULER_SECONDS)
    return None if found is None else Standing(*found)


def submit_driver(
    client: Client, job: Job, folder: RunFolder, scheduler: str, check: Callable[[], object] = lambda: None
) -> tuple[DriverRecord, Future]:
    """Start the run's driver on the cluster, unless one is at work on it, or `check` raises."""
    record = DriverRecord(job.command, redact(scheduler), f"{folder.name}-{uuid.uuid4().hex}", now())
    _lock(client, folder, record.key)
    try:
        check()
        watch_drivers(client)
        return record, _submit(client, job, folder, record)
    except BaseException:
        with suppress(ClusterLost):
            unpublish(client, folder)
        raise


def _submit(client: Client, job: Job, folder: RunFolder, record: DriverRecord) -> Future:
    folder.write(record)
    try:
        # `retries` is about tasks that raise: it does not. Workers that do not answer have been let go (check_workers).
        future = client.submit(drive, job, folder, key=record.key, pure=False, retries=0, priority=PRIORITY)
        with scheduler_answers(client):
            client.publish_dataset(future, name=folder.name, override=True, callback_timeout=LIMIT_SECONDS)
    except BaseException as error:
        folder.write(record.end(FAILED, f"it could not be submitted ({type(error).__name__})"))
        raise
    return future


def _lock(client: Client, folder: RunFolder, key: str) -> None:
    """Publish the key under the run's name, which only one can do; what a dead driver left there is replaced."""
    deadline = time.monotonic() + LOCK_SECONDS
    while not _publish(client, folder, key):
        other = published(client, folder)
        if isinstance(other, Future):
            if _is_at_work(client, other.key):
                raise OutputExists(
                    f"{folder.shown}: a run is at work on it: attach with `dask-submit attach {folder.shown}`"
                )
            unpublish(client, folder)
        elif time.monotonic() < deadline:
            time.sleep(0.2)  # another submission, in the midst of it
        else:
            unpublish(client, folder)


def _publish(client: Client, folder: RunFolder, key: str) -> bool:
    try:
        with scheduler_answers(client):
            client.publish_dataset(key, name=folder.name, callback_timeout=LIMIT_SECONDS)
    except KeyError:
        return False
    return True


def _is_at_work(client: Client, key: str) -> bool:
    with scheduler_answers(client):
        found = standing(client, key)
    return found is not None and found.at_work


def find_future(client: Client, folder: RunFolder, record: DriverRecord) -> Future | None:
    """The task of the run's driver, if it is still published."""
    found = published(client, folder)
    return found if isinstance(found, Future) and found.key == record.key else None


def ask_summary(client: Client, key: str, worker: str) -> tuple[tuple[int, int], list[dict[str, Any]]] | None:
    """How far the driver is, from itself; None if it has not begun or is over."""
    answers = client.run(driver_summary, key, workers=[worker], callback_timeout=ANSWER_SECONDS)
    answer: tuple[tuple[int, int], list[dict[str, Any]]] | None = answers.get(worker)
    return answer


def ask_to_cancel(client: Client, folder: RunFolder, record: DriverRecord) -> bool:
    """Ask the driver to end, or take it back if it has not begun. False: it cannot be asked (yet, or any more)."""
    found = standing(client, record.key)
    if found is None or not found.at_work:
        return False
    if found.started and found.worker:
        answers = client.run(cancel_driver, record.key, workers=[found.worker], callback_timeout=ANSWER_SECONDS)
        if answers.get(found.worker):
            return True
    latest = folder.read()
    if latest is None or latest.key != record.key or not (found.waits or latest.state == SUBMITTED):
        return False
    # A driver that starts now finds this, and ends.
    folder.write(latest.end(CANCELLED, "cancelled while it waited for a worker"))
    forget(client, folder, record)
    return True


def forget(client: Client, folder: RunFolder, record: DriverRecord) -> None:
    """Take the driver's task from the scheduler; where it runs, it finds that it is not wanted, and ends."""
    unpublish(client, folder)
    client.cancel([Future(record.key, client)], force=True)


def give_up(client: Client, folder: RunFolder, record: DriverRecord, message: str) -> DriverRecord:
    """Note that a driver is gone for good, and take its task from the scheduler."""
    ended = record.end(CUT_OFF, message)
    folder.write(ended)
    with suppress(ClusterLost):
        forget(client, folder, record)
    return ended


def recorded(folder: RunFolder) -> DriverRecord:
    """The run's driver.json; without one there is nothing to find."""
    record = folder.read()
    if record is None:
        raise UserError(
            f"{folder.shown}: no driver was submitted for this run (there is no driver.json). "
            "Runs with --scheduler have one"
        )
    return record


def scheduler_of(folder: RunFolder, record: DriverRecord, given: str | None) -> str:
    """Where to ask after the driver: where the user says, or where driver.json says, if that can be trusted."""
    if given is None and not is_trusted(record.scheduler):
        raise UserError(
            f"{folder.shown}/driver.json names the scheduler {record.scheduler}. A Dask client executes what its "
            f"scheduler sends: if you trust this one, add --scheduler {record.scheduler}"
        )
    return given or record.scheduler
