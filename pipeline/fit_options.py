"""What a user says about a fit. Apart from fit.py, which does it: --help need not wait for numba and Dask."""

from __future__ import annotations

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
        return lambda_grid(largest, self.length, self.ratio, self.extra)
