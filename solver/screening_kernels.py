"""Numba kernels of the sweeps: which features can matter, and which have slopes above a threshold."""

from __future__ import annotations

import numba as nb

from solver.arrays import Float64, Int64

# Yes and no are asked here: nothing may be reordered.
kernel = nb.njit(nogil=True, cache=True, error_model="numpy")


@kernel
def largest_to_come(bounds: Float64, starts: Int64) -> None:
    # for each stretch: bounds[lo:hi] = np.maximum.accumulate(bounds[lo:hi][::-1])[::-1]
    for k in range(starts.size - 1):
        for j in range(starts[k + 1] - 2, starts[k] - 1, -1):
            bounds[j] = max(bounds[j], bounds[j + 1])


@kernel
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


@kernel
def largest(slopes: Float64) -> float:
    # np.abs(slopes).max(initial=0)
    found = 0.0
    for j in range(slopes.size):
        found = max(found, abs(slopes[j]))
    return found


@kernel
def above(slopes: Float64, starts: Int64, lengths: Int64, threshold: float, out: Int64) -> tuple[int, float]:
    # Over the first lengths[k] features of each stretch: out[:count] = np.flatnonzero(np.abs(slopes) > threshold).
    # Returned: count, and the largest |slope|.
    count = 0
    found = 0.0
    for k in range(lengths.size):
        for j in range(starts[k], starts[k] + lengths[k]):
            slope = abs(slopes[j])
            found = max(found, slope)
            if slope > threshold:
                out[count] = j
                count += 1
    return count, found


@kernel
def active(slopes: Float64, beta: Float64, threshold: float, out: Int64) -> int:
    # out[:count] = np.flatnonzero((np.abs(slopes) > threshold) | (beta != 0)); return count
    count = 0
    for j in range(slopes.size):
        if abs(slopes[j]) > threshold or beta[j] != 0.0:
            out[count] = j
            count += 1
    return count
