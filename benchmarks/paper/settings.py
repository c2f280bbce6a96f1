"""How much of the paper's grid is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from solver import TruncatedGradientOptions

DECAY, POWER = "decay", "power_t"
READINGS = (DECAY, POWER)


class Steps(NamedTuple):
    """A learning rate, and the paper's "decay" of it, read as one of two options of Vowpal Wabbit.

    reading: "decay", --decay_learning_rate, from pass to pass; or "power_t", --power_t, from example to example.
    """

    rate: float
    by: float
    reading: str = DECAY

    def options(self, passes: int) -> TruncatedGradientOptions:
        if self.reading == DECAY:
            return TruncatedGradientOptions(self.rate, self.by, passes=passes)
        return TruncatedGradientOptions(self.rate, power_t=self.by, passes=passes)

    @property
    def name(self) -> str:
        """Of the files that hold its results."""
        return f"{self.reading}-{self.rate:g}-{self.by:g}"


@dataclass(frozen=True)
class Setting:
    """A size of the experiment.

    every: of the twenty λ, each how-manieth is given to the online learner. vw: the rates and decays that the real
    Vowpal Wabbit is run with. scales: of look-alikes, the share of the paper's rows.
    """

    name: str
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    passes: int
    every: int
    vw: tuple[tuple[float, float], ...]
    scales: Mapping[str, float]
    lambdas: int = 20
    readings: tuple[str, ...] = READINGS

    @property
    def steps(self) -> list[Steps]:
        """All of the online learner, one reading after the other."""
        return [Steps(*pair, reading) for reading in self.readings for pair in product(self.rates, self.decays)]

    @property
    def vw_steps(self) -> list[Steps]:
        return [Steps(*pair, reading) for reading in self.readings for pair in self.vw]

    def online(self, lambdas: list[float]) -> list[float]:
        """The λ of the online learner, the smallest among them."""
        return lambdas[:: -self.every][::-1]


LIKE_PAPER = {"epsilon": 0.05, "webspam": 0.05, "dna": 0.01}
TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5)
HALVES = (0.5, 0.6, 0.7, 0.8, 0.9)
ENDS = ((0.1, 0.5), (0.5, 0.9))
SMALL = {"epsilon": 0.02, "webspam": 0.01, "dna": 0.002}
TOY = {"epsilon": 0.002, "webspam": 0.002, "dna": 0.0004}
QUICK = Setting("quick", (0.1, 0.5), (0.5, 0.9), 10, 2, ENDS, SMALL)
FULL = Setting("full", TENTHS, HALVES, 50, 1, (*ENDS, (0.3, 0.7)), LIKE_PAPER)
TINY = Setting("tiny", (0.5,), (0.5, 0.9), 4, 4, (), TOY, lambdas=12, readings=(DECAY,))
SETTINGS = {setting.name: setting for setting in (QUICK, FULL, TINY)}
