"""report.html: what it says, that it is written whole, and how it behaves in a browser."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Client

from pipeline import PathModel, PathOptions, evaluate, fit_path, write_report
from pipeline.commands.submit import command
from pipeline.report.data import RunData, above_zero, read_run, relative_gap, rounds_of, strongest, weights_along
from pipeline.report.format import duration, number, percent
from pipeline.report.names import read_names
from pipeline.report.words import summary
from tests.damage import unsealed
from tests.pipeline.runs import beta_of, fit_text, make_rows, to_text
from tests.services.s3 import SECRET, Bucket
from transforms import OutputExists, UserError
from transforms.storage import StorageOptions

if TYPE_CHECKING:
    from tests.pipeline.browser import Page

P = 30
HOSTILE = "<img src=x onerror=alert(1)> </script> & 'a' @name"
JUDGED = ["precision", "roc", "calibration", "scores"]
PLOTS = ["figure1", "quality", "logloss", "nonzeros", *JUDGED, "paths", "objective", "gap", "stages", "search"]


@pytest.fixture(scope="module")
def fitted(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that nobody has evaluated."""
    return fit_text(client, tmp_path_factory.mktemp("fit"), to_text(*make_rows(p=P)), length=6)


@pytest.fixture(scope="module")
def evaluated(client: Client, fitted: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("evaluated")
    run = str(shutil.copytree(fitted, folder / "run"))
    (folder / "test.svm").write_bytes(to_text(*make_rows(p=P, seed=1)))
    evaluate(run, str(folder / "test.svm"), client=client)
    return run


@pytest.fixture(scope="module")
def full(evaluated: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of an evaluated run, every feature with a name that is HTML, script and placeholder at once."""
    names = tmp_path_factory.mktemp("names") / "names.txt"
    names.write_text("".join(f"{HOSTILE} {feature}\n" for feature in range(1, P + 1)))
    return Path(write_report(evaluated, feature_names=str(names)))


def cut(run: str, folder: Path, count: int, **changes: Any) -> Path:
    """A copy of a run that ends after `count` λ, the columns of path.parquet changed."""
    shutil.copytree(run, folder)
    for name, column in (("path", "index"), ("coefficients", "lambda_index")):
        table = pq.read_table(folder / f"{name}.parquet")
        table = table.filter(pa.array(table[column].to_numpy() < count))
        if name == "path":
            rows = [row | changes for row in table.to_pylist()]
            table = pa.Table.from_pylist(rows, schema=table.schema)
        elif changes.get("nonzeros") == 0:
            table = table.slice(0, 0)
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def say(run: Path, **facts: Any) -> None:
    """Change run.json."""
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(unsealed(about) | facts))


@pytest.fixture(scope="module")
def bare(fitted: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run that was cut off after three λ, and not evaluated."""
    run = cut(fitted, tmp_path_factory.mktemp("bare") / "run", 3)
    say(run, complete=False)
    return Path(write_report(str(run)))


@pytest.fixture(scope="module")
def empty(evaluated: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one model without features, whose gap is 0, by a version that stored no gap of a round."""
    run = cut(evaluated, tmp_path_factory.mktemp("empty") / "run", 1, nonzeros=0, gap=0.0)
    trace = pq.read_table(run / "trace.parquet")
    pq.write_table(trace.drop_columns(["gap"]), run / "trace.parquet")
    say(run, seconds={"convert": 1.5, "fit": 65.0, "evaluate": 0.25})
    return Path(write_report(str(run)))


def data_of(run: str) -> RunData:
    return read_run(run, StorageOptions())


# What it says.


def test_summary_names_the_best_model_and_how_sure_it_is(evaluated: str) -> None:
    data = data_of(evaluated)
    best = data.rows[data.featured]
    assert best["auprc"] == max(row["auprc"] for row in data.rows)
    text = " ".join(summary(data))
    assert f"trained 6 models on 200 examples with {P} features" in text
    assert f"Model {best['index']} is best by AUPRC on 200 test examples: it has AUPRC {best['auprc']:.4f}" in text
    assert f"uses {best['nonzeros']} feature" in text
    gap = best["gap"] / best["objective"]
    assert f"lower its training objective by more than {percent(gap).removeprefix('< ')}" in text


def test_coefficients_drawn_are_those_of_the_model(evaluated: str) -> None:
    model = PathModel.load(evaluated)
    features = strongest(data_of(evaluated), 5, 10)
    dense = np.array([beta_of(model, k, P) for k in range(6)])
    assert np.abs(dense[5][np.array(features) - 1]).min() >= np.sort(np.abs(dense[5]))[-10]
    np.testing.assert_array_equal(weights_along(data_of(evaluated), features), dense[:, np.array(features) - 1].T)


def test_last_round_of_the_papers_algorithm_has_the_gap_of_its_lambda(client: Client, fitted: str) -> None:
    run = str(Path(fitted).parent / "paper")
    fit_path(str(Path(fitted).parent / "train"), run, algorithm="paper", path=PathOptions(length=3), client=client)
    data = data_of(run)
    assert data.searches == "line search"
    final = [row for row in rounds_of(data) if row["final"]]
    assert [row["relative_gap"] for row in final] == [relative_gap(row) for row in data.rows]
    assert all(row["relative_gap"] is not None for row in final)


def test_a_gap_of_0_has_a_place_on_a_logarithmic_axis() -> None:
    np.testing.assert_array_equal(above_zero([1e-3, 0.0, None]), [1e-3, 1e-4, np.nan])
    assert above_zero([0.0]) == [1e-16]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(1454.0), "1,454"),
        (number(0.0013866), "0.001387"),
        (number(3.2e-7), "3.2·10⁻⁷"),
        (number(0.0), "0"),
        (percent(0.0022), "0.22\u00a0%"),
        (percent(1e-9), "< 0.001\u00a0%"),
        (percent(0.954), "95\u00a0%"),
        (duration(0.0213), "21\u00a0ms"),
        (duration(3725.0), "62\u00a0min 5\u00a0s"),
    ],
)
def test_numbers_are_for_people(shown: str, expected: str) -> None:
    assert shown == expected


def test_names_by_position_count_from_the_base_of_the_data(tmp_path: Path) -> None:
    (tmp_path / "names").write_bytes(b"zero\r\none\r\n\r\nthree\r\n")
    features = np.array([1, 2, 3, 1])
    assert read_names(str(tmp_path / "names"), StorageOptions(), features, 0) == {1: "one", 3: "three"}
    assert read_names(str(tmp_path / "names"), StorageOptions(), features, 1) == {1: "zero", 2: "one"}


def test_names_by_id_may_leave_features_out(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("7\tseven\n3\tthree, with a\ttab\n")
    assert read_names(str(tmp_path / "names"), StorageOptions(), np.array([3, 4]), 1) == {3: "three, with a\ttab"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"one\ntwo\n", "2 names, for features 1 to 2, but the run uses feature 9"),
        (b"9\tnine\nten\n", "line 2: expected id<TAB>name"),
        (b"9\tnine\n9\tnove\n", "line 2: feature 9 has a name already"),
        (b"2\ttwo\n" + 5000 * b"9" + b"\tmany\n", r"names: line 2: feature id 9{20}… \(5,000 digits\) is too large"),
        (f"{2**62 + 1}\tfar\n".encode(), "line 1: feature id 4611686018427387905 is too large: ids go up to 46"),
        (b"5\tfive\n", "none of its 1 ids is a feature"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "no such file"),
    ],
)
def test_a_wrong_file_of_names_is_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "names").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        read_names(str(tmp_path / "names"), StorageOptions(), np.array([2, 9]), 1)


# How it is written.


def test_command_writes_where_it_is_told_and_says_so(bare: Path, tmp_path: Path) -> None:
    output = str(tmp_path / "new" / "page.html")
    done = CliRunner().invoke(command, ["report", str(bare.parent), "--output", output])
    assert (done.exit_code, done.output) == (0, f"Report: {output}\n")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]


def test_a_report_replaces_nothing_but_a_report(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(OutputExists, match="is no report"):
        write_report(str(bare.parent), str(tmp_path / "precious.txt"))
    with pytest.raises(OutputExists, match="is a folder"):
        write_report(str(bare.parent), str(tmp_path))
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_help_shows_examples() -> None:
    done = CliRunner().invoke(command, ["report", "--help"])
    assert "dask-submit report runs/first\n" in done.output
    assert "--feature-names vocabulary.txt" in done.output


def test_a_folder_that_is_no_run_gets_no_report(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not a run: there is no run\.json"):
        write_report(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_run_in_a_bucket_gets_a_new_report_there_without_secrets(bare: Path, bucket: Bucket, tmp_path: Path) -> None:
    run = Path(shutil.copytree(bare.parent, tmp_path / "run"))
    about = json.loads((run / "run.json").read_text())
    say(run, dataset=about["dataset"] | {"path": "https://user:hunter2@host/data?signature=hunter2"})
    for file in run.iterdir():
        bucket.write(f"run/{file.name}", file.read_bytes())
    assert write_report(f"{bucket.url}/run", storage_options=bucket.options) == f"{bucket.url}/run/report.html"
    files = bucket.files("run")
    page = files["report.html"].decode()
    assert page.startswith("<!doctype html>") and "https://host/data" in page
    assert SECRET not in page and "hunter2" not in page
    assert sorted(files) == sorted(file.name for file in run.iterdir())


# In a browser.

# Open shadow roots included, where bokeh keeps what it draws.
DEEP = """
const deep = (root, selector) => [...root.querySelectorAll(selector),
  ...[...root.querySelectorAll("*")].filter((one) => one.shadowRoot).flatMap((one) => deep(one.shadowRoot, selector))];
"""
FIGURES = "const figures = Bokeh.documents.flatMap((doc) => doc.roots());"
# The names of plots whose canvas has pixels of the colour that their points are to have.
DRAWN = (
    DEEP
    + """
const css = getComputedStyle(document.documentElement);
return [...Bokeh.index].filter((view) => view.model.renderers?.length).filter((view) => {
  const points = view.model.renderers.find((one) => one.name === "points");
  const hex = css.getPropertyValue(points.tags[0]).trim();
  const wanted = [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  return deep(view.shadow_el, "canvas").some((canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let k = 0; k < pixels.length; k += 4) {
      if (pixels[k + 3] === 255 && wanted.every((value, part) => pixels[k + part] === value)) return true;
    }
    return false;
  });
}).map((view) => view.model.name);
"""
)
# Where the first point, or bar, of a plot is in the window.
FIND = """
const view = [...Bokeh.index].find((one) => one.model.name === arguments[0]);
view.el.scrollIntoView({block: "center", behavior: "instant"});
const renderer = view.model.renderers.find((one) => one.name === "points" && one.data_source.data.size !== 0);
const {glyph, data_source} = renderer;
const first = (name) => [...data_source.get_array(name)][0];
const canvas = view.canvas_view.el.getBoundingClientRect();
const {x_scale, y_scale, bbox} = view.frame;
const x = glyph.x ? x_scale.compute(first(glyph.x.field)) : bbox.left + 4;
const y = glyph.top ? bbox.bottom - 2 : y_scale.compute(first(glyph.y.field));
return [canvas.x + x, canvas.y + y];
"""
TOOLTIP = (
    DEEP
    + """
return deep(document, ".bk-Tooltip").filter((one) => one.checkVisibility()).map(
  (one) => [...one.shadowRoot.children].filter((part) => part.tagName !== "STYLE").map((part) => part.textContent)
).flat().join(" ");
"""
)
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
TABLES = """
return [...document.querySelectorAll("table")].map((table) => ({
  caption: table.caption?.textContent ?? "",
  bare: [...table.querySelectorAll("th")].filter((head) => !head.scope).length,
  rows: [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim())),
  heads: [...table.tBodies[0].rows].every((row) => row.cells[0].tagName === "TH"),
}));
"""


@pytest.mark.parametrize("which", ["bare", "empty", "full"])
def test_page_draws_every_plot_and_asks_for_nothing(which: str, request: pytest.FixtureRequest, page: Page) -> None:
    report: Path = request.getfixturevalue(which)
    page.open(report)
    shown = page.run(f"{FIGURES} return figures.map((one) => one.name)")
    missing = {"full": set(), "bare": {"figure1", "quality", "logloss", *JUDGED}, "empty": {"paths"}}[which]
    assert sorted(shown) == sorted(set(PLOTS) - missing)
    assert sorted(page.run(DRAWN)) == sorted(shown)
    assert page.requests() == [report.as_uri()]
    assert page.complaints() == []


def test_every_plot_tells_its_values_at_the_mouse(full: Path, evaluated: str, page: Page) -> None:
    first = data_of(evaluated).rows[0]
    expected = dict.fromkeys(("figure1", "quality", "logloss", "nonzeros"), f"nonzeros{first['nonzeros']:,}")
    expected |= {"figure1": f"AUPRC{first['auprc']:.4f}", "objective": "objective", "gap": "relative gap"}
    expected |= {"precision": "called positive", "roc": "false positive rate", "calibration": "predicted"}
    expected |= {"scores": "of the class", "paths": "weight", "stages": "fit", "search": f"rounds{first['rounds']}"}
    page.show(full)
    for name in PLOTS:
        page.point(*page.run(FIND, name))
        found = page.wait(TOOLTIP)
        assert expected[name] in found, name
        page.point(1, 1)
        page.wait(f"return !(() => {{ {TOOLTIP} }})()")
    assert page.complaints() == []


def test_names_are_text_wherever_they_are_shown(full: Path, page: Page) -> None:
    page.show(full)
    page.point(*page.run(FIND, "paths"))
    assert f"{HOSTILE} " in page.wait(TOOLTIP)
    assert page.run("return document.querySelector('[data-series=w0]').textContent").strip().startswith(HOSTILE)
    assert page.comes_to(DEEP + "return deep(document, 'img').length", 0)


def test_theme_follows_the_system_and_the_button(full: Path, page: Page) -> None:
    state = f"""{FIGURES}
    const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const one = figures.find((one) => one.name === "quality");
    return [document.documentElement.dataset.theme, document.getElementById("theme").getAttribute("aria-pressed"),
      getComputedStyle(document.body).backgroundColor, one.renderers[0].glyph.line_color.value === css("--s0"),
      one.below[0].major_label_text_color === css("--muted")];"""
    light = ["light", "false", "rgb(244, 246, 248)", True, True]
    dark = ["dark", "true", "rgb(14, 18, 23)", True, True]
    page.open(full, dark=True)
    assert page.comes_to(state, dark)
    page.prefer(dark=False)
    assert page.comes_to(state, light)
    page.run("document.getElementById('theme').focus()")
    page.press(" ")
    assert page.comes_to(state, dark)
    page.press("\r")
    assert page.comes_to(state, light)


def test_legend_hides_and_shows_a_series_by_keyboard(full: Path, page: Page) -> None:
    visible = f"""{FIGURES} return figures.find((one) => one.name === "quality").renderers
      .filter((one) => one.tags.includes("auc")).map((one) => one.visible)"""
    page.show(full)
    page.run("document.querySelector('[data-plot=quality][data-series=auc]').focus()")
    page.press(" ")
    assert page.comes_to(visible, [False, False])
    assert page.comes_to("return document.activeElement.getAttribute('aria-pressed')", "false")
    page.press(" ")
    assert page.comes_to(visible, [True, True])


def test_keyboard_comes_to_the_skip_link_first_and_sees_where_it_is(full: Path, page: Page) -> None:
    page.open(full)
    page.press("\t")
    assert page.comes_to("return document.activeElement.textContent", "Skip to the report")
    assert page.run("return document.activeElement.getBoundingClientRect().top") >= 0
    assert page.comes_to("return getComputedStyle(document.activeElement).outlineStyle", "solid")
    page.press("\r")
    assert page.comes_to("return document.activeElement.id", "main")


def test_page_can_be_heard(full: Path, page: Page) -> None:
    """Headings in order, tables with captions and scopes, plots with words."""
    page.show(full)
    levels = page.run("return [...document.querySelectorAll('h1,h2,h3,h4')].map((one) => Number(one.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for table in page.run(TABLES):
        assert table["caption"] and table["heads"] and not table["bare"]
    words = page.run("return [...document.querySelectorAll('.plot[role=img]')].map((one) => one.ariaLabel)")
    assert len(words) == len(PLOTS)
    assert all(any(letter.isdigit() for letter in one) for one in words)
    assert page.comes_to("return document.documentElement.lang", "en")


def test_table_of_models_is_the_path_and_marks_the_best(full: Path, evaluated: str, page: Page) -> None:
    page.show(full)
    data = data_of(evaluated)
    table = next(one for one in page.run(TABLES) if "best by AUPRC is marked" in one["caption"])
    assert [row[0].endswith("best") for row in table["rows"]] == [k == data.best for k in range(6)]
    for cells, row in zip(table["rows"], data.rows, strict=True):
        intercept = f"{row['intercept']:+.4f}".replace("-", "−")
        assert cells[3:6] == [f"{row['nonzeros']:,}", intercept, str(row["rounds"])]
        assert cells[-4:] == [f"{row[name]:.4f}" for name in ("auprc", "auc", "log_loss", "accuracy")]
    assert table["rows"][0][2] == "1/2" and table["rows"][5][2] == "1/2⁶"


@pytest.mark.parametrize("which", ["full", "bare"])
def test_page_fits_its_window(which: str, request: pytest.FixtureRequest, page: Page) -> None:
    for width in (390, 820, 1280):
        page.show(request.getfixturevalue(which), width=width, height=844)
        assert page.comes_to(OVERFLOW, 0), width
        wide = "return [...document.querySelectorAll('.plot')].every((one) => one.clientWidth > 250)"
        assert page.comes_to(wide, True), width


def test_unfinished_run_says_so_and_what_to_do(bare: Path, page: Page) -> None:
    page.show(bare)
    notices = " ".join(page.run("return [...document.querySelectorAll('.notice')].map((one) => one.textContent)"))
    assert "unfinished: 3 of 6 models are here" in notices and "--resume" in notices
    assert f"dask-submit evaluate {bare.parent} TEST" in notices


def test_stages_show_what_run_json_says(empty: Path, page: Page) -> None:
    page.show(empty)
    label = page.run("return document.querySelector('[aria-labelledby=stages-title] .plot').ariaLabel")
    assert label.replace("\u00a0", " ") == "Time by stage: convert 1.5 s, fit 65.0 s, evaluate 250 ms."
