"""Numbers as people read them."""

from __future__ import annotations

import math

from pipeline.metrics import find_metric
from pipeline.report.data import halvings

NOTHING = "–"
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def superscript(number: int) -> str:
    return str(number).translate(_SUPERSCRIPTS)


def number(value: float | None, digits: int = 4) -> str:
    """A few digits; powers of ten for what is tiny or huge."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e7:
        decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        return f"{value:,.{decimals}f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{superscript(int(exponent))}"


def short(value: float | None) -> str:
    """One digit and a power of ten, as gaps are read."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{superscript(int(exponent))}"


def percent(share: float | None) -> str:
    """A share in per cent, with the digits that matter."""
    if share is None:
        return NOTHING
    value = 100 * share
    if 0 < value < 1e-3:
        return "< 0.001\u00a0%"
    digits = 0 if value == 0 or value >= 10 else min(3, 1 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}\u00a0%"


def metric_title(name: str) -> str:
    return find_metric(name).title


def metric(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else number(value)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{seconds * 1000:,.0f}\u00a0ms" if seconds >= 0.001 else f"{seconds * 1000:.2f}\u00a0ms"
    if seconds < 120:
        return f"{seconds:.1f}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}\u00a0min {rest}\u00a0s" if minutes < 120 else f"{minutes // 60}\u00a0h {minutes % 60}\u00a0min"


def count(amount: int, noun: str) -> str:
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def lambda_hint(lam: float, largest: float | None) -> str:
    """λ as the paper writes it, λmax/2^k, where it is one of those."""
    k = halvings(lam, largest)
    if k is None:
        return ""
    return f"λmax/2{superscript(k)}" if k > 1 else "λmax/2" if k == 1 else "λmax"


def fraction(lam: float, largest: float | None) -> str:
    """The part of λmax that λ is."""
    k = halvings(lam, largest)
    if k is not None:
        return f"1/2{superscript(k)}" if k > 1 else "1/2" if k == 1 else "1"
    return number(lam / largest) if largest else NOTHING


def amount(value: float) -> str:
    """How many examples, or their weight."""
    return f"{value:,.0f}" if value == int(value) or value >= 1e6 else f"{value:,.1f}"
