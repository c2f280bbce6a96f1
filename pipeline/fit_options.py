"""What a user says about a fit. Apart from fit.py, which does it: --help need not wait for numba and Dask."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from solver.options import option

DEFAULT = "default"
RESIDENCIES = ("auto", "memory", "stream")
HELD_OUT = 0.2  # the share of examples by which a pipeline chooses its best model, unless it is told otherwise


@dataclass(frozen=True)
class PathOptions:
    """Which λ to solve for: a grid down from λmax, or an explicit list."""

    length: int = option(20, "λ in the grid.", least=1)
    ratio: float = option(0.5, "From one λ to the next, down from λmax.")
    lambdas: tuple[float, ...] | None = option(None, "Solve for these λ, not for a grid.", metavar="L,L,...")
    extra: tuple[float, ...] = option((), "Further λ, between those of the grid.", metavar="L,L,...")

    def grid(self, largest: float) -> list[float]:
        from solver.path import falling, lambda_grid

        if self.lambdas is not None:
            return falling([*self.lambdas, *self.extra])
        refuse_vanishing_grid(largest, self.length, self.ratio)
        return lambda_grid(largest, self.length, self.ratio, self.extra)


def refuse_vanishing_grid(largest: float, length: int, ratio: float) -> None:
    """A grid so long that its last λ is no number above 0."""
    if length >= 1 and largest > 0 and 0 < ratio < 1 and largest * ratio**length == 0:
        most = max(int((math.log(sys.float_info.min) - min(math.log(largest), 0.0)) / math.log(ratio)), 1)
        raise ValueError(
            f"path length {length} and path ratio {ratio:g} make λ too small for a number: λmax · {ratio:g}^{length} "
            f"is 0. Take a length of at most {most}, or a ratio nearer to 1"
        )
