"""The online learner on a cluster: what it stores, that cuts, losses and kinds of workers change nothing, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import L1LogisticRegressionPath, PathModel, PathOptions, Watcher, fit_path
from pipeline.run import pass_name
from solver import Examples, RoundRecord, Solution, ThreadRows, TruncatedGradientOptions, solve_path
from solver.rows import cut_examples, make_problem_by_example
from tests.pipeline.hand_made import HandMade
from transforms import Dataset, UserError, from_arrays
from transforms.rows import join_by_example, split_by_example

Submit = Callable[..., subprocess.CompletedProcess[str]]
OPTIONS = TruncatedGradientOptions(0.4, 0.8, 0.5, passes=3)
PATH = PathOptions(length=4)


@pytest.fixture(scope="module", params=["valued", "ones"])
def data(request: pytest.FixtureRequest) -> tuple[sp.csc_array, np.ndarray]:
    rng = np.random.default_rng(5)
    X = sp.random_array((400, 70), density=0.15, rng=rng, format="csc", dtype=np.float32)
    X.data = rng.normal(size=X.nnz).astype(np.float32) if request.param == "valued" else np.ones(X.nnz, np.float32)
    X.data[X.indptr[3] : X.indptr[9]] = 1.0  # a partition may have none but ones
    y = np.where(X @ rng.normal(size=70) + 0.3 * rng.normal(size=400) > 0, 1, -1)
    return X, y


@pytest.fixture(scope="module")
def dataset(data: tuple[sp.csc_array, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_arrays(*data, str(tmp_path_factory.mktemp("data") / "dataset"), partitions=5)


def fit(dataset: Dataset, run: Path, client: Client, parts: int = 3, **how: Any) -> dict[str, Any]:
    fit_path(dataset, str(run), options=OPTIONS, path=PATH, blocks=parts, client=client, **how)
    return contents(run)


def contents(run: Path) -> dict[str, Any]:
    """Everything but times."""
    found: dict[str, Any] = {}
    for file in sorted(run.rglob("*.parquet")):
        table = pq.read_table(file)
        kept = [name for name in table.column_names if "seconds" not in name]
        found[str(file.relative_to(run))] = table.select(kept).to_pydict()
    return found


def test_transposed_back_a_data_set_is_the_rows_it_was_made_of(
    dataset: Dataset, data: tuple[sp.csc_array, np.ndarray]
) -> None:
    cuts, parts = [0, 150, 151, 400], dataset.partitions
    firsts = np.cumsum([0, *(part.info.features for part in parts)])
    mapped = [split_by_example(part, int(first), cuts) for part, first in zip(parts, firsts[:-1], strict=True)]
    ids = np.concatenate([part.read_features() for part in parts])
    for m in range(3):
        rows = join_by_example([pieces[m] for pieces in mapped])
        values = rows.values if rows.values.size else np.ones(rows.features.size, np.float32)
        found = sp.csr_array((values, ids[rows.features], rows.indptr), shape=(cuts[m + 1] - cuts[m], 70))
        assert (found != data[0].tocsr()[cuts[m] : cuts[m + 1]]).nnz == 0


def test_the_path_is_that_of_the_solver_on_the_rows(
    client: Client, dataset: Dataset, data: tuple[sp.csc_array, np.ndarray], tmp_path: Path
) -> None:
    X, y = data
    fit(dataset, tmp_path / "run", client)
    model, examples = PathModel.load(str(tmp_path / "run")), Examples.of(y)
    with ThreadRows.from_csr(X.tocsr(), examples, 3) as rows:
        problem, null = make_problem_by_example(rows, examples)
        assert model.lambdas[0] == pytest.approx(null.lambda_max / 2, rel=1e-6)
        for k, solution in enumerate(solve_path(rows, problem, list(model.lambdas), OPTIONS, null=null)):
            found = np.zeros(70)
            features, weights = model.coefficients(k)
            found[features] = weights
            np.testing.assert_allclose(found, solution.beta.dense(70), atol=1e-5)
            assert np.count_nonzero(found) > 0


def test_a_run_folder_holds_the_same_files_without_a_gap_and_each_pass(
    client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    found = fit(dataset, tmp_path / "run", client)
    assert found["path.parquet"]["gap"] == [None] * 4
    assert found["path.parquet"]["rounds"] == [3] * 4
    assert found["trace.parquet"]["round"] == [1, 2, 3] * 4
    assert json.loads((tmp_path / "run" / "run.json").read_text())["example_cuts"] == cut_examples(400, 3)
    assert sum(name.startswith("passes/") for name in found) == 12
    coefficients = pq.read_table(tmp_path / "run" / "coefficients.parquet")
    for k in range(4):
        last = found[f"passes/{pass_name(k, 3)}"]
        mine = coefficients.filter(np.equal(coefficients["lambda_index"].to_numpy(), k))
        assert last == mine.select(["feature", "weight"]).to_pydict()
        assert found[f"passes/{pass_name(k, 1)}"] != last


def test_worker_processes_give_what_threads_give(
    client: Client, process_client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    assert fit(dataset, tmp_path / "a", client) == fit(dataset, tmp_path / "b", process_client)


class Cut(Watcher):
    """Ends the run in the middle of a λ."""

    def round(self, record: RoundRecord) -> None:
        if (record.lambda_index, record.round) == (2, 2):
            raise KeyboardInterrupt


def test_a_run_that_was_cut_ends_the_same_with_the_parts_it_was_begun_with(
    client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    fit_path(dataset, str(whole), options=OPTIONS, path=PATH, client=client)
    with pytest.raises(KeyboardInterrupt):
        fit_path(dataset, str(tmp_path / "cut"), options=OPTIONS, path=PATH, client=client, watcher=Cut())
    assert pq.read_table(tmp_path / "cut" / "path.parquet").num_rows == 2
    fit_path(dataset, str(tmp_path / "cut"), options=OPTIONS, path=PATH, client=client, resume=True)
    assert contents(tmp_path / "cut") == contents(whole)


def test_overwritten_runs_leave_no_passes_behind(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    fit(dataset, tmp_path / "run", client)
    fewer = TruncatedGradientOptions(passes=2, save_every=2)
    fit_path(dataset, str(tmp_path / "run"), options=fewer, path=PATH, client=client, overwrite=True)
    assert len(list((tmp_path / "run" / "passes").iterdir())) == 4


class Kill(Watcher):
    """Kills a worker after the first pass of the second λ."""

    def __init__(self, cluster: HandMade) -> None:
        self._cluster = cluster
        self.solutions: list[Solution] = []

    def round(self, record: RoundRecord) -> None:
        if (record.lambda_index, record.round) == (1, 1):
            process = self._cluster.processes["a"]
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def solution(self, solution: Solution) -> None:
        self.solutions.append(solution)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandMade]:
    made = HandMade(tmp_path)
    made.worker("a")
    made.worker("b")
    yield made
    made.close()


@pytest.mark.timeout(180)
def test_killed_worker_gives_the_same_path(client: Client, cluster: HandMade, dataset: Dataset, tmp_path: Path) -> None:
    watcher = Kill(cluster)
    disturbed = fit(dataset, tmp_path / "disturbed", cluster.client, watcher=watcher)
    assert cluster.processes["a"].poll() is not None and len(watcher.solutions) == 4
    assert disturbed == fit(dataset, tmp_path / "whole", client)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--intercept"], "an intercept"),
        (["--loss", "probit"], "loss probit"),
        (["--l1-ratio", "0.5"], "an l1_ratio of 0.5"),
        (["--standardize"], "standardized features"),
        (["--nonnegative"], "non-negative coefficients"),
        (["--residency", "stream"], "--residency stream is for columns"),
        (["--tol", "1e-3"], "--tol does not go with --algorithm truncated-gradient"),
        (["--blocks", "401"], "the examples can be cut into 1..400 parts, got 401"),
        (["--decay", "2"], "decay must be above 0 and at most 1, got 2.0"),
    ],
)
def test_what_does_not_apply_is_refused_in_a_line(
    submit: Submit, dataset: Dataset, tmp_path: Path, words: list[str], said: str
) -> None:
    run = tmp_path / "run"
    done = submit("fit", dataset.url, "--output", str(run), "--algorithm", "truncated-gradient", *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert not run.exists()


def test_steps_that_are_far_too_long_are_told_and_no_model_is_stored(
    client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    options = TruncatedGradientOptions(1e300)
    with pytest.raises(UserError, match="pass 1: weights grew beyond all numbers: take a smaller learning rate"):
        fit_path(dataset, str(tmp_path / "run"), options=options, path=PATH, client=client)
    assert not (tmp_path / "run").exists()


def test_the_command_fits_evaluates_and_reports(
    submit: Submit, dataset: Dataset, data: tuple[sp.csc_array, np.ndarray], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    told = ("--algorithm", "truncated-gradient", "--passes", "2", "--learning-rate", "0.3", "--path-length", "3")
    done = submit("fit", dataset.url, "--output", str(run), *told)
    assert done.returncode == 0 and "3 models" in done.stdout, done.stderr
    for command in (("evaluate", str(run), dataset.url), ("report", str(run))):
        done = submit(*command)
        assert done.returncode == 0, done.stderr
    assert pq.read_table(run / "path.parquet")["auprc"].to_numpy().max() > 0.6


def test_estimators_say_that_they_do_not_learn_by_example(data: tuple[sp.csc_array, np.ndarray]) -> None:
    with pytest.raises(ValueError, match="learns by example, which estimators do not: use fit_path"):
        L1LogisticRegressionPath(algorithm="truncated-gradient", fit_intercept=False).fit(*data)
