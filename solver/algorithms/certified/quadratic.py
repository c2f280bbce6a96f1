"""A quadratic model of f with the penalty: what Newton steps and projections of the dual point minimise (model.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from solver.algorithms.certified.store import Gram, Store
from solver.algorithms.certified.tuning import MODEL, ROUNDING
from solver.arrays import Float64, Int64
from solver.chosen import Coordinates
from solver.columns import DENSE
from solver.kernels import vectors
from solver.penalty import Terms


@dataclass(frozen=True)
class Quadratic:
    """½ dᵀXᵀWXd − gᵀd + penalty(β + d) in d = Δβ, over the coordinates `position`.

    slots: where their columns are in the store. r: the residual, changed in place to r − WXd. w: the weights of the
    examples, W = diag(w). g: the slopes Xᵀr at d = 0. h: the diagonal of XᵀWX.
    """

    store: Store
    position: Int64
    slots: Int64
    beta: Float64
    terms: Terms
    r: Float64
    w: Float64
    g: Float64
    h: Float64

    def slopes(self, order: Int64) -> Float64:
        """Xᵀr of these coordinates, r as it is now."""
        slopes = np.empty(order.size)
        self.store.slopes(self.slots[order], self.r, slopes)
        return slopes

    def image(self, order: Int64, step: Float64) -> Float64:
        """WX times a step of these coordinates: what the residual falls by."""
        image = self.store.product(self.slots[order], step)
        image *= self.w
        return image

    def shared_parts(self, order: Int64) -> Any:
        """The parts of cycles over these coordinates where the blocks do them (cycles.py); None where they do not."""
        chosen = Coordinates(self.position[order], self.beta[order], self.h[order], self.terms.of(order))
        return self.store.shared_parts(chosen, order, self.w)

    def energy(self) -> float:
        """Σ r²/w, r as it is now."""
        return float(vectors.energy(self.r, self.w))

    def entries(self, order: Int64) -> float:
        """The work of a pass over these columns, in entries of a sparse one."""
        return float(self.store.entries(self.slots[order]).sum())

    def gram(self, order: Int64, gram: Gram) -> tuple[Float64, float]:
        """XᵀWX over these coordinates, from a matrix for weights near the model's, and the weights' relative error."""
        h, G = self.h[order], gram.of(self.position[order])
        diagonal = G.diagonal()
        # A feature may have most of its weight on examples that the matrix left out.
        curvature = np.where(diagonal < MODEL.least_curvature_share * h, h, diagonal)
        np.fill_diagonal(G, curvature + self._ridge(order))
        return G, gram.error + vectors.distance(self.w, gram.w, 1.0) / float(self.w.sum())

    def _ridge(self, order: Int64) -> Float64:
        """A share of each column's curvature, for dense columns of the curvature about their mean.

        Products are formed about the mean: only that part has float32 errors.
        """
        slots, h = self.slots[order], self.h[order]
        if not (self.store.kinds(slots) == DENSE).any():
            return ROUNDING.gram_ridge * h
        sums = np.empty(slots.size)
        self.store.slopes(slots, self.w, sums)
        spread = np.maximum(h - sums**2 / float(self.w.sum()), 0.0)
        return ROUNDING.gram_ridge * spread + ROUNDING.sums_ridge * h


class Progress(NamedTuple):
    """What the model fell by, at least, and by how much a step without overlaps would have made it fall.

    Where a step is shortened it gains little, however much is left.
    """

    gain: float
    promise: float


def shortened(fall: float, curvature: float) -> tuple[float, Progress]:
    """How much of a step to take along which the model falls by α fall − ½ α² curvature, at least; and what that gains.

    The whole step where that is nearly the best: it keeps zeros exact. Columns that depend on each other may make a
    step without curvature, and rounding one that does not fall.
    """
    if not 0.0 < fall < np.inf:
        return 0.0, Progress(0.0, 0.0)
    alpha = 1.0 if fall >= MODEL.full_step_fall * curvature else fall / curvature
    gain = alpha * fall - 0.5 * alpha**2 * curvature
    return alpha, Progress(gain, max(gain, 0.5 * fall))
