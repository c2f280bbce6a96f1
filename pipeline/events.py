"""What the work tells those who watch it: events, small and frozen, all through one method, `tell`.

A new event is a class here, and a handler in each display that shows it. A driver on a cluster sends events to its
terminal as plain data: `args` and `from_args`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from pipeline.placement import Placement, WorkerInfo
from solver import Coefficients, RoundRecord, Solution

EVENTS: dict[str, type[Event]] = {}  # by name


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    name: ClassVar[str] = ""  # on the wire
    needs: ClassVar[str] = ""  # the event without which this one makes no sense
    is_kept: ClassVar[bool] = True  # does it matter to those who come late?
    replaces: ClassVar[tuple[str, ...]] = ()  # earlier events that do not matter any more

    def __init_subclass__(cls) -> None:
        EVENTS[cls.name] = cls

    def args(self) -> list[Any]:
        """Its fields as plain data, which JSON can hold."""
        return [plain(getattr(self, one.name)) for one in fields(self)]

    @classmethod
    def from_args(cls, args: list[Any]) -> Self:
        return cls(*args)

    @classmethod
    def merge(cls, earlier: list[Any], later: list[Any]) -> list[Any]:
        """The arguments of an event that stands for two of its kind."""
        return later


@dataclass(frozen=True)
class StageBegun(Event):
    """A stage begins (convert, fit, evaluate, report); the one before it is done."""

    stage: str

    name: ClassVar = "stage"


@dataclass(frozen=True)
class StartedAgain(Event):
    """The driver was lost, and another goes on: the stage at work was cut off."""

    text: str

    name: ClassVar = "again"


@dataclass(frozen=True)
class Noted(Event):
    """Something to know, in a line."""

    text: str

    name: ClassVar = "note"
    is_kept: ClassVar = False


@dataclass(frozen=True)
class PhaseBegun(Event):
    """A phase of the stage begins: `total` of `unit` ("B" for bytes) are to be done."""

    phase: str
    total: int
    unit: str

    name: ClassVar = "phase"
    replaces: ClassVar = ("phase", "advance")


@dataclass(frozen=True)
class Advanced(Event):
    """So much more of the phase is done."""

    amount: int

    name: ClassVar = "advance"
    needs: ClassVar = "phase"
    replaces: ClassVar = ("advance",)

    @classmethod
    def merge(cls, earlier: list[Any], later: list[Any]) -> list[Any]:
        return [earlier[0] + later[0]]


@dataclass(frozen=True)
class BlocksPlaced(Event):
    """Where the blocks of a fit are, and how."""

    placements: Sequence[Placement]

    name: ClassVar = "placed"

    def args(self) -> list[Any]:
        return [[plain(asdict(one)) for one in self.placements]]

    @classmethod
    def from_args(cls, args: list[Any]) -> Self:
        return cls([Placement(**(one | {"worker": WorkerInfo(**one["worker"])})) for one in args[0]])


@dataclass(frozen=True)
class PathBegun(Event):
    """The path to compute, and how much of it is done already."""

    lambdas: Sequence[float]
    done: int
    largest: float

    name: ClassVar = "begin"


@dataclass(frozen=True)
class RoundDone(Event):
    """A round is over."""

    record: RoundRecord

    name: ClassVar = "round"
    needs: ClassVar = "begin"
    replaces: ClassVar = ("round",)

    def args(self) -> list[Any]:
        return [plain(asdict(self.record))]

    @classmethod
    def from_args(cls, args: list[Any]) -> Self:
        return cls(RoundRecord(**args[0]))


@dataclass(frozen=True)
class SolutionStored(Event):
    """A λ is done and stored."""

    solution: Solution

    name: ClassVar = "solution"
    needs: ClassVar = "begin"
    replaces: ClassVar = ("round",)

    def args(self) -> list[Any]:
        known = {one.name: getattr(self.solution, one.name) for one in fields(self.solution) if one.name != "beta"}
        return [plain(known | {"nonzeros": self.solution.nonzeros})]

    @classmethod
    def from_args(cls, args: list[Any]) -> Self:
        """A solution as a display needs it: how many coefficients there are, but not which."""
        known = {name: value for name, value in args[0].items() if name != "nonzeros"}
        size = (args[0]["nonzeros"],)
        beta = Coefficients(np.broadcast_to(np.int64(0), size), np.broadcast_to(np.float64("nan"), size))
        return cls(Solution(beta=beta, **known))


class Watcher:
    """Who is told how the work goes: conversions and scoring (transforms.progress.Progress), fits.

    The methods below are what the work calls; each tells an event.
    """

    def tell(self, event: Event) -> None:
        """Take notice of an event. Nobody does, unless a subclass says how."""

    def stage(self, name: str) -> None:
        self.tell(StageBegun(name))

    def note(self, text: str) -> None:
        self.tell(Noted(text))

    def phase(self, name: str, total: int, unit: str) -> None:
        self.tell(PhaseBegun(name, total, unit))

    def advance(self, amount: int) -> None:
        self.tell(Advanced(amount))

    def placed(self, placements: Sequence[Placement]) -> None:
        self.tell(BlocksPlaced(placements))

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        self.tell(PathBegun(lambdas, done, largest))

    def round(self, record: RoundRecord) -> None:
        self.tell(RoundDone(record))

    def solution(self, solution: Solution) -> None:
        self.tell(SolutionStored(solution))


def plain(value: Any) -> Any:
    """The same without numpy's types and tuples."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
