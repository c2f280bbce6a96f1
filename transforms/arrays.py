"""A data set from arrays: numpy, scipy sparse, or dask arrays, through the writer that the conversion uses."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client

from transforms.assign import assign_buckets, buckets_of
from transforms.dataset import Dataset, open_dataset
from transforms.dataset_record import BadLines, DatasetRecord
from transforms.errors import UserError
from transforms.fragments import Run
from transforms.labels import LabelMap, choose_positive, write_label_file, wrong_labels
from transforms.matrices import is_dask_array, to_float32
from transforms.output import commit, is_finished, workplace
from transforms.parser import are_labels
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
    numeric_labels: bool = False,
    overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
    client: Client | None = None,
) -> Dataset:
    """Write X (examples × features) and its labels y as a data set at `url`: two distinct ones, or numbers.

    X: numpy or scipy sparse; or a dask array with blocks of either, which workers write, each row block on its own,
    none of them coming here. Then `url` must be on storage that all workers share.
    A feature's id is its column's number, counted from 0. Columns without a nonzero are left out.
    numeric_labels: labels are numbers, for squared loss. By default the larger of two, or positive_label, becomes +1.
    partitions: by default one for each core; for a dask array, four for each thread of the cluster.
    client: for a dask array; by default the current one, or else an in-process cluster for the time of the call.
    """
    if is_dask_array(X):
        from transforms.dask_arrays import from_dask

        return from_dask(
            X,
            y,
            url,
            sample_weight=sample_weight,
            partitions=partitions,
            strategy=strategy,
            positive_label=positive_label,
            numeric_labels=numeric_labels,
            overwrite=overwrite,
            options=StorageOptions(storage_options or {}),
            client=client,
        )
    count = (os.cpu_count() or 1) if partitions is None else partitions
    plan = Plan([], count, 1, strategy, True, positive_label, "raise", numeric_labels=numeric_labels)
    columns, targets, weights = _checked(X, y, sample_weight)
    labels, label_map = (targets, None) if numeric_labels else _classes(targets, positive_label)
    options = StorageOptions(storage_options or {})
    fs, path = open_storage(url, options)
    is_finished(fs, path, {}, resume=False, overwrite=overwrite)
    with workplace(url, options, plan, {}, resume=False, overwrite=overwrite) as place:
        how = {"weighted": weights is not None, "numeric": numeric_labels}
        info = write_label_file(fs, place.folder, [(labels, weights)], **how)
        parts = [
            write_part(fs, place.folder, k, merge_runs([run], None if numeric_labels else labels, weights))
            for k, run in enumerate(_split(columns, plan))
        ]
        description = DatasetRecord.describe(
            examples=labels.size,
            label_map=label_map,
            labels=info,
            parts=parts,
            plan=plan,
            bad_lines=BadLines(),
        )
        commit(fs, path, place, description)
    return open_dataset(url, options)


def _checked(X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """X as CSC of float32 without explicit zeros, labels as float64, weights as float32."""
    columns = to_float32(X, sp.csc_array)
    targets = np.asarray(y).ravel()
    if targets.size != columns.shape[0]:
        raise UserError(f"X has {columns.shape[0]} rows but y has {targets.size}")
    try:
        targets = targets.astype(np.float64)
    except (TypeError, ValueError):
        raise UserError("y must hold numbers: two distinct labels, such as 0 and 1") from None
    if not are_labels(targets):
        raise UserError("y has labels that are nan or inf, or beyond 3.4e38")
    if not targets.size:
        raise UserError("X has no rows")
    weights = None
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=np.float32).ravel()
        if weights.size != targets.size or not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise UserError(f"sample_weight must be {targets.size} finite numbers >= 0")
    return columns, targets, weights


def _classes(targets: np.ndarray, positive_label: float | None) -> tuple[np.ndarray, LabelMap]:
    """Labels as -1/+1, and what these are in y."""
    values = np.unique(targets).tolist()
    if len(values) != 2:
        raise UserError(f"y: {wrong_labels(values)}")
    positive = choose_positive(values, positive_label)
    (negative,) = set(values) - {positive}
    return np.where(targets == positive, 1, -1).astype(np.int8), LabelMap(negative, positive)


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
