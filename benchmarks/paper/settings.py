"""How much of the paper's grid is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

Pair = tuple[float, float]  # learning rate, decay


@dataclass(frozen=True)
class Setting:
    """A size of the experiment.

    every: of the twenty λ, each how-manieth is given to the online learner. vw: the pairs that the real Vowpal Wabbit
    is run with. scales: of look-alikes, the share of the paper's rows.
    """

    name: str
    rates: tuple[float, ...]
    decays: tuple[float, ...]
    passes: int
    every: int
    vw: tuple[Pair, ...]
    scales: Mapping[str, float]
    lambdas: int = 20

    @property
    def pairs(self) -> list[Pair]:
        return list(product(self.rates, self.decays))

    def online(self, lambdas: list[float]) -> list[float]:
        """The λ of the online learner, the smallest among them."""
        return lambdas[:: -self.every][::-1]


LIKE_PAPER = {"epsilon": 0.05, "webspam": 0.05, "dna": 0.01}
TENTHS = (0.1, 0.2, 0.3, 0.4, 0.5)
HALVES = (0.5, 0.6, 0.7, 0.8, 0.9)
SMALL = {"epsilon": 0.02, "webspam": 0.01, "dna": 0.002}
QUICK = Setting("quick", (0.1, 0.5), (0.5, 0.9), 10, 2, ((0.1, 0.5), (0.5, 0.9)), SMALL)
FULL = Setting("full", TENTHS, HALVES, 50, 1, tuple(product(TENTHS, HALVES)), LIKE_PAPER)
TINY = Setting("tiny", (0.5,), (0.5, 0.9), 4, 4, (), {"epsilon": 0.002, "webspam": 0.002, "dna": 0.0004}, lambdas=12)
SETTINGS = {setting.name: setting for setting in (QUICK, FULL, TINY)}
