"""Wait for a cluster, but not for ever: a worker that is stopped stays registered and never answers.

Every question to the scheduler and to workers has a time limit. Tasks have none: while they are waited for, the
scheduler is asked now and then when it last heard of the workers that hold them. A worker counts as lost when the
scheduler has not heard of it for SILENCE_SECONDS and it does not answer a question either, so that a long task, a busy
machine or a laptop that slept ends no work.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import dask
from distributed import Client, Future, as_completed

from transforms.errors import NoWorkers, SchedulerLost, WorkerLost

logger = logging.getLogger("dglmnet")
T = TypeVar("T")
TURN_SECONDS = 2.0  # of waiting, before the workers are asked after
SILENCE_SECONDS = 15.0  # heartbeats come every 0.5 s, or every few seconds from hundreds of workers
ANSWER_SECONDS = 5.0  # for a worker that has been silent for so long to answer
SCHEDULER_SECONDS = 10.0  # for the scheduler to answer; it is asked twice
NOWHERE_SECONDS = 20.0  # for a worker to come that may take a task: one that was killed is restarted by its nanny
# What Dask raises when a scheduler or worker is gone; a client that gave up has no scheduler (AttributeError).
UNREACHABLE = (OSError, TimeoutError, ValueError, RuntimeError, AttributeError)


@dataclass(frozen=True)
class KnownWorker:
    """A worker that the scheduler knows."""

    name: Any
    address: str
    id: str  # of its process: a restarted worker has another, though perhaps the same name and address
    silent: float  # seconds since the scheduler heard of it


@dataclass(frozen=True)
class SilentWorker:
    """A worker that is registered and does not answer."""

    name: Any
    address: str
    seconds: float  # since the scheduler heard of it

    def __str__(self) -> str:
        return (
            f"worker {self.name} at {self.address} does not answer (last heard of {self.seconds:.0f} s ago). "
            "Is it stopped, swapping, or cut off from the network? Restart it or end it"
        )


def ask_scheduler(client: Client, function: Callable[..., T], *args: Any) -> T:
    """What a function finds on the scheduler. It may be run twice, so it must only look.

    The scheduler may lack this package: pass a function that is defined inside another, which travels by value.
    """

    def ask() -> T:
        found: T = client.run_on_scheduler(function, *args, callback_timeout=SCHEDULER_SECONDS)
        return found

    with scheduler_answers(client):
        try:
            return ask()
        except TimeoutError:  # it may be this process's own fault: it was stopped, or short of time
            return ask()


@contextmanager
def scheduler_answers(client: Client) -> Iterator[None]:
    """A scheduler that is gone, or does not answer in time, is SchedulerLost."""
    try:
        yield
    except Exception as error:  # Dask has several kinds for a client that is closed
        if not isinstance(error, OSError) and client.status == "running":
            raise
        raise _scheduler_lost(client) from error


def _scheduler_lost(client: Client) -> SchedulerLost:
    where = getattr(client.scheduler, "address", None)
    what = f"the scheduler{f' at {where}' if where else ''} does not answer"
    return SchedulerLost(what, "Run the same command again")


def registered_workers(client: Client) -> dict[str, KnownWorker]:
    """The workers that the scheduler knows, by their addresses."""

    def look(dask_scheduler: Any) -> list[tuple[Any, ...]]:
        import time

        now = time.time()
        return [(ws.name, ws.address, ws.server_id, now - ws.last_seen) for ws in dask_scheduler.workers.values()]

    return {row[1]: KnownWorker(*row) for row in ask_scheduler(client, look)}


def ask_workers(
    client: Client,
    function: Callable[..., Any],
    *args: Any,
    addresses: Iterable[str] | None = None,
    patience: float | None = None,
) -> tuple[dict[str, Any], list[SilentWorker]]:
    """What each worker answers (or the error that it raises), and the workers that do not answer.

    Without `patience`, a worker that the scheduler hears of is waited for up to 25 s in all.
    """
    known = registered_workers(client)
    asked = [address for address in (known if addresses is None else addresses) if address in known]
    least = ANSWER_SECONDS if patience is None else patience
    most = SILENCE_SECONDS + 2 * ANSWER_SECONDS if patience is None else patience
    answers: dict[str, Any] = {}

    async def ask(address: str) -> None:
        told = await client.run(function, *args, workers=[address], on_error="return", asynchronous=True)
        if not isinstance(told[address], OSError):  # the scheduler's own: it could not reach the worker
            answers[address] = told[address]

    async def ask_all() -> None:
        pending = {asyncio.ensure_future(ask(address)) for address in asked}
        started = time.monotonic()
        try:
            while pending and time.monotonic() - started < most:
                done, pending = await asyncio.wait(pending, timeout=min(1.0, least))
                for one in done:
                    one.result()
                if time.monotonic() - started >= least and await _all_silent(client, set(asked) - set(answers)):
                    return
        finally:
            for one in pending:
                one.cancel()

    if asked:
        with scheduler_answers(client):
            client.sync(ask_all, callback_timeout=most + SCHEDULER_SECONDS)
    now = registered_workers(client) if len(answers) < len(asked) else {}
    silent = [SilentWorker(now[one].name, one, now[one].silent) for one in asked if one not in answers and one in now]
    return answers, silent


async def _all_silent(client: Client, addresses: set[str]) -> bool:
    """Has the scheduler heard of none of these for long? Those that have left count as silent."""

    def look(dask_scheduler: Any) -> dict[str, float]:
        import time

        return {ws.address: time.time() - ws.last_seen for ws in dask_scheduler.workers.values()}

    seen = await client.run_on_scheduler(look, asynchronous=True)
    return all(seen.get(address, SILENCE_SECONDS) >= SILENCE_SECONDS for address in addresses)


@contextmanager
def responsive_only(client: Client) -> Iterator[None]:
    """Tasks submitted in here go to workers that answer now. Those that do not are named; none at all is an error."""
    if chosen_workers() is not None:  # they have been asked already
        yield
        return
    answers, silent = ask_workers(client, os.getpid)
    with only(go_on_without(answers, silent)):
        yield


def go_on_without(answers: Iterable[str], silent: Sequence[SilentWorker]) -> list[str] | None:
    """The workers to use, or None for all of them; those that do not answer are told."""
    left = list(answers)
    if not silent:
        return None
    if not left:
        more = f" (and neither do the other {len(silent) - 1})" if len(silent) > 1 else ""
        raise NoWorkers(f"{silent[0]}{more}: there is no other worker to go on with")
    for worker in silent:
        logger.warning("warning: %s. The work goes on without it", worker)
    return left


@contextmanager
def only(addresses: list[str] | None) -> Iterator[None]:
    """Tasks submitted in here go to these workers; None: to any."""
    if addresses is None:
        yield
        return
    with dask.annotate(workers=addresses, allow_other_workers=False):
        yield


def chosen_workers() -> list[str] | None:
    """Where tasks submitted here may go; None: anywhere."""
    chosen = dask.get_annotations().get("workers")
    return [chosen] if isinstance(chosen, str) else chosen


def actor_homes(client: Client, keys: Sequence[str]) -> dict[str, str]:
    """Of these actors, the ids of the workers that hold them; those that are gone are left out."""

    def look(dask_scheduler: Any) -> dict[str, str]:
        tasks = {key: dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks}
        return {key: next(iter(task.who_has)).server_id for key, task in tasks.items() if task.who_has}

    return ask_scheduler(client, look)


def raise_for_silent(client: Client, worker: KnownWorker) -> None:
    """Raise WorkerLost if a worker has been silent for long, and does not answer."""
    if worker.silent > SILENCE_SECONDS:
        _raise_for_silent(client, [worker.address])


def lost_worker(name: Any, address: str) -> str:
    """What to say of a worker that has left the cluster."""
    return (
        f"worker {name} at {address} was lost. Was it killed, or out of memory (see its log; --residency stream needs "
        "less)?"
    )


def _raise_for_silent(client: Client, suspects: Sequence[str]) -> None:
    if suspects:
        _, silent = ask_workers(client, os.getpid, addresses=suspects, patience=ANSWER_SECONDS)
        if silent:
            raise WorkerLost(str(silent[0]))


class TaskWatch:
    """Can tasks that are waited for still end? `check` raises if not."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nowhere: float | None = None  # since when a task has had no worker to go to

    def check(self, keys: Sequence[str]) -> None:
        nowhere, suspects = ask_scheduler(self._client, _find_suspects(), list(keys), SILENCE_SECONDS)
        _raise_for_silent(self._client, suspects)
        if not nowhere:
            self._nowhere = None
        elif self._nowhere is None:
            self._nowhere = time.monotonic()
        elif time.monotonic() - self._nowhere > NOWHERE_SECONDS:
            raise WorkerLost(
                "no worker is left that could go on with the work. Were they killed, or out of memory?",
                "Start some, then run the same command again",
            )


def _find_suspects() -> Callable[..., tuple[bool, list[str]]]:
    """A function that travels to the scheduler by value."""

    def look(keys: list[str], limit: float, dask_scheduler: Any) -> tuple[bool, list[str]]:
        """Is there a task without a worker to go to; and the silent workers that tasks, or what they need, are on."""
        import time

        silent = {ws for ws in dask_scheduler.workers.values() if time.time() - ws.last_seen > limit}
        nowhere, suspects = not dask_scheduler.workers, set()
        waiting = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
        seen = set(waiting)
        while waiting:
            task = waiting.pop()
            nowhere = nowhere or task.state == "no-worker"
            if task.processing_on in silent:
                suspects.add(task.processing_on.address)
            if task.who_has and set(task.who_has) <= silent:
                suspects.update(ws.address for ws in task.who_has)
            if task.state in ("waiting", "processing"):
                waiting += set(task.dependencies) - seen
                seen.update(task.dependencies)
        if silent and len(silent) == len(dask_scheduler.workers):
            suspects.update(ws.address for ws in silent)  # tasks in the queue wait for one of them
        return nowhere, sorted(suspects)

    return look


def wait_for(client: Client, start: Callable[[], Coroutine[Any, Any, T]], check: Callable[[], None]) -> T:
    """The result of an asynchronous call of the client, however long it takes, as long as `check` does not raise."""

    future = asyncio.run_coroutine_threadsafe(start(), client.loop.asyncio_loop)
    try:
        while not concurrent.futures.wait([future], TURN_SECONDS).done:
            check()
        return future.result()
    except concurrent.futures.CancelledError:
        raise _scheduler_lost(client) from None
    finally:
        future.cancel()


def result_of(client: Client, future: Future) -> Any:
    """The result of a task, or the error that it raised."""
    watch = TaskWatch(client)
    return wait_for(client, lambda: client.gather(future, asynchronous=True), lambda: watch.check([future.key]))


def as_finished(client: Client, futures: Sequence[Future]) -> Iterator[tuple[Future, Any]]:
    """Tasks and their results in the order they finish; the first error ends it."""
    watch = TaskWatch(client)
    pending = {future.key for future in futures}
    finished = as_completed(futures, loop=client.loop, with_results=True)
    while pending:
        _wait_until(finished.has_ready, lambda: watch.check(sorted(pending)))
        future, result = next(finished)
        if future.status == "cancelled":
            raise _scheduler_lost(client)
        pending.discard(future.key)
        yield future, result


def _wait_until(ready: Callable[[], bool], check: Callable[[], None]) -> None:
    """Look often at first: the tasks of small data take milliseconds."""
    pause, next_check = 0.001, time.monotonic() + TURN_SECONDS
    while not ready():
        if time.monotonic() > next_check:
            check()
            next_check = time.monotonic() + TURN_SECONDS
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def release(client: Client, futures: Sequence[Future]) -> None:
    """Take tasks from the scheduler; one that is gone has forgotten them already."""
    try:
        client.cancel(list(futures), force=True)
    except Exception:  # Dask has several kinds for a client that is closed
        if client.status == "running":
            raise


def share(client: Client, data: Any) -> Future:
    """Data on every worker that tasks may go to, sent once."""
    chosen = chosen_workers()

    def check() -> None:
        known = registered_workers(client)
        waited_for = [one for one in (known if chosen is None else chosen) if one in known]
        _raise_for_silent(client, [one for one in waited_for if known[one].silent > SILENCE_SECONDS])

    shared: Future = wait_for(
        client,
        lambda: client.scatter(data, workers=chosen, hash=False, broadcast=True, asynchronous=True),
        check,
    )
    return shared
