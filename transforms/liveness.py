"""Wait for a cluster, but not for ever: a worker that is stopped stays registered and never answers.

Every question to the scheduler and to workers has a time limit. Tasks have none (tasks.py): while they are waited for,
the scheduler is asked now and then when it last heard of the workers that hold them. A worker counts as lost when the
scheduler has not heard of it for SILENCE_SECONDS and it does not answer a question either, so that a long task, a busy
machine or a laptop that slept ends no work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from distributed import Client

from transforms.errors import NoWorkers, SchedulerLost, WorkerLost

logger = logging.getLogger("dglmnet")
T = TypeVar("T")
TURN_SECONDS = 2.0  # of waiting, before the workers are asked after
SILENCE_SECONDS = 15.0  # heartbeats come every 0.5 s, or every few seconds from hundreds of workers
ANSWER_SECONDS = 5.0  # for a worker that has been silent for so long to answer
SCHEDULER_SECONDS = 10.0  # for the scheduler to answer; it is asked twice
NANNY_SECONDS = 5.0  # for a nanny to end a worker that is stopped
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
    """What a function finds on the scheduler. It may be run twice, so the second time must change nothing.

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
        raise scheduler_lost(client) from error


def scheduler_lost(client: Client) -> SchedulerLost:
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


def go_on_without(answers: Iterable[str], silent: Sequence[SilentWorker]) -> None:
    """Tell of the workers that do not answer; raise if there is no other."""
    if silent and not list(answers):
        more = f" (and neither do the other {len(silent) - 1})" if len(silent) > 1 else ""
        raise NoWorkers(f"{silent[0]}{more}: there is no other worker to go on with")
    for worker in silent:
        logger.warning("warning: %s. The work goes on without it", worker)


def expel(client: Client, addresses: Sequence[str]) -> None:
    """Take workers that do not answer out of the cluster: what they had to do, Dask gives to others.

    Dask does it, too, after a silence of minutes (worker-ttl). A nanny that can be reached starts another worker. One
    that comes back finds that the scheduler does not know it, and ends.
    """

    async def restart(dask_scheduler: Any) -> Any:
        how = {"wait_for_workers": False, "on_error": "return", "stimulus_id": "dglmnet-expel"}
        return await dask_scheduler.restart_workers(list(addresses), timeout=NANNY_SECONDS, **how)

    if addresses:
        _ = ask_scheduler(client, restart)


def actor_homes(client: Client, keys: Sequence[str]) -> dict[str, str]:
    """Of these actors, the ids of the workers that hold them; those that are gone are left out."""

    def look(dask_scheduler: Any) -> dict[str, str]:
        tasks = {key: dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks}
        return {key: next(iter(task.who_has)).server_id for key, task in tasks.items() if task.who_has}

    return ask_scheduler(client, look)


def raise_for_silent(client: Client, worker: KnownWorker) -> None:
    """Raise WorkerLost if a worker has been silent for long, and does not answer."""
    if worker.silent > SILENCE_SECONDS:
        for silent in do_not_answer(client, [worker.address]):
            raise WorkerLost(str(silent))


def do_not_answer(client: Client, suspects: Sequence[str]) -> list[SilentWorker]:
    """Those of the workers that have been silent for long that do not answer a question either."""
    return ask_workers(client, os.getpid, addresses=suspects, patience=ANSWER_SECONDS)[1] if suspects else []


def lost_worker(name: Any, address: str, where_to_look: str) -> str:
    """What to say of a worker that has left the cluster."""
    return f"worker {name} at {address} was lost. Was it killed, or out of memory ({where_to_look})?"
