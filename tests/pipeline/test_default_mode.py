"""The certified mode on a cluster: the same path as threads give, kept in the run folder, and taken up again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import PathOptions, fit_path
from pipeline.run import Run
from solver import DefaultOptions, Examples, SolverOptions, ThreadBlocks, certified_path, lambda_grid, lambda_max
from transforms import Dataset, UserError, from_arrays


@pytest.fixture(scope="module")
def data() -> tuple[sp.csc_array, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 60), density=0.2, rng=rng, format="csc", dtype=np.float32)
    X.data = rng.normal(size=X.nnz).astype(np.float32)
    score = X @ (rng.normal(size=60) * (rng.random(60) < 0.3))
    return X, np.where(rng.random(300) < 1 / (1 + np.exp(-3 * score)), 1, -1)


@pytest.fixture(scope="module")
def dataset(data: tuple[sp.csc_array, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_arrays(*data, str(tmp_path_factory.mktemp("data") / "dataset"), partitions=4)


def rows(run: Path, name: str = "path") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(run / f"{name}.parquet").to_pylist()
    return found


@pytest.mark.parametrize("residency", ["memory", "stream"])
def test_dask_and_threads_give_the_same_path(
    client: Client, data: tuple[sp.csc_array, np.ndarray], dataset: Dataset, tmp_path: Path, residency: str
) -> None:
    run = tmp_path / "run"
    fit_path(dataset, str(run), algorithm="default", path=PathOptions(length=8), residency=residency, client=client)
    examples = Examples.of(data[1])
    with ThreadBlocks.from_csc(data[0], examples, 2) as blocks:
        largest = lambda_max(blocks, examples)
        lambdas = lambda_grid(largest, 8)
        threads = list(certified_path(blocks, examples, lambdas, DefaultOptions(), largest=largest))
        tight = list(certified_path(blocks, examples, lambdas, DefaultOptions(gap=1e-8), largest=largest))
    for row, one, best in zip(rows(run), threads, tight, strict=True):
        assert row["converged"]
        assert row["objective"] == pytest.approx(one.objective, rel=1e-4)
        assert row["objective"] <= best.objective * (1 + 1e-4)
        assert row["objective"] - best.objective <= row["gap"]
        assert row["gap"] <= 1e-2 * row["objective"]


def test_the_run_says_how_it_was_made_and_counts_its_rounds(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = DefaultOptions(tol=1e-5, subspace_memory=1 << 20)
    fit_path(dataset, str(run), algorithm="default", options=options, path=PathOptions(length=4), client=client)
    chosen = json.loads((run / "run.json").read_text())["options"]
    assert (chosen["algorithm"], chosen["tol"], chosen["subspace_memory"]) == ("default", 1e-5, 1 << 20)
    trace = rows(run, "trace")
    assert [sum(t["lambda_index"] == k for t in trace) for k in range(4)] == [row["rounds"] for row in rows(run)]


@pytest.mark.parametrize("memory", [0, 4000])
def test_a_small_budget_gives_the_same_models(client: Client, dataset: Dataset, tmp_path: Path, memory: int) -> None:
    path = PathOptions(length=5)
    small = DefaultOptions(subspace_memory=memory, max_rounds=2000)
    fit_path(dataset, str(tmp_path / "large"), path=path, client=client)
    fit_path(dataset, str(tmp_path / "small"), algorithm="default", options=small, path=path, client=client)
    for a, b in zip(rows(tmp_path / "large"), rows(tmp_path / "small"), strict=True):
        assert b["converged"]
        assert b["objective"] == pytest.approx(a["objective"], rel=1e-4)


def test_a_run_cut_off_goes_on_to_the_same_path(
    client: Client, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = PathOptions(length=5)
    fit_path(dataset, str(tmp_path / "whole"), algorithm="default", path=path, client=client)
    original, saves = Run._save, iter(range(2))

    def save(self: Run) -> None:
        if next(saves, None) is None:
            raise OSError(28, "No space left on device")
        original(self)

    monkeypatch.setattr(Run, "_save", save)
    with pytest.raises(OSError, match="No space"):
        fit_path(dataset, str(tmp_path / "cut"), algorithm="default", path=path, client=client)
    monkeypatch.undo()
    fit_path(dataset, str(tmp_path / "cut"), algorithm="default", path=path, client=client, resume=True)
    whole, cut = rows(tmp_path / "whole", "coefficients"), rows(tmp_path / "cut", "coefficients")
    assert [(r["lambda_index"], r["feature"]) for r in whole] == [(r["lambda_index"], r["feature"]) for r in cut]
    np.testing.assert_allclose([r["weight"] for r in cut], [r["weight"] for r in whole], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "fast"}, "algorithm must be one of default, paper"),
        ({"algorithm": "default", "options": SolverOptions()}, "takes DefaultOptions, got SolverOptions"),
        ({"algorithm": "paper", "options": DefaultOptions()}, "takes SolverOptions, got DefaultOptions"),
    ],
)
def test_options_of_the_other_algorithm_are_refused(
    client: Client, dataset: Dataset, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fit_path(dataset, str(tmp_path / "r"), client=client, **arguments)
    assert not (tmp_path / "r").exists()
