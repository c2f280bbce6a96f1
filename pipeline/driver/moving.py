"""Move drivers away from workers that are stopped or cut off. Dask gives these up only after minutes (worker-ttl).

Whoever follows a driver has it moved; while nobody does, a watch on the scheduler moves it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable
from typing import Any

from distributed import Client
from distributed.core import rpc
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps

from pipeline.driver.record import NAMES
from pipeline.driver.task import LIMIT_SECONDS
from transforms.liveness import UNREACHABLE, ask_workers

logger = logging.getLogger("dglmnet")
SILENCE_SECONDS = 20.0  # a worker that has not been heard of for so long is lost
ANSWER_SECONDS = 3.0  # for one question to the driver's worker
SCHEDULER_SECONDS = 5.0  # for one question to the scheduler
WATCH_SECONDS = 2.0  # between two looks of the watch
WATCH = "dglmnet-driver-watch"


def move_driver(client: Client, key: str, worker: str) -> bool:
    """Have a driver started again elsewhere if its worker does not answer. False: there is no other that does."""
    answers, _ = ask_workers(client, os.getpid, patience=ANSWER_SECONDS)
    others = [address for address in answers if address != worker]
    if worker in answers or not others:
        return worker in answers
    client.run_on_scheduler(reschedule, key, worker, others, callback_timeout=SCHEDULER_SECONDS)
    return True


def watch_drivers(client: Client) -> None:
    """Put the watch on the scheduler, if it is not there. Without it a driver that nobody follows waits for Dask."""
    watch = DriverWatch(SILENCE_SECONDS)
    try:
        put = client.scheduler.register_scheduler_plugin  # Client.register_plugin, with a limit to its patience
        client.sync(put, plugin=dumps(watch), name=WATCH, idempotent=True, callback_timeout=LIMIT_SECONDS)
    except (*UNREACHABLE, ImportError) as error:  # ImportError: an earlier version of this package is there
        logger.warning(
            "warning: the scheduler takes no plugin (%s): while nobody follows the run, its driver is not moved away "
            "from a worker that is stopped until Dask gives that worker up (distributed.scheduler.worker-ttl)",
            type(error).__name__,
        )


def reschedule(key: str, worker: str, others: Iterable[str], dask_scheduler: Any) -> None:
    """On the scheduler: have a task started again at one of the others, unless it has left the worker meanwhile."""
    task = dask_scheduler.tasks.get(key)
    if task is None or task.processing_on is None or task.processing_on.address != worker:
        return
    task.worker_restrictions, task.loose_restrictions = set(others), True
    dask_scheduler.stream_handlers["reschedule"](key=key, worker=worker, stimulus_id="dglmnet-move-driver")


class DriverWatch(SchedulerPlugin):  # type: ignore[misc]
    """Looks after the workers that carry drivers. It leaves the scheduler when no driver is published any more."""

    def __init__(self, silence: float) -> None:
        self._silence = silence

    async def start(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._looking = asyncio.create_task(self._look_on())

    async def close(self) -> None:
        self._looking.cancel()

    async def _look_on(self) -> None:
        try:
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                if not self._is_needed():
                    return
                await asyncio.gather(*map(self._look_after, self._silent()))
        except Exception:
            logger.exception("the watch over drivers ends")
            raise
        finally:  # after an error, too: the next driver brings another watch
            self._scheduler.remove_plugin(WATCH)

    def _is_needed(self) -> bool:
        """A submission publishes the run's name first, and brings the watch then."""
        return any(str(name).startswith(NAMES) for name in self._scheduler.extensions["publish"].datasets)

    def _silent(self) -> list[Any]:
        since = time.time() - self._silence
        return [worker for worker in self._scheduler.workers.values() if worker.last_seen < since]

    def _drivers_on(self, worker: Any) -> list[str]:
        return [str(task.key) for task in worker.processing if str(task.key).startswith(NAMES)]

    async def _look_after(self, worker: Any) -> None:
        """Move the drivers of a worker that is silent and does not answer, if there is a worker for them."""
        if not self._drivers_on(worker) or await self._answers(worker.address):
            return
        others = set(self._scheduler.workers) - {one.address for one in self._silent()} - {worker.address}
        for key in self._drivers_on(worker) if others else []:
            logger.warning("%s is moved: its worker %s does not answer", key, worker.address)
            reschedule(key, worker.address, others, self._scheduler)

    async def _answers(self, address: str) -> bool:
        async def ask() -> None:
            async with rpc(address, connection_args=self._scheduler.connection_args) as worker:
                await worker.identity()

        try:
            await asyncio.wait_for(ask(), ANSWER_SECONDS)
        except (OSError, TimeoutError):
            return False
        return True
