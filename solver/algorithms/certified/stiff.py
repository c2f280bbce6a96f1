"""The stiffest coordinates of a quadratic, those of frequent features, minimised together by their Gram matrix.

Their slopes may be off by a whole threshold at next to no cost for f, and a dual point pays for the slope that is off
the most. Cycles bring these columns together slowly, since all of them overlap; conjugate gradients stop when little is
gained. So after each cycle over the other columns the stiffest are solved as one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from solver.algorithms.certified.gram import append_features, examples_needed, form_gram
from solver.algorithms.certified.gram_problem import minimise_gram
from solver.algorithms.certified.quadratic import Progress, Quadratic, shortened
from solver.algorithms.certified.store import Gram, Store
from solver.algorithms.certified.tuning import GRAM_CHOICE, MODEL, NEWTON, STIFF
from solver.arrays import Float64, Int64
from solver.kernels import vectors


class StiffGram:
    """The Gram matrix of the stiffest columns. It serves the models of one search while the weights change little."""

    def __init__(self) -> None:
        self._last: Gram | None = None

    def of(self, store: Store, position: Int64, w: Float64) -> Gram:
        """A matrix over these features at least."""
        last, stale = self._last, NEWTON.stale_weights
        if last is not None and vectors.distance(w, last.w, 1.0) <= stale * float(w.sum()):
            new = np.setdiff1d(position, last.position, assume_unique=True)
            if last.position.size + new.size <= STIFF.max_kept * position.size:
                self._last = append_features(store, last, new) if new.size else last
                return self._last
        self._last = form_gram(store, position, w, stale)
        return self._last


class StiffBlock:
    """Coordinates `order` of a quadratic. d and the residual are changed in place.

    The Gram matrix may be that of a sample, or of older weights. Slopes are exact at each step, so only the number of
    steps depends on it, not what they converge to.
    """

    def __init__(self, quad: Quadratic, order: Int64, d: Float64, gram: Gram) -> None:
        self.order, self._quad, self._d = order, quad, d
        self._terms = quad.terms.of(order)
        self._G, _ = quad.gram(order, gram)

    @classmethod
    def choose(cls, quad: Quadratic, order: Int64, d: Float64, last: StiffGram) -> StiffBlock | None:
        """The stiffest of these coordinates, and the unpenalised ones. None where it would not pay."""
        size = _affordable_size(quad.entries(order), quad.r.size, min(order.size, quad.store.max_gram_columns))
        if size < STIFF.least_stiff:
            return None
        first = quad.h[order] + np.where(quad.terms.free[order], np.inf, 0.0)
        stiffest = np.sort(order[np.argsort(-first, kind="stable")[:size]])
        gram = last.of(quad.store, quad.position[stiffest], quad.w)
        return cls(quad, stiffest, d, gram)

    def minimise(self, share: float, least: float) -> tuple[Progress, float]:
        """Minimise over the block; also the largest change of a slope."""
        quad, order, terms = self._quad, self.order, self._terms
        g, beta = quad.slopes(order), quad.beta[order] + self._d[order]
        accuracy = MODEL.gram_accuracy
        step, _, _ = minimise_gram(self._G, g, beta, terms, quad.energy(), accuracy * share, accuracy * least)
        if not step.any():
            return Progress(0.0, 0.0), 0.0
        image = quad.image(order, step)
        fall = float(g @ step) + terms.value(beta) - terms.value(beta + step)
        curvature = float(vectors.energy(image, quad.w))
        alpha, progress = shortened(fall, curvature)
        image *= alpha
        quad.r[:] -= image
        to_zero = (beta + step == 0.0) & (alpha == 1.0)
        self._d[order] = np.where(to_zero, -quad.beta[order], self._d[order] + alpha * step)
        return progress, float(np.abs(alpha * (self._G @ step)).max())

    def preconditioner(self, face: Int64, h: Float64) -> Callable[[Float64], Float64]:
        """The inverse of the Hessian over the face, roughly: the block's Gram matrix, and the diagonal h elsewhere."""
        inside = np.flatnonzero(np.isin(face, self.order, assume_unique=True))
        own = np.searchsorted(self.order, face[inside])
        G = self._G[np.ix_(own, own)]
        G[np.diag_indices(own.size)] += self._terms.l2[own]
        try:
            factor = cho_factor(G, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return lambda residual: residual / h

        def apply(residual: Float64) -> Float64:
            scaled = residual / h
            scaled[inside] = cho_solve(factor, residual[inside], check_finite=False)
            return scaled

        return apply


def _affordable_size(entries: float, n: int, most: int) -> int:
    """The most columns whose Gram matrix, and each solve with it, cost little beside cycles over all columns."""
    if STIFF.solve_cost > STIFF.solve_share * entries:
        return 0
    sizes = np.arange(min(most, STIFF.max_stiff) + 1)
    examples = np.array([examples_needed(n, size, NEWTON.stale_weights) for size in sizes.tolist()])
    matrix = GRAM_CHOICE.multiplication_cost * sizes**2 * examples
    solve = STIFF.solve_cost + STIFF.solve_cost_cubed * sizes**3.0
    fits = (matrix <= STIFF.matrix_cycles * entries) & (solve <= STIFF.solve_share * entries)
    return int(sizes[fits].max(initial=0))
