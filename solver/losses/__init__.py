"""The losses: L(β) = Σᵢ sᵢ ℓ(yᵢ, mᵢ), each in a file of its own, all with the same kernels over examples.

A loss is a module with
    NAME, LABELS                                 what it is called; "binary" (−1 and +1) or "number"
    BOUNDED                                      is |∂ℓ/∂m| ≤ 1 for every m? Then screening bounds of a data set hold
    FLATTENS                                     does ∂²ℓ/∂m² vanish for some m, so that Newton steps need a limit?
    encode(y, s)                                 targets and weights of the examples as its kernels read them
    weights(examples)                            sᵢ
    value(margins, examples)                     L
    residuals(margins, examples, least, r, w)    r = −∂L/∂m and w = ∂²L/∂m², w held at least · sᵢ
    values_along(margins, dmargins, examples, alphas, out)   L at m + αΔm for several α, in one pass
    slope_along(margins, dmargins, examples)     ∇LᵀΔβ, the derivative of L along Δm
    dual_value(margins, examples, scale)         −Σ sᵢ ℓ*(−uᵢ) at the dual point uᵢ = scale · rᵢ / sᵢ
Kernels are plain numba functions: classes and functions passed as arguments would not be cached on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from solver.registry import Registry

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from solver.arrays import Float64


class Loss(Protocol):
    """What every loss module has."""

    NAME: str
    LABELS: str
    BOUNDED: bool
    FLATTENS: bool

    def encode(self, y: ArrayLike, s: ArrayLike | None) -> Float64: ...
    def weights(self, examples: Float64) -> Float64: ...

    value: Any
    residuals: Any
    values_along: Any
    slope_along: Any
    dual_value: Any


LOSSES: Registry[Loss] = Registry(
    {
        "logistic": "solver.losses.logistic",
        "squared": "solver.losses.squared",
        "probit": "solver.losses.probit",
    }
)


def find_loss(name: str) -> Loss:
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    return LOSSES[name]
