"""The table of metrics: an entry is all that a new one takes, and old runs stay readable."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline import PathModel, PathOptions, evaluate, metrics, predict, write_report
from pipeline.commands.score import summary
from pipeline.display import SilentDisplay
from pipeline.metrics import Metric, Scores, metric_names, metrics_of
from pipeline.model import best_of
from pipeline.stages import PipelineOptions, run_pipeline
from pipeline.summary import summary_lines
from tests.pipeline.runs import make_rows, to_text
from transforms import UserError


def brier(scores: Scores) -> float:
    probability = 1 / (1 + np.exp(-scores.margins))
    return scores.mean((probability - (scores.labels > 0)) ** 2)


BRIER = Metric("brier", "Brier score", "Brier score", brier, higher_is_better=False, is_share=False)
BIAS = Metric("bias", "bias", "mean error", lambda scores: 0.0, kind="number")


@pytest.fixture(scope="module")
def original(client: Client, tmp_path_factory: pytest.TempPathFactory) -> PipelineOptions:
    """A run that was evaluated before the new metric existed."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "train.svm").write_bytes(to_text(*make_rows()))
    (folder / "test.svm").write_bytes(to_text(*make_rows(seed=1)))
    options = PipelineOptions(
        (str(folder / "train.svm"),),
        str(folder / "run"),
        (str(folder / "test.svm"),),
        choose_by_test=True,
        fit={"path": PathOptions(length=3)},
    )
    run_pipeline(options, client=client, display=SilentDisplay())
    return options


@pytest.fixture
def old(original: PipelineOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineOptions:
    """A copy of the run, and the metric that it lacks."""
    shutil.copytree(original.output, tmp_path / "run")
    monkeypatch.setattr(metrics, "METRICS", (*metrics.METRICS, BRIER))
    return replace(original, output=str(tmp_path / "run"))


def test_a_run_evaluated_before_a_metric_existed_has_none_of_it(old: PipelineOptions) -> None:
    model = PathModel.load(old.output)
    assert [row["brier"] for row in model.path] == [None] * 3
    assert model.best("brier") is None
    assert model.best() is not None
    assert "Brier" not in "\n".join(summary_lines(old.output))


def test_such_a_run_is_reported_predicted_by_and_found_up_to_date(
    client: Client, old: PipelineOptions, tmp_path: Path
) -> None:
    done = run_pipeline(old, client=client, display=SilentDisplay())
    assert not any(done.worked.values())
    page = Path(write_report(old.output)).read_text()
    assert "Test log-loss along the path" in page
    assert "Brier" not in page
    made = predict(old.output, old.test, str(tmp_path / "p.parquet"), client=client)
    assert made.tally.examples == 200


def test_one_entry_adds_a_metric_everywhere(client: Client, old: PipelineOptions) -> None:
    found = evaluate(old.output, old.test, metric="brier", client=client)
    values = [row["brier"] for row in found.path]
    assert found.best == int(np.argmin(values))
    assert pq.read_schema(Path(old.output) / "path.parquet").names[-5:] == [*metric_names("binary")]
    assert PathModel.load(old.output).best() == found.best
    assert "Best by Brier score: model" in "\n".join(summary_lines(old.output))
    page = Path(write_report(old.output)).read_text()
    assert "Test Brier score along the path" in page
    assert "best by Brier score" in page
    table = summary(found, 1.0)
    assert "Brier score" in [column.header for column in table.columns]


def test_a_run_of_one_metric_is_read(old: PipelineOptions) -> None:
    path = Path(old.output) / "path.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["auprc", "log_loss", "accuracy"]), path)
    model = PathModel.load(old.output)
    assert [row["auprc"] for row in model.path] == [None] * 3
    assert model.best("auc") is not None
    assert "None is best" in "\n".join(summary_lines(old.output))


def test_metrics_for_labels_of_another_kind_are_not_asked_of_a_run(
    client: Client, old: PipelineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "METRICS", (BIAS, *metrics.METRICS))
    found = evaluate(old.output, old.test, client=client)
    assert found.metric == "auprc"
    assert "bias" not in found.path[0]
    assert "bias" not in metrics_of(np.ones(2), np.array([-1, 1]), None)
    with pytest.raises(UserError, match="metric must be one of auprc, auc, log_loss, accuracy, brier, got 'bias'"):
        best_of(found.path, "bias")
    assert "Bias" not in Path(write_report(old.output)).read_text()
