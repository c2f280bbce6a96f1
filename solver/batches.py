"""Several cycles of coordinate descent over a block's active columns, a batch of them at a time.

Active columns are copied out of the stretches while these are read, so that cycles over them read nothing. A batch is
limited in bytes. A block with more active columns takes several batches, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import Coefficients, Float64, Int64
from solver.columns import Columns
from solver.kernels import descent, vectors
from solver.penalty import Terms


@dataclass(frozen=True)
class BlockDescentTuning:
    """The constants of coordinate descent in a block. None was measured by itself."""

    # Bytes of columns in one batch: it bounds a worker's memory.
    batch_bytes: int = 1 << 27
    # A cycle that moves coefficients by less than this share of the largest move of a cycle is the last one.
    rest_share: float = 0.05
    # A feature is active when βⱼ is not 0, or its slope is above this share of its threshold.
    active_share: float = 0.9


BLOCK_DESCENT = BlockDescentTuning()


class Batches:
    """Coordinate descent on the sub-problem at λ, over columns as they come. The given vectors are changed in place."""

    def __init__(
        self, working: Float64, paired: Float64, dmargins: Float64, nu: float, cycles: int, least: float
    ) -> None:
        self._working, self._paired, self._dmargins = working, paired, dmargins
        self._q_apart = False  # is q kept in `working`, and not in `paired`?
        vectors.begin_cycle(working, paired, dmargins, least)
        self._nu, self._cycles = nu, cycles
        self._waiting: list[tuple[Int64, Columns, Float64, Terms]] = []
        self._bytes = 0
        self._changes: list[Coefficients] = []

    def add(self, position: Int64, columns: Columns, beta: Float64, terms: Terms) -> None:
        """Take some columns with their current coefficients and their penalty."""
        if position.size:
            self._waiting.append((position, columns, beta, terms))
            self._bytes += columns.nbytes
        if self._bytes >= BLOCK_DESCENT.batch_bytes:
            self._descend()

    def change(self) -> Coefficients:
        """Finish the last batch; returns Δβ over all columns. dmargins then holds X Δβ."""
        self._descend()
        vectors.end_cycle(self._working, self._paired, self._q_apart, self._dmargins)
        changes = self._changes or [Coefficients.empty()]
        return Coefficients(np.concatenate([c.position for c in changes]), np.concatenate([c.value for c in changes]))

    def _descend(self) -> None:
        """Cycles over the columns that wait, as one batch."""
        if not self._waiting:
            return
        position = np.concatenate([one[0] for one in self._waiting])
        columns = Columns.joined([one[1] for one in self._waiting], self._dmargins.size)
        before = np.concatenate([one[2] for one in self._waiting])
        beta = before.copy()
        terms = Terms(*(np.concatenate(arrays) for arrays in zip(*(one[3] for one in self._waiting), strict=True)))
        self._cycle(columns, beta, terms)
        moved = np.flatnonzero(beta != before)
        self._changes.append(Coefficients(position[moved], beta[moved] - before[moved]))
        self._waiting, self._bytes = [], 0

    def _cycle(self, columns: Columns, beta: Float64, terms: Terms) -> None:
        moved, dbeta = np.empty(beta.size, np.int64), np.empty(beta.size)
        first = 0.0
        for _ in range(self._cycles):
            state = self._working, self._paired, self._q_apart
            count, self._q_apart = descent.cycle(*columns.arrays, beta, *terms, self._nu, *state, None, moved, dbeta)
            beta[moved[:count]] += dbeta[:count]
            distance = float(np.abs(dbeta[:count]).sum())
            first = max(first, distance)
            if distance <= BLOCK_DESCENT.rest_share * first:
                return
