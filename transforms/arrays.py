"""A data set from arrays in memory: scipy sparse or numpy, through the writer that the conversion uses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from transforms.assign import assign_buckets, buckets_of
from transforms.dataset import Dataset, open_dataset
from transforms.errors import UserError
from transforms.fragments import Run
from transforms.labels import choose_positive, write_label_file, wrong_labels
from transforms.output import commit, describe, is_finished, workplace
from transforms.parts import merge_runs, write_part
from transforms.plan import Plan
from transforms.storage import StorageOptions, open_storage


def from_arrays(
    X: Any,
    y: Any,
    url: str,
    *,
    sample_weight: Any = None,
    partitions: int | None = None,
    strategy: str = "spread",
    positive_label: float | None = None,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> Dataset:
    """Write X (examples × features; scipy sparse or numpy) and its two-valued labels y as a data set at `url`.

    A feature's id is its column's number, counted from 0. Columns without a nonzero are left out. partitions: one for
    each core by default.
    """
    columns, labels, weights, label_map = _checked(X, y, sample_weight, positive_label)
    count = (os.cpu_count() or 1) if partitions is None else partitions
    plan = Plan([], count, 1, strategy, True, positive_label, "raise")
    options = StorageOptions(storage_options or {})
    fs, path = open_storage(url, options)
    is_finished(fs, path, {}, resume=False, overwrite=overwrite)
    with workplace(url, options, plan, {}, resume=False, overwrite=overwrite) as place:
        info = write_label_file(fs, place.folder, [(labels, weights)], weighted=weights is not None)
        parts = [
            write_part(fs, place.folder, k, merge_runs([run], labels, weights))
            for k, run in enumerate(_split(columns, plan))
        ]
        description = describe(
            examples=labels.size,
            label_map=label_map,
            labels=info,
            parts=parts,
            plan=plan,
            bad_lines={"count": 0, "first": []},
        )
        commit(fs, path, place, description)
    return open_dataset(url, options)


def _checked(
    X: Any, y: Any, sample_weight: Any, positive_label: float | None
) -> tuple[Any, np.ndarray, np.ndarray | None, dict[str, float]]:
    """X as CSC of float32 without explicit zeros, labels as -1/+1, weights as float32."""
    with np.errstate(over="ignore"):
        columns = (
            sp.csc_array(X, dtype=np.float32, copy=True) if sp.issparse(X) else sp.csc_array(np.asarray(X, np.float32))
        )
    columns.sum_duplicates()
    columns.eliminate_zeros()
    if not np.isfinite(columns.data).all():
        raise UserError("X has nan, inf, or values that do not fit float32 (largest 3.4e38)")
    targets = np.asarray(y).ravel()
    if targets.size != columns.shape[0]:
        raise UserError(f"X has {columns.shape[0]} rows but y has {targets.size}")
    try:
        targets = targets.astype(np.float64)
    except (TypeError, ValueError):
        raise UserError("y must hold numbers: two distinct labels, such as 0 and 1") from None
    if not np.isfinite(targets).all():
        raise UserError("y has labels that are nan or inf")
    values = np.unique(targets).tolist()
    if len(values) != 2:
        raise UserError(f"y: {wrong_labels(values)}")
    positive = choose_positive(values, positive_label)
    (negative,) = set(values) - {positive}
    weights = None
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=np.float32).ravel()
        if weights.size != targets.size or not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise UserError(f"sample_weight must be {targets.size} finite numbers >= 0")
    labels = np.where(targets == positive, 1, -1).astype(np.int8)
    return columns, labels, weights, {"-1": negative, "+1": positive}


def _split(columns: Any, plan: Plan) -> list[Run]:
    """The columns of each partition, by the same strategy as in a conversion."""
    counts = np.diff(columns.indptr)
    features = np.flatnonzero(counts)
    bucket = buckets_of(plan.strategy, features, plan.buckets)
    owner = assign_buckets(np.bincount(bucket, weights=counts[features], minlength=plan.buckets), plan.partitions)[
        bucket
    ]
    ones = bool((columns.data == 1).all())
    runs = []
    for k in range(plan.partitions):
        mine = features[owner == k]
        part = columns[:, mine]
        runs.append(
            Run(
                mine.astype(np.int64),
                np.diff(part.indptr).astype(np.int32),
                part.indices.astype(np.int32, copy=False),
                None if ones else part.data,
                0,
            )
        )
    return runs
