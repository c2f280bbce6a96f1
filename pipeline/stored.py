"""A run folder as it is stored: what its files are called, what they hold, and the one way to read each, checked.

Whatever comes from here may be handed to kernels: ids are in range and rise, weights are finite, tables agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from pipeline.metrics import TEST, metric_names, metrics_in, stored_metrics
from transforms import UserError
from transforms.dataset import UNREADABLE, one_line
from transforms.schema import Mismatch, shown
from transforms.storage import display, explained, read_parquet
from transforms.validation import LARGEST_ID, refuse_nulls, refuse_other_columns

T = TypeVar("T")
RUN_JSON, PATH, COEFFICIENTS, TRACE = "run.json", "path.parquet", "coefficients.parquet", "trace.parquet"
LAMBDAS = b"lambdas"  # of coefficients.parquet: the λ that its numbers stand for, as JSON in its schema's metadata
STATE = "state.parquet"  # while a run is at work
PASSES = "passes"  # a folder: the coefficients after each pass of an online learner
CURVES = "curves.parquet"  # and with TEST before it, of test data: the bins that curves are drawn from
REPORT = "report.html"
CLAIM = "claim.json"
WITHOUT_STATE = "delete it to go on without, to a path that is the same within the tolerance"
LARGEST_LAMBDA = 1e100  # float32 values and weights cannot make a λ that matters larger, nor smaller than its inverse
LONGEST_SECONDS = 1e10  # 300 years

PATH_SCHEMA = pa.schema(
    [
        ("index", pa.int32()),
        ("lambda", pa.float64()),
        ("objective", pa.float64()),
        ("gap", pa.float64()),
        ("nonzeros", pa.int64()),
        ("intercept", pa.float64()),
        ("rounds", pa.int32()),
        ("seconds", pa.float64()),
        ("line_search_seconds", pa.float64()),
        ("converged", pa.bool_()),
        ("bic", pa.float64()),
    ]
)
COEFFICIENT_SCHEMA = pa.schema([("lambda_index", pa.int32()), ("feature", pa.int64()), ("weight", pa.float64())])
PASS_SCHEMA = pa.schema([("feature", pa.int64()), ("weight", pa.float64())])
TRACE_SCHEMA = pa.schema(
    [
        ("lambda_index", pa.int32()),
        ("lambda", pa.float64()),
        ("round", pa.int32()),
        ("objective", pa.float64()),
        ("relative_decrease", pa.float64()),
        ("alpha", pa.float64()),
        ("nonzeros", pa.int64()),
        ("seconds", pa.float64()),
        ("line_search_seconds", pa.float64()),
        ("gap", pa.float64()),
    ]
)
STATE_SCHEMA = pa.schema([("done", pa.int32()), ("name", pa.string()), ("vector", pa.large_list(pa.float64()))])
# Columns that earlier versions did not write, and those that an evaluation adds.
_MAY_LACK = ("bic", "gap", "intercept", "line_search_seconds", "converged", "relative_decrease", "alpha")


def _metric_columns() -> list[str]:
    """What evaluations may add."""
    return [prefix + name for prefix in ("", TEST) for name in metric_names()]


def read_path_rows(fs: Any, path: str) -> list[dict[str, Any]]:
    """path.parquet, a row per λ."""

    def rows(table: pa.Table) -> list[dict[str, Any]]:
        lambdas = table["lambda"].to_numpy()
        if table["index"].to_pylist() != list(range(table.num_rows)):
            raise Mismatch("index must count from 0")
        if not ((lambdas > 0).all() and np.isfinite(lambdas).all() and (np.diff(lambdas) < 0).all()):
            raise Mismatch("lambda must be finite, above 0, and fall")
        if not ((lambdas > 1 / LARGEST_LAMBDA).all() and (lambdas < LARGEST_LAMBDA).all()):
            raise Mismatch(f"lambda must be from {1 / LARGEST_LAMBDA:g} to {LARGEST_LAMBDA:g}")
        _refuse_negative(table, ("objective", "nonzeros", "rounds", "seconds", "line_search_seconds"))
        judged = [name for name in metric_names() if name in table.column_names]
        tested = [TEST + name for name in metric_names() if TEST + name in table.column_names]
        for name in ("gap", "bic", "intercept", *judged, *tested):
            if not np.isfinite(table[name].drop_null().to_numpy()).all():
                raise Mismatch(f"{name} must be finite")
        missing = {metric.name: None for metric in stored_metrics(judged) if metric.name not in judged}
        return [row | missing for row in table.to_pylist()]

    return _read(fs, f"{path}/{PATH}", PATH_SCHEMA, rows, others=_metric_fields(_metric_columns()))


def judged_schema(rows: Sequence[dict[str, Any]]) -> pa.Schema:
    """The columns of path.parquet when rows have been judged: the metrics come last."""
    names = [prefix + metric.name for prefix in ("", TEST) for metric in metrics_in(rows, prefix)]
    return pa.schema([*PATH_SCHEMA, *_metric_fields(names)])


def _metric_fields(names: Sequence[str]) -> list[pa.Field]:
    return [pa.field(name, pa.float64()) for name in names]


@dataclass(frozen=True)
class Weights:
    """The coefficients of a path: those of λ k are starts[k] to starts[k + 1]."""

    starts: np.ndarray
    features: np.ndarray  # int64, rising within a λ
    weights: np.ndarray  # float64


def read_weights(fs: Any, path: str, rows: Sequence[dict[str, Any]], index_base: int) -> Weights:
    """coefficients.parquet, as far as path.parquet has rows: a fit at work may have written the next λ already."""
    where = display(fs, path)

    def weights(table: pa.Table) -> Weights:
        index, features = table["lambda_index"].to_numpy(), table["feature"].to_numpy()
        values = table["weight"].to_numpy()
        if (np.diff(index) < 0).any() or (index.size and index[0] < 0):
            raise Mismatch("lambda_index must rise from 0")
        if ((np.diff(index) == 0) & (np.diff(features) <= 0)).any():
            raise Mismatch("feature ids must rise within a λ")
        if features.size and (features.min() < index_base or features.max() > LARGEST_ID):
            raise Mismatch(f"feature ids outside {index_base}..{LARGEST_ID}")
        if not np.isfinite(values).all():
            raise Mismatch("weights that are not finite")
        numbers = _numbers_of([row["lambda"] for row in rows], table.schema.metadata)
        first, last = np.searchsorted(index, numbers), np.searchsorted(index, numbers, side="right")
        taken = np.concatenate([np.empty(0, np.int64), *(np.arange(*ends) for ends in zip(first, last, strict=True))])
        return Weights(np.concatenate(([0], np.cumsum(last - first))), features[taken], values[taken])

    found = _read(fs, f"{path}/{COEFFICIENTS}", COEFFICIENT_SCHEMA, weights)
    if np.diff(found.starts).tolist() != [row["nonzeros"] for row in rows]:
        raise UserError(f"{where}: damaged: {COEFFICIENTS} and {PATH} do not agree: fit again")
    return found


def with_lambdas(table: pa.Table, lambdas: Sequence[float]) -> pa.Table:
    """Coefficients that say which λ their numbers stand for: path.parquet, written later, may number others."""
    return table.replace_schema_metadata({LAMBDAS: json.dumps(list(lambdas))})


def _numbers_of(lambdas: Sequence[float], metadata: Mapping[bytes, bytes] | None) -> np.ndarray:
    """The numbers that these λ have in coefficients.parquet; earlier versions numbered them as path.parquet does."""
    if not metadata or LAMBDAS not in metadata:
        return np.arange(len(lambdas))
    try:
        found = np.array(json.loads(metadata[LAMBDAS]), np.float64)
    except (ValueError, TypeError, RecursionError):
        raise Mismatch("its λ are not a list of numbers") from None
    if found.ndim != 1 or not (np.diff(found) < 0.0).all() or not np.isin(lambdas, found).all():
        raise Mismatch("its λ must fall, and have those of path.parquet among them")
    return found.size - 1 - np.searchsorted(found[::-1], lambdas)


def read_trace(fs: Any, path: str, lambdas: Sequence[float]) -> list[dict[str, Any]]:
    """trace.parquet, the rounds of these λ, by their places among them.

    The last round of a λ is at that λ; those before it may be on the way to it.
    """

    def rows(table: pa.Table) -> list[dict[str, Any]]:
        _refuse_negative(
            table, ("lambda_index", "lambda", "round", "objective", "nonzeros", "seconds", "line_search_seconds")
        )
        found: list[dict[str, Any]] = table.to_pylist()
        reached = {row["lambda_index"]: row["lambda"] for row in found}
        places = {lam: k for k, lam in enumerate(lambdas)}
        numbers = {index: places[lam] for index, lam in reached.items() if lam in places}
        return [row | {"lambda_index": numbers[row["lambda_index"]]} for row in found if row["lambda_index"] in numbers]

    return _read(fs, f"{path}/{TRACE}", TRACE_SCHEMA, rows)


def read_state(fs: Any, path: str, done: int) -> tuple[int, dict[str, np.ndarray]] | None:
    """state.parquet: after how many λ it was taken, and its vectors. None if there is none of the first `done` λ."""

    def state(table: pa.Table) -> tuple[int, dict[str, np.ndarray]] | None:
        counts, names = set(table["done"].to_pylist()), table["name"].to_pylist()
        if len(counts) != 1 or len(set(names)) != len(names) or min(counts) < 1:
            raise Mismatch("done must be one number above 0, and each name must be there once")
        vectors = (row.values.to_numpy() for chunk in table["vector"].chunks for row in chunk)
        return (min(counts), dict(zip(names, vectors, strict=True))) if min(counts) <= done else None

    with explained(display(fs, path)):
        fs.invalidate_cache()
        if not fs.exists(f"{path}/{STATE}"):
            return None
    return _read(fs, f"{path}/{STATE}", STATE_SCHEMA, state, remedy=WITHOUT_STATE)


def _refuse_negative(table: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        values = table[name].drop_null().to_numpy()
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise Mismatch(f"{name} must be finite and at least 0")
        if "seconds" in name and (values > LONGEST_SECONDS).any():
            raise Mismatch(f"{name} must be at most {LONGEST_SECONDS:g}")


def _read(
    fs: Any,
    path: str,
    schema: pa.Schema,
    take: Callable[[pa.Table], T],
    others: Sequence[pa.Field] = (),
    remedy: str = "fit again",
) -> T:
    """What `take` makes of a table of this schema; UserError if the file is missing or damaged."""
    where = display(fs, path)
    try:
        with explained(where):
            table = read_parquet(fs, path)
        return take(_shaped(table, schema, others))
    except FileNotFoundError:
        raise UserError(
            f"{where}: missing: no λ is done yet, or the run is damaged: continue it or fit again"
        ) from None
    except UNREADABLE as error:
        raise UserError(f"{where}: damaged ({one_line(error)}): {remedy}") from None


def _shaped(table: pa.Table, schema: pa.Schema, others: Sequence[pa.Field]) -> pa.Table:
    """The columns of the schema, and the others that are there. Those that may be missing are filled with null."""
    if len(set(table.column_names)) < len(table.column_names):
        raise Mismatch("two columns have the same name")
    known = {*schema.names, *(field.name for field in others)}
    for name in table.column_names:
        if name not in known:
            raise Mismatch(f"column {shown(name)} does not belong here")
    for field in schema:
        if field.name in _MAY_LACK and field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    wanted = pa.schema([*schema, *(field for field in others if field.name in table.column_names)])
    missing = [name for name in wanted.names if name not in table.column_names]
    if missing:
        raise Mismatch(f"no column {missing[0]}")
    table = table.select(wanted.names)
    refuse_other_columns(table.schema, wanted)
    refuse_nulls(table, nullable=(*_MAY_LACK, *_metric_columns()))
    return table
