"""What curves are drawn from: bins of scores whose edges are points of the exact curves, stored by an evaluation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from pipeline import PathModel, PathOptions, evaluate, fit_path
from pipeline.curves import CURVE_SCHEMA, HUNDREDTHS, QUANTILES, Curve, curve_of, read_curves
from pipeline.margins import PROBABILITIES
from pipeline.metrics import Scores
from pipeline.report.data import read_run
from tests.damage import unsealed
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import UserError
from transforms.storage import StorageOptions, open_storage


def scores_of(n: int, *, ties: bool = False, weighted: bool = False, loss: str = "logistic") -> Scores:
    rng = np.random.default_rng(n)
    margins = (2 * rng.normal(size=n)).round(1 if ties else 12)
    labels = np.where(rng.random(n) < expit(margins - 1), 1, -1).astype(np.int8)
    return Scores(margins, labels, rng.exponential(size=n) if weighted else None, loss)


def above(scores: Scores, called: np.ndarray) -> tuple[float, float]:
    """The weight of positives and of negatives among those that are called positive."""
    weights = np.ones(called.size) if scores.weights is None else scores.weights
    return float(weights[called & (scores.labels > 0)].sum()), float(weights[called & (scores.labels < 0)].sum())


@pytest.mark.parametrize("loss", ["logistic", "probit"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ties", [True, False])
def test_every_edge_is_a_point_of_the_exact_curves(ties: bool, weighted: bool, loss: str) -> None:
    scores = scores_of(3000, ties=ties, weighted=weighted, loss=loss)
    curve = curve_of(scores)
    assert curve.margin.size <= 2 * QUANTILES + HUNDREDTHS.size + 1
    assert (np.diff(curve.margin) < 0).all()
    true, false = np.cumsum(curve.positives), np.cumsum(curve.negatives)
    for k, margin in enumerate(curve.margin):
        assert (true[k], false[k]) == pytest.approx(above(scores, scores.margins >= margin))
    weights = np.ones(3000) if scores.weights is None else scores.weights
    assert curve.expected.sum() == pytest.approx((weights * PROBABILITIES[loss][0](scores.margins)).sum())


def test_confusion_is_exact_at_every_hundredth() -> None:
    scores = scores_of(2000, ties=True)  # margins of 0 are there: a probability of one half is not above one half
    curve = curve_of(scores)
    for threshold in HUNDREDTHS:
        called = curve.probability > threshold
        expected = above(scores, expit(scores.margins) > threshold)
        assert (curve.positives[called].sum(), curve.negatives[called].sum()) == expected


def test_few_bins_draw_the_roc_curve() -> None:
    scores = scores_of(50_000)
    curve = curve_of(scores)
    rates = [np.cumsum([0, *part]) / part.sum() for part in (curve.negatives, curve.positives)]
    assert np.trapezoid(rates[1], rates[0]) == pytest.approx(roc_auc_score(scores.labels, scores.margins), abs=2e-4)


def test_equal_scores_and_one_class_have_their_bins() -> None:
    same = curve_of(Scores(np.zeros(5), np.array([1, -1, -1, 1, 1], np.int8), None))
    assert (same.positives.tolist(), same.negatives.tolist(), same.expected.tolist()) == ([3], [2], [2.5])
    one = curve_of(Scores(np.array([1.0, 2.0]), np.array([-1, -1], np.int8), None))
    assert one.one_class and one.negatives.tolist() == [1, 1]


@pytest.fixture(scope="module")
def evaluated(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("curves")
    run = fit_text(client, folder, to_text(*make_rows()))
    (folder / "test.svm").write_bytes(to_text(*make_rows(seed=1)))
    evaluate(run, str(folder / "test.svm"), client=client)
    return run


@pytest.fixture
def run(evaluated: str, tmp_path: Path) -> str:
    return str(shutil.copytree(evaluated, tmp_path / "run"))


def stored(run: str, lambdas: list[float] | None = None) -> list[Curve | None]:
    model = PathModel.load(run)
    judged = model.record.evaluation
    assert judged is not None and judged.curves is not None
    fs, path = open_storage(run, StorageOptions())
    return read_curves(fs, f"{path}/curves.parquet", judged.curves, lambdas or model.lambdas.tolist(), "")


def test_an_evaluation_stores_the_curve_of_every_model(run: str) -> None:
    X, y = make_rows(seed=1)
    model = PathModel.load(run)
    for k, curve in enumerate(stored(run)):
        expected = curve_of(Scores(model.decision_function(X, k), y.astype(np.int8), None))
        assert curve is not None
        np.testing.assert_allclose(curve.margin, expected.margin, atol=1e-12)
        np.testing.assert_array_equal(curve.positives, expected.positives)
    table = pq.read_table(Path(run) / "curves.parquet")
    assert table.schema == CURVE_SCHEMA


def test_a_model_that_came_after_the_evaluation_has_no_curve(run: str) -> None:
    assert stored(run, [1e9])[0] is None


def test_test_data_have_a_file_of_their_own(run: str, client: Client, tmp_path: Path) -> None:
    (tmp_path / "other.svm").write_bytes(to_text(*make_rows(90, seed=2)))
    before = (Path(run) / "curves.parquet").read_bytes()
    evaluate(run, str(tmp_path / "other.svm"), choose=False, client=client)
    assert (Path(run) / "curves.parquet").read_bytes() == before
    chose, judged = read_run(run, StorageOptions()).judgements
    first, second = chose.curves[0], judged.curves[0]
    assert first is not None and second is not None
    assert first.positives.sum() + first.negatives.sum() == 200
    assert second.positives.sum() + second.negatives.sum() == 90


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda file: file.unlink(), "missing. Evaluate again: dask-submit evaluate .*/run .*/test.svm$"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "damaged .its checksum is not that of run.json"),
        (lambda file: pq.write_table(pa.table({"lambda": [1.0]}), file), "damaged"),
    ],
)
def test_a_damaged_file_of_curves_is_refused(run: str, spoil: object, complaint: str) -> None:
    spoil(Path(run) / "curves.parquet")  # type: ignore[operator]
    with pytest.raises(UserError, match=complaint):
        read_run(run, StorageOptions())


def test_damaged_curves_of_test_data_are_refused_with_the_command_that_mends_them(
    run: str, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "other data.svm").write_bytes(to_text(*make_rows(90, seed=2)))
    evaluate(run, str(tmp_path / "other data.svm"), choose=False, metric="auc", on_bad_line="skip", client=client)
    (Path(run) / "test_curves.parquet").unlink()
    command = f"dask-submit evaluate {run} '{tmp_path}/other data.svm' --no-choose --metric auc --on-bad-line skip"
    with pytest.raises(UserError) as refused:
        read_run(run, StorageOptions())
    assert str(refused.value).endswith(f"missing. Evaluate again: {command}")


def test_a_run_of_an_earlier_version_is_read_and_resumed(run: str, evaluated: str, client: Client) -> None:
    """It has no curves, and does not say how many examples are positive."""
    about = unsealed(json.loads((Path(run) / "run.json").read_text()))
    del about["evaluation"]["curves"], about["dataset"]["positives"]
    (Path(run) / "run.json").write_text(json.dumps(about))
    assert read_run(run, StorageOptions()).judgements == []
    dataset = str(Path(evaluated).parent / "train")
    assert fit_path(dataset, run, path=PathOptions(length=4), resume=True, client=client).done == 4


def test_a_run_that_is_begun_anew_has_no_curves_left(run: str, evaluated: str, client: Client) -> None:
    dataset = str(Path(evaluated).parent / "train")
    fit_path(dataset, run, path=PathOptions(length=2), overwrite=True, client=client)
    assert not list(Path(run).glob("*curves*"))
