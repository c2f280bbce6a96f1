"""A path fitted on a cluster: right, stored as it goes, and the same however it is run."""

from __future__ import annotations

import gc
import json
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from distributed import Client
from sklearn.linear_model import LogisticRegression

from pipeline import PathOptions, Watcher, fit_path
from pipeline.blocks import DaskBlocks
from pipeline.export import sklearn_penalty
from pipeline.placement import list_workers
from pipeline.resident import ExampleOptions, stretches
from pipeline.run import Run
from solver import ConvergenceWarning, RoundRecord, Solution, SolverOptions
from solver.compiling import COMPILING
from tests.damage import unsealed
from tests.solver.test_compiling import fresh_kernel
from transforms import Dataset, OutputExists, UserError, from_arrays, open_dataset

TIGHT = SolverOptions.paper(tol=1e-12, max_rounds=5000)


def make_data(n: int = 300, p: int = 60, seed: int = 0, valued: bool = True) -> tuple[sp.csc_array, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=0.2, rng=rng, format="csc", dtype=np.float32)
    X.data = rng.normal(size=X.nnz).astype(np.float32) if valued else np.ones(X.nnz, np.float32)
    truth = rng.normal(size=p) * (rng.random(p) < 0.3)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-3 * (X @ truth))), 1, -1)
    return X, y


@pytest.fixture(scope="module")
def data() -> tuple[sp.csc_array, np.ndarray]:
    return make_data()


@pytest.fixture(scope="module")
def dataset(data: tuple[sp.csc_array, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return from_arrays(*data, str(tmp_path_factory.mktemp("data") / "dataset"), partitions=4)


def objective(X: Any, y: np.ndarray, beta: np.ndarray, lam: float) -> float:
    return float(np.logaddexp(0, -y * (X.astype(np.float64) @ beta)).sum() + lam * np.abs(beta).sum())


def coefficients(run: Path | str, index: int, p: int) -> np.ndarray:
    table = pq.read_table(Path(run) / "coefficients.parquet")
    mine = table["lambda_index"].to_numpy() == index
    beta = np.zeros(p)
    beta[table["feature"].to_numpy()[mine]] = table["weight"].to_numpy()[mine]
    return beta


def stored_path(run: Path | str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(Path(run) / "path.parquet").to_pylist()
    return rows


def contents(run: Path) -> dict[str, Any]:
    """What must be equal between runs: everything but times."""
    tables = {}
    for name in ("path", "coefficients", "trace"):
        table = pq.read_table(run / f"{name}.parquet")
        tables[name] = table.drop_columns([c for c in table.column_names if "seconds" in c]).to_pydict()
    return tables


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_path_reaches_liblinear_and_carries_its_gap(
    client: Client, data: tuple[sp.csc_array, np.ndarray], dataset: Dataset, tmp_path: Path, blocks: int
) -> None:
    X, y = data
    fit_path(dataset, str(tmp_path / "run"), options=TIGHT, path=PathOptions(length=6), blocks=blocks, client=client)
    for row in stored_path(tmp_path / "run"):
        beta = coefficients(tmp_path / "run", row["index"], X.shape[1])
        reference = LogisticRegression(
            **sklearn_penalty(1.0),
            C=1 / row["lambda"],
            solver="liblinear",
            fit_intercept=False,
            tol=1e-9,
            max_iter=5000,
        ).fit(X, y)
        best = objective(X, y, reference.coef_[0], row["lambda"])
        assert row["objective"] == pytest.approx(objective(X, y, beta, row["lambda"]), rel=1e-9)
        assert row["objective"] <= best * (1 + 1e-6)
        assert row["objective"] - best <= row["gap"] + 1e-9 * best
        assert row["gap"] <= 1e-4 * row["objective"]
        assert row["nonzeros"] == np.count_nonzero(beta)


def test_run_folder_holds_what_it_promises(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    fit_path(dataset, str(tmp_path / "run"), path=PathOptions(length=3), client=client)
    assert sorted(f.name for f in (tmp_path / "run").iterdir()) == [
        "coefficients.parquet",
        "path.parquet",
        "run.json",
        "trace.parquet",
    ]
    path = stored_path(tmp_path / "run")
    trace = pq.read_table(tmp_path / "run" / "trace.parquet").to_pylist()
    assert [row["index"] for row in path] == [0, 1, 2]
    assert {"lambda", "objective", "gap", "nonzeros", "rounds", "seconds", "line_search_seconds"} <= set(path[0])
    assert [sum(row["lambda_index"] == k for row in trace) for k in range(3)] == [row["rounds"] for row in path]
    for earlier, later in pairwise(trace):
        if earlier["lambda_index"] == later["lambda_index"]:
            assert later["objective"] <= earlier["objective"] * (1 + 1e-12)
    schema = pq.read_schema(tmp_path / "run" / "coefficients.parquet")
    assert [(f.name, str(f.type)) for f in schema] == [
        ("lambda_index", "int32"),
        ("feature", "int64"),
        ("weight", "double"),
    ]


def test_compiling_counts_by_itself(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    class Compiler(Watcher):
        def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
            fresh_kernel("solver.kernels.new")(1.0)

    before = COMPILING.seconds
    run = fit_path(dataset, str(tmp_path / "run"), path=PathOptions(length=2), client=client, watcher=Compiler())
    seconds = json.loads((tmp_path / "run" / "run.json").read_text())["seconds"]
    assert seconds == run.record.seconds
    assert 0.0 < seconds["compile"] == pytest.approx(COMPILING.seconds - before)


def test_feature_ids_of_the_input_are_kept(client: Client, tmp_path: Path) -> None:
    X, y = make_data(200, 10, seed=4)
    wide = sp.csc_array((200, 1000), dtype=np.float32).tolil()
    ids = np.array([3, 40, 41, 77, 200, 333, 500, 600, 900, 999])
    wide[:, ids] = X.toarray()
    ds = from_arrays(wide.tocsc(), y, str(tmp_path / "d"), partitions=3)
    fit_path(ds, str(tmp_path / "wide"), options=TIGHT, path=PathOptions(length=4), client=client)
    narrow = from_arrays(X, y, str(tmp_path / "n"), partitions=3)
    fit_path(narrow, str(tmp_path / "narrow"), options=TIGHT, path=PathOptions(length=4), client=client)
    for k in range(4):
        np.testing.assert_allclose(
            coefficients(tmp_path / "wide", k, 1000)[ids], coefficients(tmp_path / "narrow", k, 10), atol=1e-4
        )


def test_lambda_from_lambda_max_up_gives_zero(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    run = fit_path(dataset, str(tmp_path / "a"), path=PathOptions(length=1), client=client)
    largest = run.about["lambda_max"]
    lambdas = (2 * largest, largest, 0.5 * largest)
    fit_path(dataset, str(tmp_path / "b"), path=PathOptions(lambdas=lambdas), client=client)
    assert [row["nonzeros"] > 0 for row in stored_path(tmp_path / "b")] == [False, False, True]


def test_extra_lambdas_stand_in_their_places(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    run = fit_path(dataset, str(tmp_path / "a"), path=PathOptions(length=2, extra=(3.3, 2.2)), client=client)
    lambdas = [row["lambda"] for row in stored_path(tmp_path / "a")]
    assert lambdas == sorted(lambdas, reverse=True)
    assert {3.3, 2.2, run.about["lambda_max"] / 2, run.about["lambda_max"] / 4} == set(lambdas)


@pytest.mark.parametrize("valued", [True, False])
def test_streaming_gives_the_bits_of_memory(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valued: bool
) -> None:
    monkeypatch.setattr("transforms.parts.ROW_GROUP_NNZ", 200)  # many row groups
    X, y = make_data(valued=valued, seed=3)
    X = sp.csc_array(sp.hstack([X, np.ones((300, 1), np.float32)]))  # a dense column, too
    ds = from_arrays(X, y, str(tmp_path / "d"), partitions=3)
    for residency in ("memory", "stream"):
        fit_path(ds, str(tmp_path / residency), path=PathOptions(length=5), residency=residency, client=client)
    assert contents(tmp_path / "memory") == contents(tmp_path / "stream")


def test_processes_give_the_path_of_threads(
    client: Client, process_client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    for name, where in (("threads", client), ("processes", process_client)):
        fit_path(dataset, str(tmp_path / name), path=PathOptions(length=5), client=where)
    assert contents(tmp_path / "threads") == contents(tmp_path / "processes")


def test_more_workers_than_partitions_work(process_client: Client, tmp_path: Path) -> None:
    X, y = make_data(100, 8, seed=2)
    ds = from_arrays(X, y, str(tmp_path / "d"), partitions=1)
    run = fit_path(ds, str(tmp_path / "run"), path=PathOptions(length=2), client=process_client)
    assert run.about["blocks"] == [[0]]
    assert len(stored_path(tmp_path / "run")) == 2


class StopAfter(Watcher):
    """A watcher that ends the run at a λ, as a crash would."""

    def __init__(self, solutions: int) -> None:
        self._left = solutions

    def placed(self, placements: object) -> None:
        pass

    def begin(self, lambdas: object, done: int, largest: float) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        if self._left == 0 and record.round == 2:
            raise KeyboardInterrupt

    def solution(self, solution: Solution) -> None:
        self._left -= 1


@pytest.mark.parametrize("after", [1, 3])
def test_resumed_run_ends_with_the_same_path(client: Client, dataset: Dataset, tmp_path: Path, after: int) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    fit_path(dataset, str(whole), algorithm="paper", path=PathOptions(length=6), client=client)
    with pytest.raises(KeyboardInterrupt):
        fit_path(
            dataset, str(cut), algorithm="paper", path=PathOptions(length=6), client=client, watcher=StopAfter(after)
        )
    assert len(stored_path(cut)) == after
    fit_path(dataset, str(cut), algorithm="paper", path=PathOptions(length=6), client=client, resume=True)
    assert contents(cut) == contents(whole)


def test_coefficients_written_before_a_crash_do_not_count(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    """path.parquet is written last: what other files hold beyond it is of a λ that was not finished."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for run in (whole, cut):
        fit_path(dataset, str(run), algorithm="paper", path=PathOptions(length=4), client=client)
    pq.write_table(pq.read_table(cut / "path.parquet").slice(0, 2), cut / "path.parquet")
    about = json.loads((cut / "run.json").read_text())
    (cut / "run.json").write_text(json.dumps(unsealed(about) | {"complete": False}))
    fit_path(dataset, str(cut), algorithm="paper", path=PathOptions(length=4), client=client, resume=True)
    assert contents(cut) == contents(whole)


def test_complete_run_is_not_computed_again(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client)
    before = (tmp_path / "r" / "path.parquet").stat().st_mtime_ns
    fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client, resume=True)
    assert (tmp_path / "r" / "path.parquet").stat().st_mtime_ns == before


def test_run_of_other_options_or_data_is_refused_and_named(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client)
    with pytest.raises(OutputExists, match=r"repeat --tol 0\.0001 \(it is 0\.01 now\)"):
        options = SolverOptions.paper(tol=0.01)
        fit_path(dataset, str(tmp_path / "r"), options=options, path=PathOptions(length=2), client=client, resume=True)
    other = from_arrays(*make_data(seed=9), str(tmp_path / "other"), partitions=4)
    with pytest.raises(OutputExists, match=r"other data or options: sha256 was"):
        fit_path(other, str(tmp_path / "r"), path=PathOptions(length=2), client=client, resume=True)
    with pytest.raises(OutputExists, match="--resume"):
        fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client)
    assert len(stored_path(tmp_path / "r")) == 2


def test_overwrite_replaces_nothing_but_a_run(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    for name in ("notes.txt", "path.parquet", "report.html"):
        (tmp_path / "r" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "r" / name).write_text("precious")
    with pytest.raises(OutputExists, match="holds other files"):
        fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client, overwrite=True)
    assert [path.read_text() for path in (tmp_path / "r").iterdir()] == ["precious"] * 3
    with pytest.raises(OutputExists, match=r"notes\.txt: is a file; the output is a folder"):
        fit_path(dataset, str(tmp_path / "r" / "notes.txt"), path=PathOptions(length=2), client=client, overwrite=True)


def test_overwrite_replaces_a_run(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=4), client=client)
    (tmp_path / "r" / "report.html").write_text("of the old run")
    fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client, overwrite=True)
    assert len(stored_path(tmp_path / "r")) == 2
    assert not (tmp_path / "r" / "report.html").exists()


def test_run_that_got_nowhere_leaves_nothing(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=2), client=client, watcher=StopAfter(0))
    assert not (tmp_path / "r").exists()


def test_foreign_folder_is_left_alone(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputExists, match="other files"):
        fit_path(dataset, str(tmp_path / "r"), client=client)
    assert (tmp_path / "r" / "thesis.txt").read_text() == "mine"


def test_round_limit_warns_with_the_gap(client: Client, dataset: Dataset, tmp_path: Path) -> None:
    options = SolverOptions.paper(tol=1e-14, max_rounds=3)
    with pytest.warns(ConvergenceWarning, match="gap reached is"):
        fit_path(dataset, str(tmp_path / "r"), options=options, path=PathOptions(length=1), client=client)
    assert stored_path(tmp_path / "r")[0]["converged"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": PathOptions(lambdas=(1.0, 0.0))}, "λ must be > 0"),
        ({"path": PathOptions(ratio=1.5)}, "path ratio"),
        ({"residency": "disk"}, "residency must be one of"),
        ({"blocks": 5}, "blocks must lie in 1..4"),
        ({"resume": True, "overwrite": True}, "exclude each other"),
    ],
)
def test_bad_use_is_refused_before_anything_is_written(
    client: Client, dataset: Dataset, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fit_path(dataset, str(tmp_path / "r"), client=client, **arguments)
    assert not (tmp_path / "r").exists()


def test_a_process_holds_the_examples_of_an_opened_data_set_once(dataset: Dataset) -> None:
    how = ExampleOptions(class_weights=(1.0, 2.0))
    mine = how.examples(dataset)
    sent = pickle.loads(pickle.dumps((how, dataset)))  # noqa: S301
    assert sent[0].examples(sent[1]) is mine
    assert ExampleOptions().examples(dataset) is not mine
    again = open_dataset(dataset.url)  # it may have been written anew since
    assert how.examples(again) is not mine


def test_margins_of_a_question_are_let_go_with_the_next(client: Client, dataset: Dataset) -> None:
    """Not when Python next looks for reference cycles: of millions of examples a few would fill the memory."""
    gc.disable()
    try:
        with DaskBlocks(client, dataset, [[0, 1], [2, 3]], "memory") as blocks:
            margins = np.zeros(dataset.n)
            kept = weakref.ref(margins)
            blocks.sweep(margins, 1.0, 0.5, 10)
            del margins
            blocks.sweep(np.ones(dataset.n), 1.0, 0.5, 10)
            assert kept() is None
    finally:
        gc.enable()


def test_workers_are_listed_by_name(client: Client) -> None:
    assert [info.name for info in list_workers(client)] == [0, 1]


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Make the run's own save fail with a full disk after some λ."""

    def after(count: int) -> None:
        original = Run._save
        saves = iter(range(count))

        def save(self: Run) -> None:
            if next(saves, None) is None:
                raise OSError(28, "No space left on device")
            original(self)

        monkeypatch.setattr(Run, "_save", save)

    yield after


def test_full_disk_loses_no_finished_lambda(
    client: Client,
    dataset: Dataset,
    tmp_path: Path,
    interrupting: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupting(2)
    with pytest.raises(OSError, match="No space"):
        fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=4), client=client)
    assert len(stored_path(tmp_path / "r")) == 2
    monkeypatch.undo()
    fit_path(dataset, str(tmp_path / "r"), path=PathOptions(length=4), client=client, resume=True)
    assert len(stored_path(tmp_path / "r")) == 4


def test_row_groups_of_few_long_columns_are_joined() -> None:
    """Kernels take four rows of a matrix at a time; a stretch stays small all the same."""
    assert stretches([2] * 10, 400_000, ones=False) == [range(0, 4), range(4, 8), range(8, 10)]
    assert stretches([1] * 9, 45_000_000, ones=False) == [range(0, 4), range(4, 8), range(8, 9)]
    assert stretches([1] * 9, 45_000_000, ones=True) == [range(0, 9)]
    assert stretches([50_000, 70_000], 300_000, ones=False) == [range(0, 1), range(1, 2)]
    assert stretches([], 10, ones=True) == []
