"""The duality gap: a certificate of how far, at most, an objective lies above the optimum.

The dual of min Σ sᵢ log(1 + exp(−yᵢ βᵀxᵢ)) + λ‖β‖₁ is
    max Σ sᵢ H(uᵢ)   subject to   |Σ sᵢ uᵢ yᵢ xᵢⱼ| ≤ λ for every feature j,   0 ≤ uᵢ ≤ 1,
H being the binary entropy. uᵢ = sigmoid(−yᵢmᵢ) has Σ sᵢuᵢyᵢxᵢⱼ = (Xᵀr)ⱼ; scaled by min(1, λ/‖Xᵀr‖∞) it is
feasible.
"""

from __future__ import annotations

from solver import kernels
from solver.arrays import Float64


def duality_gap(objective: float, margins: Float64, signed: Float64, lam: float, max_gradient: float) -> float:
    """f(β) less the dual objective at the scaled residual; max_gradient is ‖Xᵀr‖∞ over all features."""
    scale = 1.0 if max_gradient <= lam else lam / max_gradient
    return float(objective - kernels.dual_value(margins, signed, scale))
