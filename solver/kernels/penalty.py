"""The penalty of single coefficients: Σⱼ up βⱼ⁺ + down βⱼ⁻ + ½ l2 βⱼ², three arrays by feature (solver/penalty.py).

The L1 penalty has up = down = λ. Non-negative coefficients have down = ∞. Excluded features have both.
"""

from __future__ import annotations

from solver.arrays import Float64, Int64
from solver.kernels.compiled import inlined, kernel


@inlined
def soft_threshold(target: float, up: float, down: float) -> float:
    # target - up above up, target + down below -down, 0 between. No branches: short columns would pay for them.
    return max(target - up, 0.0) + min(target + down, 0.0)


@inlined
def coordinate_step(g: float, h: float, b: float, up: float, down: float, l2: float) -> float:
    # The step from b to the minimum of -g * step + 0.5 * h * step**2 + the penalty of b + step: eq. (beta-update).
    # Where the minimum is at zero the step is -b exactly.
    step: float = soft_threshold(g + h * b, up, down) / (h + l2) - b
    return step


@inlined
def cost(b: float, up: float, down: float, l2: float) -> float:
    # The penalty of one coefficient.
    slope = up if b > 0.0 else down
    return (abs(b) * slope if b != 0.0 else 0.0) + 0.5 * l2 * b * b


@kernel
def value(beta: Float64, up: Float64, down: Float64, l2: Float64) -> float:
    # The penalty of all of beta.
    total = 0.0
    for j in range(beta.size):
        total += cost(beta[j], up[j], down[j], l2[j])
    return total


@kernel
def changes_along(
    beta: Float64, index: Int64, dbeta: Float64, up: Float64, down: Float64, l2: Float64, alphas: Float64, out: Float64
) -> None:
    # out = [value(beta[index] + a * dbeta) - value(beta[index]) for a in alphas]
    for k in range(alphas.size):
        total = 0.0
        for i in range(index.size):
            j = index[i]
            before = cost(beta[j], up[j], down[j], l2[j])
            total += cost(beta[j] + alphas[k] * dbeta[i], up[j], down[j], l2[j]) - before
        out[k] = total


@kernel
def thresholds(target: Float64, up: Float64, down: Float64, out: Float64) -> None:
    # out = the soft threshold of each entry
    for j in range(target.size):
        out[j] = soft_threshold(target[j], up[j], down[j])


@kernel
def gains(g: Float64, h: Float64, beta: Float64, up: Float64, down: Float64, l2: Float64, out: Float64) -> None:
    # What -g * step + 0.5 * h * step**2 + penalty falls by when one coordinate alone is minimised.
    for j in range(g.size):
        out[j] = 0.0
        if h[j] > 0.0:
            d = coordinate_step(g[j], h[j], beta[j], up[j], down[j], l2[j])
            more = cost(beta[j] + d, up[j], down[j], l2[j]) - cost(beta[j], up[j], down[j], l2[j])
            out[j] = max(g[j] * d - 0.5 * h[j] * d * d - more, 0.0)


@kernel
def violation(z: Float64, up: Float64, down: Float64, l2: Float64) -> tuple[float, float]:
    # For the slopes z = Xᵀr: the largest of z / up and -z / down, and the sum of excess² / (2 l2) over features whose
    # slope is above its threshold, infinite where such a feature has l2 = 0. Thresholds of 0 are left out: see free.py.
    ratio = 0.0
    conjugate = 0.0
    for j in range(z.size):
        pull, rising, falling = abs(z[j]), up[j], down[j]
        threshold = rising if z[j] > 0.0 else falling
        if threshold > 0.0:
            if pull > ratio * threshold:
                ratio = pull / threshold
            if pull > threshold:
                conjugate += 0.5 * (pull - threshold) * (pull - threshold) / l2[j]
    return ratio, conjugate
