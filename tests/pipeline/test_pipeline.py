"""dask-submit pipeline: from text to a report; done once, taken up after a crash, refused if something changed."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline import PathModel, PathOptions, evaluate, fit_path
from pipeline.choice import choose_model
from pipeline.commands.pipeline import pipeline_command
from pipeline.display import SilentDisplay
from pipeline.run import DATA
from pipeline.stages import PipelineOptions, run_pipeline
from pipeline.summary import summary_lines
from solver import DefaultOptions
from tests.pipeline.runs import make_rows, to_text
from tests.services.s3 import SECRET, Bucket
from tests.transforms.test_holdout import hashes
from transforms import DatasetError, OutputExists, UserError, convert_libsvm

Write = Callable[[str, bytes], str]
TRAIN, TEST = to_text(*make_rows(n=300)), to_text(*make_rows(n=150, seed=1))
ALL = {"convert": True, "fit": True, "evaluate": True, "report": True}


def options(folder: Path, **changes: Any) -> PipelineOptions:
    """A small pipeline on the text in `folder`, which is written if it is not there."""
    for name, text in (("train.svm", TRAIN), ("test.svm", TEST)):
        if not (folder / name).exists():
            (folder / name).write_bytes(text)
    chosen = PipelineOptions(
        train=(str(folder / "train.svm"),),
        output=str(folder / "run"),
        test=(str(folder / "test.svm"),),
        choose_by_test=True,
        convert={"partitions": 2},
        fit={"path": PathOptions(length=4)},
    )
    return replace(chosen, **changes)


def do(client: Client, chosen: PipelineOptions) -> dict[str, bool]:
    result = run_pipeline(chosen, client=client, display=SilentDisplay())
    assert Path(result.report).exists()
    return result.worked


def only(*stages: str) -> dict[str, bool]:
    return {stage: stage in stages for stage in ALL}


@pytest.fixture(scope="module")
def original(client: Client, tmp_path_factory: pytest.TempPathFactory) -> PipelineOptions:
    """A pipeline that is done."""
    chosen = options(tmp_path_factory.mktemp("original"))
    assert do(client, chosen) == ALL
    return chosen


@pytest.fixture
def done(original: PipelineOptions, tmp_path: Path) -> PipelineOptions:
    """A copy of its run, for a test of its own."""
    shutil.copytree(original.output, tmp_path / "run")
    return replace(original, output=str(tmp_path / "run"))


@pytest.fixture(scope="module")
def held_out(client: Client, tmp_path_factory: pytest.TempPathFactory) -> PipelineOptions:
    """A pipeline that is done, without test data."""
    chosen = options(tmp_path_factory.mktemp("held out"), test=(), choose_by_test=False)
    assert do(client, chosen) == ALL
    return chosen


def rows(run: str | Path, name: str) -> list[dict[str, Any]]:
    """A table of a run, without times."""
    table = pq.read_table(f"{run}/{name}.parquet")
    return table.drop_columns([column for column in table.column_names if "seconds" in column]).to_pylist()  # type: ignore[no-any-return]


def content(run: str | Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return rows(run, "path"), rows(run, "coefficients")


def about(run: str | Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(run, "run.json").read_text())
    return content


def files(folder: str) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}


# --- what it does ---------------------------------------------------------------------------------------------------


def test_it_gives_what_the_stages_give_one_by_one(client: Client, original: PipelineOptions, tmp_path: Path) -> None:
    dataset = convert_libsvm(original.train, str(tmp_path / "data"), partitions=2, client=client)
    fit_path(dataset, str(tmp_path / "other"), path=PathOptions(length=4), client=client)
    evaluate(str(tmp_path / "other"), original.test, client=client)
    assert content(original.output) == content(tmp_path / "other")
    assert set(about(original.output)["seconds"]) == set(ALL)
    assert not Path(original.output, DATA, "_temporary").exists()
    names = {"coefficients.parquet", "curves.parquet", "data", "path.parquet", "report.html", "run.json"}
    names |= {"trace.parquet"}
    assert {file.name for file in Path(original.output).iterdir()} == names


def test_the_same_again_does_nothing(client: Client, done: PipelineOptions) -> None:
    before = files(done.output)
    assert do(client, done) == only()
    assert do(client, replace(done, overwrite=True)) == only()
    assert files(done.output) == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"PAR1")])
@pytest.mark.parametrize("prefix", ["", "test_"])
def test_curves_that_are_gone_or_damaged_are_made_again(
    client: Client, done: PipelineOptions, held_out: PipelineOptions, tmp_path: Path, damage: Any, prefix: str
) -> None:
    if prefix:
        shutil.copytree(held_out.output, tmp_path / "tested")
        done = replace(held_out, output=str(tmp_path / "tested"), test=done.test)
        assert do(client, done)["evaluate"]
    curves = Path(done.output, f"{prefix}curves.parquet")
    before = curves.read_bytes()
    damage(curves)
    assert do(client, done)["evaluate"]
    assert curves.read_bytes() == before
    assert do(client, done) == only()


def test_the_summary_says_what_the_run_is_worth(original: PipelineOptions) -> None:
    text = "\n".join(summary_lines(original.output))
    best = rows(original.output, "path")[about(original.output)["evaluation"]["best"]]
    assert "4 models of 300 examples with 30 features" in text
    assert "the best was chosen, by 150 examples of the test data" in text
    assert f"which needs {best['nonzeros']} of the 30 features" in text
    assert f"AUPRC {best['auprc']:.4f}" in text
    assert f"relative gap {best['gap'] / best['objective']:.1e}" in text
    assert f"{original.output}/report.html" in text
    assert f"dask-submit predict {original.output}" in text


def test_a_run_in_a_bucket_is_as_one_on_disk(client: Client, original: PipelineOptions, bucket: Bucket) -> None:
    chosen = replace(
        original,
        train=(bucket.write("train.svm", TRAIN),),
        test=(bucket.write("test.svm", TEST),),
        output=f"{bucket.url}/run",
    )
    for worked in (ALL, only()):
        result = run_pipeline(chosen, client=client, display=SilentDisplay(), storage_options=bucket.options)
        assert result.worked == worked
    stored = bucket.files("run")
    there, here = (pq.read_table(io.BytesIO(stored["path.parquet"])), pq.read_table(f"{original.output}/path.parquet"))
    assert there["objective"] == here["objective"]
    assert there["auprc"] == here["auprc"]
    assert {"report.html", "data/dataset.json"} <= set(stored)
    assert not any(SECRET.encode() in file for file in stored.values())


# --- changes --------------------------------------------------------------------------------------------------------


def test_changed_text_is_refused_and_redone_when_asked(client: Client, tmp_path: Path) -> None:
    chosen = options(tmp_path)
    do(client, chosen)
    before = files(chosen.output)
    Path(chosen.train[0]).write_bytes(TRAIN + b"1 1:1\n")
    with pytest.raises(UserError, match=rf"inputs was .*{len(TRAIN)} bytes.*is .*{len(TRAIN) + 6} bytes.*--overwrite"):
        do(client, chosen)
    assert files(chosen.output) == before
    assert do(client, replace(chosen, overwrite=True)) == ALL
    assert about(chosen.output)["dataset"]["examples"] == 301


def test_changed_options_are_refused_and_redone_when_asked(client: Client, done: PipelineOptions) -> None:
    other = replace(done, fit={"path": PathOptions(length=4), "options": DefaultOptions(tol=1e-6)})
    with pytest.raises(UserError, match=r"repeat --tol 0\.0001 \(it is 1e-06 now\).*--overwrite"):
        do(client, other)
    assert do(client, replace(other, overwrite=True)) == only("fit", "evaluate", "report")
    assert do(client, other) == only()
    with pytest.raises(UserError, match="zero based was False, is True"):
        do(client, replace(other, convert={"partitions": 2, "zero_based": True}))


def test_other_test_data_are_refused_and_redone_when_asked(client: Client, done: PipelineOptions, write: Write) -> None:
    other = replace(done, test=(write("other.svm", TEST + b"1 1:1\n"),))
    with pytest.raises(UserError, match=r"evaluated otherwise before: inputs was .*other\.svm.*--overwrite"):
        do(client, other)
    assert do(client, replace(other, overwrite=True)) == only("evaluate", "report")
    assert about(other.output)["evaluation"]["examples"] == 151


def test_names_of_features_change_the_report_only(client: Client, done: PipelineOptions, write: Write) -> None:
    names = write("names.txt", "".join(f"word{k}\n" for k in range(1, 31)).encode())
    assert do(client, replace(done, feature_names=names)) == only("report")
    assert "word" in Path(done.output, "report.html").read_text()


def test_a_lost_part_of_the_data_set_is_told_and_made_again(client: Client, done: PipelineOptions) -> None:
    part = Path(done.output, DATA, "part-00001.parquet")
    part.unlink()
    with pytest.raises(UserError, match=r"part-00001\.parquet: missing.*--overwrite"):
        do(client, done)
    assert do(client, replace(done, overwrite=True)) == only("convert")
    assert part.exists()


# --- examples held out ----------------------------------------------------------------------------------------------


def test_without_test_data_a_fifth_is_held_out(
    client: Client, held_out: PipelineOptions, tmp_path: Path, write: Write
) -> None:
    lines, outside = TRAIN.splitlines(keepends=True), [h < 0.2 for h in hashes(TRAIN)]
    assert 30 < sum(outside) < 90
    by_hand = replace(
        held_out,
        train=(write("kept.svm", b"".join(line for line, out in zip(lines, outside, strict=True) if not out)),),
        test=(write("held.svm", b"".join(line for line, out in zip(lines, outside, strict=True) if out)),),
        choose_by_test=True,
        output=str(tmp_path / "by hand"),
    )
    do(client, by_hand)
    assert content(held_out.output) == content(by_hand.output)
    assert about(held_out.output)["dataset"]["hold_out"] == 0.2
    assert do(client, held_out) == only()
    assert "held out of training (20 %)" in "\n".join(summary_lines(held_out.output))


def test_test_data_judge_and_held_out_examples_choose(
    client: Client, held_out: PipelineOptions, tmp_path: Path
) -> None:
    chosen = replace(options(tmp_path), choose_by_test=False)
    assert do(client, chosen) == ALL
    found, told = rows(chosen.output, "path"), about(chosen.output)
    assert [{k: v for k, v in row.items() if not k.startswith("test_")} for row in found] == content(held_out.output)[0]
    assert (told["evaluation"]["held_out"], told["test"]["examples"]) == (0.2, 150)
    best = found[told["evaluation"]["best"]]
    model = PathModel.load(chosen.output)
    expected = evaluate(held_out_copy(held_out, tmp_path), chosen.test, choose=True, client=client).path
    assert [row["test_auprc"] for row in found] == [row["auprc"] for row in expected]
    assert model.best() == best["index"]
    text = "\n".join(summary_lines(chosen.output))
    assert f"The best was chosen by {told['evaluation']['examples']} examples that were held out of training" in text
    assert "Judged by 150 examples of the test data, which chose nothing" in text
    assert f"test:      AUPRC {best['test_auprc']:.4f}" in text
    page = Path(chosen.output, "report.html").read_text()
    assert "On 150 test examples, which had no part in choosing it" in page
    assert do(client, chosen) == only()


def held_out_copy(held_out: PipelineOptions, folder: Path) -> str:
    shutil.copytree(held_out.output, folder / "copy")
    return str(folder / "copy")


def test_without_held_out_examples_bic_chooses_and_test_data_judge(client: Client, tmp_path: Path) -> None:
    chosen = replace(options(tmp_path), choose_by_test=False, validation_fraction=0.0)
    assert do(client, chosen) == ALL
    model, told = PathModel.load(chosen.output), about(chosen.output)
    assert ("evaluation" in told, told["dataset"]["examples"], model.best()) == (False, 300, None)
    assert choose_model(model).why.startswith("the lowest BIC")
    assert "Judged by 150 examples of the test data" in "\n".join(summary_lines(chosen.output))


def test_fraction_0_trains_on_all_and_judges_by_none(client: Client, tmp_path: Path) -> None:
    chosen = options(tmp_path, test=(), choose_by_test=False, validation_fraction=0.0)
    assert "evaluate" not in do(client, chosen)
    assert about(chosen.output)["dataset"]["examples"] == 300
    assert "not judged" in "\n".join(summary_lines(chosen.output))


def test_bad_lines_are_left_out_of_both_sides(
    client: Client, held_out: PipelineOptions, tmp_path: Path, write: Write
) -> None:
    marred = write("marred.svm", b"what is this\n" + TRAIN.replace(b"\n", b"\n1 x:1\n", 5))
    other = replace(held_out, train=(marred,), output=str(tmp_path / "marred"))
    with pytest.raises(UserError, match=r"marred\.svm, line 1, column 1: .*--on-bad-line skip"):
        do(client, other)
    assert not (tmp_path / "marred").exists()
    do(client, replace(other, convert={"partitions": 2, "on_bad_line": "skip"}))
    assert content(other.output) == content(held_out.output)
    assert about(other.output)["evaluation"]["bad_lines"] == 6


def test_a_data_set_is_judged_by_what_its_conversion_held_out(
    client: Client, held_out: PipelineOptions, tmp_path: Path
) -> None:
    text = options(tmp_path).train
    made = convert_libsvm(text, str(tmp_path / "made"), hold_out=0.2, partitions=2, client=client)
    other = replace(held_out, train=(made.url,), output=str(tmp_path / "other"), convert={})
    assert do(client, other) == {"fit": True, "evaluate": True, "report": True}
    assert content(other.output) == content(held_out.output)
    with pytest.raises(UserError, match=r"--validation-fraction 0\.3, but this data set was made with --hold-out 0\.2"):
        do(client, replace(other, validation_fraction=0.3))
    with pytest.raises(UserError, match="--partitions is about text"):
        do(client, replace(other, convert={"partitions": 3}))
    Path(text[0]).write_bytes(TRAIN + b"1 1:1\n")
    with pytest.raises(UserError, match="has changed: pass --test"):
        do(client, other)


# --- errors ---------------------------------------------------------------------------------------------------------


def test_what_cannot_work_is_refused_before_anything_begins(client: Client, tmp_path: Path) -> None:
    chosen = options(tmp_path)
    wrong = [
        (replace(chosen, train=(str(tmp_path / "trian.svm"),)), r"no such file .* Did you mean .*train\.svm\?"),
        (replace(chosen, test=(str(tmp_path / "nowhere"),)), "nowhere: no such file or folder"),
        (replace(chosen, validation_fraction=0.1), "--choose-by-test does not go with --validation-fraction"),
        (replace(chosen, test=()), "--choose-by-test needs --test"),
        (
            replace(chosen, test=(), choose_by_test=False, validation_fraction=1.0),
            "--validation-fraction must lie between 0",
        ),
        (replace(chosen, feature_names=str(tmp_path / "names")), "names: no such file or folder"),
    ]
    for other, message in wrong:
        with pytest.raises(UserError, match=message):
            do(client, other)
        assert not (tmp_path / "run").exists()


def test_what_is_not_the_pipelines_is_left_alone(client: Client, tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    chosen = options(tmp_path / DATA, output=str(tmp_path))
    with pytest.raises(UserError, match="this input lies in the output folder"):
        do(client, replace(chosen, overwrite=True))
    elsewhere = options(tmp_path, output=str(tmp_path), overwrite=True)
    with pytest.raises(UserError, match=r"holds other files: choose an empty folder$"):
        do(client, elsewhere)
    assert Path(chosen.train[0]).read_bytes() == TRAIN


def test_test_data_with_other_labels_are_told_and_the_fit_is_kept(client: Client, tmp_path: Path) -> None:
    chosen = options(tmp_path)
    Path(chosen.test[0]).write_bytes(b"2 1:1\n1 2:1\n")
    with pytest.raises(UserError, match=r"test\.svm: label 2, but the run was trained on the labels -1 and 1: write"):
        do(client, chosen)
    Path(chosen.test[0]).write_bytes(TEST)
    assert do(client, chosen) == only("evaluate", "report")


def test_an_option_takes_several_values_as_a_glob_gives_them() -> None:
    words = ["--train", "a", "b", "--output", "r", "--test", "c", "--test", "d", "e", "--quiet", "--train=f"]
    context = pipeline_command.make_context("pipeline", words)
    assert context.params["train"] == ("a", "b", "f")
    assert context.params["test"] == ("c", "d", "e")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trian", "a"], "--train"),
        (["--train", "a"], "Missing option '--output'"),
        (["--output", "r", "--test", "t"], "Missing option '--train'"),
        (["--train", "a", "--output", "r", "--validation-fraction", "1.5"], "not in the range 0<=x<1"),
    ],
)
def test_bad_use_is_told_with_a_remedy(words: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        pipeline_command.make_context("pipeline", words)
    assert message in caught.value.format_message()
    assert caught.value.exit_code == 2


# --- killed ---------------------------------------------------------------------------------------------------------


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from pipeline.commands.submit import main; main()", "pipeline", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stderr is not None
    return (json.loads(line) for line in process.stderr)


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_killed_anywhere_the_same_command_goes_on_and_ends_the_same(
    client: Client, tmp_path: Path, write: Write
) -> None:
    chosen = options(
        tmp_path,
        train=(write("large.svm", to_text(*make_rows(n=4000))),),
        convert={"partitions": 2, "block_size": 4000},
        fit={"path": PathOptions(length=40, ratio=0.8)},
        output=str(tmp_path / "whole"),
    )
    do(client, chosen)
    run = tmp_path / "killed"
    words: tuple[str, ...] = (
        "--train",
        *chosen.train,
        "--test",
        *chosen.test,
        "--choose-by-test",
        "--output",
        str(run),
        "--workers",
        "2",
    )
    words += ("--partitions", "2", "--block-size", "4000", "--path-length", "40", "--path-ratio", "0.8", "--log-json")

    process = start(*words)
    while not list(run.glob("data/_temporary/*.fragment")) and process.poll() is None:
        time.sleep(0.005)
    kill(process)
    assert not (run / "data" / "dataset.json").exists()

    process = start(*words)
    next(event for event in events(process) if event.get("event") == "solution" and event["lambda_index"] >= 1)
    kill(process)
    assert not about(run)["complete"]

    process = start(*words)
    printed, told = process.communicate()
    assert process.returncode == 0, told
    assert "convert: up to date" in told
    path = next(event for event in map(json.loads, told.splitlines()) if event.get("event") == "path")
    assert path["done"] >= 2
    assert_same_models(run, chosen.output)
    assert not (run / "data" / "_temporary").exists()
    assert f"Report: {run}/report.html" in printed


def assert_same_models(run: Path, other: str) -> None:
    """But for the rounds: a λ that is taken up needs one more, as the columns of the active set are fetched anew."""
    for mine, theirs in zip(rows(run, "path"), rows(other, "path"), strict=True):
        assert mine | {"rounds": 0} == pytest.approx(theirs | {"rounds": 0}, rel=1e-6, abs=1e-9)
    for mine, theirs in zip(rows(run, "coefficients"), rows(other, "coefficients"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6, abs=1e-9)


def test_what_has_changed_is_told_whatever_the_files_are_called(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "a. Use the same"
    folder.mkdir()
    chosen = options(folder)
    do(client, chosen)
    with pytest.raises(OutputExists) as refused:
        do(client, replace(chosen, convert={"partitions": 3}))
    assert str(refused.value).startswith(f"{folder}/run/data: cannot resume a different conversion: partitions was 2, ")
    assert str(refused.value).endswith(
        "is 3. To go on, redo what has changed with --overwrite, or choose another --output"
    )


@pytest.mark.parametrize(
    "error",
    [OutputExists("out: is there", "Choose another"), DatasetError("missing: convert again", "data/labels.parquet")],
)
def test_errors_of_two_parts_travel_between_processes(error: UserError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - as Dask does
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
