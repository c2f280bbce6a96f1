"""Tasks on a cluster whose workers come and go.

Dask does the tasks of a worker that is gone again, on another. What is added here: such a loss is told in one line; a
worker that is registered and does not answer is taken out of the cluster, so that Dask gives its tasks to others; data
that all tasks share are sent again when the workers that had them are gone; and what cannot go on ends with one line.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from distributed import Client, Future, as_completed
from distributed.scheduler import KilledWorker

from transforms import liveness
from transforms.errors import WorkerLost
from transforms.liveness import (
    KnownWorker,
    ask_scheduler,
    ask_workers,
    do_not_answer,
    expel,
    go_on_without,
    lost_worker,
    registered_workers,
    scheduler_lost,
)

logger = logging.getLogger("dglmnet")
T = TypeVar("T")
ATTEMPTS = 5  # at a task whose shared data are lost again and again
_GOES_ON = "The work goes on without it"


class Attendance:
    """Who is at work: workers that are lost are told, once each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known = registered_workers(client)

    def compare(self, there: dict[str, KnownWorker]) -> None:
        """Tell of those that were there the last time and are not any more."""
        for address, worker in self._known.items():
            if address not in there or there[address].id != worker.id:
                logger.warning("warning: %s %s", lost_worker(worker.name, address, "see its log"), _GOES_ON)
        self._known = there

    def look(self) -> None:
        self.compare(registered_workers(self._client))

    def expel(self, suspects: Sequence[str]) -> bool:
        """Go on without those of the suspects that do not answer. Raises if there are no others."""
        silent = do_not_answer(self._client, suspects)
        if not silent:
            return False
        there = registered_workers(self._client)
        if all(one.silent > liveness.SILENCE_SECONDS for one in there.values()):
            raise WorkerLost(str(silent[0]))
        for worker in silent:
            logger.warning("warning: %s. %s", worker, _GOES_ON)
            self._known.pop(worker.address, None)
        expel(self._client, [worker.address for worker in silent])
        return True


_attendance: ContextVar[Attendance | None] = ContextVar("attendance", default=None)


@contextmanager
def attended(client: Client) -> Iterator[None]:
    """The work in here goes on without workers that are lost, and says so. Those that do not answer now are let go."""
    if _attendance.get() is not None:
        yield
        return
    answers, silent = ask_workers(client, os.getpid)
    go_on_without(answers, silent)
    expel(client, [worker.address for worker in silent])
    attendance = Attendance(client)
    token = _attendance.set(attendance)
    try:
        yield
        attendance.look()
    finally:
        _attendance.reset(token)


class _TryAgain(Exception):
    """A worker was let go: what was asked of it must be asked of another."""


class _Watch:
    """Looks after tasks that are waited for, at most every TURN_SECONDS."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._attendance = _attendance.get() or Attendance(client)
        self._nowhere: float | None = None  # since when a task has had no worker to go to
        self._next = time.monotonic() + liveness.TURN_SECONDS

    def check(self, keys: Sequence[str]) -> None:
        """Raises WorkerLost if the tasks cannot end, and _TryAgain if a worker that had to do with them was let go."""
        if time.monotonic() < self._next:
            return
        nowhere, suspects, rows = ask_scheduler(self._client, _look(), list(keys), liveness.SILENCE_SECONDS)
        self._attendance.compare({row[1]: KnownWorker(*row) for row in rows})
        self._refuse_nowhere(nowhere)
        let_go = self._attendance.expel(suspects)
        self._next = time.monotonic() + liveness.TURN_SECONDS
        if let_go:
            raise _TryAgain

    def _refuse_nowhere(self, nowhere: bool) -> None:
        if not nowhere:
            self._nowhere = None
        elif self._nowhere is None:
            self._nowhere = time.monotonic()
        elif time.monotonic() - self._nowhere > liveness.NOWHERE_SECONDS:
            raise WorkerLost(
                "no worker is left that could go on with the work. Were they killed, or out of memory?",
                "Start some, then run the same command again",
            )


def _look() -> Callable[..., tuple[bool, list[str], list[tuple[Any, ...]]]]:
    """A function that travels to the scheduler by value."""

    def look(keys: list[str], limit: float, dask_scheduler: Any) -> tuple[bool, list[str], list[tuple[Any, ...]]]:
        """Is there a task without a worker to go to; the silent workers that tasks, or what they need, are on; all
        workers.

        Without keys, all silent workers.
        """
        import time

        workers, now = list(dask_scheduler.workers.values()), time.time()
        silent = {ws for ws in workers if now - ws.last_seen > limit}
        nowhere, suspects = not workers, set(silent)
        if keys and len(silent) < len(workers):  # else tasks in the queue wait for one of them
            suspects = set()
        waiting = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
        seen = set(waiting)
        while waiting:
            task = waiting.pop()
            nowhere = nowhere or task.state == "no-worker"
            if task.processing_on in silent:
                suspects.add(task.processing_on)
            if task.who_has and set(task.who_has) <= silent:
                suspects.update(task.who_has)
            if task.state in ("waiting", "processing"):
                waiting += set(task.dependencies) - seen
                seen.update(task.dependencies)
        rows = [(ws.name, ws.address, ws.server_id, now - ws.last_seen) for ws in workers]
        return nowhere, sorted(ws.address for ws in suspects), rows

    return look


# --- results --------------------------------------------------------------------------------------------------------


class _TaskLost(Exception):
    """A task that cannot be done, as data that it needs are gone with the workers that had them."""

    def __init__(self) -> None:
        self.error = WorkerLost(
            "data that the work needs were on workers that are lost, and nothing says how to make them again",
            "Make them anew, then try again",
        )
        super().__init__(self.error)


def _result_of(client: Client, future: Future, watch: _Watch) -> Any:
    while True:
        try:
            return wait_for(client, lambda: client.gather(future, asynchronous=True), lambda: watch.check([future.key]))
        except _TryAgain:
            continue
        except concurrent.futures.CancelledError:
            _ = registered_workers(client)  # raises if the scheduler is gone, and the task with it
            raise _TaskLost from None
        except KilledWorker as killed:
            raise _deadly(killed) from None


def _deadly(killed: KilledWorker) -> WorkerLost:
    """Dask gives up on a task that was on several workers when they were lost."""
    last = killed.last_worker
    return WorkerLost(
        f"{killed.allowed_failures + 1} workers were lost one after another as they did the same piece of work "
        f"({killed.task}), the last one worker {last.name} at {last.address}. Are they out of memory (see their logs)?",
        "Give workers more memory or fewer threads, then run the same command again",
    )


def wait_for(client: Client, start: Callable[[], Coroutine[Any, Any, T]], check: Callable[[], None]) -> T:
    """The result of an asynchronous call of the client, however long it takes, as long as `check` does not raise.

    A TimeoutError is the call's own: that a turn of waiting is over raises nothing.
    """
    future = asyncio.run_coroutine_threadsafe(start(), client.loop.asyncio_loop)
    try:
        while not concurrent.futures.wait([future], liveness.TURN_SECONDS).done:
            check()
        return future.result()
    finally:
        future.cancel()


def as_finished(
    client: Client, futures: list[Future], again: Callable[[int], Future] | None = None
) -> Iterator[tuple[int, Any]]:
    """(index, result) of tasks in the order they finish; the first error ends it.

    again: submits a task once more. Its future takes the place of the old one in `futures`.
    """
    watch = _Watch(client)
    position = {future.key: k for k, future in enumerate(futures)}
    finished = as_completed(futures, loop=client.loop)
    while position:
        _wait_until(finished.has_ready, lambda: watch.check(sorted(position)))
        future = next(finished)
        k = position.pop(future.key)
        try:
            result = _result_of(client, future, watch)
        except _TaskLost as lost:
            if again is None:
                raise lost.error from None
            futures[k] = again(k)
            position[futures[k].key] = k
            finished.add(futures[k])
        else:
            yield k, result


def _wait_until(ready: Callable[[], bool], check: Callable[[], None]) -> None:
    """Look often at first: the tasks of small data take milliseconds."""
    pause = 0.001
    while not ready():
        try:
            check()
        except _TryAgain:  # Dask has given the tasks to others
            continue
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def release(client: Client, futures: Sequence[Future]) -> None:
    """Take tasks from the scheduler; one that is gone has forgotten them already."""
    try:
        client.cancel(list(futures), force=True)
    except Exception:  # Dask has several kinds for a client that is closed
        if client.status == "running":
            raise


# --- shared data ----------------------------------------------------------------------------------------------------


class Shared:
    """Data for many tasks, sent once; sent again if all the workers that had them are lost.

    make: gives the data, the same each time.
    """

    def __init__(self, client: Client, make: Callable[[], Any]) -> None:
        self._client, self._make = client, make
        self.future = share(client, make())

    def renew(self) -> None:
        """Send the data again if they are gone."""
        key = self.future.key

        def is_there(dask_scheduler: Any) -> bool:
            return key in dask_scheduler.tasks

        if not ask_scheduler(self._client, is_there):
            self.future = share(self._client, self._make())


def share(client: Client, data: Any) -> Future:
    """Data on a worker, from where the others fetch them when they need them.

    Not on all of them at once: Dask waits for ever for one that leaves meanwhile, and holds a lock.
    """
    watch, losses = _Watch(client), 0
    while True:
        try:
            shared: Future = wait_for(
                client,
                lambda: client.scatter(data, hash=False, asynchronous=True),
                lambda: watch.check([]),
            )
        except _TryAgain:
            continue
        except concurrent.futures.CancelledError:
            raise scheduler_lost(client) from None
        except (OSError, KeyError) as error:  # a worker was lost on the way
            losses += 1
            _ = registered_workers(client)
            if losses > ATTEMPTS:
                raise WorkerLost(
                    f"{losses} times in a row a worker was lost while data were sent to it ({error})"
                ) from error
        else:
            return shared


class Submitted:
    """Tasks of one function, a task for each tuple of arguments. `Shared` ones stand for the data on the workers."""

    def __init__(
        self, client: Client, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], name: str
    ) -> None:
        self._client, self._function, self._arguments, self._name = client, function, arguments, name
        self._lost: Counter[int] = Counter()
        self._futures: dict[int, Future] = {}
        self._watch = _Watch(client)

    def submit(self, k: int) -> Future:
        arguments = [one.future if isinstance(one, Shared) else one for one in self._arguments[k]]
        key = f"{self._name}-{k}" + (f"-{self._lost[k]}" if self._lost[k] else "")
        self._futures[k] = self._client.submit(self._function, *arguments, key=key, pure=False)
        return self._futures[k]

    def submit_again(self, k: int) -> Future:
        """After a loss of the data that it shares with others."""
        self._lost[k] += 1
        if self._lost[k] > ATTEMPTS:
            raise WorkerLost(f"{ATTEMPTS} times in a row all workers were lost that had the data of {self._name}")
        for one in self._arguments[k]:
            if isinstance(one, Shared):
                one.renew()
        return self.submit(k)

    def take(self, k: int) -> Any:
        """The result of a task, which is then let go."""
        while True:
            try:
                result = _result_of(self._client, self._futures[k], self._watch)
            except _TaskLost:
                self.submit_again(k)
            else:
                self._futures.pop(k).release()
                return result

    def close(self) -> None:
        """Give up what has not been taken."""
        if self._futures:
            release(self._client, list(self._futures.values()))
