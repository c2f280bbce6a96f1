"""A run that is done gets more λ: what is there stays, bit for bit, and what is new is in its place and judged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline import PathModel, PathOptions, Watcher, evaluate, fit_path, run
from solver import DefaultOptions, Solution
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import UserError, open_dataset

Submit = Callable[..., subprocess.CompletedProcess[str]]
STRICT = DefaultOptions(gap=1e-8)


@pytest.fixture
def data(client: Client, tmp_path: Path) -> str:
    fit_text(client, tmp_path, to_text(*make_rows()), length=1)
    return str(tmp_path / "train")


def rows_of(run: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run / f"{name}.parquet").to_pylist()
    return rows


def by_lambda(run: Path) -> dict[float, Any]:
    """Of each λ: its row, coefficients and rounds, without their numbers."""
    path, weights, trace = (rows_of(run, name) for name in ("path", "coefficients", "trace"))
    return {
        row["lambda"]: (
            row | {"index": 0},
            [(one["feature"], one["weight"]) for one in weights if one["lambda_index"] == k],
            [one | {"lambda_index": 0} for one in trace if one["lambda_index"] == k],
        )
        for k, row in enumerate(path)
    }


class CutAt(Watcher):
    """Ends the run after so many solutions, as a crash would."""

    def __init__(self, after: int) -> None:
        self._left = after

    def solution(self, solution: Solution) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("cut", [None, 1, 3])
def test_further_lambdas_take_their_places_and_the_rest_stays(
    client: Client, data: str, tmp_path: Path, cut: int | None
) -> None:
    run, how = tmp_path / "more", {"options": STRICT, "client": client}
    fit_path(data, str(run), path=PathOptions(length=3), **how)
    before = by_lambda(run)
    largest = json.loads((run / "run.json").read_text())["lambda_max"]
    extra = (0.9 * largest, 0.3 * largest)
    asked = PathOptions(length=5, extra=extra)
    if cut:
        with pytest.raises(KeyboardInterrupt):
            fit_path(data, str(run), path=asked, resume=True, watcher=CutAt(cut), **how)
        assert len(PathModel.load(str(run))) == 3 + cut
    fit_path(data, str(run), path=asked, resume=True, **how)
    fit_path(data, str(tmp_path / "whole"), path=asked, **how)
    after, whole = by_lambda(run), by_lambda(tmp_path / "whole")
    assert list(after) == list(whole)
    assert all(after[lam] == kept for lam, kept in before.items())
    for lam, (row, _, rounds) in after.items():
        assert len(rounds) == row["rounds"]
        assert row["objective"] == pytest.approx(whole[lam][0]["objective"], rel=1e-7)
        assert row["bic"] == pytest.approx(whole[lam][0]["bic"], rel=1e-5)
    about = json.loads((run / "run.json").read_text())
    assert (about["complete"], about["lambdas"]) == (True, list(after))
    assert not (run / "state.parquet").exists()


def test_nothing_is_done_where_no_lambda_is_missing(client: Client, data: str, tmp_path: Path) -> None:
    run = str(tmp_path / "more")
    fit_path(data, run, path=PathOptions(length=5), client=client)
    before = {file.name: file.read_bytes() for file in Path(run).iterdir()}
    for asked in (PathOptions(length=2), PathOptions(lambdas=tuple(PathModel.load(run).lambdas[1:3].tolist()))):
        assert fit_path(data, run, path=asked, resume=True, client=client).done == 5
    assert {file.name: file.read_bytes() for file in Path(run).iterdir()} == before


def test_fit_judges_the_new_models_by_the_data_of_the_evaluation(
    submit: Submit, client: Client, data: str, tmp_path: Path
) -> None:
    run = str(tmp_path / "more")
    (tmp_path / "test.svm").write_bytes(to_text(*make_rows(seed=1)))
    words = ("fit", data, "--output", run, "--resume", "--quiet", "--workers", "1")
    assert submit(*words, "--path-length", "3").returncode == 0
    first = evaluate(run, str(tmp_path / "test.svm"), metric="log_loss", client=client).path
    assert submit(*words, "--path-length", "6").returncode == 0
    model = PathModel.load(run)
    assert [row["log_loss"] for row in model.path[:3]] == pytest.approx([row["log_loss"] for row in first])
    assert None not in [row["log_loss"] for row in model.path]
    assert model.record.evaluation is not None
    assert model.record.evaluation.best == model.best() == np.argmin([row["log_loss"] for row in model.path])


def test_models_that_cannot_be_judged_again_are_told(submit: Submit, client: Client, data: str, tmp_path: Path) -> None:
    run, test = str(tmp_path / "more"), tmp_path / "test.svm"
    test.write_bytes(to_text(*make_rows(seed=1)))
    words = ("fit", data, "--output", run, "--resume", "--workers", "1")
    assert submit(*words, "--path-length", "3").returncode == 0
    best = evaluate(run, str(test), client=client).best
    test.write_bytes(to_text(*make_rows(seed=2)))
    done = submit(*words, "--path-length", "4")
    assert done.returncode == 0
    assert "changed since the evaluation): judge them with dask-submit evaluate" in done.stderr
    assert PathModel.load(run).best() == best


def test_a_pipeline_is_continued_with_more_lambdas(submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_bytes(to_text(*make_rows(300)))
    words = ("pipeline", "--train", str(tmp_path / "train.svm"), "--output", str(tmp_path / "run"), "--workers", "1")
    assert submit(*words, "--path-length", "3").returncode == 0
    done = submit(*words, "--path-length", "4", "--extra-lambdas", "1.5")
    assert done.returncode == 0, done.stderr
    assert "convert: up to date" in done.stderr
    model = PathModel.load(str(tmp_path / "run"))
    assert len(model) == 5
    assert None not in [row["log_loss"] for row in model.path]
    assert open_dataset(str(tmp_path / "run" / "data")).n == model.record.dataset.examples


@pytest.mark.parametrize("name", ["trace.parquet", "coefficients.parquet", "path.parquet"])
@pytest.mark.parametrize(
    "length", [3, 12]
)  # 12: the last models have all features, so numbers of nonzeros tell nothing
def test_a_cut_between_the_files_of_an_insertion_loses_nothing(
    client: Client, data: str, tmp_path: Path, name: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, how = str(tmp_path / "more"), {"options": STRICT, "client": client}
    fit_path(data, url, path=PathOptions(length=length), **how)
    before = by_lambda(tmp_path / "more")
    lambdas = [row["lambda"] for row in rows_of(tmp_path / "more", "path")]
    asked = PathOptions(length=length, extra=(float(np.sqrt(lambdas[-1] * lambdas[-2])),))
    write = run._write_table

    def cut(fs: Any, path: str, table: Any, **options: Any) -> None:
        if path.endswith(name):
            raise KeyboardInterrupt
        write(fs, path, table, **options)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(run, "_write_table", cut)
        fit_path(data, url, path=asked, resume=True, **how)
    loaded = PathModel.load(url)
    assert loaded.lambdas.tolist() == lambdas
    for k, lam in enumerate(lambdas):
        features, weights = loaded.coefficients(k)
        assert list(zip(features.tolist(), weights.tolist(), strict=True)) == before[lam][1]
    fit_path(data, url, path=asked, resume=True, **how)
    after = by_lambda(tmp_path / "more")
    assert len(after) == length + 1 and {lam: after[lam] for lam in before} == before
    assert [len(after[lam][2]) for lam in after] == [after[lam][0]["rounds"] for lam in after]


def test_lambdas_that_no_reader_takes_are_refused_before_anything_is_written(
    client: Client, data: str, tmp_path: Path
) -> None:
    url = str(tmp_path / "more")
    fit_path(data, url, path=PathOptions(length=2), options=STRICT, client=client)
    for lam in (1e101, 1e-101):
        with pytest.raises(UserError, match="λ must lie between 1e-100 and 1e"):
            fit_path(data, url, path=PathOptions(length=2, extra=(lam,)), options=STRICT, client=client, resume=True)
    assert len(PathModel.load(url)) == 2


def test_resumed_without_a_word_about_lambdas_a_run_keeps_its_own(client: Client, data: str, tmp_path: Path) -> None:
    url, how = str(tmp_path / "more"), {"options": STRICT, "client": client, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        fit_path(data, url, path=PathOptions(length=6, ratio=0.8), watcher=CutAt(2), options=STRICT, client=client)
    fit_path(data, url, **how)
    own = [row["lambda"] for row in rows_of(tmp_path / "more", "path")]
    assert len(own) == 6 and np.allclose(np.divide(own[1:], own[:-1]), 0.8)
    fit_path(data, url, **how)
    assert len(rows_of(tmp_path / "more", "path")) == 6
    about = tmp_path / "more" / "run.json"
    assert json.loads(about.read_text())["options"]["path_length"] == 6
    fit_path(data, url, path=PathOptions(length=7, ratio=0.8), **how)
    assert len(rows_of(tmp_path / "more", "path")) == 7


def test_the_command_resumes_a_run_with_its_own_lambdas(data: str, tmp_path: Path, submit: Submit) -> None:
    run = str(tmp_path / "own")
    for words, models in ((("--path-length", "3"), 3), (("--resume",), 3), (("--resume", "--path-length", "4"), 4)):
        assert submit("fit", data, "--output", run, *words).returncode == 0
        assert len(rows_of(tmp_path / "own", "path")) == models


def test_new_models_make_the_report_old_and_that_is_told(submit: Submit, data: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    submit("report", run)
    assert "report.html" not in submit("fit", data, "--output", run, "--resume").stderr
    done = submit("fit", data, "--output", run, "--resume", "--path-length", "3")
    assert f"{run}/report.html shows the run as it was: dask-submit report {run} writes it anew" in done.stderr


@pytest.mark.parametrize(
    ("begun", "resumed", "told"),
    [
        (["--gap", "1e-09"], [], "repeat --gap 1e-09"),
        (["--standardize"], [], "repeat --standardize (it is False now)"),
        (["--no-intercept"], [], "pass --no-intercept (it is True now)"),
        ([], ["--class-weight", "balanced"], "leave --class-weight away (it is balanced now)"),
    ],
)
def test_an_option_that_is_left_out_is_told_as_it_is_typed(
    submit: Submit, data: str, tmp_path: Path, begun: list[str], resumed: list[str], told: str
) -> None:
    words = ["fit", data, "--output", str(tmp_path / "other"), "--path-length", "1"]
    assert submit(*words, *begun).returncode == 0
    done = submit(*words, "--resume", *resumed)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"cannot resume a run of other data or options: {told}")
