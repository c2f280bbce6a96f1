"""The solver's `Blocks` over Dask: one actor for each worker that holds some; workers may come and go.

A question is asked of all workers at once. If one of them is lost before all have answered, its blocks are dealt out to
those that are there, loaded from Parquet, put where the others are (solver/replay.py), and the question is asked again:
nothing that was answered before the loss is used. A worker that is gone is noticed within seconds, one that is stopped
within 30 s, whatever it was doing: answers are waited for in short turns, and between them the scheduler is asked after
the workers that have not answered.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

import numpy as np
import psutil
from distributed import Client, Future

from pipeline.exchange import Exchange, Restarted, SumPlan, Unfetched, on_several_hosts
from pipeline.placement import (
    Need,
    NoRoom,
    Placement,
    Share,
    WorkerInfo,
    list_workers,
    makespan,
    place,
    share_out,
)
from pipeline.resident import ExampleOptions, Handed, ResidentBlocks
from solver import Blocks
from solver.arrays import Coefficients, Float64, Int64
from solver.blocks import Others
from solver.layout import split_for
from solver.questions import is_summed, put_summed
from solver.replay import Question, Replay
from transforms import Dataset, UserError
from transforms.errors import NoWorkers, TooFewWorkers, WorkerLost
from transforms.liveness import (
    NOWHERE_SECONDS,
    TURN_SECONDS,
    actor_homes,
    lost_worker,
    raise_for_silent,
    registered_workers,
)
from transforms.tasks import release, wait_for

logger = logging.getLogger("dglmnet")
REMEDY = "Results up to the last λ are kept: continue with --resume"
LOOK = "see its log; --residency stream needs less"
# Reasoned, not measured, but for LOCAL_BYTE, and for GAIN and WORTHWHILE: a worker held at a fifth of its speed gave
# blocks away and got them back, and equal workers kept theirs.
LOSSES = 10  # one after another, without an answer between them: then the work ends
STRIKES = 3  # a worker that was lost so often before its first answer gets no more blocks
MEASURABLE = 0.02  # CPU seconds of a block
WORTHWHILE = 1.0  # seconds that the slowest worker was at work, before blocks are moved for speed
REMEMBERED = 600.0  # seconds that a worker which was slow gets no blocks for it
# Seconds to pack a byte, send it to a process of this host and unpack it. Measured by hand on a busy machine, as CPU
# time of vectors of 1.35 million numbers to four workers: 0.25 ns at the driver, 0.4 ns at all of them. No benchmark
# keeps it.
LOCAL_BYTE = 4e-10
NETWORK_BYTE = 8e-9  # the same to another host: reasoned, what a link of 1 Gbit/s takes
GAIN = 0.7  # blocks are moved for speed where the slowest worker is then expected to take this share of the time


class _Holder:
    """A worker's blocks: the actor there, and the facts about it."""

    def __init__(self, client: Client, worker: WorkerInfo, dataset: Dataset, how: ExampleOptions | None) -> None:
        self.worker = worker
        self.key = f"resident-blocks-{worker.name}-{time.time_ns()}"
        self.future: Future = client.submit(
            ResidentBlocks,
            dataset,
            worker.threads,
            how,
            key=self.key,
            workers=[worker.address],
            allow_other_workers=False,
            actor=True,
            pure=False,
        )
        self.actor: Any = None
        self.token = ""
        self.groups: list[list[int]] = []
        self.residency = ""
        self.size = 0
        self.has_answered = False
        self.gone = False


class DaskBlocks(Blocks):
    """Blocks on a cluster's workers. Use as a context manager: the actors end with it.

    groups: the partitions of each block. on_placed: told where they are, whenever that changes.
    """

    def __init__(
        self,
        client: Client,
        dataset: Dataset,
        groups: Sequence[list[int]],
        residency: str = "auto",
        how: ExampleOptions | None = None,
        workers: Sequence[WorkerInfo] | None = None,
        on_placed: Callable[[list[Placement]], object] = lambda placements: None,
    ) -> None:
        self._client, self._dataset, self._groups = client, dataset, list(groups)
        self._residency, self._how, self._on_placed = residency, how, on_placed
        self._holders: list[_Holder] = []
        self._exchange: Exchange | None = None  # between workers on several hosts
        self._others: Others | None = None  # None: not known yet
        self._replay = Replay()
        self._losses = 0
        self._strikes: Counter[str] = Counter()
        self._slowness: dict[str, tuple[float, float]] = {}  # of workers, by id: when it was measured, and what it was
        self._looked = time.monotonic()  # when workers were last compared
        self._known: dict[str, WorkerInfo] = {}  # the workers of the last deal, by the id of their process
        try:
            self._begin(list_workers(client) if workers is None else workers)
        except BaseException:
            self.close()
            raise

    @property
    def sizes(self) -> Sequence[int]:
        return [holder.size for holder in self._holders]

    @property
    def shares_columns(self) -> bool:
        here = all(holder.worker.address.startswith("inproc://") for holder in self._holders)
        return here and all(holder.residency == "memory" for holder in self._holders)

    @property
    def others(self) -> Others:
        if self._others is None:
            self._others = self._find_others()
        return self._others

    def _find_others(self) -> Others:
        """What workers of other processes have to spare, if they hold all columns in memory."""
        apart = [one for one in self._holders if not one.worker.address.startswith("inproc://")]
        if len(apart) < len(self._holders) or any(one.residency != "memory" for one in apart):
            return Others()
        threads = sum(min(one.worker.threads, len(one.groups)) for one in apart)
        features = self.layout.size  # workers get examples in proportion to their features
        room = min(self._room(one) * features // max(one.size, 1) for one in apart)
        copies = len(apart) if self._exchange is None else 1
        far = on_several_hosts(one.worker.address for one in apart)
        return Others(threads, len(apart), copies, room, NETWORK_BYTE if far else LOCAL_BYTE)

    def _room(self, holder: _Holder) -> int:
        """Bytes that a worker has to spare beside its blocks: half of what it may use."""
        limit = holder.worker.memory_limit or psutil.virtual_memory().total // len(self._holders)
        return max(0, (limit - Need.of(self._dataset, holder.groups).total(holder.residency)) // 2)

    def features(self) -> Int64:
        """The ids of all features, in the order of their positions."""
        return np.concatenate(self._persist(lambda: self._call("features")))

    def follow(self, iterate: Callable[[], tuple[Coefficients, Float64]]) -> None:
        self._replay.follow(iterate)

    def ask(self, name: str, *shared: Any, each: Any = None) -> list[Any]:
        question = Question(name, shared, each)
        answers = self._persist(lambda: self._ask(self._replay.due(question)))
        self._replay.note(question)
        return answers

    def close(self) -> None:
        """Let the actors go, and with them the memory they hold."""
        release(self._client, [holder.future for holder in self._holders])
        self._holders = []

    def __enter__(self) -> DaskBlocks:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- between two λ ------------------------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Give workers that have joined their share, and move blocks away from those that have become slow.

        Where λ take no time, that is not worth a look each.
        """
        now = time.monotonic()
        if now - self._looked < WORTHWHILE:
            return
        self._looked = now
        try:
            self._rebalance()
        except WorkerLost as lost:
            self._recover(lost)
        except (NoWorkers, NoRoom) as error:  # as they are, blocks are where they can be
            logger.debug("blocks stay where they are: %s", error)

    def _rebalance(self) -> None:
        there = {one.id: one for one in registered_workers(self._client).values()}
        joined = any(id not in self._known and one.silent < 2 * TURN_SECONDS for id, one in there.items())
        costs, slowness, slowest = self._measure()
        known = [one for one in self._known.values() if one.id in there]
        workers = self._trusted(list_workers(self._client, told=False) if joined else known)
        for holder in self._holders:
            if holder.worker.id not in {worker.id for worker in workers}:
                raise self._lost(holder)
        speeds = {worker.id: 1.0 / self._slowness_of(worker.id, slowness) for worker in workers}
        wanted = share_out(self._groups, workers, costs, speeds)
        self._known |= {worker.id: worker for worker in workers}
        now, then = makespan(self._placements(), costs, speeds), makespan(wanted, costs, speeds)
        if then < GAIN * now and (joined or slowest > WORTHWHILE):
            why = "a worker has joined" if joined else "workers have become slower or faster"
            logger.info("%s: blocks are dealt out anew", why)
            self._hold(self._placed(wanted))
            self._restore()

    def _slowness_of(self, id: str, measured: Mapping[str, float]) -> float:
        """Of a worker without blocks, what it was when it had some, if that is not long ago."""
        now = time.monotonic()
        self._slowness |= {one: (now, value) for one, value in measured.items()}
        when, value = self._slowness.get(id, (-np.inf, 1.0))
        return value if now - when < REMEMBERED else float(np.median(list(measured.values())))

    def _measure(self) -> tuple[list[float], dict[str, float], float]:
        """Of each block the CPU seconds since the last time, and how many times that its worker took, by its id; and
        the seconds of the slowest.

        Where these are too few to say much, the cost of a block is its nonzeros.
        """
        times = self._call("take_times")
        costs = [cpu for mine in times for _, cpu in mine]
        if min(costs) < MEASURABLE:
            partitions = self._dataset.partitions
            costs = [float(sum(partitions[k].info.nnz for k in group)) for group in self._groups]
        slowness = {}
        for holder, mine in zip(self._holders, times, strict=True):
            wall, cpu = sum(one for one, _ in mine), sum(one for _, one in mine)
            slowness[holder.worker.id] = max(wall / cpu, 1.0) if cpu > MEASURABLE else 1.0
        return costs, slowness, max(sum(wall for wall, _ in mine) for mine in times)

    # --- workers come and go ------------------------------------------------------------------------------------

    def _persist(self, call: Callable[[], list[Any]]) -> list[Any]:
        """The answers of all workers, however often they are lost on the way."""
        while True:
            try:
                answers = call()
            except WorkerLost as lost:
                self._recover(lost)
            else:
                self._losses = 0
                return answers

    def _recover(self, lost: WorkerLost) -> None:
        """Go on with the workers that are there. Raises when that was tried too often in a row."""
        while True:
            self._losses += 1
            if self._losses > LOSSES:
                raise TooFewWorkers(f"{LOSSES} times in a row a worker was lost; the last time, {lost.what}", REMEDY)
            _tell(lost)
            try:
                return self._find_room()
            except WorkerLost as another:
                lost = another

    def _find_room(self) -> None:
        """Settle on the workers that answer. One that was killed may be back soon, so there may be more of them."""
        deadline = time.monotonic() + NOWHERE_SECONDS
        while True:
            try:
                workers = list_workers(self._client, told=False)
                self._tell_of_others({worker.id for worker in workers})
                return self._settle(workers)
            except (NoWorkers, NoRoom) as error:
                if time.monotonic() > deadline:
                    reason = "no worker is left" if isinstance(error, NoWorkers) else str(error)
                    raise TooFewWorkers(f"the fit cannot go on: {reason}", REMEDY) from None
                time.sleep(0.2)

    def _tell_of_others(self, there: Collection[str]) -> None:
        """Of those that were lost with the one that was noticed first."""
        for holder in self._holders:
            if holder.worker.id not in there and not holder.gone:
                _tell(self._lost(holder))

    def _begin(self, workers: Sequence[WorkerInfo]) -> None:
        try:
            self._settle(workers)
        except WorkerLost as lost:
            self._recover(lost)

    def _settle(self, workers: Sequence[WorkerInfo]) -> None:
        """Deal the blocks out to these workers, and put them where they were."""
        self._known = {worker.id: worker for worker in workers}
        self._hold(self._placed(share_out(self._groups, self._trusted(workers))))
        self._restore()

    def _placed(self, shares: Sequence[Share]) -> list[Placement]:
        """In memory or streamed; after a loss, what was to be in memory and no longer fits is streamed."""
        held = {}
        for one in self._holders:
            need = Need.of(self._dataset, one.groups)
            held[one.worker.id] = need.total(one.residency) if one.groups else 0
        try:
            return place(self._dataset, shares, self._residency, held)
        except NoRoom:
            if not self._losses or self._residency != "memory":
                raise
            return place(self._dataset, shares, "auto", held)

    def _hold(self, placements: Sequence[Placement]) -> None:
        """Have these workers hold these blocks, and no others."""
        wanted = {one.worker.id for one in placements}
        there = {one.worker.id: one for one in self._holders if one.worker.id in wanted and not one.gone}
        release(self._client, [one.future for one in self._holders if one.worker.id not in there])
        self._holders = [
            there.get(one.worker.id) or _Holder(self._client, one.worker, self._dataset, self._how)
            for one in placements
        ]
        self.__dict__.pop("layout", None)
        self._meet()
        self._exchange = self._make_exchange()
        sizes = self._call("hold", [(one.groups, one.residency) for one in placements])
        for holder, one, size in zip(self._holders, placements, sizes, strict=True):
            holder.groups, holder.residency, holder.size = one.groups, one.residency, size
        self._others = None
        self._on_placed(list(placements))

    def _meet(self) -> None:
        """Wait for the actors that are new."""
        new = [holder for holder in self._holders if holder.actor is None]
        with self._client.as_current():  # an actor talks through the client that is current when it arrives
            for holder, actor in zip(new, self._gather([one.future for one in new], new), strict=True):
                holder.actor = actor
            for holder, token in zip(new, self._gather([one.actor.identify() for one in new], new), strict=True):
                holder.token = token

    def _restore(self) -> None:
        """Put all blocks where the last questions had put them."""
        for question in self._replay.questions():
            self._ask(question)

    def _trusted(self, workers: Sequence[WorkerInfo]) -> list[WorkerInfo]:
        """Without those that were lost again and again before they answered anything."""
        left = [worker for worker in workers if self._strikes[str(worker.name)] < STRIKES]
        if left:
            return left
        names = ", ".join(str(worker.name) for worker in workers)
        raise UserError(
            f"{names}: lost {STRIKES} times each as soon as blocks were loaded there. Are they out of memory (see "
            "their logs)? Use --residency stream, fewer --blocks, or workers with more memory, and continue with "
            "--resume"
        )

    # --- vectors that go between workers ------------------------------------------------------------------------

    def _make_exchange(self) -> Exchange | None:
        """Where workers are on several hosts, the driver's link is the narrow place."""
        if not on_several_hosts(one.worker.address for one in self._holders):
            return None
        peers = [(one.worker.address, one.key, one.token) for one in self._holders]
        return Exchange(peers, self._begin_calls, self._gather_exchanged, self._give_up)

    def _gather_exchanged(self, calls: Sequence[Any]) -> list[Any]:
        """One that has answered is looked after, too: others may wait for its pieces."""
        return [self._wait(call, one, self._holders) for call, one in zip(calls, self._holders, strict=True)]

    def _give_up(self, number: int) -> None:
        """End an exchange on the workers that are left, without waiting for them."""
        for holder in self._holders:
            with suppress(RuntimeError):  # Dask knows already that the actor is gone
                holder.actor.give_up(holder.token, number)

    def _exchanged(self, question: Question) -> tuple[Any, SumPlan | None]:
        """What all workers are to be given of a question, long vectors brought there; and how answers are added up."""
        if self._exchange is None:
            return question.shared, None
        shared = self._exchange.pack(question.shared)
        adds = self._exchange.plan_sum(self._dataset.n) if is_summed(question.name) else None
        return shared, None if self._do_without_exchange() else adds

    def _with_sum(self, name: str, answers: list[Any], plan: SumPlan) -> list[Any]:
        """The answers, the sum of the vectors that the workers hold back standing in the first."""
        assert self._exchange is not None
        sums = self._exchange.add_up(*plan)
        self._do_without_exchange()
        whole = [put_summed(name, answer, total) for answer, total in zip(answers, sums, strict=False)]
        return [*whole, *answers[len(whole) :]]

    def _do_without_exchange(self) -> bool:
        """If workers could not reach each other, until blocks are dealt out anew."""
        if self._exchange is None or not self._exchange.unreachable:
            return False
        where, self._exchange, self._others = self._exchange.unreachable, None, None
        logger.warning("warning: %s is out of reach of other workers: the driver sends vectors to each of them", where)
        return True

    # --- questions ----------------------------------------------------------------------------------------------

    def _ask(self, question: Question) -> list[Any]:
        own = repeat(None) if question.each is None else split_for(question.each, self.layout)
        shared, adds = self._exchanged(question)
        handed = [Handed(question.name, shared, mine, adds) for _, mine in zip(self._holders, own, strict=False)]
        try:
            answers = self._call("ask", [(one,) for one in handed])
        finally:
            for one in handed:
                one.empty()
        for holder in self._holders:
            holder.has_answered = True
        return answers if adds is None else self._with_sum(question.name, answers, adds)

    def _call(self, method: str, arguments: Iterable[tuple[Any, ...]] = repeat(())) -> list[Any]:
        """Call a method of every actor; the answers in their order."""
        return self._gather(self._begin_calls(method, arguments), self._holders)

    def _begin_calls(self, method: str, arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        calls = []
        for holder, mine in zip(self._holders, arguments, strict=False):
            try:
                calls.append(getattr(holder.actor, method)(holder.token, *mine))
            except RuntimeError as error:  # Dask knows already that the actor is gone
                raise self._lost(holder) from error
        return calls

    def _gather(self, calls: Sequence[Any], holders: Sequence[_Holder]) -> list[Any]:
        """The answers, in the order of the workers, or WorkerLost when one of them cannot answer any more."""
        return [self._wait(call, holders[k], holders[k:]) for k, call in enumerate(calls)]

    def _wait(self, call: Any, holder: _Holder, holders: Sequence[_Holder]) -> Any:
        """The answer of a holder. Meanwhile all of these are looked after, as they have not answered either."""

        async def answer() -> Any:
            return await call

        try:
            return wait_for(self._client, answer, lambda: self._check(holders))
        except Restarted as error:
            raise self._lost(holder) from error
        except Unfetched as error:
            self._check(self._holders)
            for other in self._holders:
                if other.worker.address == error.args[0] and not self._has_actor(other):
                    raise self._lost(other) from error
            raise
        except (OSError, RuntimeError, KeyError) as error:
            # An OSError of the storage is the worker's own; a worker just lost does not know its actor.
            self._check(holders)
            if not self._has_actor(holder):
                raise self._lost(holder) from error
            raise

    def _has_actor(self, holder: _Holder) -> bool:
        """Does the worker answer, and still know the actor? It is not at work: its call is done."""
        if holder.actor is None:  # making it failed
            return True
        try:
            holder.actor.identify().result(timeout=TURN_SECONDS)
        except (OSError, RuntimeError, KeyError):
            return False
        return True

    def _check(self, holders: Sequence[_Holder]) -> None:
        """Raise WorkerLost if one of these is gone, was restarted, or does not answer."""
        there = {one.id: one for one in registered_workers(self._client).values()}
        made = [holder.key for holder in holders if holder.actor is not None]
        homes = actor_homes(self._client, made) if made else {}
        for holder in holders:
            if holder.worker.id not in there or (holder.key in made and homes.get(holder.key) != holder.worker.id):
                raise self._lost(holder)
        for holder in holders:
            try:
                raise_for_silent(self._client, there[holder.worker.id])
            except WorkerLost as lost:
                raise self._lost(holder, lost.what) from None

    def _lost(self, holder: _Holder, what: str = "") -> WorkerLost:
        if not (holder.has_answered or holder.gone):
            self._strikes[str(holder.worker.name)] += 1
        holder.gone = True
        return WorkerLost(what or lost_worker(holder.worker.name, holder.worker.address, LOOK), REMEDY)

    def _placements(self) -> list[Placement]:
        return [Placement(holder.worker, holder.groups, holder.residency) for holder in self._holders]


def _tell(lost: WorkerLost) -> None:
    what = lost.what if lost.what.endswith("?") else f"{lost.what}."
    logger.warning("warning: %s The fit goes on without it: its blocks are loaded elsewhere", what)
