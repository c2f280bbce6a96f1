"""Which features can matter at λ, and which have slopes near their thresholds or above."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.arrays import Float64, Int64
from solver.kernels.compiled import exact


@exact
def largest_to_come(bounds: Float64, starts: Int64) -> None:
    # for each stretch: bounds[lo:hi] = np.maximum.accumulate(bounds[lo:hi][::-1])[::-1]
    for k in range(starts.size - 1):
        for j in range(starts[k + 1] - 2, starts[k] - 1, -1):
            bounds[j] = max(bounds[j], bounds[j + 1])


@exact
def prefix_lengths(falling: Float64, starts: Int64, level: float, out: Int64) -> None:
    # out = [np.count_nonzero(falling[lo:hi] > level) for each stretch], by bisection
    for k in range(starts.size - 1):
        lo, hi = starts[k], starts[k + 1]
        while lo < hi:
            middle = (lo + hi) // 2
            if falling[middle] > level:
                lo = middle + 1
            else:
                hi = middle
        out[k] = lo - starts[k]


@exact
def above(
    slopes: Float64,
    first: int,
    count: int,
    up: Float64,
    down: Float64,
    l2: Float64,
    share: float,
    beta: Float64 | None,
    out: Int64,
    found: int,
) -> tuple[int, float, float]:
    # Of the features first to first + count: those with slopes > share * up or -slopes > share * down, and where beta
    # is given those with coefficients, are appended to out[:found]. An excluded feature has infinite thresholds.
    # Returned: how many there are in out then, and the ratio and the conjugate of penalty.violation.
    ratio = 0.0
    conjugate = 0.0
    for j in range(first, first + count):
        pull, rising, falling = abs(slopes[j]), up[j], down[j]  # both are read: a choice of what to read is a branch
        threshold = rising if slopes[j] > 0.0 else falling
        if (pull > share * threshold and threshold < 1e300) or (beta is not None and beta[j] != 0.0):
            out[found] = j
            found += 1
        if pull > ratio * threshold:
            ratio = pull / threshold
        if pull > threshold:
            conjugate += 0.5 * (pull - threshold) * (pull - threshold) / l2[j]
    return found, ratio, conjugate


@exact
def above_in_stretches(
    slopes: Float64,
    starts: Int64,
    lengths: Int64,
    up: Float64,
    down: Float64,
    l2: Float64,
    share: float,
    out: Int64,
) -> tuple[int, float, float]:
    # `above` over the first lengths[k] features of each stretch.
    found: Any = np.int64(0)  # not plain 0: `above` would be compiled for that constant, too
    ratio = 0.0
    conjugate = 0.0
    for k in range(lengths.size):
        found, of_one, more = above(slopes, starts[k], lengths[k], up, down, l2, share, None, out, found)
        ratio = max(ratio, of_one)
        conjugate += more
    return found, ratio, conjugate
