"""Columns that are streamed: in every pass those of memory, one stretch ahead, in memory that does not grow."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from pipeline import resident
from pipeline.resident import LoadedColumns, PartitionColumns
from solver import Columns
from solver.columns import BITS, DENSE, ONES, VALUED
from transforms import Dataset, DatasetError, from_arrays, parts

N, P = 400, 60


def store(X: np.ndarray, folder: Path) -> Dataset:
    y = np.where(np.random.default_rng(1).random(len(X)) < 0.5, 1, -1)
    return from_arrays(sp.csc_array(X.astype(np.float32)), y, str(folder), partitions=3)


def draw(kind: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(N, P))
    if kind == "full":
        return values
    shares = {"lists": rng.uniform(0.05, 0.4, P), "ones": rng.uniform(0.02, 0.1, P), "mixed": rng.uniform(0.02, 1, P)}
    there = rng.random((N, P)) < shares[kind]
    if kind == "ones":
        return there.astype(float)
    if kind == "mixed":
        values[:, ::3] = 1  # those with few examples are lists of ones, the others bits
        there[40:, ::6] = False
        values[:, 1::9] += 10
        there[:, 1::9] = True
    return values * there


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_NNZ", 200)
    monkeypatch.setattr(resident, "STRETCH_ENTRIES", 8 * N)
    monkeypatch.setattr(resident, "STRETCH_ONES", 8)


def as_rows(columns: Columns) -> list[bytes]:
    """The bits of each column, whatever arrays hold it, and its kind."""
    found = []
    for j in range(columns.count):
        one = np.zeros(columns.n)
        columns.add_product(np.eye(columns.count)[j], one)
        found.append(bytes([columns.kind[j]]) + one.tobytes())
    return found


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [("lists", {VALUED}), ("ones", {ONES}), ("full", {DENSE}), ("mixed", {VALUED, ONES, DENSE, BITS})],
)
def test_every_pass_gives_the_columns_of_memory(tmp_path: Path, kind: str, kinds: set[int]) -> None:
    dataset = store(draw(kind), tmp_path / "data")
    expected = [as_rows(columns) for columns in LoadedColumns(dataset.partitions, N)]
    assert {row[0] for rows in expected for row in rows} == kinds
    streamed = PartitionColumns(dataset.partitions, N)
    assert len(streamed.counts) > 3
    for _ in range(3):
        assert [as_rows(columns) for columns in streamed] == expected
    chosen = range(1, len(expected), 2)
    assert [as_rows(columns) for columns in streamed.read(chosen)] == [expected[k] for k in chosen]


@pytest.mark.parametrize("kind", ["lists", "full"])
def test_memory_does_not_grow_with_the_data(tmp_path: Path, kind: str) -> None:
    sizes = []
    for times in (1, 4):
        X = np.concatenate([draw(kind, seed) for seed in range(times)], axis=1)
        dataset = store(X, tmp_path / f"{times}")
        streamed = PartitionColumns(dataset.partitions, N)
        for _ in range(4):
            for columns in streamed:
                assert columns.count <= 12
        sizes.append(streamed.memory.size)
    # Three stretches of positions and values, or as a matrix and the row groups it is made of; packed examples.
    assert max(sizes) < 6 * 1.125 * 4 * 12 * N


def test_a_part_that_is_replaced_between_rounds_ends_the_pass_and_its_thread(tmp_path: Path) -> None:
    dataset = store(draw("lists"), tmp_path / "data")
    store(draw("lists", 1), tmp_path / "other")
    streamed = PartitionColumns(dataset.partitions, N)
    for _ in range(2):
        assert sum(columns.count for columns in streamed) == P
    before = threading.active_count()
    shutil.copy(tmp_path / "other" / "part-00001.parquet", tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "data" / "part-00001.parquet")
    with pytest.raises(DatasetError, match=r"part-00001\.parquet: this part is damaged"):
        for _ in streamed:
            pass
    assert threading.active_count() == before


def test_columns_that_are_kept_are_not_written_over(tmp_path: Path) -> None:
    dataset = store(draw("lists"), tmp_path / "data")
    streamed = PartitionColumns(dataset.partitions, N)
    for _ in range(2):
        expected = [as_rows(columns) for columns in streamed]
    assert [as_rows(columns) for columns in list(streamed)] == expected
