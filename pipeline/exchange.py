"""Vectors over examples that all workers are given, or all add to: they go between the workers.

From the driver (scatter, then allgather): each worker is given a range of the vector, in pieces, and fetches the other
ranges from the others. To the driver (reduce-scatter): each worker adds up one range of the vectors of all, in the
order of the workers, and hands the driver the sum. So the driver sends and receives a vector once, however many workers
there are. Within one host nothing is gained, and vectors go to each worker directly.

Exchanges run on the workers' event loops: the thread that answers questions never waits for another worker. One that
fails is given up by all, and the question is asked again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, TypeAlias

import numpy as np
from distributed import get_worker
from distributed.comm import get_address_host
from distributed.protocol import deserialize, serialize, to_serialize
from numpy.typing import NDArray

from solver.arrays import Float64

Bytes: TypeAlias = NDArray[np.uint8]
Range: TypeAlias = tuple[int, int]
"""From where to where, in bytes."""
LEAST = 1 << 20  # bytes of a vector that is exchanged: see docs/scaling.md
PIECE = 1 << 20  # bytes sent at a time: while the next are on their way, workers fetch the last from each other
AHEAD = 1  # pieces on their way to a worker, beside the one that is waited for
WORD = 8  # pieces are cut between float64


class Restarted(RuntimeError):
    """The worker was restarted, and lost its part of the model."""


class Unfetched(RuntimeError):
    """A worker could not fetch its part of a vector from the worker at the address that is the argument."""


class GivenUp(RuntimeError):
    """The exchange is over: one of the workers was lost."""


@dataclass(frozen=True)
class Partner:
    """A worker's part in an exchange: how others reach its actor, and the pieces that it is given or adds up."""

    address: str
    key: str
    token: str
    pieces: tuple[Range, ...]


SumPlan: TypeAlias = tuple[int, list[Partner]]
"""How vectors are held back and added up: the number of the exchange, and who adds up what."""


def cut(size: int, workers: int, piece: int) -> list[tuple[Range, ...]]:
    """The pieces of each worker: consecutive ranges, all alike, as many for each as keep them below `piece` bytes."""
    turns = -(-size // (workers * piece))
    cuts = [size // WORD * k // (workers * turns) * WORD for k in range(workers * turns)]
    pieces = list(pairwise([*cuts, size]))
    return [tuple(pieces[k * turns : (k + 1) * turns]) for k in range(workers)]


@dataclass(frozen=True)
class Packed:
    """Arguments as Dask would send them, without their long vectors: in their place stand the numbers of exchanges."""

    header: Any
    frames: list[Any]  # numbers among them

    def unpack(self, take: Callable[[int], Bytes]) -> Any:
        return deserialize(self.header, [take(one) if isinstance(one, int) else one for one in self.frames])


# --- on a worker ----------------------------------------------------------------------------------------------------


class _Bin:
    """What a worker has of one exchange."""

    def __init__(self) -> None:
        self.whole: Any = None  # bytes that were put together, or the vector that is held back
        self.work: list[asyncio.Task[None]] = []
        self._pieces: dict[int, Any] = {}
        self._there: dict[int, asyncio.Event] = {}

    def put(self, lo: int, piece: Any) -> None:
        self._pieces[lo] = piece
        self._event(lo).set()

    async def take(self, lo: int) -> Any:
        await self._event(lo).wait()
        if lo not in self._pieces:
            raise GivenUp
        return self._pieces[lo]

    def give_up(self) -> None:
        """Whoever waits for a piece need not do so any longer."""
        for event in self._there.values():
            event.set()
        for task in self.work:
            task.cancel()

    def _event(self, lo: int) -> asyncio.Event:
        return self._there.setdefault(lo, asyncio.Event())


class Exchanger:
    """The part of an actor that trades pieces of vectors with actors of its kind on other workers."""

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._bins: dict[int, _Bin] = {}
        self._over = -1  # the last exchange that was given up

    def identify(self) -> str:
        """A token of this very object.

        Calls carry it: a worker that was restarted makes a new object, at β = 0, which must not go unnoticed.
        """
        return self._token

    def _check(self, token: str) -> None:
        if token != self._token:
            raise Restarted("the worker was restarted and lost its part of the model")

    async def keep(self, token: str, number: int, lo: int, piece: Bytes) -> None:
        """Take a piece of this worker's range, from the driver."""
        self._bin(token, number).put(lo, piece)

    async def give(self, token: str, number: int, lo: int) -> Any:
        """A piece, as soon as it is there, to another worker."""
        return await self._bin(token, number).take(lo)

    async def collect(self, token: str, number: int, partners: Sequence[Partner], mine: int) -> None:
        """Put the whole vector together."""
        found = self._bin(token, number)
        whole = np.empty(max(hi for partner in partners for _, hi in partner.pieces), np.uint8)

        async def fetch(k: int) -> None:
            for lo, hi in partners[k].pieces:
                whole[lo:hi] = await self._piece(found, number, partners[k], lo, own=k == mine)

        await _until_given_up(found, [fetch(k) for k in range(len(partners))])
        found.whole = whole

    async def add_up(self, token: str, number: int, partners: Sequence[Partner], lo: int) -> Float64:
        """The sum of a piece of the vectors that the workers hold back, in the order of the workers."""
        found, total = self._bin(token, number), np.zeros(0)

        async def add() -> None:
            nonlocal total
            fetches = (self._piece(found, number, one, lo, own=one.token == self._token) for one in partners)
            first, *others = await asyncio.gather(*fetches)
            total = np.array(first)
            for part in others:
                total += part

        await _until_given_up(found, [add()])
        return total

    async def give_up(self, token: str, number: int) -> None:
        """Of this exchange, and all before it, nothing is wanted any more."""
        self._check(token)
        self._over = max(self._over, number)
        for old in [one for one in list(self._bins) if one <= number]:
            self._bins.pop(old).give_up()

    def held_back(self, token: str, number: int) -> Any:
        """The vector that this worker holds back, whole, where workers cannot reach each other."""
        self._check(token)
        return self._bins[number].whole

    def _unpack(self, shared: Any) -> Any:
        """What all blocks are given. Exchanges that brought it, and those before them, are done with."""
        if isinstance(shared, Packed):
            shared = shared.unpack(lambda number: self._bins[number].whole)
        self._bins.clear()
        return shared

    def _hold_back(self, number: int, vector: Float64, partners: Sequence[Partner]) -> None:
        """Keep a vector here for others to add up."""
        held = self._bins[number] = _Bin()
        held.whole = vector
        for partner in partners:
            for lo, hi in partner.pieces:
                held.put(lo, vector[lo // WORD : hi // WORD])

    def _bin(self, token: str, number: int) -> _Bin:
        self._check(token)
        if number <= self._over:
            raise GivenUp
        return self._bins.setdefault(number, _Bin())

    async def _piece(self, found: _Bin, number: int, partner: Partner, lo: int, *, own: bool) -> Any:
        if own:
            return await found.take(lo)
        arguments = [to_serialize(one) for one in (partner.token, number, lo)]
        call = get_worker().rpc(partner.address).actor_execute
        try:
            answer = await call(function="give", actor=partner.key, args=arguments, kwargs={})
        except (OSError, KeyError) as error:  # it is gone, or does not know its actor any more
            raise Unfetched(partner.address) from error
        if answer["status"] != "OK":
            raise Unfetched(partner.address) from answer["exception"]
        return answer["result"]


async def _until_given_up(found: _Bin, work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all of this, until something fails or the exchange is given up."""
    tasks = [asyncio.ensure_future(one) for one in work]
    found.work = [*(one for one in found.work if not one.done()), *tasks]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failures = [GivenUp() if task.cancelled() else task.exception() for task in done]
        for failure in failures:
            if failure is not None:
                raise failure
    finally:
        for task in tasks:
            task.cancel()


# --- at the driver --------------------------------------------------------------------------------------------------

numbers = count()


class Exchange:
    """Exchanges between some actors.

    begin: starts calls of a method of all actors, each with its own arguments; finish: waits for them.
    give_up: calls a method of those actors that are left, and waits for nothing.
    """

    def __init__(
        self,
        peers: Sequence[tuple[str, str, str]],
        begin: Callable[[str, Iterable[tuple[Any, ...]]], list[Any]],
        finish: Callable[[list[Any]], list[Any]],
        give_up: Callable[[int], None],
    ) -> None:
        self._peers, self._begin, self._finish, self._give_up = peers, begin, finish, give_up
        self.unreachable = ""  # the address of a worker that others could not reach

    def pack(self, shared: Any) -> Any:
        """Bring long vectors among the arguments to all workers; what is to be sent beside them."""
        try:
            return self._pack(shared)
        except Unfetched as error:
            self.unreachable = str(error)
            return shared

    def _pack(self, shared: Any) -> Any:
        header, frames = serialize(shared, serializers=["pickle"])
        sizes = [memoryview(frame).nbytes for frame in frames]
        if max(sizes) < LEAST:
            return shared
        brought = [
            self._scatter(np.frombuffer(frame, np.uint8)) if size >= LEAST else frame
            for frame, size in zip(frames, sizes, strict=True)
        ]
        return Packed(header, brought)

    def plan_sum(self, n: int) -> SumPlan | None:
        """How vectors of n float64 are to be held back and added up; None where they are short."""
        return None if n * WORD < LEAST else (next(numbers), self._partners(n * WORD))

    def add_up(self, number: int, partners: Sequence[Partner]) -> list[Float64]:
        """The sum of the vectors that the workers hold back; or these, where workers cannot reach each other."""
        try:
            return [self._sum(number, partners)]
        except Unfetched as error:
            self.unreachable = str(error)
            return self._finish(self._start("held_back", [(number,)] * len(partners)))
        except BaseException:
            self._give_up(number)
            raise

    def _sum(self, number: int, partners: Sequence[Partner]) -> Float64:
        total = np.empty(partners[-1].pieces[-1][1] // WORD)
        turns = list(zip(*(partner.pieces for partner in partners), strict=True))
        asked = ([(number, partners, lo) for lo, _ in pieces] for pieces in turns)
        for pieces, sums in zip(turns, self._in_turns("add_up", asked), strict=True):
            for (lo, hi), found in zip(pieces, sums, strict=True):
                total[lo // WORD : hi // WORD] = found
        return total

    def _scatter(self, vector: Bytes) -> int:
        number, partners = next(numbers), self._partners(vector.size)
        turns = zip(*(partner.pieces for partner in partners), strict=True)
        try:
            collecting = self._start("collect", [(number, partners, k) for k in range(len(partners))])
            for _ in self._in_turns("keep", ([(number, lo, vector[lo:hi]) for lo, hi in pieces] for pieces in turns)):
                pass
            self._finish(collecting)
        except BaseException:
            self._give_up(number)
            raise
        return number

    def _in_turns(self, method: str, turns: Iterable[list[tuple[Any, ...]]]) -> Iterator[list[Any]]:
        """The answers of all workers, turn by turn; while one is waited for, the next are under way."""
        under_way: deque[list[Any]] = deque()
        for arguments in turns:
            under_way.append(self._start(method, arguments))
            if len(under_way) > AHEAD:
                yield self._finish(under_way.popleft())
        while under_way:
            yield self._finish(under_way.popleft())

    def _start(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        return self._begin(method, arguments)

    def _partners(self, size: int) -> list[Partner]:
        pieces = cut(size, len(self._peers), PIECE)
        return [Partner(*peer, mine) for peer, mine in zip(self._peers, pieces, strict=True)]


def on_several_hosts(addresses: Iterable[str]) -> bool:
    """Do vectors cross a network, and more than once?"""
    apart = [one for one in addresses if not one.startswith("inproc://")]
    return len({get_address_host(one) for one in apart}) > 1
