"""Vectors over examples: sums, steps, and the change of variables of the paper's sub-problem.

Vectors over examples
    margins       m = Xβ
    working       (2, n): the residual r, or in a cycle q = z − Δm, and the weight w
    paired        (n, 2): q and w side by side, so that one random access fetches both: for thinly filled columns
    dmargins      Δm = X Δβ

In a cycle the sub-problem is kept in the paper's own form, q = z − Δm with z = r / w. The sums of eq. (beta-update) are
    Σ w x (q + βⱼ x) = g + βⱼ h,    g = Σ w x q,    h = Σ w x²  (+ ν, which acts on Δβ)
and a step d on coordinate j is q −= x d: one vector is written, at the positions of the column, and Δm is z − q in the
end. If the curvature of the loss can vanish, z grows without bound where an example is misclassified beyond doubt, and
Δm would lose its digits there, so w is held at 1e-6 |r| at least: |z| stays below 1e6, Δm exact to 1e-10. If it cannot
(squared loss), z has the size of the targets, whatever that is, and w is left as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.arrays import Float64, Int64
from solver.kernels.compiled import inlined, kernel

LEAST_CURVATURE = 1e-6  # of |r|: a cycle holds w above it, where the curvature of the loss vanishes


@kernel
def move(margins: Float64, alpha: float, dmargins: Float64) -> None:
    # margins += alpha * dmargins
    for i in range(margins.size):
        margins[i] += alpha * dmargins[i]


@kernel
def add(total: Float64, part: Float64) -> None:
    # total += part
    for i in range(total.size):
        total[i] += part[i]


@kernel
def begin_cycle(working: Float64, paired: Float64, dmargins: Float64, least: float) -> None:
    # w = np.maximum(w, least * abs(r)); z = r / w, 0 where w is; working = np.stack([z, w]); paired = working.T; dm = z
    for i in range(dmargins.size):
        r = working[0, i]
        w = max(working[1, i], least * abs(r))
        z = r / w if w > 0.0 else 0.0
        working[0, i], working[1, i] = z, w
        paired[i, 0], paired[i, 1] = z, w
        dmargins[i] = z


@kernel
def end_cycle(working: Float64, paired: Float64, apart: bool, dmargins: Float64) -> None:
    # dm = z - q
    for i in range(dmargins.size):
        dmargins[i] -= working[0, i] if apart else paired[i, 0]


@inlined
def bring(working: Float64, paired: Float64, apart: bool) -> None:
    # Bring q to where the next columns look for it: to working if apart, or else to paired.
    for i in range(paired.shape[0]):
        if apart:
            working[0, i] = paired[i, 0]
        else:
            paired[i, 0] = working[0, i]


@kernel
def curvature(working: Float64, dmargins: Float64) -> float:
    # (w * dm**2).sum(), which is Δβᵀ H Δβ over the features that make up dm
    total = 0.0
    for i in range(dmargins.size):
        total += working[1, i] * dmargins[i] * dmargins[i]
    return total


@kernel
def hold_curvature(r: Float64, w: Float64, least: float) -> tuple[float, float, float]:
    # w = np.maximum(w, least * abs(r)); r.sum(), abs(r).sum(), w.sum()
    slope, scale, total = 0.0, 0.0, 0.0
    for i in range(r.size):
        w[i] = max(w[i], least * abs(r[i]))
        slope += r[i]
        scale += abs(r[i])
        total += w[i]
    return slope, scale, total


@kernel
def model_loss(start: Float64, r: Float64, w: Float64) -> float:
    # dm = (start - r) / w; (0.5 * w * dm**2 - start * dm).sum()
    total = 0.0
    for i in range(r.size):
        if w[i] > 0.0:
            dm = (start[i] - r[i]) / w[i]
            total += (0.5 * w[i] * dm - start[i]) * dm
    return total


@kernel
def energy(r: Float64, w: Float64) -> float:
    # (r[w > 0]**2 / w[w > 0]).sum()
    total = 0.0
    for i in range(r.size):
        if w[i] > 0.0:
            total += r[i] * r[i] / w[i]
    return total


@kernel
def distance(a: Float64, b: Float64, scale: float) -> float:
    # np.abs(a - scale * b).sum()
    total = 0.0
    for i in range(a.size):
        total += abs(a[i] - scale * b[i])
    return total


@inlined
def _uniform(i: Any) -> Any:
    # A number in [0, 1) that looks random, the same for every i: the last steps of splitmix64.
    z = (np.uint64(i) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@kernel
def sample(w: Float64, rate: float, out: Int64 | None) -> int:
    # out = the examples that are drawn, each with chance min(1, rate * w); returns how many
    count = 0
    for i in range(w.size):
        if _uniform(i) < rate * w[i]:
            if out is not None:
                out[count] = i
            count += 1
    return count


@kernel
def move_coefficients(beta: Float64, alpha: float, index: Int64, dbeta: Float64) -> None:
    # beta[index] += alpha * dbeta
    for i in range(index.size):
        beta[index[i]] += alpha * dbeta[i]
