"""Penalty factors by feature id: read from a file, and put in the order of a data set's features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from transforms import UserError
from transforms.storage import display, explained, open_storage, read_whole
from transforms.validation import LARGEST_ID


def read_factors(url: str, options: dict[str, Any] | None = None) -> dict[int, float]:
    """A file of lines "ID FACTOR"; blank lines and what follows a # are left out."""
    fs, path = open_storage(url, options)
    where = display(fs, path)
    try:
        with explained(where):
            text = read_whole(fs, path).decode("utf-8-sig", errors="replace")
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"{where}: no such file: pass a file of lines with a feature id and a factor") from None
    factors: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        feature, factor = _pair(words, f"{where}:{number}")
        if feature in factors:
            raise UserError(f"{where}:{number}: feature {feature} has a factor already")
        factors[feature] = factor
    return factors


def _pair(words: list[str], where: str) -> tuple[int, float]:
    try:
        feature, factor = words
        found = int(feature), float(factor)
    except ValueError:
        raise UserError(
            f"{where}: expected a feature id and a factor, as in 17 0.5; found {' '.join(words)!r}"
        ) from None
    if not 0 <= found[0] <= LARGEST_ID:
        raise UserError(f"{where}: a feature id must lie in 0..{LARGEST_ID}, got {feature[:40]}")
    if not found[1] >= 0:
        raise UserError(f"{where}: a factor must be at least 0, got {factor}; inf leaves the feature out")
    return found


def in_order(factors: Mapping[int, float] | None, features: np.ndarray) -> np.ndarray | None:
    """The factors of these features, 1 where none is given; None where all are."""
    if not factors:
        return None
    order = np.argsort(features, kind="stable")
    ids = np.array(list(factors), dtype=np.int64)
    values = np.array(list(factors.values()), dtype=np.float64)
    if not (values >= 0).all():
        raise ValueError("penalty factors must be at least 0; infinity leaves a feature out")
    at = order[np.searchsorted(features, ids, sorter=order).clip(max=features.size - 1)]
    known = features[at] == ids  # a feature that does not occur needs no factor
    found = np.ones(features.size)
    found[at[known]] = values[known]
    if not (found > 0).any() or np.isinf(found[found > 0]).all():
        raise ValueError("every feature is excluded or unpenalised: there is nothing to regularise")
    return found


def fingerprint(factors: Mapping[int, float] | None) -> str | None:
    """What tells these factors from others, for run.json."""
    if not factors:
        return None
    lines = "".join(f"{feature} {float(factors[feature])!r}\n" for feature in sorted(factors))
    return hashlib.sha256(lines.encode()).hexdigest()
