"""dask-submit show: a run in the terminal, or as CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from pipeline import PathModel, evaluate
from pipeline.choice import choose_model
from pipeline.run_record import claimed_run
from tests.damage import unsealed
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms.storage import StorageOptions

Submit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fit_text(client, tmp_path_factory.mktemp("run"), to_text(*make_rows()), length=6)


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_models_the_chosen_one_and_its_features_are_shown(submit: Submit, run: str) -> None:
    done = submit("show", run, "--features", "3")
    assert done.returncode == 0, done.stderr
    model = PathModel.load(run)
    best = choose_model(model).index
    features, weights = model.coefficients(best)
    strongest = features[np.argsort(-np.abs(weights))[:3]]
    (marked,) = [line for line in done.stdout.splitlines() if "←" in line]
    assert marked.split()[0] == str(best)
    assert f"Shown: model {best} (λ = {model.lambdas[best]:.5g}), the lowest BIC" in done.stdout
    below = done.stdout.partition(f"The strongest 3 of {features.size} features:")[2]
    found = [line.split()[0] for line in below.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    assert found == [str(one) for one in strongest]


def test_an_evaluation_is_shown_with_the_best(submit: Submit, client: Client, tmp_path: Path) -> None:
    run = fit_text(client, tmp_path, to_text(*make_rows()), length=6)
    (tmp_path / "test.svm").write_bytes(to_text(*make_rows(seed=1)))
    best = evaluate(run, str(tmp_path / "test.svm"), client=client).best
    done = submit("show", run)
    assert f"Best by AUPRC: model {best} " in done.stdout
    assert f"{PathModel.load(run).path[best or 0]['auprc']:.4f}" in done.stdout


def test_features_have_their_names(submit: Submit, run: str, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("".join(f"word-{j}\n" for j in range(1, 31)))
    words = ("--lambda-index", "-1", "--feature-names", str(tmp_path / "names.txt"))
    shown = submit("show", run, *words)
    features, _ = PathModel.load(run).coefficients(-1)
    assert sum(f"word-{j} " in shown.stdout for j in features) == 10
    listed = rows_of(submit("show", run, *words, "--csv").stdout)
    assert {int(row["feature"]): row["name"] for row in listed} == {int(j): f"word-{j}" for j in features}


def test_names_in_csv_are_no_formulas_and_no_commands_to_a_terminal(submit: Submit, run: str, tmp_path: Path) -> None:
    features = PathModel.load(run).coefficients(-1)[0].tolist()
    hostile = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\x1b[2Jgone", "a\rb", 'quoted, "twice"', "größe  x"]
    told = ["'=cmd|' /C calc'!A0", "'+1", "'-1", "'@SUM(A1)", "\ufffd[2Jgone", "a b", 'quoted, "twice"', "größe  x"]
    lines = [f"{j}\t{name}\n" for j, name in zip(features, hostile, strict=False)]
    (tmp_path / "names.txt").write_text("".join(lines), newline="")
    done = submit("show", run, "--csv", "--lambda-index", "-1", "--feature-names", str(tmp_path / "names.txt"))
    found = {int(row["feature"]): row["name"] for row in rows_of(done.stdout)}
    assert [found[j] for j in features[: len(told)]] == told


def test_csv_has_the_models_or_the_features_of_one(submit: Submit, run: str) -> None:
    model = PathModel.load(run)
    path = rows_of(submit("show", run, "--csv").stdout)
    assert [float(row["lambda"]) for row in path] == model.lambdas.tolist()
    assert [int(row["nonzeros"]) for row in path] == [row["nonzeros"] for row in model.path]
    weights = rows_of(submit("show", run, "--csv", "--lambda-index", "2").stdout)
    found = {int(row["feature"]): float(row["weight"]) for row in weights}
    assert found == dict(zip(*(part.tolist() for part in model.coefficients(2)), strict=True))
    assert len(rows_of(submit("show", run, "--csv", "--features", "2").stdout)) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere"], "not a run: no such folder"),
        (["{run}", "--lambda-index", "6"], "λ index 6, but the run has 6: 0 to 5"),
        (["{run}", "--features", "-1"], "Invalid value for '--features'"),
        (["{run}", "--feature-names", "{names}"], "names.txt: line 1: feature id 99999999999999999999… (5,000 digits)"),
    ],
)
def test_what_cannot_be_shown_is_told_in_one_line(
    submit: Submit, run: str, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "names.txt").write_text(f"{5000 * '9'}\tmany\n")
    done = submit("show", *(word.format(run=run, names=tmp_path / "names.txt") for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("dask-submit: error: ") and told in line


def test_a_run_at_work_is_told_from_one_that_was_cut_off(submit: Submit, client: Client, tmp_path: Path) -> None:
    run = Path(fit_text(client, tmp_path, to_text(*make_rows()), length=3))
    about = unsealed(json.loads((run / "run.json").read_text()))
    (run / "run.json").write_text(json.dumps(about | {"complete": False}))
    assert "The run is unfinished: 3 are planned. Go on with --resume." in submit("show", str(run)).stdout
    with claimed_run(str(run), StorageOptions()):
        shown = submit("show", str(run)).stdout
    assert f"The run is at work, by process {os.getpid()} on {socket.gethostname()}: 3 are planned." in shown
