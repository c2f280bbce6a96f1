"""The part of report.html that judges one model: curves, confusion matrix, class balance, the table of all features."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from distributed import Client
from scipy.special import expit

from pipeline import PathModel, evaluate, write_report
from pipeline.metrics import TEST
from pipeline.report.data import RunData, read_run
from pipeline.report.packed import packed_features
from pipeline.report.tables import balances
from pipeline.report.words import no_curves
from pipeline.report.write import render
from tests.damage import unsealed
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms.storage import StorageOptions

if TYPE_CHECKING:
    from tests.pipeline.browser import Page

P = 60
HOSTILE = "=1+1 <img src=x onerror=alert(1)> \"quoted\", </script> 'a'"


@pytest.fixture(scope="module")
def run(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that 300 examples chose from and 100 others judge."""
    folder = tmp_path_factory.mktemp("judged")
    run = fit_text(client, folder, to_text(*make_rows(p=P)), length=6)
    for name, n, choose in (("chose", 300, True), ("judge", 100, False)):
        (folder / name).write_bytes(to_text(*make_rows(n, P, seed=n)))
        evaluate(run, str(folder / name), choose=choose, client=client)
    return run


@pytest.fixture(scope="module")
def report(run: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = tmp_path_factory.mktemp("names") / "names.txt"
    names.write_text("".join(f"{HOSTILE} {feature}\n" for feature in range(1, P + 1)))
    return Path(write_report(run, feature_names=str(names)))


def data_of(run: str) -> RunData:
    return read_run(run, StorageOptions())


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


# What it holds.


def test_class_balance_is_that_of_each_data_set(run: str) -> None:
    found = {one.name: (one.positives, one.negatives) for one in balances(data_of(run))}
    labels = [make_rows(n, P, seed)[1] for n, seed in ((200, 0), (300, 300), (100, 100))]
    assert list(found) == ["Training", "Choosing", "Test"]
    for (positives, negatives), y in zip(found.values(), labels, strict=True):
        assert (positives, negatives) == ((y > 0).sum(), (y < 0).sum())


def test_all_features_are_packed_with_the_weights_of_every_model(run: str) -> None:
    data = data_of(run)
    found = unpacked(packed_features(data))
    ids = np.cumsum(found["ids"])
    assert ids.tolist() == np.unique(data.model.features).tolist() and found["all"] == ids.size
    for k in range(6):
        features, weights = data.model.coefficients(k)
        steps, values = found["weights"][str(k)]
        assert ids[np.cumsum(steps)].tolist() == features.tolist()
        np.testing.assert_allclose(values, weights, rtol=5e-4)
        assert all(found["first"][ids.tolist().index(feature)] <= k for feature in features)


def large_model(run: str, count: int, scale: int = 1) -> PathModel:
    """A path of six models with up to `count` features."""
    record = PathModel.load(run).record
    rng = np.random.default_rng(0)
    sizes = [count // 4**k for k in reversed(range(6))]
    features = np.concatenate([np.sort(rng.choice(2 * count, size, replace=False)) + 1 for size in sizes])
    path = [row | {"nonzeros": size} for row, size in zip(PathModel.load(run).path, sizes, strict=True)]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return PathModel(run, record, path, starts, features * scale, rng.normal(size=features.size))


def test_a_page_of_100000_features_is_below_3_mb(run: str) -> None:
    data = data_of(run)
    names = {feature: f"word{feature % 977} of {feature}" for feature in range(1, 200_001)}
    large = RunData(large_model(run, 80_000), data.trace, names, data.judgements)
    page = render(large)
    assert len(page.encode()) < 3_000_000
    found = unpacked(page.partition('id="packed-features">')[2].partition("<")[0])
    assert len(found["ids"]) == found["all"] > 90_000


def test_what_is_too_much_for_a_page_is_left_out_and_told(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of(run)
    monkeypatch.setattr("pipeline.report.packed.FEATURE_BYTES", 20_000)
    packed = packed_features(RunData(large_model(run, 5000), data.trace, {}, data.judgements))
    found = unpacked(packed)
    assert len(packed) <= 20_000
    assert len(found["ids"]) < found["all"] and list(found["weights"]) == [str(found["shown"])]


def test_ids_beyond_a_scripts_numbers_are_text(run: str) -> None:
    data = data_of(run)
    huge = RunData(large_model(run, 5000, scale=2**48 + 1), data.trace, {}, [])
    assert unpacked(packed_features(huge))["ids"] == [str(one) for one in np.unique(huge.model.features)]


def test_a_run_evaluated_before_says_that_it_must_be_evaluated_again(run: str, tmp_path: Path) -> None:
    old = Path(shutil.copytree(run, tmp_path / "old"))
    about = unsealed(json.loads((old / "run.json").read_text()))
    for slot in ("evaluation", "test"):
        del about[slot]["curves"]
    (old / "run.json").write_text(json.dumps(about))
    notice = no_curves(data_of(str(old)))
    assert notice is not None and "Evaluate it again" in notice.text and "dask-submit evaluate" in notice.command
    assert "Evaluate it again" in Path(write_report(str(old))).read_text()


# In a browser.

WORDS = "return document.getElementById('chosen-figures').textContent"
MATRIX = "return ['tp', 'fn', 'fp', 'tn'].map((id) => parseInt(document.getElementById(id).firstChild.textContent))"
LINE = """
const figure = Bokeh.documents[0].roots().find((one) => one.name === arguments[0]);
const {data} = figure.renderers.find((one) => one.tags[1] === arguments[1]).data_source;
return [[...data.x], [...data.y]];
"""
ROWS = """
const rows = [...document.querySelectorAll(".features tbody tr")];
return rows.map((row) => [...row.cells].map((one) => one.textContent));
"""
DOWNLOAD = """
const done = arguments[1], make = URL.createObjectURL;
URL.createObjectURL = (blob) => { blob.text().then(done); return make.call(URL, blob); };
document.querySelector(`[data-download=${arguments[0]}]`).click();
URL.createObjectURL = make;
"""
MOVE = """
const slider = document.getElementById(arguments[0]);
slider.value = arguments[1];
slider.dispatchEvent(new Event("input", {bubbles: true}));
"""
SEARCH = MOVE  # the same event


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_curves_are_those_of_the_model_that_is_chosen(run: str, report: Path, page: Page) -> None:
    data = data_of(run)
    page.open(report)
    X, y = make_rows(300, P, seed=300)
    for k in (data.featured, 0, 5):
        page.run(MOVE, "model", k)
        assert f"Model {k} on 300 test examples, which chose the model: AUPRC {data.rows[k]['auprc']:.4f}" in page.run(
            WORDS
        )
        rates, hits = page.run(LINE, "roc", "curve")
        assert np.trapezoid(hits, rates) == pytest.approx(data.rows[k]["auc"], abs=2e-3)
        positive = expit(data.model.decision_function(X, k)) > 0.5
        expected = [
            (positive & (y > 0)).sum(),
            (~positive & (y > 0)).sum(),
            (positive & (y < 0)).sum(),
            (~positive & (y < 0)).sum(),
        ]
        assert page.run(MATRIX) == expected
    predicted, observed = page.run(LINE, "calibration", "curve")
    assert len(predicted) >= 9 and predicted == sorted(predicted)
    assert np.mean(observed) == pytest.approx((y > 0).mean(), abs=0.05)
    assert page.complaints() == []


def test_threshold_moves_the_matrix_and_the_rings_by_keyboard(run: str, report: Path, page: Page) -> None:
    page.open(report)
    page.run("document.getElementById('threshold').focus()")
    page.press("→")
    assert page.comes_to("return document.getElementById('threshold-value').textContent", "0.51")
    page.run(MOVE, "threshold", 99)
    high = page.run(MATRIX)
    page.run(MOVE, "threshold", 0)
    low = page.run(MATRIX)
    assert high[0] <= low[0] and low[1] == low[3] == 0
    assert page.run(LINE, "roc", "threshold") == [[1], [1]]


def test_model_is_chosen_by_keyboard_by_a_row_and_by_a_plot(run: str, report: Path, page: Page) -> None:
    page.open(report)
    shown = data_of(run).featured
    page.run("document.getElementById('model').focus()")
    page.press("←")
    number = "return document.querySelector('.chosen-number').textContent"
    assert page.comes_to(number, str(shown - 1))
    page.run("document.querySelectorAll('.models tbody tr')[5].click()")
    assert page.comes_to(number, "5")
    assert page.comes_to("return document.getElementById('features-model').value", "5")
    page.click(*page.run(POINT, "nonzeros"))
    assert page.comes_to(number, "0")


POINT = """
const view = [...Bokeh.index].find((one) => one.model.name === arguments[0]);
view.el.scrollIntoView({block: "center", behavior: "instant"});
const {data} = view.model.renderers[0].data_source, canvas = view.canvas_view.el.getBoundingClientRect();
return [canvas.x + view.frame.x_scale.compute([...data.lambda][0]), canvas.y + view.frame.bbox.y_center];
"""


def test_test_data_can_be_looked_at_instead(run: str, report: Path, page: Page) -> None:
    page.open(report)
    page.run("document.querySelectorAll('[name=judgement]')[1].click()")
    row = data_of(run).rows[data_of(run).featured]
    assert f"100 test examples, which chose nothing: AUPRC {row[TEST + 'auprc']:.4f}" in page.run(WORDS)
    assert sum(page.run(MATRIX)) == 100


def test_features_are_searched_sorted_and_paged(run: str, report: Path, page: Page) -> None:
    page.open(report)
    data = data_of(run)
    page.run(MOVE, "features-model", 5)
    features, weights = data.model.coefficients(5)
    order = np.lexsort((features, -np.abs(weights)))
    assert [int(row[0]) for row in page.run(ROWS)] == features[order][:20].tolist()
    every = np.unique(data.model.features)
    assert (
        page.run("return document.getElementById('features-page').textContent") == f"Page 1 of {-(-every.size // 20)}"
    )
    page.run("document.querySelector('[data-page=last]').click()")
    assert len(page.run(ROWS)) == (every.size - 1) % 20 + 1
    page.run("document.querySelector('[data-sort=id] button').click()")
    assert [int(row[0]) for row in page.run(ROWS)] == every[:20].tolist()
    page.run("document.querySelector('[data-sort=id] button').focus()")
    page.press(" ")
    assert page.comes_to("return document.querySelector('[data-sort=id]').ariaSort", "descending")
    assert [int(row[0]) for row in page.run(ROWS)] == every[::-1][:20].tolist()
    page.run(SEARCH, "search", f"{HOSTILE} {every[3]}")
    assert [int(row[0]) for row in page.run(ROWS) if row[1] == f"{HOSTILE} {every[3]}"] == [every[3]]
    assert page.run("return document.querySelectorAll('.features img').length") == 0
    assert page.complaints() == []


def test_tables_are_downloaded_as_csv(run: str, report: Path, page: Page) -> None:
    page.open(report)
    data = data_of(run)
    models = table(page.driver.execute_async_script(DOWNLOAD, "models"))
    assert [float(row["lambda"]) for row in models] == data.model.lambdas.tolist()
    assert [float(row["auprc"]) for row in models] == [row["auprc"] for row in data.rows]
    features = table(page.driver.execute_async_script(DOWNLOAD, "features"))
    assert sorted(int(row["feature"]) for row in features) == np.unique(data.model.features).tolist()
    assert features[0]["name"] == f"'{HOSTILE} {features[0]['feature']}"  # an apostrophe: no spreadsheet computes it
    points = table(page.driver.execute_async_script(DOWNLOAD, "curve"))
    last = points[-1]
    assert (last["false_negatives"], last["true_negatives"], float(last["recall"])) == ("0", "0", 1.0)


def test_page_fits_a_phone_with_all_of_it(report: Path, page: Page) -> None:
    page.open(report, width=390, height=844)
    assert page.comes_to("return document.documentElement.scrollWidth - document.documentElement.clientWidth", 0)
    tables = "[...document.querySelectorAll('#balance .scroll, #confusion .scroll')]"
    assert page.run(f"return {tables}.every((one) => one.scrollWidth <= one.clientWidth)")


def test_groups_of_calibration_and_f1_are_told_as_they_are_computed(report: Path) -> None:
    text = report.read_text()
    assert "A point is at least a tenth of the examples, by predicted probability; the leftmost is what is left" in text
    assert "harmonic mean of the first two" in text


def test_hostile_names_are_nowhere_in_the_pages_text_as_markup(report: Path) -> None:
    assert not re.search(r"<img src=x", report.read_text())
