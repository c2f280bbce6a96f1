"""What estimators do on a cluster: fit a path to a data set or to dask arrays, and score data sets and text."""

from __future__ import annotations

import math
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from distributed import Client

from pipeline.estimators.fit_memory import Ask, Fitted
from pipeline.fit import fit_path
from pipeline.fit_options import PathOptions
from pipeline.metrics import NUMBER
from pipeline.model import PathModel
from pipeline.scoring import Scorer, Tally, client_for, find_sources
from solver.losses import find_loss
from transforms import Dataset, UserError, from_arrays
from transforms.dask_arrays import PARTS_PER_THREAD
from transforms.errors import ClusterLost
from transforms.liveness import ask_workers
from transforms.matrices import is_dask_array
from transforms.progress import NoProgress
from transforms.storage import StorageOptions, open_storage, remove
from transforms.tasks import as_finished


def fit_dataset(dataset: Dataset, ask: Ask, client: Client) -> PathModel:
    """Fit by `fit_path`, in a run folder that lasts as long as the fit."""
    path = PathOptions(ask.length, ask.ratio, ask.lambdas)
    with tempfile.TemporaryDirectory(prefix="dglmnet-") as folder:
        run = str(Path(folder) / "run")
        try:
            fit_path(
                dataset,
                run,
                options=ask.options,
                problem=ask.problem,
                penalty_factors=_by_id(dataset, ask),
                path=path,
                blocks=ask.blocks,
                client=client,
            )
        except ClusterLost as error:
            raise type(error)(error.what, "Fit again, or use pipeline.fit_path, which keeps every λ") from error
        return replace(PathModel.load(run), url=dataset.name)


def _by_id(dataset: Dataset, ask: Ask) -> dict[int, float] | None:
    """Penalty factors by feature id."""
    if ask.factors is None:
        return None
    base = dataset.record.index_base
    return {int(j) + base: float(ask.factors[j]) for j in np.flatnonzero(ask.factors != 1.0)}


def fitted_of(model: PathModel, width: int) -> Fitted:
    """The path with `width` columns, feature ids counted from 0, signed for the larger label if there are two."""
    numbers = model.label_kind == NUMBER
    sign = 1.0 if numbers or model.label_map["+1"] > model.label_map["-1"] else -1.0
    columns = model.features - model.index_base
    coefs = sp.csr_array((sign * model.weights, columns, model.starts), shape=(len(model), width))
    rows = [row | {"intercept": sign * (row["intercept"] or 0.0)} for row in model.path]
    return Fitted(rows, coefs, model.about["lambda_max"])


def width_of(dataset: Dataset) -> int:
    """Columns up to the last feature that occurs."""
    last = max(int(part.read_features().max(initial=0)) for part in dataset.partitions)
    return last - int(dataset.description["index_base"]) + 1


def fit_arrays(X: Any, y: Any, weights: Any, ask: Ask, client: Client, scratch: str | None) -> Fitted:
    """Write the arrays (dask or in memory; y is -1/+1 or numbers) as a data set for the time of the fit, and fit it."""
    how: dict[str, Any] = {
        "partitions": None if ask.blocks is None else PARTS_PER_THREAD * ask.blocks,
        "numeric_labels": find_loss(ask.problem.loss).LABELS == NUMBER,
    }
    with _scratch_folder(client, scratch) as folder:
        dataset = from_arrays(X, y, folder, sample_weight=weights, client=client, **how)
        return fitted_of(fit_dataset(dataset, ask, client), X.shape[1])


@contextmanager
def _scratch_folder(client: Client, scratch: str | None) -> Iterator[str]:
    """A new folder under `scratch`, or a temporary one of this machine if the workers see it; gone in the end."""
    if scratch is not None:
        url = f"{scratch.rstrip('/')}/dglmnet-{uuid.uuid4().hex[:12]}"
        try:
            yield url
        finally:
            fs, path = open_storage(url)
            remove(fs, path, recursive=True)
        return
    with tempfile.TemporaryDirectory(prefix="dglmnet-") as folder:
        answers, _ = ask_workers(client, os.path.isdir, folder)
        blind = [worker for worker, sees in answers.items() if sees is not True]
        if blind:
            raise UserError(
                f"worker {blind[0]} does not see the temporary files of this machine: give scratch, the URL of a "
                "folder that this process and all workers can reach"
            )
        yield str(Path(folder) / "dataset")


def gather(X: Any, vector: Any, client: Client) -> tuple[np.ndarray, tuple[int, ...] | None]:
    """A vector, dask or not, in memory; and the sizes of its chunks if those of X's rows are not known."""
    if not is_dask_array(vector):
        return np.asarray(vector), None
    futures = client.compute(list(vector.to_delayed().ravel()))
    found = dict(as_finished(client, futures))
    blocks = [found[k] for k in range(len(futures))]
    known = not math.isnan(X.shape[0])
    return np.concatenate(blocks), None if known else tuple(len(block) for block in blocks)


def cut(vector: np.ndarray, sizes: tuple[int, ...] | None) -> Any:
    """The vector as a dask array of these chunks, if there are any."""
    if sizes is None:
        return vector
    import dask.array as da

    return da.from_array(vector, chunks=(sizes,))


def score_source(
    model: PathModel, indices: list[int], source: str | Dataset, client: Client | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Margins (examples × λ), labels and weights of a data set or of LIBSVM text, in their order."""
    options = source.options if isinstance(source, Dataset) else StorageOptions()
    sources = [source] if isinstance(source, Dataset) else find_sources([source], options)
    with client_for(client) as client:
        scorer = Scorer(model, indices, client, options, NoProgress(), Tally())
        parts = list(scorer.score(sources))
    first = [part for part in parts if part.first == 0]  # of very many examples, λ come in groups
    groups = [[part.margins for part in parts if part.first == k] for k in sorted({part.first for part in parts})]
    weights = [part.weights for part in first if part.weights is not None]
    return (
        np.hstack([np.concatenate(group) for group in groups]),
        np.concatenate([part.labels for part in first]),
        np.concatenate(weights) if len(weights) == len(first) else None,
    )
