"""run.json: what it holds, the one way to read it, checked, and the one way to write it, under the run's claim."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Self

from pipeline.metrics import NUMBER, metric_names
from pipeline.stored import CLAIM, RUN_JSON
from solver.losses import LOSSES, find_loss
from transforms import Dataset, UserError, __version__
from transforms.claim import Claim, claimed
from transforms.dataset_record import LABEL_MAP
from transforms.labels import LabelMap
from transforms.plan import SHARE
from transforms.records import PERHAPS, Record, of
from transforms.schema import (
    SHA256,
    Check,
    Mismatch,
    flag,
    listed,
    mapping,
    number,
    optional,
    read_record,
    record,
    refuse,
    shown,
    text,
    whole,
    write_sealed,
)
from transforms.storage import StorageOptions, display, open_storage

RUN_VERSION = 1
# What runs of versions that did not have these options were fitted with.
BEFORE = {
    "loss": "logistic",
    "intercept": False,
    "l1_ratio": 1.0,
    "nonnegative": False,
    "standardize": False,
    "class_weight": None,
    "penalty_factors": None,
}
LONGEST_SECONDS = 1e10  # 300 years


@dataclass(frozen=True, kw_only=True)
class DatasetIdentity(Record):
    """What tells a data set from another, and what a model needs to read other data as it read this one."""

    path: str
    sha256: str
    examples: int
    features: int
    nnz: int | None = field(default=None, metadata=PERHAPS)
    partitions: int | None = field(default=None, metadata=PERHAPS)
    index_base: int
    label_map: LabelMap | None = field(default=None, metadata=of(LabelMap, perhaps=True))  # none of numbers
    hold_out: float | None = field(default=None, metadata=PERHAPS)  # the share of examples that the conversion left out

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        about = dataset.record
        checksums = [part.sha256 for part in about.partitions] + [about.labels.sha256]
        return cls(
            path=dataset.name,
            sha256=hashlib.sha256("".join(checksums).encode()).hexdigest(),
            examples=dataset.n,
            features=dataset.p,
            nnz=dataset.nnz,
            partitions=len(about.partitions),
            index_base=about.index_base,
            label_map=about.label_map,
            hold_out=about.hold_out or None,
        )


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord(Record):
    """What the models of a run were judged by, and which is best."""

    inputs: list[dict[str, Any]]
    held_out: float | None = None
    on_bad_line: str | None = field(default=None, metadata=PERHAPS)
    bad_lines: int | None = field(default=None, metadata=PERHAPS)
    examples: int
    nonzeros: int
    unseen_nonzeros: int | None
    weighted: bool
    metric: str
    best: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord(Record):
    """run.json."""

    run_version: int = RUN_VERSION
    dataset: DatasetIdentity = field(metadata=of(DatasetIdentity))
    options: Mapping[str, Any]  # as the fit was given them
    versions: Mapping[str, str] | None = field(default=None, metadata=PERHAPS)
    complete: bool = False
    seconds: Mapping[str, float | None] = field(default_factory=dict)  # by stage
    blocks: Sequence[list[int]] | None = field(default=None, metadata=PERHAPS)  # the partitions of each
    example_cuts: Sequence[int] | None = field(
        default=None, metadata=PERHAPS
    )  # of parts by example: first of each, end
    lambda_max: float | None = field(default=None, metadata=PERHAPS)
    lambdas: Sequence[float] | None = field(default=None, metadata=PERHAPS)  # all that are planned
    # By what the best model is chosen, and by what the models are judged besides, which chooses nothing.
    evaluation: EvaluationRecord | None = field(default=None, metadata=of(EvaluationRecord, perhaps=True))
    test: EvaluationRecord | None = field(default=None, metadata=of(EvaluationRecord, perhaps=True))
    report: str | None = field(default=None, metadata=PERHAPS)  # a fingerprint of what report.html shows

    @classmethod
    def begin(cls, dataset: Dataset, options: Mapping[str, Any], seconds: Mapping[str, float]) -> Self:
        """The record of a run that begins."""
        plain, who = plain_options(options), DatasetIdentity.of(dataset)
        return cls(dataset=who, options=plain, versions=_versions(), seconds=dict(seconds))

    def option(self, name: str) -> Any:
        """An option as the fit was given it, in whichever version."""
        return self.options.get(name, BEFORE.get(name))

    @property
    def loss(self) -> str:
        return str(self.option("loss"))

    @property
    def label_kind(self) -> str:
        """What the labels are to the loss, and so which metrics the models are judged by."""
        return find_loss(self.loss).LABELS


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def spent(before: Mapping[str, float | None], stage: str, seconds: float, compiling: float) -> dict[str, float | None]:
    """Seconds by stage, with another. Kernels are compiled once on a machine: that counts by itself, in no stage."""
    total = (before.get("compile") or 0.0) + compiling
    return {**before, **({"compile": total} if total else {}), stage: seconds}


def _versions() -> dict[str, str]:
    names = ("dask", "distributed", "numba", "numpy", "pyarrow")
    return {"dglmnet": __version__, "python": platform.python_version()} | {name: version(name) for name in names}


# --- reading and writing --------------------------------------------------------------------------------------------


def read_run_record(fs: Any, path: str, remedy: str = "fit again") -> RunRecord:
    """run.json of the folder at `path`, if it is one that this version understands."""
    where = display(fs, path)
    try:
        fs.invalidate_cache()
        return RunRecord.from_json(read_record(fs, f"{path}/{RUN_JSON}", run_check(where), remedy))
    except (FileNotFoundError, NotADirectoryError):
        why = f"there is no {RUN_JSON} in it" if fs.exists(path) else "no such folder"
        raise UserError(f"{where}: not a run: {why}. Make one with dask-submit fit") from None


@dataclass(frozen=True)
class ClaimedRun:
    """A run folder that this process has claimed. run.json is written here and nowhere else."""

    fs: Any
    path: str
    claim: Claim

    def write(self, content: RunRecord) -> None:
        """Write all of it, unless another process has taken over the run."""
        self.claim.check(self.fs)
        write_sealed(self.fs, f"{self.path}/{RUN_JSON}", content.to_json())

    def update(self, change: Callable[[RunRecord], RunRecord]) -> RunRecord:
        """Change what is stored now; returns what is stored then."""
        changed = change(read_run_record(self.fs, self.path))
        self.write(changed)
        return changed


@contextmanager
def claimed_run(url: str, options: StorageOptions) -> Iterator[ClaimedRun]:
    """Hold the claim on a run that exists. Raises ClaimHeld while another process writes it."""
    fs, path = open_storage(url, options)
    with claimed(url, options, f"{path}/{CLAIM}") as keeper:
        yield ClaimedRun(fs, path, keeper.claim)


def update_run(url: str, options: StorageOptions, change: Callable[[RunRecord], RunRecord]) -> RunRecord:
    """Claim a run, change its run.json, and give the claim back: nothing that others wrote is lost."""
    with claimed_run(url, options) as run:
        return run.update(change)


# --- what it must look like -----------------------------------------------------------------------------------------


def _option(value: Any, place: str) -> None:
    """An option as a run was given it: a number, text, true, false, null, or a list of such."""
    if isinstance(value, list):
        listed(_option)(value, place)
    elif isinstance(value, str):
        text()(value, place)
    elif isinstance(value, dict):
        refuse(place, "a single value", value)


def _metric(value: Any, place: str) -> None:
    text(choices=metric_names())(value, place)


_DATASET = record(
    {
        "path": text(),
        "sha256": text(SHA256),
        "examples": whole(),
        "features": whole(),
        "index_base": whole(high=1),
    },
    {"label_map": LABEL_MAP, "nnz": whole(), "partitions": whole(), "hold_out": SHARE},
)
_EVALUATION = record(
    {
        "inputs": listed(
            record({"path": text()}, {"size": whole(), "version": text(), "sha256": text(), "examples": whole()})
        ),
        "examples": whole(),
        "nonzeros": whole(),
        "unseen_nonzeros": optional(whole()),
        "weighted": flag,
        "metric": _metric,
    },
    {
        "held_out": optional(SHARE),
        "on_bad_line": text(),
        "bad_lines": whole(),
        "best": optional(whole()),
    },
)
_RUN = record(
    {"dataset": _DATASET, "options": mapping(_option)},
    {
        "versions": mapping(text()),
        "complete": flag,
        "seconds": mapping(optional(number(0, LONGEST_SECONDS))),
        "blocks": listed(listed(whole())),
        "example_cuts": listed(whole()),
        "lambda_max": number(low=0),
        "lambdas": listed(number(low=0)),
        "evaluation": _EVALUATION,
        "test": _EVALUATION,
        "report": text(),
    },
)


def run_check(where: str) -> Check:
    def check(about: dict[str, Any], place: str) -> None:
        version = about.get("run_version")
        if type(version) is not int or version != RUN_VERSION:
            found = f"run version {shown(version)}"
            raise UserError(f"{where}: {found}, but this dglmnet reads {RUN_VERSION}: fit again")
        _RUN(about, place)
        chosen = BEFORE | about["options"]
        text(choices=list(LOSSES))(chosen["loss"], "options.loss")
        flag(chosen["intercept"], "options.intercept")
        number(0, 1)(chosen["l1_ratio"], "options.l1_ratio")
        names = about["dataset"].get("label_map")
        if names is None and find_loss(chosen["loss"]).LABELS != NUMBER:
            raise Mismatch("dataset.label_map is missing")
        if names is not None and names["-1"] == names["+1"]:
            raise Mismatch("dataset.label_map gives -1 and +1 the same label")

    return check
