"""The plan of a conversion: everything that its result depends on. Equal plans give equal bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transforms.assign import bucket_count
from transforms.errors import OutputExists, UserError
from transforms.examples import Reader, check_reading
from transforms.holdout import check_fraction
from transforms.inputs import COMPRESSION, InputFile
from transforms.reading import MAX_LINE
from transforms.schema import Check, Mismatch, flag, listed, number, optional, record, text, whole
from transforms.strategies import STRATEGIES
from transforms.version import __version__, format_version

MIB = 1 << 20
MAX_BLOCK = 32 * MIB
MIN_BLOCK = 1 * MIB
BYTES_PER_NONZERO = 6  # of text; dense and valued data have more, which only makes partitions smaller


@dataclass(frozen=True)
class Resources:
    """What the cluster has: the defaults follow from it."""

    threads: int
    memory_per_thread: int


@dataclass(frozen=True)
class Recipe:
    """What a task has to know of a plan: not the inputs, which may be many and would travel with every task."""

    fingerprint: str
    buckets: int
    block_size: int
    strategy: str
    hold_out: float
    numeric_labels: bool
    reader: Reader


@dataclass(frozen=True)
class Plan:
    """How a conversion will be done."""

    inputs: list[dict[str, Any]]
    partitions: int
    block_size: int
    strategy: str
    zero_based: bool
    positive_label: float | None
    on_bad_line: str
    hold_out: float = 0.0  # the share of examples that is left out
    max_line_bytes: int = MAX_LINE  # a longer line is a bad one
    format_version: int = field(init=False)
    tool_version: str = __version__
    numeric_labels: bool = False  # labels are numbers, not two classes

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise UserError(f"partitions must be at least 1, got {self.partitions}")
        if self.block_size < 1:
            raise UserError(f"block size must be at least 1 byte, got {self.block_size}")
        if self.strategy not in STRATEGIES:
            raise UserError(f"strategy must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        check_reading(self.on_bad_line, self.max_line_bytes)
        check_fraction(self.hold_out)
        if self.numeric_labels and self.positive_label is not None:
            raise UserError("a positive label does not go with numeric labels, of which none is +1: leave one out")
        object.__setattr__(self, "format_version", format_version(self.numeric_labels))

    @property
    def reader(self) -> Reader:
        return Reader(self.block_size, self.zero_based, self.on_bad_line, self.max_line_bytes)

    @property
    def buckets(self) -> int:
        return bucket_count(self.partitions)

    def to_json(self) -> dict[str, Any]:
        content = asdict(self)
        if not self.numeric_labels:  # then it is as it was before there were numeric labels
            del content["numeric_labels"]
        return content

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Plan:
        """What was stored; fields that a later version added are left alone."""
        return cls(**{one.name: content[one.name] for one in fields(cls) if one.init and one.name in content})

    @property
    def fingerprint(self) -> str:
        """Tells whether leftovers belong to this plan. Blocks without bad lines do not depend on what is a bad one."""
        content = self.to_json()
        del content["on_bad_line"], content["max_line_bytes"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def recipe(self) -> Recipe:
        return Recipe(
            fingerprint=self.fingerprint,
            buckets=self.buckets,
            block_size=self.block_size,
            strategy=self.strategy,
            hold_out=self.hold_out,
            numeric_labels=self.numeric_labels,
            reader=self.reader,
        )


INPUTS_SCHEMA = listed(record({"path": text(), "size": whole(), "version": text()}))
SHARE = number(0, 1 - 2**-53)  # of the examples: less than all
MAX_PARTITIONS = 1 << 20  # sixteen times as many as there are buckets
PLAN_FIELDS: dict[str, Check] = {
    "partitions": whole(1, MAX_PARTITIONS),
    "block_size": whole(low=1),
    "strategy": text(choices=STRATEGIES),
    "zero_based": flag,
    "positive_label": optional(number()),
    "on_bad_line": text(choices=("raise", "skip")),
    "format_version": whole(),
    "tool_version": text(),
}
# Earlier versions did not write these.
_SINCE = {"hold_out": SHARE, "max_line_bytes": whole(low=1), "numeric_labels": flag}
_BEFORE = {"hold_out": 0.0, "numeric_labels": False}  # what they did


def _plan(fields: dict[str, Check]) -> Check:
    def check(value: Any, place: str) -> None:
        record(fields, _SINCE)(value, place)
        if value.get("numeric_labels") and value["positive_label"] is not None:
            raise Mismatch(f"{place or 'it'} has a positive label, and numeric labels")

    return check


PLAN_SCHEMA = _plan(PLAN_FIELDS | {"inputs": INPUTS_SCHEMA})
OPTIONS_SCHEMA = _plan(PLAN_FIELDS)  # as dataset.json has them


def default_block_size(files: Sequence[InputFile], resources: Resources) -> int:
    """A few blocks for each thread, none so large that its nonzeros crowd a worker's memory."""
    total = sum(file.size for file in files)
    by_memory = resources.memory_per_thread // 32
    return int(max(MIN_BLOCK, min(MAX_BLOCK, by_memory, -(-total // (2 * resources.threads)))))


def default_partitions(files: Sequence[InputFile], resources: Resources) -> int:
    """One for each thread, or as many more as it takes for a partition to fit a Reduce task's memory."""
    text = sum(file.size * (COMPRESSION if file.compression else 1) for file in files)
    largest = max(min(resources.memory_per_thread // 10, 512 * MIB), MIB)
    needed = -(-8 * (text // BYTES_PER_NONZERO) // largest)
    return int(-(-max(needed, 1) // resources.threads) * resources.threads)


def refuse_other_plan(stored: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    """Raise, naming the differences, unless the stored plan is what is wanted now.

    Partitions and block size that nobody asked for (None) are whatever was stored.
    """
    stored = {key: stored.get(key, _BEFORE.get(key)) for key in wanted}
    differences = [
        f"{key.replace('_', ' ')} was {_short(stored[key])}, is {_short(value)}"
        for key, value in wanted.items()
        if stored[key] != value and not (value is None and key in ("partitions", "block_size"))
    ]
    if differences:
        raise OutputExists(
            f"{where}: cannot resume a different conversion: {'; '.join(differences)}",
            "Use the same inputs and options, or start over with --overwrite",
        )


def _short(value: Any) -> str:
    if isinstance(value, list):
        names = [f"{one['path']} ({one['size']} bytes, {one['version']})" for one in value[:3]]
        return f"[{', '.join(names)}{', …' if len(value) > 3 else ''}]"
    return repr(value)
