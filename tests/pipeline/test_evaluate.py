"""Evaluation: scikit-learn's figures for every λ, kept in a run that stays what it was."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client
from sklearn.metrics import accuracy_score, average_precision_score, log_loss, roc_auc_score

from pipeline import PathModel, PathOptions, evaluate, fit_path
from pipeline.choice import choose_model
from pipeline.metrics import metric_names, metrics_of
from pipeline.report.data import read_run
from pipeline.report.tables import evaluation_pairs
from pipeline.report.words import _what_is_best, judged_by, tiles
from pipeline.report.write import render
from tests.damage import unsealed
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import OutputExists, UserError, convert_libsvm
from transforms.claim import ClaimKeeper
from transforms.storage import StorageOptions

Write = Callable[[str, bytes], str]
Submit = Callable[..., subprocess.CompletedProcess[str]]


def sklearn_metrics(margins: np.ndarray, positive: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    return {
        "auprc": average_precision_score(positive, margins, sample_weight=weights),
        "auc": roc_auc_score(positive, margins, sample_weight=weights),
        "log_loss": log_loss(positive, 1 / (1 + np.exp(-margins)), sample_weight=weights, labels=[False, True]),
        "accuracy": accuracy_score(positive, margins > 0, sample_weight=weights),
    }


def check_path(run: str, X: Any, positive: np.ndarray, weights: np.ndarray | None = None) -> None:
    """The stored metrics of every λ are scikit-learn's."""
    model = PathModel.load(run)
    for k, row in enumerate(model.path):
        expected = sklearn_metrics(model.decision_function(X, k), positive, weights)
        assert {name: row[name] for name in metric_names("binary")} == pytest.approx(expected, abs=1e-9)


@pytest.fixture(scope="module")
def fitted(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fit_text(client, tmp_path_factory.mktemp("run"), to_text(*make_rows()))


@pytest.fixture
def run(fitted: str, tmp_path: Path) -> str:
    """A copy, as an evaluation writes into it."""
    return str(shutil.copytree(fitted, tmp_path / "run"))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ties", [True, False])
def test_metrics_are_those_of_sklearn(weighted: bool, ties: bool) -> None:
    rng = np.random.default_rng(0)
    margins = rng.normal(size=500).round(1 if ties else 12)
    labels = np.where(rng.random(500) < 0.3, 1, -1).astype(np.int8)
    weights = rng.exponential(size=500) if weighted else None
    found = metrics_of(margins, labels, weights)
    assert found == pytest.approx(sklearn_metrics(margins, labels > 0, weights), abs=1e-12)


def test_log_loss_stays_finite_where_probabilities_are_0() -> None:
    found = metrics_of(np.array([1000.0, -2000.0]), np.array([-1, -1], np.int8), None)
    assert found == {"auprc": None, "auc": None, "log_loss": 500.0, "accuracy": 0.5}


@pytest.mark.parametrize("form", ["text", "blocks", "gz", "dataset", "dataset in groups"])
def test_every_model_gets_its_metrics(
    client: Client, run: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    X, y = make_rows(250, seed=1)
    text = to_text(X, y)
    url = write("t.svm.gz", gzip.compress(text)) if form == "gz" else write("t.svm", text)
    if form == "blocks":
        monkeypatch.setattr("pipeline.scoring.default_block_size", lambda *_: 500)
    if form.startswith("dataset"):
        convert_libsvm(url, str(tmp_path / "d"), partitions=3, client=client)
        url = str(tmp_path / "d")
    if form.endswith("groups"):
        monkeypatch.setattr("pipeline.scoring.MARGIN_BYTES", 3 * 250 * 8)  # three λ at a time
    before = PathModel.load(run).path
    done = evaluate(run, url, client=client)
    check_path(run, X, y > 0)
    path = PathModel.load(run).path
    assert path == done.path
    assert [{name: row[name] for name in old} for row, old in zip(path, before, strict=True)] == before
    assert done.best == int(np.argmax([row["auprc"] for row in path]))
    assert (done.tally.examples, done.tally.nonzeros, done.tally.unseen) == (250, X.nnz, 0)


def test_many_small_files_are_scored_as_one_text(client: Client, run: str, tmp_path: Path) -> None:
    X, y = make_rows(250, seed=1)
    (tmp_path / "in").mkdir()
    for k, line in enumerate(to_text(X, y).splitlines()):
        (tmp_path / "in" / f"{k:03d}.svm").write_bytes(line)
    done = evaluate(run, str(tmp_path / "in"), client=client)
    check_path(run, X, y > 0)
    assert done.tally.examples == 250
    (tmp_path / "in" / "100.svm").write_bytes(b"\n7 1:1\n")
    with pytest.raises(UserError, match=r"100\.svm: label 7"):
        evaluate(run, str(tmp_path / "in"), client=client)
    (tmp_path / "in" / "099.svm").write_bytes(b"\n1 1:x\n")
    with pytest.raises(UserError, match=r"099\.svm, line 2, column 5"):
        evaluate(run, str(tmp_path / "in"), client=client)


def test_weights_of_examples_weigh_the_metrics(client: Client, run: str, write: Write) -> None:
    X, y = make_rows(seed=1)
    weights = np.random.default_rng(0).integers(1, 9, y.size) / 4
    done = evaluate(run, write("t.svm", to_text(X, y, weights=weights)), client=client)
    assert done.weighted
    check_path(run, X, y > 0, weights)
    with pytest.raises(UserError, match="some of the test data have weights and some have none"):
        evaluate(run, [write("t.svm", to_text(X, y, weights=weights)), write("u.svm", to_text(X, y))], client=client)


@pytest.mark.parametrize(("negative", "positive", "chosen"), [(0, 1, None), (1, 2, None), (1, 2, 1.0)])
def test_labels_mean_what_they_meant_in_training(
    client: Client, write: Write, tmp_path: Path, negative: int, positive: int, chosen: float | None
) -> None:
    X, y = make_rows()
    labels = np.where(y > 0, positive, negative)
    run = fit_text(client, tmp_path, to_text(X, labels), positive=chosen)
    plus = positive if chosen is None else chosen
    text = write("t.svm", to_text(X, labels))
    evaluate(run, text, client=client)
    check_path(run, X, labels == plus)
    # A data set whose +1 is another label is judged the same.
    convert_libsvm(text, str(tmp_path / "d"), positive_label=negative, client=client)
    evaluate(run, str(tmp_path / "d"), client=client)
    check_path(run, X, labels == plus)


def test_labels_unknown_to_the_run_are_refused(client: Client, run: str, write: Write) -> None:
    before = (Path(run) / "path.parquet").read_bytes()
    with pytest.raises(UserError, match=r"t\.svm: label 0, but the run was trained on the labels -1 and 1"):
        evaluate(run, write("t.svm", b"1 1:1\n0 2:1\n"), client=client)
    assert (Path(run) / "path.parquet").read_bytes() == before
    assert not (Path(run) / "claim.json").exists()


@pytest.mark.parametrize("label", [1, -1])
@pytest.mark.parametrize("weights", [None, np.array([2.0, 1.0, 0.0])])
def test_areas_of_one_class_are_undefined(label: int, weights: np.ndarray | None) -> None:
    """An example without weight is of no class."""
    labels = np.array([label, label, label if weights is None else -label], np.int8)
    found = metrics_of(np.array([1.0, -2.0, 0.5]), labels, weights)
    assert (found["auprc"], found["auc"]) == (None, None)
    assert found["log_loss"] is not None


def test_an_example_without_weight_does_not_make_a_second_class(client: Client, run: str, write: Write) -> None:
    with pytest.warns(UserWarning, match="every test example has the label 1: AUPRC and AUC are undefined"):
        done = evaluate(run, write("t.svm", b"1:1 1:1\n1:2 2:1\n-1:0 3:1\n"), metric="log_loss", client=client)
    assert done.best is None


@pytest.mark.parametrize("label", [b"1", b"-1"])
def test_one_label_alone_leaves_areas_undefined(client: Client, run: str, write: Write, label: bytes) -> None:
    with pytest.warns(UserWarning, match=f"the label {label.decode()}: AUPRC and AUC are undefined"):
        done = evaluate(run, write("t.svm", label + b" 1:1\n" + label + b"\n"), metric="auc", client=client)
    assert done.best is None
    assert [name for name in metric_names("binary") if PathModel.load(run).path[0][name] is None] == ["auprc", "auc"]
    types = {field.name: str(field.type) for field in pq.read_schema(Path(run) / "path.parquet")}
    assert [types[name] for name in metric_names("binary")] == ["double"] * 4


def test_data_of_one_class_move_no_best(client: Client, run: str, write: Write, submit: Submit) -> None:
    text = write("t.svm", to_text(*make_rows(seed=1)))
    before = evaluate(run, text, metric="log_loss", client=client)
    done = submit("evaluate", run, write("one.svm", b"1 1:1\n1 2:1\n"), "--metric", "log_loss", "--choose")
    assert done.returncode == 0
    assert f"do not choose one (all examples have one label): the best stays model {before.best}." in done.stdout
    model = PathModel.load(run)
    assert model.best() == before.best
    assert [row["log_loss"] for row in model.path] == [row["log_loss"] for row in before.path]
    assert model.record.test is not None and model.record.test.examples == 2
    shown = submit("show", run).stdout
    assert "examples of the test data, which chose nothing (all of these examples have one label):" in shown
    assert "test:      log-loss" in shown
    data = read_run(run, StorageOptions())
    assert "no part in choosing it (all of these examples have one label): log-loss" in _what_is_best(data)
    assert "Test AUPRC" not in [tile.label for tile in tiles(data)]


def test_what_is_said_of_one_class_is_one_story(client: Client, run: str, write: Write, submit: Submit) -> None:
    one = write("one.svm", b"1 1:1\n1 2:1\n")
    done = submit("evaluate", run, one, "--metric", "log_loss")
    assert "none is best" in done.stdout and "←" not in done.stdout
    assert "do not choose one (all examples have one label): none is chosen yet." in done.stdout
    shown = submit("show", run).stdout
    assert "They were judged by 2 examples of the test data." in shown and "the best was chosen" not in shown
    taken = choose_model(PathModel.load(run)).index
    assert f"None is best: all of these examples have one label. predict takes model {taken}, by its BIC." in shown
    data = read_run(run, StorageOptions())
    assert data.best is None and data.featured == taken
    assert "No model is best by the data that judge them: all of these examples have one label" in _what_is_best(data)
    assert judged_by(data.judgements[0]) == "2 test examples, which chose nothing"
    assert {"Judged by", "Best by"} < dict(evaluation_pairs(data)).keys()
    assert dict(evaluation_pairs(data))["Best by"] == "–"
    page = render(data)
    assert "is marked" not in page and "chose the model" not in page


def test_data_of_one_class_that_only_judge_leave_the_evaluation_alone(client: Client, run: str, write: Write) -> None:
    with pytest.warns(UserWarning, match="every test example has the label"):
        evaluate(run, write("one.svm", b"1 1:1\n1 2:1\n"), client=client)
        evaluate(run, write("other.svm", b"-1 1:1\n"), choose=False, client=client)
    record = PathModel.load(run).record
    assert record.evaluation is not None and record.evaluation.examples == 2
    assert record.test is not None and record.test.examples == 1


def test_an_evaluation_says_that_the_report_is_older(run: str, write: Write, submit: Submit) -> None:
    text = write("t.svm", to_text(*make_rows(seed=1)))
    assert "report.html" not in submit("evaluate", run, text).stdout
    submit("report", run)
    assert "report.html shows the run as it was: dask-submit report" in submit("evaluate", run, text).stdout


def test_other_data_than_held_out_ones_judge_and_choose_only_when_asked(
    client: Client, write: Write, tmp_path: Path, submit: Submit
) -> None:
    X, y = make_rows(400)
    train = write("train.svm", to_text(X, y))
    dataset = convert_libsvm(train, str(tmp_path / "d"), hold_out=0.3, client=client)
    run = str(tmp_path / "run")
    fit_path(dataset, run, path=PathOptions(length=6), client=client)
    chosen = evaluate(run, train, held_out=True, client=client)
    other = write("t.svm", to_text(X, -y))  # by these, the best is another
    done = submit("evaluate", run, other)
    assert f"(pass --choose to choose by them): the best stays model {chosen.best}." in done.stdout
    model = PathModel.load(run)
    assert model.best() == chosen.best
    assert [row["auprc"] for row in model.path] == [row["auprc"] for row in chosen.path]
    assert all(row["test_auprc"] is not None for row in model.path)
    done = submit("evaluate", run, other, "--choose")
    found = PathModel.load(run).best()
    assert found != chosen.best
    assert f"The best is model {found} now; by the evaluation before it was model {chosen.best}." in done.stdout


def test_test_data_without_examples_are_refused(client: Client, run: str, write: Write) -> None:
    with pytest.raises(UserError, match="the test data have no examples"):
        evaluate(run, write("t.svm", b"# nothing\n"), client=client)


def test_an_evaluated_run_is_resumed_and_evaluated_again(client: Client, write: Write, tmp_path: Path) -> None:
    X, y = make_rows()
    run = fit_text(client, tmp_path, to_text(X, y))
    text = write("t.svm", to_text(*make_rows(seed=1)))
    first = evaluate(run, text, client=client)
    again = fit_path(str(tmp_path / "train"), run, path=PathOptions(length=4), resume=True, client=client)
    assert again.done == 4
    assert evaluate(run, text, client=client).path == first.path
    # One that was cut off goes on where it was; the new λ have no metrics until the next evaluation.
    about = json.loads((Path(run) / "run.json").read_text())
    (Path(run) / "run.json").write_text(json.dumps(unsealed(about) | {"complete": False}))
    pq.write_table(pq.read_table(Path(run) / "path.parquet").slice(0, 2), Path(run) / "path.parquet")
    assert PathModel.load(run).best() in (0, 1)
    fit_path(str(tmp_path / "train"), run, path=PathOptions(length=4), resume=True, client=client)
    found = PathModel.load(run)
    assert found.best() in (0, 1)
    assert [row["auprc"] is None for row in found.path] == [False, False, True, True]
    times = ("seconds", "line_search_seconds", "rounds")  # a path taken up again costs a sweep more
    for row, old in zip(evaluate(run, text, client=client).path, first.path, strict=True):
        kept = {name: value for name, value in row.items() if name not in times}
        assert kept == pytest.approx({name: value for name, value in old.items() if name not in times}, rel=1e-6)


def test_run_json_says_what_the_models_were_judged_by(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    X, y = make_rows(seed=1)
    text = write("t.svm", to_text(X, y))
    convert_libsvm(text, str(tmp_path / "d"), client=client)
    done = evaluate(run, [text, str(tmp_path / "d")], metric="accuracy", client=client)
    about = json.loads((Path(run) / "run.json").read_text())
    told = about["evaluation"]
    assert [one["path"] for one in told["inputs"]] == [text, str(tmp_path / "d")]
    assert (told["examples"], told["metric"], told["best"]) == (2 * y.size, "accuracy", done.best)
    assert about["complete"]


def test_a_run_that_is_being_written_is_left_alone(
    client: Client, run: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transforms.claim.HEARTBEAT_SECONDS", 0.2)
    keeper = ClaimKeeper(run, {}, f"{run}/claim.json")
    keeper.take(takeover=False)
    try:
        with pytest.raises(OutputExists, match="is writing here"):
            evaluate(run, write("t.svm", b"1 1:1\n"), client=client)
    finally:
        keeper.release()


def test_the_command_prints_a_table_with_the_best_marked_and_logs_json(submit: Submit, run: str, write: Write) -> None:
    done = submit("evaluate", run, write("t.svm", to_text(*make_rows(seed=1))), "--metric", "log_loss", "--log-json")
    assert done.returncode == 0, done.stderr
    best = PathModel.load(run).best("log_loss")
    (marked,) = [line for line in done.stdout.splitlines() if "│" in line and "←" in line]
    assert marked.split()[1] == str(best)
    assert "4 models, 200 test examples" in done.stdout
    assert "best by log-loss" in done.stdout
    phases = [event["phase"] for event in map(json.loads, done.stderr.splitlines()) if event.get("event") == "phase"]
    assert phases == ["score", "judge"]


def test_the_command_can_be_quiet(submit: Submit, run: str, write: Write) -> None:
    done = submit("evaluate", run, write("t.svm", to_text(*make_rows(seed=1))), "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert PathModel.load(run).best() is not None
