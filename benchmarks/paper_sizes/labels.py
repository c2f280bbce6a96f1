"""Labels by the logistic model: margins are scaled to a given spread and shifted to a given share of positives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from benchmarks.paper_sizes.chance import uniform


@dataclass(frozen=True)
class Odds:
    """P(+1) = 1 / (1 + exp(shift − scale · margin))."""

    scale: float
    shift: float

    @classmethod
    def of(cls, margins: np.ndarray, spread: float, positive: float) -> Odds:
        """From a sample of margins: what gives them a deviation of `spread` and a share `positive` of +1."""
        scale = spread / float(margins.std())
        low, high = (np.array([-50.0, 50.0]) + scale * float(margins.mean())).tolist()
        for _ in range(60):
            shift = (low + high) / 2
            share = float((1.0 / (1.0 + np.exp(shift - scale * margins))).mean())
            low, high = (shift, high) if share > positive else (low, shift)
        return cls(scale, shift)


@njit(nogil=True, inline="always")
def draw_label(margin, scale, shift, key, counter):  # type: ignore[no-untyped-def]
    return 1 if uniform(key, counter) * (1.0 + np.exp(shift - scale * margin)) < 1.0 else -1
