"""dataset.json: what it holds, and the one way to read it, checked, and to write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from transforms.errors import DatasetError
from transforms.labels import LABELS_PARQUET, NUMBER, LabelMap, LabelsInfo
from transforms.parser import LARGEST_LABEL
from transforms.parts import PART_SCHEMA, PartInfo, part_name
from transforms.plan import INPUTS_SCHEMA, OPTIONS_SCHEMA, Plan
from transforms.records import PERHAPS, Record, of
from transforms.schema import (
    SHA256,
    Check,
    Mismatch,
    flag,
    listed,
    never,
    number,
    read_record,
    record,
    shown,
    text,
    whole,
    write_sealed,
)
from transforms.storage import display
from transforms.version import FORMAT_VERSION, NUMBERS_VERSION, __version__

DATASET_JSON = "dataset.json"
FORMAT = "dglmnet"
MAX_EXAMPLES = 2**31 - 1  # they are numbered by int32
LOGISTIC, NORM = "logistic", "norm"  # what `bound` of a part is: see transforms/parts.py


@dataclass(frozen=True, kw_only=True)
class BadLines(Record):
    """The lines that a conversion left out: how many, and the first few with file, line and column."""

    count: int = 0
    first: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class DatasetRecord(Record):
    """dataset.json. It holds no times, so that equal input gives equal bytes."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    tool_version: str | None = field(default=None, metadata=PERHAPS)
    examples: int
    features: int
    nnz: int
    label_map: LabelMap | None = field(default=None, metadata=of(LabelMap, perhaps=True))  # none of numbers
    bound: str | None = field(default=None, metadata=PERHAPS)  # NORM; absent: LOGISTIC
    index_base: int
    labels: LabelsInfo = field(metadata=of(LabelsInfo))
    partitions: Sequence[PartInfo] = field(metadata=of(PartInfo))
    inputs: list[dict[str, Any]]  # path, size and version (etag or time of modification) of each file
    bad_lines: BadLines = field(metadata=of(BadLines))
    plan: Plan | None = None  # the inputs are in `inputs` on disk

    @classmethod
    def describe(
        cls,
        *,
        examples: int,
        label_map: LabelMap | None,
        labels: LabelsInfo,
        parts: Sequence[PartInfo],
        plan: Plan,
        bad_lines: BadLines,
    ) -> Self:
        """The record of what a plan came to."""
        return cls(
            format_version=plan.format_version,
            tool_version=__version__,
            examples=examples,
            features=sum(part.features for part in parts),
            nnz=sum(part.nnz for part in parts),
            label_map=label_map,
            bound=NORM if plan.numeric_labels else None,
            index_base=0 if plan.zero_based else 1,
            labels=labels,
            partitions=parts,
            inputs=plan.inputs,
            bad_lines=bad_lines,
            plan=plan,
        )

    @property
    def hold_out(self) -> float:
        """The share of the examples that the conversion left out."""
        return 0.0 if self.plan is None else self.plan.hold_out

    @property
    def files(self) -> dict[str, int]:
        """All files of the data set but dataset.json, and their sizes."""
        return {self.labels.file: self.labels.bytes} | {part.file: part.bytes for part in self.partitions}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        options = content.get("plan")
        found = super().from_json({name: value for name, value in content.items() if name != "plan"})
        if options is None:
            return found
        return replace(found, plan=Plan.from_json(options | {"inputs": content["inputs"]}))

    def to_json(self) -> dict[str, Any]:
        content = super().to_json()
        if self.plan is None:
            del content["plan"]
        else:
            del content["plan"]["inputs"]
        return content


def read_dataset_record(fs: Any, path: str) -> DatasetRecord:
    """dataset.json of the folder at `path`, if all of it is as it must be; DatasetError says what is not."""
    check = dataset_check(display(fs, path))
    return DatasetRecord.from_json(read_record(fs, f"{path}/{DATASET_JSON}", check, "convert again", DatasetError))


def write_dataset_record(fs: Any, path: str, content: DatasetRecord) -> None:
    """Write it into the folder at `path`. From then on there is a data set."""
    write_sealed(fs, f"{path}/{DATASET_JSON}", content.to_json())


# --- what it must look like -----------------------------------------------------------------------------------------


_FILE: dict[str, Check] = {
    "file": text(choices=(LABELS_PARQUET,)),
    "bytes": whole(),
    "sha256": text(SHA256),
    "weighted": flag,
}
_LABEL = number(-LARGEST_LABEL, LARGEST_LABEL)
LABEL_MAP = record({"-1": number(), "+1": number()})
_COMMON: dict[str, Check] = {
    "examples": whole(1, MAX_EXAMPLES),
    "features": whole(),
    "nnz": whole(),
    "index_base": whole(high=1),
    "partitions": listed(PART_SCHEMA),
    "inputs": INPUTS_SCHEMA,
    "bad_lines": record({"count": whole(), "first": listed(text())}),
}
_PLAN = {"plan": OPTIONS_SCHEMA}
_DESCRIPTIONS: dict[int, Check] = {  # by format version
    FORMAT_VERSION: record(
        _COMMON
        | {
            "label_map": LABEL_MAP,
            "labels": record(_FILE | {"negatives": whole(), "positives": whole()}, {"kind": never}),
        },
        _PLAN | {"bound": never},
    ),
    NUMBERS_VERSION: record(
        _COMMON
        | {
            "bound": text(choices=(NORM,)),
            "labels": record(_FILE | {"kind": text(choices=(NUMBER,)), "smallest": _LABEL, "largest": _LABEL}),
        },
        _PLAN | {"label_map": never},
    ),
}


def dataset_check(where: str) -> Check:
    """All that can be said of dataset.json alone: its format, its fields, and counts that must agree."""

    def check(description: dict[str, Any], place: str) -> None:
        if description.get("format") != FORMAT:
            raise DatasetError(f"{where}/{DATASET_JSON}: not the description of a dglmnet data set")
        version = description.get("format_version")
        if type(version) is not int or version not in _DESCRIPTIONS:
            newer = isinstance(version, int) and version > max(_DESCRIPTIONS)
            remedy = "update dglmnet" if newer else "convert again"
            known = " and ".join(map(str, _DESCRIPTIONS))
            raise DatasetError(f"{where}: format version {shown(version)}, but this dglmnet reads {known}: {remedy}")
        _DESCRIPTIONS[version](description, place)
        _refuse_untrue(description)

    return check


def _refuse_untrue(description: dict[str, Any]) -> None:
    """Counts that stand in two places must agree; each part has the name of its place, so that none is there twice."""
    parts = description["partitions"]
    if not parts:
        raise Mismatch("partitions must not be empty")
    for name in ("features", "nnz"):
        total = sum(part[name] for part in parts)
        if description[name] != total:
            raise Mismatch(f"{name} is {description[name]}, but the parts have {total}")
    (_refuse_untrue_sides if description["format_version"] == FORMAT_VERSION else _refuse_untrue_numbers)(description)
    if description["bad_lines"]["count"] and not description["bad_lines"]["first"]:
        raise Mismatch("bad_lines counts some, but names none")
    for k, part in enumerate(parts):
        if part["file"] != part_name(k):
            raise Mismatch(f"partitions[{k}].file must be {part_name(k)}, found {part['file']}")


def _refuse_untrue_sides(description: dict[str, Any]) -> None:
    labels = description["labels"]
    total = labels["negatives"] + labels["positives"]
    if description["examples"] != total:
        raise Mismatch(f"examples is {description['examples']}, but there are {total} labels")
    if labels["weighted"]:
        record({"weight_of_negatives": number(), "weight_of_positives": number()})(labels, "labels")
    if description["label_map"]["-1"] == description["label_map"]["+1"]:
        raise Mismatch("label_map gives -1 and +1 the same label")


def _refuse_untrue_numbers(description: dict[str, Any]) -> None:
    labels = description["labels"]
    if labels["smallest"] > labels["largest"]:
        raise Mismatch(f"labels.smallest is {labels['smallest']:g}, but labels.largest is {labels['largest']:g}")
    if labels["weighted"]:
        record({"weight": number()})(labels, "labels")
