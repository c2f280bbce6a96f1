"""What is fitted, as the command's users ask for it: intercept, elastic net, factors, class weights, scales, losses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

from pipeline import L1LogisticRegression, PathModel, PathOptions, Watcher, fit_path
from solver import DefaultOptions, ProblemOptions
from tests.pipeline.runs import make_rows
from transforms import Dataset, from_arrays

Submit = Callable[..., subprocess.CompletedProcess[str]]
LAM = 1.5


@pytest.fixture(scope="module")
def rows() -> tuple[sp.csr_array, np.ndarray]:
    X, y = make_rows()
    y[:60] = 1
    return X, y


@pytest.fixture(scope="module")
def dataset(rows: Any, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    X, y = rows
    return from_arrays(X, y, str(tmp_path_factory.mktemp("problem") / "dataset"), partitions=2)


@pytest.fixture
def factors(tmp_path: Path) -> str:
    path = tmp_path / "factors.txt"
    path.write_text("# by hand\n0 0\n\n1 inf  # out\n2 0.5\n123456 7\n")
    return str(path)


def fitted(submit: Submit, dataset: Dataset, tmp_path: Path, *words: str) -> PathModel:
    run = str(tmp_path / "run")
    done = submit("fit", dataset.url, "--output", run, "--lambdas", str(LAM), "--gap", "1e-9", "--quiet", *words)
    assert done.returncode == 0, done.stderr
    return PathModel.load(run)


CASES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    ((), {}),
    (("--no-intercept",), {"fit_intercept": False}),
    (("--l1-ratio", "0.6"), {"l1_ratio": 0.6}),
    (("--class-weight", "balanced"), {"class_weight": "balanced"}),
    (("--class-weight", "-1=3,1=0.5"), {"class_weight": {-1: 3.0, 1: 0.5}}),
    (("--standardize", "--l1-ratio", "0.9"), {"standardize": True, "l1_ratio": 0.9}),
    (("--nonnegative",), {"positive": True}),
    (("--loss", "probit"), {"loss": "probit"}),
]


@pytest.mark.parametrize(("words", "how"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_the_command_fits_what_the_estimator_fits(
    submit: Submit, rows: Any, dataset: Dataset, tmp_path: Path, words: tuple[str, ...], how: dict[str, Any]
) -> None:
    model = fitted(submit, dataset, tmp_path, *words)
    expected = L1LogisticRegression(LAM, gap=1e-9, **how).fit(*rows)
    assert model.path[0]["objective"] == pytest.approx(expected.objective_, rel=1e-8)
    np.testing.assert_allclose(model.decision_function(rows[0], 0), expected.decision_function(rows[0]), atol=1e-3)
    np.testing.assert_allclose(model.predict_proba(rows[0], 0), expected.predict_proba(rows[0]), atol=1e-4)


def test_factors_of_a_file_are_those_of_an_array(
    submit: Submit, rows: Any, dataset: Dataset, tmp_path: Path, factors: str
) -> None:
    model = fitted(submit, dataset, tmp_path, "--penalty-factors", factors)
    by_column = np.ones(rows[0].shape[1])
    by_column[:3] = 0.0, np.inf, 0.5
    expected = L1LogisticRegression(LAM, gap=1e-9, penalty_factors=by_column).fit(*rows)
    assert model.path[0]["objective"] == pytest.approx(expected.objective_, rel=1e-8)
    assert 1 not in model.coefficients(0)[0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0 1\n1\n", "factors.txt:2: expected a feature id and a factor"),
        ("0 one\n", "factors.txt:1: expected a feature id and a factor"),
        ("0 -1\n", "factors.txt:1: a factor must be at least 0"),
        ("0 nan\n", "factors.txt:1: a factor must be at least 0"),
        ("0 1\n0 2\n", "factors.txt:2: feature 0 has a factor already"),
        ("99999999999999999999 1\n", "factors.txt:1: a feature id must lie in 0.."),
        ("-3 1\n", "factors.txt:1: a feature id must lie in 0.."),
        ("".join(f"{j} 0\n" for j in range(30)), "every feature is excluded or unpenalised"),
        ("".join(f"{j} inf\n" for j in range(30)), "every feature is excluded or unpenalised"),
    ],
)
def test_a_bad_file_of_factors_is_told_with_its_place(
    submit: Submit, dataset: Dataset, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "factors.txt").write_text(text)
    words = ("--penalty-factors", str(tmp_path / "factors.txt"))
    done = submit("fit", dataset.url, "--output", str(tmp_path / "run"), *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--l1-ratio", "0"), "l1_ratio must be above 0 and at most 1"),
        (("--l1-ratio", "1.5"), "l1_ratio must be above 0 and at most 1"),
        (("--class-weight", "heavy"), "class_weight must be balanced or LABEL=W"),
        (("--class-weight", "7=2"), "class_weight names the label 7, but the labels are -1, 1"),
        (("--class-weight", "1=-2"), "class weights must lie in 0..1e+30"),
        (("--class-weight", "1=2,1=3"), "class_weight names a label twice"),
        (("--class-weight", "1=1e300"), "class weights must lie in 0..1e+30"),
        (("--penalty-factors", "nowhere.txt"), "nowhere.txt: no such file"),
        (("--class-weight", "1=0"), "have the same label: with an intercept there is no model"),
        (("--loss", "hinge"), "'hinge' is not one of"),
        (("--algorithm", "paper", "--threads", "2"), "--threads does not go with --algorithm paper"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    submit: Submit, dataset: Dataset, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = submit("fit", dataset.url, "--output", str(tmp_path / "run"), *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_the_paper_has_an_intercept_only_if_asked(submit: Submit, dataset: Dataset, tmp_path: Path) -> None:
    for name, words in (("without", ()), ("with", ("--intercept",))):
        run = tmp_path / name
        options = ("--algorithm", "paper", "--path-length", "2", "--quiet", *words)
        assert submit("fit", dataset.url, "--output", str(run), *options).returncode == 0
        assert json.loads((run / "run.json").read_text())["options"]["intercept"] is (name == "with")
        assert bool(PathModel.load(str(run)).intercept(-1)) is (name == "with")


def test_a_configuration_says_what_is_fitted(submit: Submit, dataset: Dataset, tmp_path: Path, factors: str) -> None:
    text = f"fit:\n  intercept: false\n  l1-ratio: 0.7\n  standardize: true\n  penalty-factors: {factors}\n"
    (tmp_path / "options.yaml").write_text(text)
    fitted(submit, dataset, tmp_path, "--config", str(tmp_path / "options.yaml"))
    options = json.loads((tmp_path / "run" / "run.json").read_text())["options"]
    assert (options["intercept"], options["l1_ratio"], options["standardize"]) == (False, 0.7, True)
    assert len(options["penalty_factors"]) == 64


class StopAfter(Watcher):
    """Ends the fit once so many λ are stored."""

    def __init__(self, count: int) -> None:
        self.left = count

    def solution(self, solution: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("algorithm", ["default", "paper"])
def test_a_path_with_all_of_it_is_taken_up_again(
    client: Client, dataset: Dataset, tmp_path: Path, algorithm: str
) -> None:
    problem = ProblemOptions(intercept=True, l1_ratio=0.8, standardize=True, class_weight="balanced")
    how: dict[str, Any] = {
        "algorithm": algorithm,
        "problem": problem,
        "penalty_factors": {0: 0.0, 3: 2.0},
        "path": PathOptions(length=5),
        "client": client,
    }
    if algorithm == "default":
        how["options"] = DefaultOptions(gap=1e-8)
    whole, cut = str(tmp_path / "whole"), str(tmp_path / "cut")
    fit_path(dataset, whole, **how)
    with pytest.raises(KeyboardInterrupt):
        fit_path(dataset, cut, watcher=StopAfter(2), **how)
    fit_path(dataset, cut, resume=True, **how)
    for one, other in zip(PathModel.load(whole).path, PathModel.load(cut).path, strict=True):
        assert one["objective"] == pytest.approx(other["objective"], rel=1e-12)
        assert one["intercept"] == pytest.approx(other["intercept"], abs=1e-12)
