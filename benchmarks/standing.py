"""What a peer's measurements say: seconds until every λ is within ε of the best, and the curve that the plot shows.

A peer that starts every λ cold may take the cheapest setting for each. One that follows the path has one setting for
the whole of it, and its time is that of the whole path.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Fit = dict[str, Any]


@dataclass(frozen=True)
class Reached:
    """Wall and CPU seconds until every λ was near enough. Where `whole` is False, wall is a lower bound of it."""

    whole: bool
    wall: float
    cpu: float
    count: int


@dataclass(frozen=True)
class Standing:
    """A peer on a data set; `best` are the smallest objectives that anyone found."""

    result: dict[str, Any]
    best: np.ndarray

    @cached_property
    def rungs(self) -> list[dict[int, Fit]]:
        """For each setting, loosest first, the fits by λ; of a fit that was repeated, the one of median time."""
        found: dict[str, dict[int, list[Fit]]] = {}
        for fit in self.result["fits"]:
            found.setdefault(json.dumps(fit["rung"]), {}).setdefault(fit["lambda_index"], []).append(fit)
        return [{k: _median(fits) for k, fits in rung.items()} for rung in found.values()]

    def excess(self, fit: Fit) -> float:
        """How far an objective is above the best, relatively; a fit that was cut has none."""
        if fit.get("cut"):
            return np.inf
        best = self.best[fit["lambda_index"]]
        return max(float(fit["objective"] / best - 1.0), 0.0)

    @property
    def worst(self) -> float:
        """The largest excess over λ, each taken at its best."""
        return max(min((self.excess(fit) for fit in self._at(k)), default=np.inf) for k in range(self.best.size))

    def reached(self, near: float) -> Reached:
        count = sum(any(self.excess(fit) <= near for fit in self._at(k)) for k in range(self.best.size))
        return self._whole_path(near, count) if self.result["warm"] else self._each_alone(near, count)

    def curve(self) -> list[tuple[float, float]]:
        """For each setting that went through the whole path: seconds for it, and the largest excess over λ.

        Where λ are solved alone, each counts as it was at its best so far.
        """
        points, state = [], dict[int, Fit]()
        for rung in self.rungs:
            better = {k: fit for k, fit in rung.items() if k not in state or self.excess(fit) < self.excess(state[k])}
            state = rung if self.result["warm"] else {**state, **better}
            if len(state) == self.best.size and not any(fit.get("cut") for fit in rung.values()):
                points.append((_total(state.values(), "wall"), max(map(self.excess, state.values()))))
        return points

    def _at(self, k: int) -> list[Fit]:
        return [rung[k] for rung in self.rungs if k in rung]

    def _whole_path(self, near: float, count: int) -> Reached:
        good = [
            rung.values()
            for rung in self.rungs
            if len(rung) == self.best.size and max(map(self.excess, rung.values())) <= near
        ]
        if not good:
            return Reached(False, max((_total(rung.values(), "wall") for rung in self.rungs), default=0.0), 0.0, count)
        fastest = min(good, key=lambda fits: _total(fits, "wall"))
        return Reached(True, _total(fastest, "wall"), _total(fastest, "cpu"), count)

    def _each_alone(self, near: float, count: int) -> Reached:
        chosen, wasted = [], 0.0
        for k in range(self.best.size):
            fits = self._at(k)
            good = [fit for fit in fits if self.excess(fit) <= near]
            if good:
                chosen.append(min(good, key=lambda fit: float(fit["wall"])))
            else:
                wasted += max((float(fit["wall"]) for fit in fits), default=0.0)
        return Reached(count == self.best.size, _total(chosen, "wall") + wasted, _total(chosen, "cpu"), count)


def standings(results: list[dict[str, Any]]) -> list[Standing]:
    """Those of all peers on one data set, held against the smallest objectives that any of them found."""
    best = np.min([result["problem"]["best"] for result in results], axis=0)
    for result in results:
        for fit in result["fits"]:
            if not fit.get("cut"):
                best[fit["lambda_index"]] = min(best[fit["lambda_index"]], fit["objective"])
    return [Standing(result, best) for result in results]


def _median(fits: list[Fit]) -> Fit:
    return sorted(fits, key=lambda fit: float(fit["wall"]))[(len(fits) - 1) // 2]


def _total(fits: Iterable[Fit], what: str) -> float:
    return float(sum(fit[what] for fit in fits))
