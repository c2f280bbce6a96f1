"""Names of features from a text file: line k names feature k, or each line is "id<TAB>name"."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms import UserError
from transforms.storage import StorageOptions, display, explained, open_storage
from transforms.validation import LARGEST_ID


def read_names(url: str, options: StorageOptions, features: np.ndarray, base: int) -> dict[int, str]:
    """The names of the features that have a weight, by id. Raises UserError where the file does not fit the run.

    features: the ids with a weight at any λ. base: the id of the first line's feature, where lines carry no ids.
    """
    fs, path = open_storage(url, options)
    where = display(fs, path)
    lines = _read_lines(fs, path, where)
    wanted = {int(feature) for feature in np.unique(features)}
    if _numbered(lines[0]):
        return _by_id(lines, wanted, where)
    return _by_position(lines, wanted, base, where)


def _read_lines(fs: Any, path: str, where: str) -> list[str]:
    try:
        with explained(where), fs.open(path, "rb", compression="infer") as file:
            text = file.read().decode("utf-8-sig")
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"{where}: no such file: --feature-names takes a text file with a name a line") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 text (byte {error.start}): save the names as UTF-8") from None
    if not text.strip():
        raise UserError(f"{where}: empty: expected a feature's name a line, or lines of id<TAB>name")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _numbered(line: str) -> bool:
    head, tab, _ = line.partition("\t")
    return bool(tab) and head.strip().isdecimal()


def _by_id(lines: list[str], wanted: set[int], where: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        if not _numbered(line):
            raise UserError(f"{where}: line {number}: expected id<TAB>name as in line 1, found {line[:60]!r}")
        head, _, name = line.partition("\t")
        feature = _read_id(head.strip(), f"{where}: line {number}")
        if feature in wanted:
            if feature in names:
                raise UserError(f"{where}: line {number}: feature {feature} has a name already: keep one of them")
            names[feature] = name.strip()
    if wanted and not names:
        raise UserError(
            f"{where}: none of its {len(lines):,} ids is a feature of the run's models: is it the right file?"
        )
    return {feature: name for feature, name in names.items() if name}


def _read_id(digits: str, where: str) -> int:
    """A feature's id. Its digits are counted first, as Python reads no number of thousands of them."""
    if len(digits) > len(str(LARGEST_ID)) or int(digits) > LARGEST_ID:
        shown = digits if len(digits) <= 30 else f"{digits[:20]}… ({len(digits):,} digits)"
        raise UserError(f"{where}: feature id {shown} is too large: ids go up to {LARGEST_ID}")
    return int(digits)


def _by_position(lines: list[str], wanted: set[int], base: int, where: str) -> dict[int, str]:
    largest = max(wanted, default=base)
    if largest - base >= len(lines):
        raise UserError(
            f"{where}: {len(lines):,} names, for features {base} to {len(lines) - 1 + base}, but the run uses feature "
            f"{largest}: give a name a line for every feature from {base} on, or lines of id<TAB>name"
        )
    found = {feature: lines[feature - base].strip() for feature in wanted}
    return {feature: name for feature, name in found.items() if name}
