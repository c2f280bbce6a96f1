"""How fast is the way to each worker, and from worker to worker; and do their clocks agree?

A round of a fit sends a vector over the examples to each worker and takes one back, 8 bytes an example. By default the
driver is on a worker, so that the way between workers counts; with --driver local it is the way from here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed.protocol.pickle import dumps

from pipeline.doctor.questions import PATIENCE_SECONDS, Cluster
from pipeline.doctor.row import OK, WARN, WRONG, Row
from transforms.liveness import scheduler_answers

SENT = 4 << 20  # bytes, each way
CONNECT_SECONDS = 3.0
ALL_SECONDS = 30.0  # for all workers, one after another lest they disturb each other; the others are not measured
SLOW = 20e6  # bytes a second: a network of 1 Gbit/s brings over 100e6
SKEW_SECONDS = 1.0
VECTOR = 8e6  # bytes of a vector over a million examples

Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True)
class Way:
    """What was measured of the way to a worker."""

    latency: float  # seconds there and back
    there: float  # bytes a second
    back: float
    skew: float = 0.0  # seconds that its clock is ahead of the one here
    direct: bool = True

    @property
    def slow(self) -> bool:
        return min(self.there, self.back) < SLOW

    def __str__(self) -> str:
        through = "" if self.direct else ", through the scheduler"
        return (
            f"{1e3 * self.latency:.1f} ms, {self.there / 1e6:.0f} MB/s there, {self.back / 1e6:.0f} MB/s back{through}"
        )


def check_network(cluster: Cluster) -> list[Row]:
    """From here to each worker, with the clocks, and from each worker to the next."""
    addresses = sorted(cluster.names, key=lambda one: cluster.names[one])
    with scheduler_answers(cluster.client):
        limit = ALL_SECONDS + 4 * PATIENCE_SECONDS
        ways = cluster.client.sync(_measure_all, cluster, addresses, _from_here, callback_timeout=limit)
        pairs = list(zip(addresses, addresses[1:] + addresses[:1], strict=True)) if len(addresses) > 1 else []
        across = cluster.client.sync(_measure_all, cluster, pairs, _between, callback_timeout=limit)
    rows = [clock_row(cluster.names[one], way) for one, way in ways.items() if isinstance(way, Way)]
    rows += [from_here_row(cluster.names[one], way) for one, way in ways.items()]
    return rows + [between_row(f"{cluster.names[a]} to {cluster.names[b]}", way) for (a, b), way in across.items()]


async def _measure_all(cluster: Cluster, targets: list[Any], measure: Callable[..., Awaitable[Way]]) -> dict[Any, Any]:
    """What was measured of each target, or a word why it was not."""
    found: dict[Any, Way | str] = {}
    started = time.monotonic()
    for target in targets:
        if time.monotonic() - started > ALL_SECONDS:
            found[target] = "not measured: the others took all the time"
            continue
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found[target] = await measure(cluster, target)
        except TimeoutError:
            found[target] = f"{SENT / 1e6:.0f} MB did not go there and back within {PATIENCE_SECONDS:.0f} s"
        except OSError as error:
            found[target] = str(error).splitlines()[0] if str(error) else type(error).__name__
    return found


async def _from_here(cluster: Cluster, address: str) -> Way:
    """Straight to the worker where it can be reached, else through the scheduler."""
    direct = False
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            await cluster.client.rpc(address).identity()
            direct = True

    async def call(function: Callable[..., Any], *args: Any) -> Any:
        if direct:
            return (await cluster.client.rpc(address).run(function=dumps(function), args=dumps(args)))["result"]
        told = await cluster.client.run(function, *args, workers=[address], asynchronous=True)
        return told[address]

    latency, skew = min([await _ping(call) for _ in range(5)])
    payload = os.urandom(SENT)
    there = min([await _seconds(call, len, payload) for _ in range(2)])
    back = min([await _seconds(call, os.urandom, SENT) for _ in range(2)])
    return Way(latency, SENT / there, SENT / back, skew, direct)


async def _seconds(call: Call, function: Callable[..., Any], argument: Any) -> float:
    started = time.perf_counter()
    await call(function, argument)
    return time.perf_counter() - started


async def _ping(call: Call) -> tuple[float, float]:
    """Seconds there and back, and how far the other clock is ahead: it is read half-way."""
    left, started = time.time(), time.perf_counter()
    there = await call(time.time)
    took = time.perf_counter() - started
    return took, there - (left + took / 2)


async def _between(cluster: Cluster, pair: tuple[str, str]) -> Way:
    told = await cluster.client.run(
        _call_other(), pair[1], SENT, workers=[pair[0]], on_error="return", asynchronous=True
    )
    answer = told[pair[0]]
    if isinstance(answer, Exception):
        raise answer if isinstance(answer, OSError) else OSError(f"{type(answer).__name__}: {answer}")
    latency, there, back = answer
    return Way(latency, SENT / there, SENT / back)


def _call_other() -> Callable[..., Awaitable[tuple[float, float, float]]]:
    """A function that travels by value: seconds for an empty question, for data to the other worker, and back."""

    async def measure(other: str, size: int, dask_worker: Any) -> tuple[float, float, float]:
        import os
        import time

        from distributed.protocol.pickle import dumps

        async def seconds(function: Any, *args: Any) -> float:
            started = time.perf_counter()
            await dask_worker.rpc(other).run(function=dumps(function), args=dumps(args))
            return time.perf_counter() - started

        latency, payload = min([await seconds(os.getpid) for _ in range(5)]), os.urandom(size)
        there = min([await seconds(len, payload) for _ in range(2)])
        return latency, there, min([await seconds(os.urandom, size) for _ in range(2)])

    return measure


def clock_row(name: str, way: Way) -> Row:
    unsure = way.latency / 2
    ahead = "ahead of" if way.skew > 0 else "behind"
    said = f"{abs(way.skew):.3f} s {ahead} the clock here (± {unsure:.3f} s)"
    if abs(way.skew) - unsure > SKEW_SECONDS:
        remedy = "let both keep time by NTP: certificates and S3, which refuses 15 minutes, go by it; so do logs"
        return Row("clock", name, said, WARN, remedy)
    return Row("clock", name, said, OK)


def from_here_row(name: str, way: Way | str) -> Row:
    remedy = "leave the driver on the cluster (no --driver local)"
    if isinstance(way, str):
        return Row("network from here", name, way, WARN, remedy)
    if way.slow:
        return Row("network from here", name, str(way), WARN, f"{_meaning(way)}: {remedy}")
    if not way.direct:
        return Row("network from here", name, str(way), OK, f"it cannot be reached from here itself: {remedy}")
    return Row("network from here", name, str(way), OK)


def between_row(names: str, way: Way | str) -> Row:
    if isinstance(way, str):
        if way.startswith("not measured"):
            return Row("network", names, way, OK)
        remedy = "workers must reach each other at any port: open the firewall between them, or start them with --host"
        return Row("network", names, way, WRONG, remedy)
    if way.slow:
        remedy = f"{_meaning(way)}: bring the workers nearer to each other, or use fewer"
        return Row("network", names, str(way), WARN, remedy)
    return Row("network", names, str(way), OK)


def _meaning(way: Way) -> str:
    seconds = VECTOR / way.there + VECTOR / way.back
    return f"each round takes {seconds:.1f} s of sending for each million of examples"
