"""Vectors that go between workers on several hosts: the same models as without, whatever happens to the workers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from pipeline import PathOptions, exchange, fit_path
from pipeline.blocks import DaskBlocks
from pipeline.exchange import Exchange, Exchanger, GivenUp, Partner, cut, on_several_hosts
from solver import DefaultOptions, SolverOptions
from tests.pipeline.hand_made import HandMade
from transforms import Dataset, from_arrays, liveness
from transforms.errors import WorkerLost

pytestmark = pytest.mark.timeout(180)  # a hang is what many of these guard against
OPTIONS: dict[str, Any] = {
    "paper": SolverOptions.paper(tol=1e-4),
    "certified": DefaultOptions(),
    "beyond the budget": DefaultOptions(subspace_memory=0),
}
Models = tuple[list[Any], list[Any]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rng = np.random.default_rng(0)
    X = sp.random_array((601, 80), density=0.3, rng=rng, format="csc", dtype=np.float32)
    y = np.where(X @ rng.normal(size=80) + 0.5 * rng.normal(size=601) > 0, 1, -1)
    return from_arrays(X, y, str(tmp_path_factory.mktemp("data") / "dataset"), partitions=6)


def three_hosts(folder: Path) -> HandMade:
    """Workers at addresses of their own, which stand for hosts."""
    made = HandMade(folder)
    soon_given_up = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"}
    for k, name in enumerate("abc"):
        made.worker(name, soon_given_up, more=["--no-nanny", "--host", f"127.0.0.{k + 2}"])
    return made


@pytest.fixture(scope="module")
def lasting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandMade]:
    made = three_hosts(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = three_hosts(tmp_path)
    yield made
    made.close()


@pytest.fixture
def short_vectors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LEAST", 1000)
    monkeypatch.setattr(exchange, "PIECE", 500)


def fitted(dataset: Dataset, run: Path, mode: str, cluster: HandMade) -> Models:
    """Objectives, and coefficients."""
    how: dict[str, Any] = {"options": OPTIONS[mode], "path": PathOptions(length=3), "blocks": 6}
    fit_path(dataset, str(run), client=cluster.client, overwrite=True, **how)
    objectives = pq.read_table(run / "path.parquet")["objective"].to_pylist()
    return objectives, pq.read_table(run / "coefficients.parquet").to_pylist()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of exchanges."""
    calls: list[str] = []
    run = Exchange._start

    def noted(self: Exchange, method: str, arguments: Any) -> list[Any]:
        calls.append(method)
        return run(self, method, arguments)

    monkeypatch.setattr(Exchange, "_start", noted)
    return calls


def before(monkeypatch: pytest.MonkeyPatch, method: str, number: int, action: Callable[[], object]) -> None:
    """Do something once, before this call of an exchange."""
    run, seen = Exchange._start, 0

    def acting(self: Exchange, name: str, arguments: Any) -> list[Any]:
        nonlocal seen
        seen += name == method
        if name == method and seen == number:
            action()
        return run(self, name, arguments)

    monkeypatch.setattr(Exchange, "_start", acting)


def test_exchanged_vectors_give_the_same_bits(
    lasting_cluster: HandMade, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    direct = {mode: fitted(dataset, tmp_path / "direct", mode, lasting_cluster) for mode in OPTIONS}
    assert not calls
    monkeypatch.setattr(exchange, "LEAST", 1000)
    monkeypatch.setattr(exchange, "PIECE", 500)
    for mode, expected in direct.items():
        calls.clear()
        assert fitted(dataset, tmp_path / "exchanged", mode, lasting_cluster) == expected, mode
        assert {"keep", "add_up"} <= set(calls)


LOSSES = (("certified", "keep", "b"), ("paper", "add_up", "c"))


@pytest.mark.usefixtures("short_vectors_too")
def test_worker_killed_in_an_exchange_is_done_without(
    cluster: HandMade,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for mode, method, victim in LOSSES:
        expected, _ = fitted(dataset, tmp_path / "undisturbed", mode, cluster)
        before(monkeypatch, method, 5, cluster.processes[victim].kill)
        found, _ = fitted(dataset, tmp_path / "killed", mode, cluster)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        told = [record.message for record in caplog.records]
        assert len([line for line in told if f"worker {victim}" in line and "was lost" in line]) == 1
        assert not [line for line in told if "out of reach" in line]


@pytest.mark.usefixtures("short_vectors_too")
def test_worker_stopped_in_an_exchange_is_done_without(
    cluster: HandMade, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for its pieces answer other questions meanwhile."""
    monkeypatch.setattr(liveness, "SILENCE_SECONDS", 4.0)
    monkeypatch.setattr(liveness, "ANSWER_SECONDS", 1.0)
    for mode, method, victim in LOSSES:
        expected, _ = fitted(dataset, tmp_path / "undisturbed", mode, cluster)
        stopped = cluster.processes[victim]
        before(monkeypatch, method, 5, partial(stopped.send_signal, signal.SIGSTOP))
        found, _ = fitted(dataset, tmp_path / "stopped", mode, cluster)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        stopped.send_signal(signal.SIGCONT)


@pytest.mark.usefixtures("short_vectors_too")
@pytest.mark.parametrize("first", [0, 6], ids=["at once", "later"])
def test_workers_that_cannot_reach_each_other_are_sent_vectors_by_the_driver(
    lasting_cluster: HandMade,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    first: int,
) -> None:
    expected = fitted(dataset, tmp_path / "undisturbed", "paper", lasting_cluster)
    partners, seen = Exchange._partners, 0

    def at_a_closed_port(self: Exchange, size: int) -> list[Partner]:
        nonlocal seen
        seen += 1
        found = partners(self, size)
        return [found[0], replace(found[1], address="tcp://127.0.0.9:9"), *found[2:]] if seen > first else found

    monkeypatch.setattr(Exchange, "_partners", at_a_closed_port)
    assert fitted(dataset, tmp_path / "apart", "paper", lasting_cluster) == expected
    assert len([one for one in caplog.records if "tcp://127.0.0.9:9 is out of reach" in one.message]) == 1


def test_worker_that_stops_when_it_has_answered_is_looked_after_while_others_wait_for_it(
    cluster: HandMade, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(liveness, "ANSWER_SECONDS", 1.0)
    with DaskBlocks(cluster.client, dataset, [[0, 1], [2, 3], [4, 5]]) as blocks:
        assert blocks._exchange is not None
        waiting = blocks._begin_calls("give", [(0, 0)] * 3)
        for holder in blocks._holders[:2]:
            holder.actor.keep(holder.token, 0, 0, np.zeros(8, np.uint8)).result()
        cluster.processes["a"].send_signal(signal.SIGSTOP)
        with pytest.raises(WorkerLost, match=r"worker a .* does not answer"):
            blocks._exchange._finish(waiting)


def test_vectors_within_one_host_are_not_exchanged() -> None:
    assert not on_several_hosts(["inproc://10.0.0.1/1/1", "inproc://10.0.0.1/1/4"])
    assert not on_several_hosts(["tcp://10.0.0.1:1000", "tcp://10.0.0.1:1001"])
    assert on_several_hosts(["tcp://10.0.0.1:1000", "tls://10.0.0.2:1000"])


@pytest.mark.parametrize(
    ("size", "workers", "piece"), [(8008, 3, 500), (5, 1, 100), (1 << 20, 16, 1 << 20), (77, 2, 16)]
)
def test_pieces_cover_the_vector_once(size: int, workers: int, piece: int) -> None:
    found = cut(size, workers, piece)
    assert len(found) == workers
    assert len({len(pieces) for pieces in found}) == 1
    flat = [one for pieces in found for one in pieces]
    assert [flat[0][0], *(hi for _, hi in flat)] == [*(lo for lo, _ in flat), size]
    assert all(lo % 8 == 0 and hi - lo < piece + 16 for lo, hi in flat)


def test_exchange_that_is_given_up_keeps_nobody_waiting() -> None:
    one = Exchanger()
    token = one.identify()

    async def wait_and_give_up() -> None:
        waiting = asyncio.ensure_future(one.give(token, 7, 0))
        collecting = asyncio.ensure_future(one.collect(token, 7, [Partner("", "", token, ((0, 8),))], 0))
        await asyncio.sleep(0)
        await one.give_up(token, 7)
        for call in (waiting, collecting, one.keep(token, 7, 0, np.zeros(8, np.uint8))):
            with pytest.raises(GivenUp):
                await call
        assert not one._bins

    asyncio.run(wait_and_give_up())
