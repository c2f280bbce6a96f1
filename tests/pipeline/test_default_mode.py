"""The certified mode on a cluster: the same path as threads give, kept in the run folder, and taken up again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import PathOptions, fit_path, resident
from pipeline.run import Run
from solver import (
    DefaultOptions,
    Examples,
    ProblemOptions,
    SolverOptions,
    ThreadBlocks,
    lambda_grid,
    make_problem,
    null_model,
    solve_path,
)
from transforms import Dataset, Partition, UserError, from_arrays
from transforms.pages import Lists, PageReader


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


PROBLEMS = [
    ProblemOptions(intercept=False),
    ProblemOptions(),
    ProblemOptions(l1_ratio=0.7, standardize=True),
    ProblemOptions(nonnegative=True, class_weight="-1=3"),
    ProblemOptions(loss="squared"),
    ProblemOptions(loss="probit", l1_ratio=0.9),
]


@pytest.mark.parametrize("residency", ["memory", "stream"])
@pytest.mark.parametrize("asked", PROBLEMS, ids=str)
def test_dask_and_threads_give_the_same_path(
    client: Client,
    data: tuple[sp.csc_array, np.ndarray],
    dataset: Dataset,
    tmp_path: Path,
    residency: str,
    asked: ProblemOptions,
) -> None:
    run = tmp_path / "run"
    fit_path(dataset, str(run), problem=asked, path=PathOptions(length=8), residency=residency, client=client)
    examples = Examples.of(data[1], None, asked.loss, (3.0, 1.0) if asked.class_weight else None)
    with ThreadBlocks.from_csc(data[0], examples, 2) as blocks:
        problem = make_problem(blocks, examples, replace(asked, intercept=asked.intercept is None))
        null = null_model(blocks, problem)
        lambdas = lambda_grid(null.lambda_max, 8)
        threads = list(solve_path(blocks, problem, lambdas, DefaultOptions(), null=null))
        tight = list(solve_path(blocks, problem, lambdas, DefaultOptions(gap=1e-8), null=null))
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


def test_the_trace_has_the_gap_of_every_round(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit_path(dataset, str(run), path=PathOptions(length=4), client=client)
    trace = rows(run, "trace")
    assert all(t["gap"] >= -1e-9 * t["objective"] for t in trace)
    last = {t["lambda_index"]: t["gap"] for t in trace}
    assert [last[k] for k in range(4)] == [row["gap"] for row in rows(run)]


def test_a_trace_without_gaps_is_taken_up_again(
    client: Client, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, path = tmp_path / "run", PathOptions(length=4)
    cut_off(monkeypatch, 2, dataset, run, path, client)
    old = pq.read_table(run / "trace.parquet").drop_columns(["gap"])
    pq.write_table(old, run / "trace.parquet")
    fit_path(dataset, str(run), path=path, client=client, resume=True)
    trace = rows(run, "trace")
    assert [t["gap"] is None for t in trace] == [t["lambda_index"] < 2 for t in trace]


@pytest.mark.parametrize("memory", [0, 4000])
def test_a_small_budget_gives_the_same_models(client: Client, dataset: Dataset, tmp_path: Path, memory: int) -> None:
    path = PathOptions(length=5)
    small = DefaultOptions(subspace_memory=memory, max_rounds=2000)
    fit_path(dataset, str(tmp_path / "large"), path=path, client=client)
    fit_path(dataset, str(tmp_path / "small"), algorithm="default", options=small, path=path, client=client)
    for a, b in zip(rows(tmp_path / "large"), rows(tmp_path / "small"), strict=True):
        assert b["converged"]
        assert b["objective"] == pytest.approx(a["objective"], rel=1e-4)


@pytest.fixture
def small_groups(
    data: tuple[sp.csc_array, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Dataset, list[float]]:
    """The data scaled, with a few features in each row group, and every row group's largest bound."""
    X, y = data
    scaled = sp.csc_array(X @ sp.diags_array(np.geomspace(1.0, 0.01, X.shape[1], dtype=np.float32)))
    with monkeypatch.context() as patch:
        patch.setattr("transforms.parts.ROW_GROUP_FEATURES", 3)
        dataset = from_arrays(scaled, y, str(tmp_path / "small-groups"), partitions=4)
    return dataset, [float(bounds.max()) for part in dataset.partitions for bounds in part.read_bounds()]


@pytest.mark.parametrize("memory", [None, 0])
def test_row_groups_that_cannot_matter_are_not_read(
    client: Client,
    small_groups: tuple[Dataset, list[float]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    memory: int | None,
) -> None:
    dataset, bounds = small_groups
    read: list[tuple[str, int]] = []
    original = Partition.read_groups

    def read_groups(self: Partition, chosen: Iterable[int], again: PageReader | None = None) -> Iterator[Lists]:
        def noted() -> Iterator[int]:
            for k in chosen:
                read.append((self.info.file, k))
                yield k

        return original(self, noted(), again)

    def one_each(counts: Sequence[int], n: int, *, ones: bool) -> list[range]:
        return [range(k, k + 1) for k in range(len(counts))]

    monkeypatch.setattr(Partition, "read_groups", read_groups)
    monkeypatch.setattr(resident, "stretches", one_each)  # row groups as small as these would be joined
    options = DefaultOptions(subspace_memory=memory)
    path = PathOptions(length=1)
    run = fit_path(dataset, str(tmp_path / "r"), options=options, path=path, residency="stream", client=client)
    lam = run.about["lambdas"][0]
    numbers = [(part.info.file, k) for part in dataset.partitions for k in range(part.info.row_groups)]
    cannot = {number for number, bound in zip(numbers, bounds, strict=True) if bound <= 0.8 * lam}
    assert cannot and not cannot & set(read)
    assert rows(tmp_path / "r")[0]["converged"]


@pytest.mark.parametrize("memory", [None, 0])
def test_both_residencies_give_the_same_bits(
    client: Client, small_groups: tuple[Dataset, list[float]], tmp_path: Path, memory: int | None
) -> None:
    found = []
    for residency in ("memory", "stream"):
        run, path = tmp_path / residency, PathOptions(length=5)
        options = DefaultOptions(subspace_memory=memory)
        fit_path(small_groups[0], str(run), options=options, path=path, residency=residency, client=client)
        found.append([(r["feature"], r["weight"]) for r in rows(run, "coefficients")])
    assert found[0] == found[1]


def cut_off(
    monkeypatch: pytest.MonkeyPatch, after: int, dataset: Dataset, run: Path, path: PathOptions, client: Client
) -> None:
    """A run that ends when its disk is full, so many λ having been stored."""
    original, saves = Run._save, iter(range(after))

    def save(self: Run) -> None:
        if next(saves, None) is None:
            raise OSError(28, "No space left on device")
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_save", save)
        with pytest.raises(OSError, match="No space"):
            fit_path(dataset, str(run), algorithm="default", path=path, client=client)


def test_a_run_cut_off_goes_on_to_the_same_path(
    client: Client, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = PathOptions(length=5)
    fit_path(dataset, str(tmp_path / "whole"), algorithm="default", path=path, client=client)
    cut_off(monkeypatch, 2, dataset, tmp_path / "cut", path, client)
    fit_path(dataset, str(tmp_path / "cut"), algorithm="default", path=path, client=client, resume=True)
    assert rows(tmp_path / "whole", "coefficients") == rows(tmp_path / "cut", "coefficients")
    for one, other in zip(rows(tmp_path / "whole"), rows(tmp_path / "cut"), strict=True):
        assert one["objective"] == other["objective"]
        assert one["rounds"] == other["rounds"]


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
