"""Which features can matter at λ, and which have slopes near their thresholds or above."""

from __future__ import annotations

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
def above(slopes: Float64, up: Float64, down: Float64, share: float, beta: Float64, out: Int64) -> int:
    # out[:count] = np.flatnonzero((slopes > share * up) | (-slopes > share * down) | (beta != 0)); return count
    # An excluded feature has infinite thresholds, which no share of them is.
    count = 0
    for j in range(slopes.size):
        threshold = up[j] if slopes[j] > 0.0 else down[j]
        if (threshold < 1e300 and abs(slopes[j]) > share * threshold) or beta[j] != 0.0:
            out[count] = j
            count += 1
    return count


@exact
def listed(
    slopes: Float64,
    starts: Int64,
    lengths: Int64,
    up: Float64,
    down: Float64,
    l2: Float64,
    share: float,
    out: Int64,
) -> tuple[int, float, float]:
    # Over the first lengths[k] features of each stretch: `above` with beta = 0, and penalty.violation of their slopes.
    # Returned: count, ratio, conjugate.
    count = 0
    ratio = 0.0
    conjugate = 0.0
    for k in range(lengths.size):
        for j in range(starts[k], starts[k] + lengths[k]):
            pull = abs(slopes[j])
            threshold = up[j] if slopes[j] > 0.0 else down[j]
            if threshold < 1e300:
                if pull > share * threshold:
                    out[count] = j
                    count += 1
                if threshold > 0.0:
                    ratio = max(ratio, pull / threshold)
                    if pull > threshold:
                        conjugate += 0.5 * (pull - threshold) * (pull - threshold) / l2[j]
    return count, ratio, conjugate
