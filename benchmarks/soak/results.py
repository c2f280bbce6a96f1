"""What commands leave behind, in a form that can be compared, and damage to it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

from benchmarks.text import write_svm
from transforms.storage import open_storage

METRICS = ("auprc", "auc", "log_loss", "accuracy")


def write_examples(path: Path, n: int, p: int, per_row: int) -> None:
    """Text with a true sparse model behind it."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([np.sort(rng.choice(p, per_row, replace=False)) for _ in range(n)])
    values = rng.normal(size=n * per_row).astype(np.float32)
    X = sp.csr_matrix((values, columns, np.arange(0, n * per_row + 1, per_row)), shape=(n, p))
    beta = np.where(rng.random(p) < 0.1, rng.normal(size=p), 0.0)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(X @ beta))), 1, -1)
    write_svm(path, X, y)


def dataset_parts(url: str, options: dict[str, Any] | None = None) -> dict[str, bytes]:
    """The files of a data set that hold examples, by name; dataset.json names the inputs, which may differ."""
    fs, path = open_storage(url, options)
    fs.invalidate_cache()
    names = [one.rsplit("/", 1)[-1] for one in fs.ls(path, detail=False)]
    if "dataset.json" not in names:
        raise ValueError(f"{url} holds no data set")
    return {name: fs.cat_file(f"{path}/{name}") for name in names if name.endswith(".parquet")}


def models(run: Path) -> list[tuple[Any, ...]]:
    """λ, objective and coefficients of a run."""
    path = pq.read_table(run / "path.parquet")
    weights = pq.read_table(run / "coefficients.parquet")
    found = []
    for k, lam, objective in zip(*(path[name].to_pylist() for name in ("index", "lambda", "objective")), strict=True):
        mine = weights.filter(np.equal(weights["lambda_index"].to_numpy(), k))
        found.append((lam, objective, mine["feature"].to_pylist(), mine["weight"].to_pylist()))
    return found


def metrics(run: Path) -> list[tuple[float, ...]]:
    path = pq.read_table(run / "path.parquet")
    return list(zip(*(path[name].to_pylist() for name in METRICS), strict=True))


def predictions(file: Path) -> dict[str, list[float]]:
    table = pq.read_table(file)
    return {name: table[name].to_pylist() for name in table.column_names}


def flip_bit(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << (bit % 8)
    file.write_bytes(content)
