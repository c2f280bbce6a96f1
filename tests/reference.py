"""LIBSVM text read the slow, obvious way, random text to read, and data sets read back: what the tests compare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from transforms import Csc, Dataset

MAX_ID = 2**62
BLANKS = b" \t\r\v\f"
LARGEST = 2.0**128 - 2.0**103  # from here on float32 rounds to infinity
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ID = re.compile(rb"[0-9]{1,19}")


class NotLibsvm(ValueError):
    """A line that no reader should accept."""


@dataclass
class Examples:
    """By feature: {feature: {example: value}}, zeros left out; labels as written; weights where written."""

    columns: dict[int, dict[int, float]] = field(default_factory=dict)
    labels: list[float] = field(default_factory=list)
    weights: list[float | None] = field(default_factory=list)
    bad_lines: list[int] = field(default_factory=list)


def number(text: bytes) -> float:
    """float(text) as a float64 that fits float32."""
    if not _NUMBER.fullmatch(text):
        raise NotLibsvm(f"not a number: {text!r}")
    value = float(text)
    if abs(value) >= LARGEST:
        raise NotLibsvm(f"does not fit float32: {text!r}")
    return value


def float32(text: bytes) -> float:
    return float(np.float32(number(text)))


def read_line(line: bytes, *, zero_based: bool = False) -> tuple[float, float | None, dict[int, float]] | None:
    """(label, weight, {feature: value} with explicit zeros) of a line without its newline; None if it is blank."""
    if b"\0" in line:
        raise NotLibsvm("NUL")
    tokens = re.split(rb"[ \t\r\v\f]+", line.split(b"#")[0].strip(BLANKS))
    if tokens == [b""]:
        return None
    head, colon, tail = tokens[0].partition(b":")
    label = number(head)
    weight = float32(tail) if colon else None
    if weight is not None and weight < 0:
        raise NotLibsvm("negative weight")
    features: dict[int, float] = {}
    for token in tokens[1:]:
        if token.startswith(b"qid:"):
            continue
        name, colon, text = token.partition(b":")
        if not colon or not _ID.fullmatch(name):
            raise NotLibsvm(f"no id:value in {token!r}")
        feature = int(name)
        if feature in features or feature > MAX_ID or (feature == 0 and not zero_based):
            raise NotLibsvm(f"a bad id in {token!r}")
        features[feature] = float32(text)
    return label, weight, features


def read_text(text: bytes, *, zero_based: bool = False) -> Examples:
    """All good lines; the numbers of the bad ones."""
    result = Examples()
    for index, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            read = read_line(line, zero_based=zero_based)
        except NotLibsvm:
            result.bad_lines.append(index)
            continue
        if read is None:
            continue
        label, weight, features = read
        example = len(result.labels)
        result.labels.append(label)
        result.weights.append(weight)
        for feature, value in features.items():
            if value:
                result.columns.setdefault(feature, {})[example] = value
    return result


def columns_of(csc: Csc) -> dict[int, dict[int, float]]:
    columns: dict[int, dict[int, float]] = {}
    for k, feature in enumerate(csc.features.tolist()):
        where = slice(int(csc.indptr[k]), int(csc.indptr[k + 1]))
        values = [1.0] * csc.indices[where].size if csc.data is None else csc.data[where].tolist()
        assert feature not in columns
        columns[feature] = dict(zip(csc.indices[where].tolist(), values, strict=True))
    return columns


def read_back(dataset: Dataset) -> Examples:
    """What a data set holds, its labels as they were written."""
    result = Examples()
    for partition in dataset.partitions:
        for feature, column in columns_of(partition.read()).items():
            assert feature not in result.columns, "a feature in two partitions"
            result.columns[feature] = column
    labels, weights = dataset.labels()
    names = dataset.description["label_map"]
    result.labels = [names["+1"] if label > 0 else names["-1"] for label in labels.tolist()]
    result.weights = [None] * labels.size if weights is None else weights.tolist()
    return result


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its relative name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- text as people write it ----------------------------------------------------------------------------------------


@st.composite
def spellings(draw: st.DrawFn, values: st.SearchStrategy[float] | None = None) -> str:
    """A number that fits float32, in one of the many ways to write it."""
    value = draw(values if values is not None else floats32())
    digits = draw(st.integers(1, 25))
    kinds = [repr(value), f"{value:.{digits}g}", f"{value:.{digits - 1}e}", f"{value:.{digits}G}"]
    if 1e-8 < abs(value) < 1e12:
        kinds += [f"{value:.{digits}f}", str(round(value)), f"{round(value)}."]
    text = draw(st.sampled_from(kinds))
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    if text.startswith("0.") and len(text) > 2 and text[2].isdigit() and draw(st.booleans()):
        text = text[1:]
    else:
        text = "0" * draw(st.sampled_from([0, 0, 0, 1, 3, 12])) + text
    text = (sign or draw(st.sampled_from(["", "", "+"]))) + text
    return text if abs(float(text)) < LARGEST else "3.5e37"


def floats32() -> st.SearchStrategy[float]:
    plain = st.floats(width=32, allow_nan=False, allow_infinity=False)
    return st.one_of(plain, st.floats(-100, 100), st.integers(-1000, 1000).map(float), st.just(1.0), st.just(0.0))


def ids(*, zero_based: bool = False) -> st.SearchStrategy[int]:
    first = 0 if zero_based else 1
    return st.one_of(st.integers(first, 30), st.integers(first, 10**6), st.integers(2**40, MAX_ID), st.just(MAX_ID))


@st.composite
def texts(
    draw: st.DrawFn,
    *,
    labels: tuple[str, str] = ("-1", "+1"),
    weighted: bool = False,
    zero_based: bool = False,
    max_rows: int = 12,
) -> bytes:
    """LIBSVM text with both labels, and all that people put between and behind the numbers."""
    rows = list(labels) + draw(st.lists(st.sampled_from(labels), max_size=max_rows - 2))
    gap = st.sampled_from([" ", " ", " ", "  ", "\t", " \t ", "\r ", "\v", "\f"])
    end = st.sampled_from(["", "", " ", "\t", " # a comment 1:2", "#", "\r"])
    lines = []
    for label in draw(st.permutations(rows)):
        names = draw(st.lists(ids(zero_based=zero_based), unique=True, max_size=8))
        tokens = [f"{name}:{draw(spellings())}" for name in names]
        if draw(st.integers(0, 5)) == 0:
            tokens.insert(draw(st.integers(0, len(tokens))), f"qid:{draw(st.integers(0, 99))}")
        weight = f":{draw(spellings(st.floats(0, 1e6)))}" if weighted else ""
        line = draw(st.sampled_from(["", "", "", " ", "\t"])) + label + weight
        line += "".join(draw(gap) + token for token in tokens) + draw(end)
        lines.append(line)
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(st.sampled_from(["", "  ", "# nothing here", "\r", "\t#"])))
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    text = newline.join(lines) + draw(st.sampled_from([newline, newline, ""]))
    return draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"])) + text.encode()


def random_text(
    seed: int, rows: int, features: int, per_row: int, *, ones: bool = False, weighted: bool = False
) -> bytes:
    """Much text, quickly: labels -1 and +1, ids from 1, six-digit values."""
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    for row in range(rows):
        chosen = np.sort(rng.choice(features, size=min(per_row, features), replace=False)) + 1
        values: Iterable[str] = ["1"] * chosen.size if ones else (f"{v:.6g}" for v in rng.normal(size=chosen.size))
        label = "+1" if row % 3 == 0 else "-1"
        weight = f":{rng.integers(1, 8) / 4:g}" if weighted else ""
        pairs = " ".join(f"{name}:{value}" for name, value in zip(chosen.tolist(), values, strict=True))
        lines.append(f"{label}{weight} {pairs}")
    return ("\n".join(lines) + "\n").encode()
