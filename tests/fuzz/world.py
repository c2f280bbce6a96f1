"""A small world to spoil: a data set, a run of it, a conversion that was cut off, and canaries around and between.

`World.play` writes a spoiled file, uses it in every way that a command would, and puts the world back. What may happen
is that it works, or that a UserError says in one line what is wrong. Any other error is a failure, and so is a canary
that was touched, or a spoiled file that was taken for the real one though its checksum is wrong.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
from distributed import Client
from rich.console import Console

from pipeline import PathModel, PathOptions, evaluate, fit_path, predict
from pipeline.commands import convert as convert_command
from pipeline.driver import record as record_module
from pipeline.driver import status as status_module
from pipeline.driver.record import DriverRecord, RunFolder
from pipeline.driver.status import read_status, status_lines
from pipeline.report.data import read_run
from pipeline.report.write import write_report
from pipeline.resident import ExampleOptions, LoadedColumns, PartitionColumns
from pipeline.run import open_run
from pipeline.run_record import RunRecord, run_check
from pipeline.scoring import score_partition, training_features
from pipeline.summary import summary_lines
from pipeline.weights import WeightTable
from solver import (
    Block,
    DefaultOptions,
    Examples,
    Penalty,
    Problem,
    ProblemOptions,
    ThreadBlocks,
    make_problem,
    null_model,
    solve_path,
)
from tests.damage import unsealed
from tests.fuzz.mutations import spoil_bytes, spoil_json, spoil_table
from transforms import (
    Dataset,
    UserError,
    check_dataset,
    claim,
    convert_libsvm,
    from_arrays,
    open_dataset,
    output,
    parts,
)
from transforms.dataset_record import dataset_check
from transforms.parts import hash_ids
from transforms.plan import PLAN_SCHEMA, Plan
from transforms.schema import Check, parse_record
from transforms.storage import StorageOptions, open_storage

JSON_KINDS = {
    "dataset.json": "home/data/dataset.json",
    "run.json": "home/run/run.json",
    "dataset.json of numbers": "home/numbers/dataset.json",
    "run.json of numbers": "home/numbers-run/run.json",
    "driver.json": "home/run/driver.json",
    "claim.json": "home/half/_temporary/claim.json",
    "plan.json": "home/half/_temporary/plan.json",
    "commit.json": "home/half/_temporary/commit.json",
}
PARQUET_KINDS = {
    "part": "home/data/part-00001.parquet",
    "labels": "home/data/labels.parquet",
    "numbers": "home/numbers/labels.parquet",
    "path": "home/run/path.parquet",
    "coefficients": "home/run/coefficients.parquet",
    "trace": "home/run/trace.parquet",
}
KINDS = JSON_KINDS | PARQUET_KINDS
CHECKSUMMED = ("part", "labels", "numbers")  # dataset.json has their checksums
HOW_PARQUET = ("table, right checksum", "bytes, right checksum", "bytes")


class Failure(AssertionError):
    """What must not happen."""


@dataclass(frozen=True)
class Case:
    """A file to spoil and the seed that says how."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.seed}"


def build(root: Path, client: Client) -> None:
    """Make the world in an empty folder."""
    home = root / "home"
    home.mkdir(parents=True)
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(40, 12)) * (rng.random((40, 12)) < 0.4), 2)
    y = np.where(X @ np.cos(np.arange(12)) + 0.3 * rng.normal(size=40) > 0, 1, -1)
    with mock.patch.object(parts, "ROW_GROUP_NNZ", 30):
        from_arrays(X, y, str(home / "data"), sample_weight=rng.random(40) + 0.5, partitions=2)
        numbers = X @ np.cos(np.arange(12)) + 5.0
        from_arrays(X, numbers, str(home / "numbers"), sample_weight=rng.random(40), partitions=2, numeric_labels=True)
    lines = [
        " ".join([str(label), *(f"{j + 1}:{x:g}" for j, x in enumerate(row) if x)])
        for label, row in zip(y, X, strict=True)
    ]
    (home / "in.svm").write_text("\n".join(lines) + "\n")
    fit_path(str(home / "data"), str(home / "run"), path=PathOptions(length=3), client=client)
    evaluate(str(home / "run"), str(home / "data"), client=client)
    squared, path = ProblemOptions(loss="squared"), PathOptions(length=3)
    fit_path(str(home / "numbers"), str(home / "numbers-run"), problem=squared, path=path, client=client)
    evaluate(str(home / "numbers-run"), str(home / "numbers"), client=client)
    record = DriverRecord("fit", "tcp://127.0.0.1:1", "key", "2026-01-01T00:00:00+00:00", state="running")
    RunFolder.of(str(home / "run"), {}).write(record)
    _cut_off(home, client)
    for place in (root, home, home / "data", home / "run", home / "half", root / "elsewhere"):
        place.mkdir(exist_ok=True)
        (place / "canary.txt").write_text("alive")
    shutil.copy(home / "data" / "part-00000.parquet", root / "elsewhere" / "part-00000.parquet")


def _cut_off(home: Path, client: Client) -> None:
    """A conversion that ended in the middle of its commit."""

    def stop(*_: Any) -> None:
        raise UserError("stopped")

    from transforms import convert as convert_module

    with mock.patch.object(convert_module, "commit", stop):
        try:
            convert_libsvm(str(home / "in.svm"), str(home / "half"), partitions=2, resume=True, client=client)
        except UserError as error:
            assert str(error) == "stopped"
    temporary = home / "half" / "_temporary"
    names = ["labels.parquet", "part-00000.parquet", "part-00001.parquet"]
    (temporary / "commit.json").write_text(json.dumps({"files": names}))
    shutil.copy(temporary / "part-00000.parquet", home / "half")
    holder = {"token": "t", "host": "another", "pid": 1, "beat": 3}
    (temporary / "claim.json").write_text(json.dumps(holder))


@contextmanager
def quiet() -> Iterator[None]:
    """Nobody is waited for: claims are not watched, and there is no scheduler to ask."""

    def unreachable(*_: Any, **__: Any) -> Any:
        raise UserError("no scheduler")

    with (
        mock.patch.object(claim, "PATIENCE_SECONDS", 0.0),
        mock.patch.object(status_module, "open_scheduler", unreachable),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


class World:
    """The world in `root`; what it was like is remembered."""

    def __init__(self, root: Path, client: Callable[[], Client] | None = None) -> None:
        self.root, self.home, self._client = root, root / "home", client
        self.data, self.run, self.half = (str(self.home / name) for name in ("data", "run", "half"))
        self._before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self._canaries = [path for path in self._before if path.name == "canary.txt" or path.parent.name == "elsewhere"]
        self._looks = {path: _look(path) for path in self._before}
        self._json = {kind: unsealed(json.loads((root / path).read_bytes())) for kind, path in JSON_KINDS.items()}
        self._tables = {kind: pq.read_table(root / path) for kind, path in PARQUET_KINDS.items()}
        self._about = self._json["run.json"]
        self._plan = Plan.from_json(self._json["plan.json"])
        self._model = PathModel.load(self.run)

    def play(self, case: Case) -> bool:
        """Whether the spoiled file was refused. Raises Failure."""
        rng = Random(f"{case.kind}-{case.seed}")
        path = self.root / KINDS[case.kind]
        original = self._before[path]
        how = "json" if case.kind in JSON_KINDS else rng.choice(HOW_PARQUET)
        spoiled = self._spoil(rng, case.kind, how, original)
        use = rng.choice(_USES[case.kind])
        if case.kind in _CHECKS and use is not _overwrite and rng.random() < 0.9 and _is_refused(case, spoiled):
            return True  # the reader alone says so, many times as fast; what gets past it is played to the end
        path.write_bytes(spoiled)
        if "right" in how and case.kind in CHECKSUMMED:
            self._make_right(path, rng)
        try:
            refused = self._use(case, use, rng)
            if how == "bytes" and case.kind in CHECKSUMMED and spoiled != original and not refused:
                raise Failure(f"{case}: other bytes were taken for the file, though its checksum is wrong")
        finally:
            self._put_back(case)
        return refused

    def spoiled(self, case: Case) -> bytes:
        """What the case writes, to look at."""
        rng = Random(f"{case.kind}-{case.seed}")
        how = "json" if case.kind in JSON_KINDS else rng.choice(HOW_PARQUET)
        return self._spoil(rng, case.kind, how, self._before[self.root / KINDS[case.kind]])

    def _spoil(self, rng: Random, kind: str, how: str, original: bytes) -> bytes:
        if how == "json":
            return spoil_json(rng, self._json[kind], str(self.root))
        return spoil_table(rng, self._tables[kind]) if how.startswith("table") else spoil_bytes(rng, original)

    def _make_right(self, path: Path, rng: Random) -> None:
        """Let dataset.json say that the file is right; its counts, too, most of the time."""
        about = unsealed(json.loads(self._before[path.parent / "dataset.json"]))
        info = about["labels"] if path.name == "labels.parquet" else about["partitions"][1]
        content = path.read_bytes()
        info |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        if rng.random() < 0.8:
            _count_anew(about, info, content)
        (path.parent / "dataset.json").write_text(json.dumps(about))

    def _use(self, case: Case, use: Callable[[World, Random], object], rng: Random) -> bool:
        """Use the file, and sometimes run whole commands on it, too; whether it was refused."""
        refused = self._attempt(case, use, rng)
        if self._client is not None and rng.random() < 0.001:
            for use in (_convert_again, _full_fit, _full_predict):
                refused |= self._attempt(case, use, rng)
        return refused

    def _attempt(self, case: Case, use: Callable[[World, Random], object], rng: Random) -> bool:
        try:
            use(self, rng)
        except UserError as error:
            if "\n" in str(error) or str(self.home) not in str(error):
                raise Failure(f"{case}: {use.__name__}: not one line that names the file: {error!r}") from error
            return True
        except Exception as error:
            raise Failure(f"{case}: {use.__name__}: {type(error).__name__}: {error}") from error
        finally:
            dead = [path for path in self._canaries if _look(path) != self._looks[path]]
            if dead:
                raise Failure(f"{case}: {use.__name__} touched {dead[0]}")
        return False

    def _put_back(self, case: Case) -> None:
        """Restore what the uses changed; nothing may have appeared outside of home."""
        found = {Path(folder) / name for folder, _, names in os.walk(self.root) for name in names}
        for path in found - self._before.keys():
            if self.home not in path.parents:
                raise Failure(f"{case}: {path} appeared")
            path.unlink()
        for path, content in self._before.items():
            if path not in found or _look(path) != self._looks[path]:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                self._looks[path] = _look(path)

    def client(self) -> Client:
        assert self._client is not None
        return self._client()


def _is_refused(case: Case, content: bytes) -> bool:
    """Does the reader of these files refuse the content, by the errors it may raise?"""
    try:
        parse_record(content, _CHECKS[case.kind])
    except (ValueError, UserError) as error:
        if "\n" in str(error):
            raise Failure(f"{case}: not one line: {error!r}") from error
        return True
    except Exception as error:
        raise Failure(f"{case}: parse_record: {type(error).__name__}: {error}") from error
    return False


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _count_anew(about: dict[str, Any], info: dict[str, Any], content: bytes) -> None:
    """The counts of a file that can be read, as far as they can be had."""
    try:
        with pq.ParquetFile(io.BytesIO(content)) as file:
            table = file.read()
            if "label" in table.column_names:
                labels = table["label"].to_numpy()
                if "kind" in info:
                    info |= {"smallest": float(labels.min()), "largest": float(labels.max())}
                    about["examples"] = labels.size
                    return
                info |= {"positives": int((labels > 0).sum()), "negatives": int((labels <= 0).sum())}
                about["examples"] = info["positives"] + info["negatives"]
                return
            nnz = int(sum(len(row) for row in table["examples"].to_pylist()))
            facts = {"features": table.num_rows, "nnz": nnz, "row_groups": file.num_row_groups}
            facts["largest_bound"] = float(np.max(table["bound"].to_numpy(), initial=0.0))
            facts["values"] = "values" in table.column_names
            info |= facts | {"features_sha256": hash_ids(table["feature"].to_numpy())}
    except Exception:
        return  # it cannot be counted: dataset.json keeps the old ones
    about["features"] = sum(part["features"] for part in about["partitions"])
    about["nnz"] = sum(part["nnz"] for part in about["partitions"])


# --- uses -----------------------------------------------------------------------------------------------------------


def _inspect(world: World, rng: Random) -> None:
    dataset = open_dataset(world.data)
    problems = check_dataset(dataset)
    if problems:
        raise UserError(str(problems[0]))
    Console(file=io.StringIO()).print(convert_command._summary(dataset, []))


def _read(world: World, rng: Random) -> None:
    dataset = open_dataset(world.data)
    for part in dataset.partitions:
        part.read(rng.choice((None, 0.0, 1.0, 1e9)))
        part.read_features()
        columns = PartitionColumns([part], dataset.n)
        for _ in range(2):  # by Arrow, and by the pages
            list(columns)


def _score(world: World, rng: Random) -> None:
    dataset = open_dataset(world.data)
    dataset.labels()
    table = WeightTable.of(world._model, [0, 1, 2])
    for part in dataset.partitions:
        margins, _ = score_partition(part, dataset.n, table)
        assert np.isfinite(margins).all()


def _fit(world: World, rng: Random) -> None:
    """What the workers and the driver of a fit do, in this thread."""
    dataset = open_dataset(world.data)
    loss = "squared" if dataset.numeric else "logistic"
    how = ExampleOptions(loss)
    examples = how.examples(dataset)
    blocks = [_block(dataset, k, how, examples) for k in range(len(dataset.partitions))]
    with_threads = ThreadBlocks(blocks, threads=1)
    intercept = np.unique(dataset.labels()[0]).size > 1
    problem = make_problem(with_threads, examples, ProblemOptions(loss=loss, intercept=intercept))
    null = null_model(with_threads, problem)
    if null.lambda_max > 0:
        list(solve_path(with_threads, problem, [null.lambda_max / 2], DefaultOptions(max_rounds=20), null=null))


def _block(dataset: Dataset, k: int, how: ExampleOptions, examples: Examples) -> Block:
    part = dataset.partitions[k]
    columns = LoadedColumns([part], examples.n)
    return Block(columns, part.info.features, examples, how.bounds(dataset, columns.bounds))


def _resume_finished(world: World, rng: Random) -> None:
    fs, path = open_storage(world.data)
    output.is_finished(fs, path, {"partitions": 2}, resume=True, overwrite=False)


def _overwrite(world: World, rng: Random) -> None:
    fs, path = open_storage(world.data)
    output.is_finished(fs, path, {}, resume=False, overwrite=True)
    output._remove_dataset(fs, path)


def _take_up_conversion(world: World, rng: Random) -> None:
    how = {"resume": True, "overwrite": False} if rng.random() < 0.7 else {"resume": False, "overwrite": True}
    fs, path = open_storage(world.half)
    output.is_finished(fs, path, {}, **how)
    with output.workplace(world.half, StorageOptions(), world._plan, {}, **how):
        pass


def _look_at_claim(world: World, rng: Random) -> None:
    keeper = claim.ClaimKeeper(world.half, {}, f"{world.half}/_temporary/claim.json")
    keeper.at_work()
    keeper.take(takeover=True)
    keeper.release()


def _load_model(world: World, rng: Random) -> None:
    model = PathModel.load(world.run)
    repr(model), model.best(), model.width, model.coef(-1)
    model.predict(np.ones((3, 12)), -1)
    if model.label_kind == "binary":
        model.predict_proba(np.ones((3, 12)), -1)
    summary_lines(world.run)
    WeightTable.of(model, list(range(len(model))), training_features(model, StorageOptions()))


def _status(world: World, rng: Random) -> None:
    status_lines(read_status(RunFolder.of(world.run, {})))


def _read_report(world: World, rng: Random) -> None:
    read_run(world.run, StorageOptions())
    if rng.random() < 0.002:
        write_report(world.run)


def _take_up_run(world: World, rng: Random) -> None:
    run = open_run(world.run, RunRecord.from_json(world._about), StorageOptions(), resume=True, overwrite=False)
    ids = np.arange(12)
    run.betas(ids, Problem(Examples.of([1, -1]), Penalty(ids.size), intercept=True))
    run.release()


def _convert_again(world: World, rng: Random) -> None:
    for folder, how in ((world.data, {"overwrite": True}), (world.half, {"resume": True})):
        convert_libsvm(str(world.home / "in.svm"), folder, partitions=2, client=world.client(), **how)  # type: ignore[arg-type]


def _full_fit(world: World, rng: Random) -> None:
    new = f"{world.home}/new"
    fit_path(world.data, new, path=PathOptions(length=2), residency="stream", client=world.client(), overwrite=True)


def _full_predict(world: World, rng: Random) -> None:
    predict(world.run, world.data, f"{world.home}/p.parquet", client=world.client(), overwrite=True)
    evaluate(world.run, world.data, client=world.client())


def _of_numbers(use: Callable[[World, Random], object]) -> Callable[[World, Random], object]:
    """The same with the data set whose labels are numbers, and its run."""

    def used(world: World, rng: Random) -> None:
        numbers = str(world.home / "numbers")
        about = world._json["run.json of numbers"]
        with mock.patch.multiple(world, data=numbers, run=f"{numbers}-run", _about=about):
            use(world, rng)

    used.__name__ = f"{use.__name__} of numbers"
    return used


_OF_DATA = (_inspect, _read, _score, _fit)
_OF_RUN = (_load_model, _status, _read_report, _take_up_run)
_USES: dict[str, tuple[Callable[[World, Random], object], ...]] = {
    "dataset.json": (*_OF_DATA, _resume_finished, _overwrite),
    "part": _OF_DATA,
    "labels": (_inspect, _score, _fit),
    "run.json": _OF_RUN,
    "dataset.json of numbers": tuple(map(_of_numbers, (*_OF_DATA, _resume_finished))),
    "numbers": tuple(map(_of_numbers, (_inspect, _score, _fit))),
    "run.json of numbers": tuple(map(_of_numbers, _OF_RUN)),
    "path": _OF_RUN,
    "coefficients": _OF_RUN,
    "trace": (_read_report, _take_up_run),
    "driver.json": (_status,),
    "claim.json": (_look_at_claim, _take_up_conversion),
    "plan.json": (_take_up_conversion,),
    "commit.json": (_take_up_conversion,),
}
_CHECKS: dict[str, Check] = {
    "dataset.json": dataset_check("data"),
    "run.json": run_check("run"),
    "dataset.json of numbers": dataset_check("numbers"),
    "run.json of numbers": run_check("numbers-run"),
    "driver.json": record_module._RECORD,
    "claim.json": claim._HOLDER,
    "plan.json": PLAN_SCHEMA,
    "commit.json": output._COMMIT,
}
