"""Hold examples out: a split that each example decides alone, by a hash of what it says.

The hash covers the label and the (id, value) pairs as they were parsed, in any order. So the split does not depend on
the order of lines or features, on how numbers were written, on files, compression, block size or cluster; equal
examples go to the same side, so that none is learnt from and judged by; and examples held out at a fraction are
held out at every larger one. Weights and comments do not count.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from transforms.compiled import kernel, step
from transforms.errors import UserError
from transforms.parser import Parsed

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@step
def _mix(word):  # type: ignore[no-untyped-def]
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the word."""
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


@kernel
def hash_examples(labels, indptr, ids, values, out):  # type: ignore[no-untyped-def]
    """out[i] = mix(label_i + sum of mix(mix(id) + value) over the pairs of row i), numbers by their bits."""
    for row in range(labels.size):
        total = np.uint64(0)
        for k in range(indptr[row], indptr[row + 1]):
            total += _mix(_mix(np.uint64(ids[k]) * _GOLDEN) + np.uint64(values[k]))
        out[row] = _mix(total + _mix(labels[row] + _GOLDEN))


def example_hashes(parsed: Parsed) -> np.ndarray:
    """A number in [0, 1) for each example."""
    out = np.empty(parsed.labels.size, dtype=np.uint64)
    labels = (parsed.labels + 0.0).view(np.uint64)  # -0.0 is 0.0
    hash_examples(labels, parsed.indptr, parsed.ids, parsed.values.view(np.uint32), out)
    return (out >> np.uint64(11)) * 2.0**-53


def training_part(parsed: Parsed, fraction: float) -> Parsed:
    """The examples that are not held out."""
    return _select(parsed, example_hashes(parsed) >= fraction) if fraction else parsed


def held_out_part(parsed: Parsed, fraction: float) -> Parsed:
    """The examples that are."""
    return _select(parsed, example_hashes(parsed) < fraction)


def check_fraction(fraction: float, name: str = "hold_out") -> float:
    """Refuse what leaves nothing to learn from."""
    if not 0 <= fraction < 1:
        raise UserError(f"{name} must lie between 0 (nothing is held out) and 1, got {fraction:g}")
    return fraction


def _select(parsed: Parsed, keep: np.ndarray) -> Parsed:
    """Some rows; lines and bad lines are counted as before."""
    sizes = np.diff(parsed.indptr)
    pairs = np.repeat(keep, sizes)
    values = parsed.values[pairs]
    return replace(
        parsed,
        labels=parsed.labels[keep],
        weights=parsed.weights[keep],
        indptr=np.concatenate(([0], np.cumsum(sizes[keep]))).astype(np.int64),
        ids=parsed.ids[pairs],
        values=values,
        all_ones=parsed.all_ones or bool((values == 1).all()),
    )
