"""The run folder: run.json, path.parquet, coefficients.parquet, trace.parquet. Parquet and JSON, never pickle.

A run can be cut off at any moment. After each λ the files are written anew, each whole or not at all, and path.parquet
last: it says how many λ are done, and what other files hold beyond that is passed over. While a run is at work there is
also state.parquet: what the algorithm carries from one λ to the next, written now and then, after path.parquet. A run
that is resumed goes back to it. A run may be asked for more λ, between those that are done or below them: rows are
numbered by falling λ whenever they are written.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.metrics import TEST, metrics_in
from pipeline.model import best_of
from pipeline.run_record import BEFORE, ClaimedRun, DatasetIdentity, RunRecord, read_run_record
from pipeline.stored import (
    CLAIM,
    COEFFICIENT_SCHEMA,
    COEFFICIENTS,
    CURVES,
    PASS_SCHEMA,
    PASSES,
    PATH,
    REPORT,
    RUN_JSON,
    STATE,
    STATE_SCHEMA,
    TRACE,
    TRACE_SCHEMA,
    Weights,
    judged_schema,
    read_path_rows,
    read_state,
    read_trace,
    read_weights,
    with_lambdas,
)
from solver import Coefficients, Problem, RoundRecord, Solution, with_intercept
from transforms import OutputExists, UserError
from transforms.claim import ClaimKeeper
from transforms.errors import ClaimLost
from transforms.storage import (
    StorageOptions,
    display,
    explained,
    make_folder,
    open_storage,
    remove,
    remove_empty_folder,
    remove_leftovers,
    replace_file,
)
from transforms.stores import is_leftover

DRIVER = "driver.json"  # where the driver of the run was submitted (driver_record)
LARGEST_STATE = 1 << 29  # bytes: what is larger is not stored
STATE_SHARE = 0.05  # of the time that λ take, at most, goes into storing states
PATH_OPTIONS = ("path_length", "path_ratio", "path_lambdas", "path_extra")
FILES = (PATH, COEFFICIENTS, TRACE, STATE, CURVES, TEST + CURVES, REPORT)  # beside run.json
DATA = "data"  # the data set of a run that converts its own; it may be there before the run


@dataclass
class Run:
    """A run folder that this process writes."""

    url: str
    options: StorageOptions
    keeper: ClaimKeeper
    record: RunRecord  # run.json
    path: list[dict[str, Any]] = field(default_factory=list)
    coefficients: list[pa.Table] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)  # of the λ at work: rows of the trace to be
    state: Mapping[str, np.ndarray] | None = None  # that a run which is resumed goes back to
    state_done: int = 0  # the λ that were done when a state was last stored
    state_seconds: float = 0.0  # what storing it took

    @property
    def about(self) -> dict[str, Any]:
        """run.json as it is stored."""
        return self.record.to_json()

    @property
    def done(self) -> int:
        """How many λ are done."""
        return len(self.path)

    def add_round(self, record: RoundRecord) -> None:
        row = asdict(record)
        self.rounds.append({"lambda": row.pop("lam")} | row)

    def add_solution(self, solution: Solution, features: np.ndarray, bic: float) -> None:
        """Keep a solution, in its place among those that are done, and write the folder.

        features: the id of each position.
        """
        k = solution.lambda_index
        unjudged = {prefix + metric.name: None for prefix in ("", TEST) for metric in metrics_in(self.path, prefix)}
        self.path.insert(k, path_row(solution, bic) | unjudged)
        self.coefficients.insert(k, _coefficient_table(solution, features))
        for index, row in enumerate(self.path):
            row["index"] = index
        for row in self.trace:
            row["lambda_index"] += row["lambda_index"] >= k
        self.trace = sorted([*self.trace, *self.rounds], key=lambda row: int(row["lambda_index"]))
        self.rounds = []
        self._save()

    def missing(self, lambdas: Sequence[float]) -> list[tuple[int, int]]:
        """Runs [first, stop) of λ that are not done, by their places in all that are planned."""
        done = {row["lambda"] for row in self.path}
        edges = np.flatnonzero(np.diff([0, *(int(lam not in done) for lam in lambdas), 0]))
        return [(int(first), int(stop)) for first, stop in edges.reshape(-1, 2)]

    def forget_state(self) -> None:
        """λ come in between those that the state was taken after: it does not fit them any more."""
        self.state, self.state_done = None, 0
        fs, path = open_storage(self.url, self.options)
        self.keeper.claim.check(fs)
        remove(fs, f"{path}/{STATE}")

    def add_pass(self, index: int, number: int, beta: Coefficients, features: np.ndarray) -> None:
        """Store the coefficients after a pass of an online learner, in a file of their own."""
        ids = features[beta.position]
        order = np.argsort(ids)
        table = pa.Table.from_arrays([pa.array(ids[order]), pa.array(beta.value[order])], schema=PASS_SCHEMA)
        fs, path = open_storage(self.url, self.options)
        self.keeper.claim.check(fs)
        make_folder(fs, f"{path}/{PASSES}")
        _write_table(fs, f"{path}/{PASSES}/{pass_name(index, number)}", table)

    def add_state(self, done: int, state: Callable[[], Mapping[str, np.ndarray]]) -> None:
        """Store what the algorithm carries on, if the λ since the last time took much longer than storing it did."""
        if sum(row["seconds"] for row in self.path[self.state_done :]) < self.state_seconds / STATE_SHARE:
            return
        began, vectors = perf_counter(), state()
        if sum(vector.nbytes for vector in vectors.values()) <= LARGEST_STATE:
            fs, path = open_storage(self.url, self.options)
            self.keeper.claim.check(fs)
            _write_table(fs, f"{path}/{STATE}", _state_table(done, vectors), compression="none")
        self.state_done, self.state_seconds = done, perf_counter() - began

    def finish(self, seconds: Mapping[str, float | None]) -> None:
        """All λ are done."""
        judged = self.record.evaluation
        if judged is not None and judged.best is not None:  # λ that came in between give the best another number
            judged = replace(judged, best=best_of(self.path, judged.metric, self.record.label_kind))
        self.settle(complete=True, seconds=seconds, evaluation=judged)
        fs, path = open_storage(self.url, self.options)
        remove(fs, f"{path}/{STATE}")

    def betas(self, features: np.ndarray, problem: Problem) -> list[Coefficients]:
        """The solutions of the λ that are done, by position, the newest last; the intercept among them."""
        order = np.argsort(features, kind="stable")
        return [
            with_intercept(problem, self._by_position(table, features, order), row["intercept"] or 0.0)
            for row, table in zip(self.path, self.coefficients, strict=True)
        ]

    def _by_position(self, table: pa.Table, features: np.ndarray, order: np.ndarray) -> Coefficients:
        ids = table["feature"].to_numpy()
        position = order[np.searchsorted(features, ids, sorter=order).clip(max=features.size - 1)]
        if (features[position] != ids).any():
            raise UserError(
                f"{self.url}/{COEFFICIENTS}: it has weights of features that the data set does not have: start over "
                "with --overwrite"
            )
        rising = np.argsort(position)
        return Coefficients(position[rising].astype(np.int64), table["weight"].to_numpy()[rising])

    def settle(self, **facts: Any) -> None:
        """Add to run.json what is known only once the work has begun, or ended: fields of RunRecord."""
        self.record = self._claimed().update(lambda stored: replace(stored, **facts))

    def release(self) -> None:
        """Give the folder back. A run that got nowhere leaves nothing."""
        try:
            if not self.done:
                self._remove_beginning()
        finally:
            self.keeper.release()
        if not self.done:
            remove_empty_folder(*open_storage(self.url, self.options))

    def _remove_beginning(self) -> None:
        run = self._claimed()
        try:
            run.claim.check(run.fs)
        except ClaimLost:
            return  # the files are another's by now
        for name in (RUN_JSON, TRACE):
            remove(run.fs, f"{run.path}/{name}")
        remove(run.fs, f"{run.path}/{PASSES}", recursive=True)

    def _claimed(self) -> ClaimedRun:
        return ClaimedRun(*open_storage(self.url, self.options), self.keeper.claim)

    def _save(self) -> None:
        fs, path = open_storage(self.url, self.options)
        tables = {
            TRACE: pa.Table.from_pylist(self.trace, schema=TRACE_SCHEMA),
            COEFFICIENTS: with_lambdas(_numbered(self.coefficients), [row["lambda"] for row in self.path]),
            PATH: pa.Table.from_pylist(self.path, schema=judged_schema(self.path)),
        }
        for name, table in tables.items():
            self.keeper.claim.check(fs)  # before each: a process that was stopped in between may have lost the run
            _write_table(fs, f"{path}/{name}", table)


def pass_name(index: int, number: int) -> str:
    """The file of a pass, counted from 1, of the λ with this index."""
    return f"lambda-{index:05d}-pass-{number:05d}.parquet"


def path_row(solution: Solution, bic: float) -> dict[str, Any]:
    """A row of path.parquet."""
    return {
        "index": solution.lambda_index,
        "lambda": solution.lam,
        "objective": solution.objective,
        "gap": None if math.isnan(solution.gap) else solution.gap,
        "nonzeros": solution.nonzeros,
        "intercept": solution.intercept,
        "rounds": solution.rounds,
        "seconds": solution.seconds,
        "line_search_seconds": solution.line_search_seconds,
        "converged": solution.converged,
        "bic": bic,
    }


def open_run(url: str, record: RunRecord, options: StorageOptions, *, resume: bool, overwrite: bool) -> Run:
    """Claim the folder for a run as `record` describes it, with what is done already if it is resumed."""
    exists = check_output(url, options, resume=resume, overwrite=overwrite)
    fs, path = open_storage(url, options)
    where = display(fs, path)
    make_folder(fs, path)
    keeper = ClaimKeeper(url, options, f"{path}/{CLAIM}")
    keeper.take(takeover=resume or overwrite)
    remove_leftovers(fs, path)
    run = Run(url, options, keeper, record)
    try:
        if exists and resume:
            _take_up(fs, path, run, where)
        else:
            for name in FILES:
                remove(fs, f"{path}/{name}")
            remove(fs, f"{path}/{PASSES}", recursive=True)
            ClaimedRun(fs, path, keeper.claim).write(record)
    except BaseException:
        keeper.release()
        raise
    return run


def check_output(url: str, options: StorageOptions, *, resume: bool, overwrite: bool) -> bool:
    """Refuse a folder that is in use already. Returns whether there is a run to go on with."""
    fs, path = open_storage(url, options)
    where = display(fs, path)
    with explained(where):
        fs.invalidate_cache()
        if fs.isfile(path):
            raise OutputExists(f"{where}: is a file; the output is a folder")
        exists: bool = fs.exists(f"{path}/{RUN_JSON}")
    if exists and not (resume or overwrite):
        raise OutputExists(f"{where}: a run is there already: continue it with --resume or replace it with --overwrite")
    # What is left of a run without run.json may be replaced; what is nobody's run may not.
    replaced = (*FILES, PASSES) if overwrite else ()
    if not exists and set(_other_files(fs, path)).difference(replaced):
        raise OutputExists(f"{where}: the folder holds other files: choose an empty folder")
    return exists


def _other_files(fs: Any, path: str) -> list[str]:
    """What a folder holds that is no run's."""
    names = [name.rstrip("/").rsplit("/", 1)[-1] for name in fs.ls(path, detail=False)] if fs.exists(path) else []
    return [name for name in names if name not in (CLAIM, DATA, DRIVER) and not is_leftover(name)]


def _take_up(fs: Any, path: str, run: Run, where: str) -> None:
    """Load what is done; refuse a run of other data or options, naming the difference."""
    stored = read_run_record(fs, path, "start over with --overwrite")
    differences = [
        *_differences(_identifying(stored.dataset), _identifying(run.record.dataset)),
        *_other_options(BEFORE | dict(stored.options), _without_path(run.record.options)),
    ]
    if differences:
        hint = ""
        if "intercept" not in stored.options and run.record.option("intercept"):
            hint = ". It was made by a version without an intercept: pass --no-intercept"
        raise OutputExists(f"{where}: cannot resume a run of other data or options: {'; '.join(differences)}{hint}")
    _refuse_other_blocks(stored.blocks, run.record.dataset.partitions or 0, where)
    run.record = stored
    if not fs.exists(f"{path}/{PATH}"):
        return
    run.path = read_path_rows(fs, path)
    weights = read_weights(fs, path, run.path, stored.dataset.index_base)
    run.coefficients = [_table_of(weights, k) for k in range(run.done)]
    run.trace = read_trace(fs, path, [row["lambda"] for row in run.path])
    found = read_state(fs, path, run.done)
    if found is not None:
        run.state_done, run.state = found


def _identifying(dataset: DatasetIdentity) -> dict[str, Any]:
    """What tells a data set from another. What earlier versions did not say is left out: the checksum covers it."""
    return {name: value for name, value in dataset.to_json().items() if name not in ("positives", "weighted")}


def _without_path(options: Mapping[str, Any]) -> dict[str, Any]:
    """Which λ were asked for is no part of what a model is: a run may get more of them."""
    return {name: value for name, value in options.items() if name not in PATH_OPTIONS}


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} was {_on_one_line(stored.get(name))}, is {_on_one_line(value)}"
        for name, value in wanted.items()
        if name != "path" and stored.get(name) != value  # the same data may have moved
    ]


def _other_options(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What to write on the command line so that options are those of the run.

    Of another algorithm, options that the run's own does not have are no news.
    """
    same = stored.get("algorithm") == wanted.get("algorithm")
    return [
        _as_typed(name, stored.get(name)) + ("" if value is None else f" (it is {_on_one_line(value)} now)")
        for name, value in wanted.items()
        if stored.get(name) != value and (same or name in stored)
    ]


def _as_typed(name: str, value: Any) -> str:
    """An option as the user types it, so that it has this value."""
    flag = name.replace("_", "-")
    if name == "penalty_factors" and value is not None:
        return "repeat --penalty-factors with the file that it was begun with"
    if name == "intercept":
        return f"pass --{'' if value else 'no-'}intercept"
    if value is None or value is False:
        return f"leave --{flag} away"
    given = ",".join(map(str, value)) if isinstance(value, list | tuple) else _on_one_line(value)
    return f"repeat --{flag}" + ("" if value is True else f" {given}")


def _on_one_line(value: Any) -> str:
    return " ".join(str(value).split())[:200]


def _refuse_other_blocks(blocks: Sequence[list[int]] | None, partitions: int, where: str) -> None:
    """The blocks that a run was begun with hold each partition once, in order."""
    if blocks and [k for block in blocks for k in block] != list(range(partitions)):
        raise UserError(
            f"{where}/{RUN_JSON}: damaged (blocks must hold the partitions 0 to {partitions - 1}, each once and in "
            "order): start over with --overwrite"
        )


def _table_of(weights: Weights, k: int) -> pa.Table:
    """The coefficients of λ k, as they are stored."""
    mine = slice(weights.starts[k], weights.starts[k + 1])
    index = np.full(weights.features[mine].size, k, dtype=np.int32)
    return pa.Table.from_arrays(
        [pa.array(index), pa.array(weights.features[mine]), pa.array(weights.weights[mine])], schema=COEFFICIENT_SCHEMA
    )


def _numbered(tables: Sequence[pa.Table]) -> pa.Table:
    """The coefficients of all λ, each with the number that its λ has by now."""
    index = np.repeat(np.arange(len(tables), dtype=np.int32), [table.num_rows for table in tables])
    return pa.concat_tables(tables).set_column(0, COEFFICIENT_SCHEMA.field(0), pa.array(index))


def _coefficient_table(solution: Solution, features: np.ndarray) -> pa.Table:
    ids = features[solution.beta.position]
    order = np.argsort(ids)
    index = np.full(ids.size, solution.lambda_index, dtype=np.int32)
    return pa.Table.from_arrays(
        [pa.array(index), pa.array(ids[order]), pa.array(solution.beta.value[order])], schema=COEFFICIENT_SCHEMA
    )


def _state_table(done: int, vectors: Mapping[str, np.ndarray]) -> pa.Table:
    ends = np.cumsum([0, *(vector.size for vector in vectors.values())])
    values = pa.array(np.concatenate([np.empty(0), *vectors.values()]))
    columns = [pa.array([done] * len(vectors), pa.int32()), pa.array(list(vectors))]
    return pa.Table.from_arrays([*columns, pa.LargeListArray.from_arrays(ends, values)], schema=STATE_SCHEMA)


def _write_table(fs: Any, path: str, table: pa.Table, compression: str = "zstd") -> None:
    """Whole or not at all."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression=compression, write_page_checksum=True)
    replace_file(fs, path, buffer.getvalue())


def old_report(url: str, options: dict[str, Any] | None = None) -> str | None:
    """What to do about report.html of a run that has changed; None if there is none."""
    fs, path = open_storage(url, options)
    with explained(display(fs, path)):
        there = fs.exists(f"{path}/{REPORT}")
    where = display(fs, path)
    return f"{where}/{REPORT} shows the run as it was: dask-submit report {where} writes it anew" if there else None


def read_path(url: str, options: dict[str, Any] | None = None) -> Sequence[dict[str, Any]]:
    """path.parquet as rows."""
    fs, path = open_storage(url, options)
    return read_path_rows(fs, path)
