"""What the bench_<peer>.py share: a clock for wall and CPU time, and the climb from loose to tight settings.

Runs inside the peer's environment: numpy, scipy and psutil are all it needs. `run` reads the problem named on the
command line and writes a JSON object a line: `ready` when data are loaded and code is compiled, then `begin` and `fit`
for each λ at each rung of the ladder. A λ climbs until its objective is near enough to the best certified one. After
`climbed`, rungs of a few seconds are measured again: what else a machine does weighs more on them.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.problem import Problem

CORES = 2  # what peers that can use several are given; ours has as many
NEAR = 0.98e-4  # ends the climb: a little less than 1e-4, as another peer may yet find a slightly better objective
SHORT, AGAIN = 5.0, 2  # rungs of so few seconds are measured so often again; the median counts
Rung = dict[str, Any]


class Unfit(Exception):
    """The peer cannot take such data; the message says why."""


@dataclass(frozen=True)
class Peer:
    """How a peer is called.

    requirements: what its environment holds; none for those that run in the project's own. The first is the peer.
    prepare: the problem as the peer likes it, outside the clock.
    path: the coefficients for each λ given, one after another, with the settings of a rung.
    ladder: the rungs, from loose to tight.
    warm: does a λ begin at the solution of the last? Then every rung is a whole path.
    warm_up: what to do before the clock runs; by default, two rungs on a corner of the problem.
    about: what more is to be told of the last fit. after: and of the peer, measured at the end.
    """

    name: str
    label: str
    package: str
    prepare: Callable[[Problem], Any]
    path: Callable[[Any, Sequence[float], Rung], Iterator[np.ndarray]]
    ladder: Sequence[Rung]
    requirements: tuple[str, ...] = ()
    warm: bool = False
    warm_up: Callable[[Any, Problem], None] | None = None
    after: Callable[[Any, Problem], dict[str, Any]] | None = None
    about: Callable[[Any], dict[str, Any]] | None = None


def tolerances(loosest: int, tightest: int) -> list[Rung]:
    """tol = 10^−loosest … 10^−tightest."""
    return [{"tol": 10.0**-k} for k in range(loosest, tightest + 1)]


def cpu_seconds() -> float:
    """CPU time of this process, to the microsecond, and of what it started, to the clock tick."""
    own = psutil.Process()
    ended = own.cpu_times()
    total: float = time.process_time() + ended.children_user + ended.children_system
    for child in own.children(recursive=True):
        times = child.cpu_times()
        total += times.user + times.system
    return total


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, and the wall and CPU seconds it took."""
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = work()
    wall = time.perf_counter() - wall
    return result, wall, cpu_seconds() - cpu


def run(peer: Peer) -> None:
    """Measure the peer on the problem named on the command line."""
    emit = _take_stdout()
    warnings.simplefilter("ignore")  # that a loose tolerance was not reached, mostly; objectives are what counts
    problem = Problem.load(Path(sys.argv[1]))
    try:
        data = peer.prepare(problem)
    except Unfit as error:
        emit(event="unfit", reason=str(error))
        return
    (peer.warm_up or _warm_up(peer))(data, problem)
    emit(event="ready", version=version(peer.package), python=platform.python_version())
    short = _climb(peer, data, problem, emit)
    emit(event="climbed")
    for rung, todo in short * AGAIN:
        _measure_rung(peer, data, problem, todo, rung, emit)
    if peer.after is not None:
        emit(event="after", **peer.after(data, problem))


def _take_stdout() -> Callable[..., None]:
    """Keep stdout for our lines: whatever a peer prints, from C or Java too, goes to stderr."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def emit(**what: Any) -> None:
        lines.write(json.dumps(what) + "\n")

    return emit


def _warm_up(peer: Peer) -> Callable[[Any, Problem], None]:
    def on_a_corner(_: Any, problem: Problem) -> None:
        small = problem.small()
        data = peer.prepare(small)
        for rung in (peer.ladder[0], peer.ladder[len(peer.ladder) // 2]):
            list(peer.path(data, small.lambdas.tolist(), rung))

    return on_a_corner


def _climb(peer: Peer, data: Any, problem: Problem, emit: Callable[..., None]) -> list[tuple[Rung, list[int]]]:
    """Rung by rung, so that a limit cuts off the tight settings and not the small λ. Gives those that were short."""
    left = everything = list(range(problem.lambdas.size))
    short = []
    for rung in peer.ladder:
        todo = everything if peer.warm else left
        try:
            near, seconds = _measure_rung(peer, data, problem, todo, rung, emit)
        except Exception as error:  # the peer's own: it is reported, and the next rung may do better
            emit(event="error", rung=rung, reason=f"{type(error).__name__}: {error}")
            continue
        if seconds < SHORT:
            short.append((rung, todo))
        left = [k for k in todo if k not in near]
        if not left:
            break
    return short


def _measure_rung(
    peer: Peer, data: Any, problem: Problem, todo: list[int], rung: Rung, emit: Callable[..., None]
) -> tuple[set[int], float]:
    """Measure one path with the settings of a rung; gives the λ that came near enough, and the seconds of all."""
    near, seconds = set[int](), 0.0
    path = peer.path(data, problem.lambdas[todo].tolist(), rung)
    for k in todo:
        emit(event="begin", rung=rung, lambda_index=k)
        beta, wall, cpu = timed(lambda: next(path, None))
        if beta is None:  # glmnet ends early where it sees no further gain
            break
        seconds += wall
        objective = problem.objective(beta, problem.lambdas[k])
        if objective <= problem.best[k] * (1 + NEAR):
            near.add(k)
        about = peer.about(data) if peer.about is not None else {}
        nonzeros = int(np.count_nonzero(beta))
        emit(
            event="fit", rung=rung, lambda_index=k, wall=wall, cpu=cpu, objective=objective, nonzeros=nonzeros, **about
        )
    return near, seconds
