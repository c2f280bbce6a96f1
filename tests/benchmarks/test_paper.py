"""The paper's experiment: it measures what it says, goes on where it was stopped, and tells what it found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from distributed import Client
from sklearn.metrics import average_precision_score

pytest.importorskip("matplotlib", reason="pip install 'dglmnet[bench]'")

from benchmarks.paper import __main__ as command
from benchmarks.paper import runs, vw
from benchmarks.paper.claims import Found, compare, reached
from benchmarks.paper.data import find_data, names_in
from benchmarks.paper.figure import draw
from benchmarks.paper.results import kept
from benchmarks.paper.runs import Bench, lambdas_between, on_grid
from benchmarks.paper.settings import FULL, POWER, QUICK, READINGS, SETTINGS, Setting, Steps
from benchmarks.paper.tables import describe
from benchmarks.text import write_svm
from pipeline import PathModel, PathOptions, evaluate, fit_path
from solver import TruncatedGradientOptions

SMALL = Setting("small", (0.5,), (0.5, 0.9), passes=2, every=2, vw=(), scales={"epsilon": 0.0005}, lambdas=4)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with toy.train.svm and toy.test.svm."""
    folder, rng = tmp_path_factory.mktemp("source"), np.random.default_rng(1)
    X = sp.csr_matrix(sp.random_array((900, 40), density=0.3, rng=rng, format="csr", dtype=np.float32))
    X.sort_indices()
    y = np.where(X @ rng.normal(size=40) + 0.2 * rng.normal(size=900) > 0, 1, -1)
    write_svm(folder / "toy.train.svm", X[:700], y[:700])
    write_svm(folder / "toy.test.svm", X[700:], y[700:])
    return folder


@pytest.fixture
def bench(client: Client, source: Path, tmp_path: Path) -> Bench:
    return Bench(find_data("toy", source, None, tmp_path / "toy", client), SMALL, client, 2)


def test_the_full_setting_is_the_papers_grid() -> None:
    assert FULL.passes == 50 and FULL.lambdas == 20 and len(FULL.steps) == 25 * len(READINGS)
    assert FULL.rates[0] == 0.1 and FULL.rates[-1] == FULL.decays[0] == 0.5 and FULL.decays[-1] == 0.9
    lambdas = [2.0**-k for k in range(1, 21)]
    assert FULL.online(lambdas) == lambdas
    assert QUICK.online(lambdas) == lambdas[1::2]  # the smallest among them


def test_quality_of_a_path_is_that_of_evaluate_and_of_scikit_learn(bench: Bench) -> None:
    rows = bench.path("paper")
    evaluate(str(bench.folder / "run-paper"), str(bench.folder / "test"), client=bench.client)
    stored = pq.read_table(bench.folder / "run-paper" / "path.parquet")["auprc"].to_numpy()
    np.testing.assert_allclose([row["auprc"] for row in rows], stored, rtol=1e-6)
    ids, weights = PathModel.load(str(bench.folder / "run-paper")).coefficients(3)
    beta = dict(zip(ids.tolist(), weights.tolist(), strict=True))
    margins = bench.data.rows @ np.array([beta.get(one, 0.0) for one in bench.data.features.tolist()])
    assert rows[3]["auprc"] == pytest.approx(average_precision_score(bench.data.labels, margins))


def test_the_online_learner_has_a_model_for_each_pair_lambda_and_pass(bench: Bench) -> None:
    grid = bench.online(SMALL.steps)
    lambdas = bench.lambdas()
    for steps in SMALL.steps:
        found = [(row["lambda"], row["pass"]) for row in grid[steps]]
        assert found == [(lambdas[k], number) for k in (1, 3) for number in (1, 2)]
        assert all(row["nonzeros"] > 0 and 0.5 < row["auprc"] <= 1.0 for row in grid[steps])
    assert len({str(rows) for rows in grid.values()}) == len(grid) == 4


def test_the_models_of_the_grid_are_those_of_the_command(bench: Bench, tmp_path: Path) -> None:
    steps = Steps(0.5, 0.9, POWER)
    rows, run = bench.online([steps])[steps], str(tmp_path / "run")
    fit_path(
        bench.data.train,
        run,
        options=TruncatedGradientOptions(0.5, power_t=0.9, passes=2),
        path=PathOptions(lambdas=tuple(SMALL.online(bench.lambdas()))),
        blocks=2,
        client=bench.client,
    )
    evaluate(run, str(bench.folder / "test"), client=bench.client)
    stored = pq.read_table(f"{run}/path.parquet").to_pylist()
    last = [row for row in rows if row["pass"] == 2]
    assert [row["nonzeros"] for row in last] == [row["nonzeros"] for row in stored]
    assert [row["auprc"] for row in last] == pytest.approx([row["auprc"] for row in stored])


def test_a_path_that_jumps_gets_more_lambdas_in_between(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "APART", 1.2)
    monkeypatch.setattr(runs, "HIGHER", 1.0)
    rows = bench.path("paper")
    grid = [row for row in rows if on_grid(row)]
    jumps = [(a, b) for a, b in pairwise(grid) if a["nonzeros"] >= 10 and b["nonzeros"] > 1.2 * a["nonzeros"]]
    assert len(grid) == 4 and jumps and len(rows) == 4 + 4 * len(jumps)
    for above, below in jumps:
        between = [row["lambda"] for row in rows if above["lambda"] > row["lambda"] > below["lambda"]]
        assert between == pytest.approx(np.geomspace(above["lambda"], below["lambda"], 6)[1:-1].tolist())
    assert bench.path("paper") == rows and bench.lambdas() == [row["lambda"] for row in grid]
    assert [row["lambda"] for row in bench.path("default")] == [row["lambda"] for row in rows]


def test_lambdas_are_added_where_nonzeros_more_than_double_or_quality_rises() -> None:
    found = rows_of((2, 0.50), (9, 0.53), (10, 0.57), (20, 0.61), (45, 0.64), (44, 0.70))
    path = [{**row, "lambda": 2.0**-k} for k, row in enumerate(found)]
    assert lambdas_between(path) == pytest.approx([2.0 ** -(k + part / 5) for k in (3, 4) for part in (1, 2, 3, 4)])


def test_what_was_stopped_goes_on_and_what_is_done_is_not_done_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn: Callable[..., Any] = Bench._learn
    asked: list[Any] = []

    def stopped(self: Bench, rows: Any, steps: Steps, lambdas: Any) -> Any:
        asked.append(steps)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return learn(self, rows, steps, lambdas)

    monkeypatch.setattr(Bench, "_learn", stopped)
    with pytest.raises(KeyboardInterrupt):
        bench.online(SMALL.steps[:2])
    whole = bench.online(SMALL.steps[:2])
    assert bench.online(SMALL.steps[:2]) == whole
    assert asked == [Steps(0.5, 0.5), Steps(0.5, 0.9), Steps(0.5, 0.9)]


def test_vowpal_wabbit_and_ours_on_one_worker_are_equally_good(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vowpalwabbit", reason="pip install vowpalwabbit")
    monkeypatch.setattr(vw, "python_of", lambda peer: sys.executable)
    found = vw.vowpal_wabbit(bench, [Steps(0.5, 0.9), Steps(0.1, 0.5), Steps(0.5, 0.9, POWER)])
    lambdas = SMALL.online(bench.lambdas())
    for rows in found.values():
        assert [(row["lambda"], row["pass"]) for row in rows] == [(lam, k) for lam in lambdas for k in (1, 2)]
        for row in rows:
            assert row["auprc"] == pytest.approx(row["ours"], abs=1e-3)
            assert row["nonzeros"] == pytest.approx(row["our_nonzeros"], abs=1) and row["nonzeros"] > 0
            assert min(row["cpu"], row["our_cpu"], row["seconds"]) > 0


def test_results_of_something_else_are_made_anew(tmp_path: Path) -> None:
    calls: list[int] = []

    def work() -> list[dict[str, Any]]:
        calls.append(1)
        return [{"value": len(calls)}]

    path = tmp_path / "rows.json"
    assert kept(path, {"data": "a", "pair": (0.1, 0.5)}, work) == kept(path, {"data": "a", "pair": (0.1, 0.5)}, work)
    assert kept(path, {"data": "b", "pair": (0.1, 0.5)}, work) == [{"value": 2}]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.json"]


def rows_of(*points: tuple[int, float]) -> list[dict[str, Any]]:
    return [{"nonzeros": nonzeros, "auprc": auprc} for nonzeros, auprc in points]


def test_a_path_is_compared_at_equal_sparsity() -> None:
    path = rows_of((10, 0.5), (1000, 0.9), (2000, 0.8))
    np.testing.assert_allclose(reached(path, np.array([10.0, 100.0, 1000.0, 5000.0])), [0.5, 0.7, 0.9, 0.9])
    assert np.isnan(reached(path, np.array([9.0]))).all()
    found = compare(path, rows_of((5, 0.99), (0, 0.1), (100, 0.73), (1500, 0.89), (100, 0.6)))
    assert (found.compared, found.above, found.at) == (3, 1, 100)
    assert found.most == pytest.approx(0.03)
    assert (found.best, found.best_of_path) == (0.99, 0.9)


CPU = [
    {"what": "paper", "cpu": 6.0, "search": 0.6, "rounds": 12},
    {"what": "default", "cpu": 2.0, "search": 0.0, "rounds": 4},
    {"what": "servers", "cpu": 9.0, "search": 0.6, "rounds": 14, "side_by_side": 3.0},
    {"what": "pass", "cpu": 0.1},
    {"what": "convert", "cpu": 0.3},
]


def test_cpu_seconds_are_of_the_work_and_the_line_search_is_a_part_of_it(bench: Bench) -> None:
    rows = {row["what"]: row for row in bench.cpu()}
    assert 0 < rows["paper"]["search"] < rows["paper"]["cpu"] and rows["default"]["search"] == 0
    assert rows["paper"]["rounds"] > rows["default"]["rounds"] > 0
    assert rows["servers"]["blocks"] == 16
    assert rows["servers"]["search"] < rows["servers"]["side_by_side"] < rows["servers"]["cpu"]
    assert rows["pass"]["cpu"] > 0 and rows["convert"]["cpu"] > 0
    assert list(bench.cpu()) == list(rows.values())  # stored, not measured again


def test_the_command_writes_figure_and_tables(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "quick", SMALL)
    monkeypatch.setattr("signal.signal", lambda *args: None)
    told = ["--data", str(source), "--no-vw", "--rates", "0.2,2", "--output", str(tmp_path / "out")]
    assert names_in(source) == ["toy"]
    done = CliRunner().invoke(command.main, told, catch_exceptions=False)
    assert done.exit_code == 0
    text = (tmp_path / "out" / "tables.md").read_text()
    for heading in ("Table 3", "Quality at each sparsity", "Claims about time", "precautions"):
        assert heading in text
    assert len(list((tmp_path / "out" / "toy-small").glob("online-*.json"))) == 8
    assert text.count("back to α = 1") == 1 and "| toy | real | 700 / 200 | 40 |" in text
    assert (tmp_path / "out" / "figure-1.png").read_bytes()[:4] == b"\x89PNG"


def test_a_lookalike_is_generated_where_there_are_no_data(client: Client, tmp_path: Path) -> None:
    data = find_data("epsilon", None, SMALL.scales["epsilon"], tmp_path / "epsilon", client)
    assert data.generated and data.train.n == 200 and data.rows.shape == (100, 2000)


def test_a_scale_has_a_name_of_its_own_and_readings_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Setting] = []

    def run(names: Any, source: Any, setting: Setting, *more: Any) -> Any:
        asked.append(setting)
        raise click.ClickException("enough")

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr("signal.signal", lambda *args: None)
    told = ["--full", "--scale", "1", "--reading", POWER, "--no-vw", "--output", str(tmp_path)]
    assert "enough" in CliRunner().invoke(command.main, told).output
    assert asked[0].name == "full-1" and set(asked[0].scales.values()) == {1.0}
    assert [steps.reading for steps in asked[0].steps] == [POWER] * 25


def test_data_sets_that_are_not_there_are_named(source: Path, tmp_path: Path) -> None:
    for words, said in (
        (["--names", "other", "--data", str(source)], "no data set other"),
        (["--names", "other"], "other cannot be generated; what can be is epsilon, webspam, dna"),
    ):
        done = CliRunner().invoke(command.main, [*words, "--no-vw", "--output", str(tmp_path / "out")])
        assert done.exit_code == 2 and said in done.output


def test_a_paper_set_has_the_papers_own_numbers_beside_it() -> None:
    more = {"rounds": 3, "objective": 8.0, "gap": 0.4, "converged": True}
    path = [
        {**row, "halvings": k} | more
        for k, row in zip((1.0, 1.2, 2.0), rows_of((3, 0.5), (5, 0.6), (9, 0.7)), strict=True)
    ]
    grid = {Steps(0.1, 0.5, reading): rows_of((5, 0.4)) for reading in READINGS}
    about = {
        "generated": False,
        "examples": 9,
        "test_examples": 3,
        "features": 9,
        "nonzeros": 20,
        "convert_seconds": 0.1,
    }
    text = describe([Found("splice", about, {"paper": path, "default": path}, grid, {}, CPU)])
    assert "| splice | the paper's dna, 16 servers, by the clock | 123 | 17,626 | 25 % | 143,301 | 59,000 |" in text
    assert "| splice | paper mode | 12 | 6.0 | 10.0 % | 500 | 100 |" in text
    assert "| splice | 10.0 % | 20.0 % | 25000000.0 | 255 | 0.3 | 15000000 | 5 % | 12 | 123 |" in text
    assert "| splice | online | power_t | paper | 0 of 1 | -0.2000 | 5 | 0.7000 | 0.4000 |" in text
    assert "| λmax/2^1.2 (added) | 5 | 0.6000 |" in text and "| λmax/2^2 | 9 | 0.7000 | 8 | 5.0e-02 | 3 |" in text
    assert draw([Found("splice", about, {"paper": path, "default": path}, grid, {}, CPU)]).axes
