"""A data set from dask arrays: row blocks take the place of blocks of text in the Map/Reduce graph.

Map: a row block, sparse or dense -> its nonzeros by feature, one fragment, written by the worker that has the block.
Reduce is the same as for text. Blocks are computed as they are needed and let go, so X need not fit in memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from dask import delayed
from distributed import Client

from transforms.convert import as_they_finish, client_or_embedded, cluster_resources, reduce_fragments
from transforms.dataset import Dataset, open_dataset
from transforms.dataset_record import DatasetRecord
from transforms.errors import UserError
from transforms.fragments import Origin, by_feature, write_fragment
from transforms.labels import wrong_labels
from transforms.mapreduce import Job, Mapped
from transforms.matrices import is_dask_array, to_float32
from transforms.output import commit, is_finished, workplace
from transforms.parser import Parsed, are_labels
from transforms.plan import Plan
from transforms.progress import NoProgress
from transforms.secrets import without_secrets
from transforms.storage import StorageOptions, open_storage

PARTS_PER_THREAD = 4  # a Reduce task needs about three times what its part takes in a fit


def from_dask(
    X: Any,
    y: Any,
    url: str,
    *,
    sample_weight: Any,
    partitions: int | None,
    strategy: str,
    positive_label: float | None,
    numeric_labels: bool,
    overwrite: bool,
    options: StorageOptions,
    client: Client | None,
) -> Dataset:
    """What `from_arrays` does with a dask array."""
    fs, path = open_storage(url, options)
    is_finished(fs, path, {}, resume=False, overwrite=overwrite)
    blocks = row_blocks(X, y, sample_weight)
    with client_or_embedded(client) as client:
        count = PARTS_PER_THREAD * cluster_resources(client).threads if partitions is None else partitions
        plan = Plan([], count, 1, strategy, True, positive_label, "raise", numeric_labels=numeric_labels)
        with workplace(url, options, plan, {}, resume=False, overwrite=overwrite) as place:
            job = Job(url, options, place.folder, place.keeper.claim, place.plan.recipe(), resume=False)
            commit(fs, path, place, _run(client, job, place.plan, blocks))
    return open_dataset(url, options)


def row_blocks(X: Any, y: Any, sample_weight: Any = None) -> list[tuple[Any, Any, Any]]:
    """Delayed blocks of X with their parts of y and of the weights; X is the one whose chunks count."""
    if X.ndim != 2:
        raise UserError(f"X must be a matrix, a row for each example; got {X.ndim} dimensions")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    beside = [_beside(X, vector, name) for vector, name in ((y, "y"), (sample_weight, "sample_weight"))]
    return list(zip(X.to_delayed()[:, 0], *beside, strict=True))


def _beside(X: Any, vector: Any, name: str) -> list[Any]:
    """The vector cut as the rows of X are; no vector, nothing beside each block."""
    if vector is None:
        return [None] * X.numblocks[0]
    rows, known = X.shape[0], not math.isnan(X.shape[0])
    if not is_dask_array(vector):
        vector = np.asarray(vector)
        if not known:
            raise UserError(
                f"the row counts of X's chunks are not known: call X.compute_chunk_sizes(), or make {name} a "
                "dask array with the same chunks"
            )
    if vector.ndim != 1:
        raise UserError(f"{name} must be a vector, got {vector.ndim} dimensions")
    if known and vector.shape[0] != rows and not math.isnan(vector.shape[0]):
        raise UserError(f"X has {rows} rows but {name} has {vector.shape[0]}")
    if not is_dask_array(vector):
        cuts = np.cumsum(X.chunks[0])[:-1]
        return [delayed(part, traverse=False) for part in np.split(vector, cuts)]
    if known and not math.isnan(vector.shape[0]):
        vector = vector.rechunk((X.chunks[0],))
    if vector.numblocks != X.numblocks[:1]:
        raise UserError(f"X has {X.numblocks[0]} row chunks but {name} has {vector.numblocks[0]}: give both the same")
    return list(vector.to_delayed())


def _run(client: Client, job: Job, plan: Plan, blocks: list[tuple[Any, Any, Any]]) -> DatasetRecord:
    """The graph: Map over row blocks, then Reduce. Returns what dataset.json will say."""
    shared = delayed(job, traverse=False)
    task = delayed(map_rows, pure=False)
    futures = client.compute([task(shared, k, *block) for k, block in enumerate(blocks)])
    mapped: dict[int, list[Mapped]] = {}
    with as_they_finish(client, futures) as results:
        for index, result in results:
            mapped[index] = [result]
    values = np.unique(np.concatenate([one.fragment.label_values for (one,) in mapped.values()])).tolist()
    if len(values) != 2 and not plan.numeric_labels:
        raise UserError(f"y: {wrong_labels(values)}")
    bucket_nnz = np.sum([one.bucket_nnz for (one,) in mapped.values()], axis=0)
    return reduce_fragments(client, job, plan, [], mapped, bucket_nnz, NoProgress())


@without_secrets
def map_rows(job: Job, index: int, X: Any, y: Any, weights: Any) -> Mapped:
    """Leave a row block by feature, as one fragment."""
    fs = job.storage()
    parsed = _examples(X, y, weights, index, job.plan.numeric_labels)
    data = by_feature(parsed, job.plan.strategy, job.plan.buckets)
    job.claim.check(fs)
    path = f"{job.folder}/block-{index:06d}-0000.fragment"
    rows = np.array([parsed.labels.size])
    origin = Origin(job.plan.fingerprint.encode(), rows, numeric_labels=job.plan.numeric_labels)
    fragment = write_fragment(fs, path, origin, parsed, data)
    return Mapped(fragment, np.diff(data.directory["nnz"]), [])


def _examples(X: Any, y: Any, weights: Any, index: int, numeric: bool) -> Parsed:
    """A row block in the form that text is parsed into."""
    rows = to_float32(X, sp.csr_array)
    n = rows.shape[0]
    labels = _numbers(y, np.float64, n, f"y, chunk {index}")
    if not are_labels(labels):
        raise UserError(f"y, chunk {index}: labels beyond 3.4e38")
    if not numeric and np.unique(labels).size > 2:
        raise UserError(f"y, chunk {index}: {wrong_labels(np.unique(labels).tolist())}")
    if weights is None:
        checked = np.full(n, np.nan, np.float32)
    else:
        checked = _numbers(weights, np.float32, n, f"sample_weight, chunk {index}")
        if (checked < 0).any():
            raise UserError(f"sample_weight, chunk {index}: weights must be >= 0, found {checked.min():g}")
    ones = bool((rows.data == 1).all())
    ids, indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return Parsed(labels, checked, indptr, ids, rows.data, ones, n, 0, [])


def _numbers(vector: Any, kind: Any, n: int, name: str) -> np.ndarray:
    try:
        numbers = np.asarray(vector).astype(kind)
    except (TypeError, ValueError):
        raise UserError(f"{name}: must hold numbers") from None
    if numbers.shape != (n,):
        raise UserError(f"{name}: {numbers.size} values for {n} rows of X")
    if not np.isfinite(numbers).all():
        raise UserError(f"{name}: nan or inf")
    return numbers
