"""Predictions: the model's own margins, in the order of the input, whatever form the input has."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from distributed import Client

from pipeline import PathModel, evaluate, predict
from pipeline.commands.submit import command
from pipeline.scoring import Scorer
from pipeline.weights import WeightTable
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import BadLine, Csc, OutputExists, UserError, convert_libsvm, from_arrays

Write = Callable[[str, bytes], str]
Submit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(client: Client, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fit_text(client, tmp_path_factory.mktemp("run"), to_text(*make_rows()))


def margins_of(path: str | Path) -> np.ndarray:
    table = pq.read_table(path)
    assert table["example"].to_pylist() == list(range(table.num_rows))
    margins: np.ndarray = table["margin"].to_numpy()
    np.testing.assert_allclose(table["probability"].to_numpy(), 1 / (1 + np.exp(-margins)), atol=1e-12)
    return margins


def test_text_gets_the_margins_of_the_model_in_order(
    client: Client, run: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.scoring.default_block_size", lambda *_: 200)  # many blocks, finished in any order
    X, y = make_rows(300, seed=1)
    model = PathModel.load(run)
    done = predict(run, write("t.svm", to_text(X, y)), str(tmp_path / "p.parquet"), lambda_index=-1, client=client)
    np.testing.assert_allclose(margins_of(tmp_path / "p.parquet"), model.decision_function(X, -1), atol=1e-12)
    assert (done.lambda_index, done.tally.examples, done.tally.nonzeros) == (3, 300, X.nnz)
    assert [f.name for f in tmp_path.iterdir() if "p.parquet" in f.name] == ["p.parquet"]


def test_each_model_of_the_path_can_be_chosen(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    X, y = make_rows(50, seed=1)
    text = write("t.svm", to_text(X, y))
    for k in (0, 2, -1):
        predict(run, text, str(tmp_path / f"{k}.parquet"), lambda_index=k, client=client)
        expected = PathModel.load(run).decision_function(X, k)
        np.testing.assert_allclose(margins_of(tmp_path / f"{k}.parquet"), expected, atol=1e-12)
        assert pq.read_schema(tmp_path / f"{k}.parquet").metadata[b"dglmnet.lambda_index"] == str(k % 4).encode()


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
    ],
)
def test_compressed_files_count_as_their_text(
    client: Client,
    run: str,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    compress: Callable[[bytes], bytes],
) -> None:
    monkeypatch.setattr("pipeline.scoring.PIECE", 1000)
    X, y = make_rows(seed=1)
    predict(run, write(f"t.svm{suffix}", compress(to_text(X, y))), str(tmp_path / "p"), lambda_index=-1, client=client)
    np.testing.assert_allclose(margins_of(tmp_path / "p"), PathModel.load(run).decision_function(X, -1), atol=1e-12)


@pytest.mark.parametrize("ones", [True, False])
def test_a_data_set_gets_the_margins_of_its_text(
    client: Client, run: str, write: Write, tmp_path: Path, ones: bool
) -> None:
    X, y = make_rows(seed=1)
    X.data = np.ones_like(X.data) if ones else X.data
    convert_libsvm(write("t.svm", to_text(X, y)), str(tmp_path / "d"), partitions=3, client=client)
    predict(run, str(tmp_path / "d"), str(tmp_path / "p"), lambda_index=-1, client=client)
    np.testing.assert_allclose(margins_of(tmp_path / "p"), PathModel.load(run).decision_function(X, -1), atol=1e-12)


def test_inputs_follow_each_other_as_given(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    X, y = make_rows(90, seed=1)
    first, last = write("z.svm", to_text(X[:30], y[:30])), write("a.svm", to_text(X[60:], y[60:]))
    convert_libsvm(write("m.svm", to_text(X[30:60], y[30:60])), str(tmp_path / "m"), client=client)
    predict(run, [first, str(tmp_path / "m"), last], str(tmp_path / "p"), lambda_index=-1, client=client)
    np.testing.assert_allclose(margins_of(tmp_path / "p"), PathModel.load(run).decision_function(X, -1), atol=1e-12)


def test_unseen_features_are_ignored_and_counted(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    X, y = make_rows(seed=1)
    beyond = sp.csr_array(sp.hstack([X, np.ones((X.shape[0], 3), np.float32)]))
    for name in ("text", "dataset"):
        url = write("t.svm", to_text(beyond, y))
        if name == "dataset":
            convert_libsvm(url, str(tmp_path / "d"), client=client)
            url = str(tmp_path / "d")
        done = predict(run, url, str(tmp_path / name), lambda_index=-1, client=client)
        np.testing.assert_allclose(
            margins_of(tmp_path / name), PathModel.load(run).decision_function(X, -1), atol=1e-12
        )
        assert done.tally.unseen == 3 * X.shape[0]


@pytest.mark.parametrize("why", ["gone", "other data", "too many"])
def test_unseen_features_are_not_counted_without_the_training_data(
    client: Client, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    X, y = make_rows(50)
    url = fit_text(client, tmp_path, to_text(X, y))
    if why == "too many":
        monkeypatch.setattr("pipeline.scoring.KNOWN_FEATURES", 10)
    else:
        (tmp_path / "train").rename(tmp_path / "moved")
    if why == "other data":
        from_arrays(X, y, str(tmp_path / "train"))
    done = predict(url, write("t.svm", to_text(X, y)), str(tmp_path / "p"), lambda_index=-1, client=client)
    assert (done.tally.unseen, done.tally.examples) == (None, 50)
    np.testing.assert_allclose(margins_of(tmp_path / "p"), PathModel.load(url).decision_function(X, -1), atol=1e-12)


def test_ids_that_lie_far_apart_find_their_weights(client: Client, write: Write, tmp_path: Path) -> None:
    far = [2**k for k in range(5, 62)]
    rng = np.random.default_rng(0)
    lines = [f"{rng.choice([-1, 1])} " + " ".join(f"{id}:{rng.normal():.3f}" for id in far) for _ in range(60)]
    text = ("\n".join(lines) + "\n").encode()
    url = fit_text(client, tmp_path, text)
    model = PathModel.load(url)
    predict(
        url,
        write("t.svm", text + b"1 33:1 4611686018427387904:5\n"),
        str(tmp_path / "p"),
        lambda_index=-1,
        client=client,
    )
    beta = dict(zip(*(part.tolist() for part in model.coefficients(-1)), strict=True))
    intercept = model.intercept(-1)
    expected = [
        intercept
        + sum(
            beta.get(int(id), 0.0) * float(np.float32(value)) for id, value in (p.split(":") for p in line.split()[1:])
        )
        for line in lines
    ]
    np.testing.assert_allclose(margins_of(tmp_path / "p"), [*expected, intercept], atol=1e-12)


def test_examples_and_columns_add_up_to_the_same_for_all_models(run: str) -> None:
    X, _ = make_rows(seed=2)
    model = PathModel.load(run)
    table = WeightTable.of(model, [1, 3])
    by_row, by_column = (np.tile(table.intercepts, (X.shape[0], 1)) for _ in range(2))
    table.add_examples(X.indptr.astype(np.int64), X.indices.astype(np.int64) + 1, X.data, by_row)
    C = X.tocsc()
    features = np.arange(X.shape[1]) + 1
    table.add_columns(Csc(features, np.zeros(features.size), C.indptr.astype(np.int64), C.indices, C.data), by_column)
    expected = np.column_stack([model.decision_function(X, k) for k in (1, 3)])
    np.testing.assert_allclose(by_row, expected, atol=1e-12)
    np.testing.assert_allclose(by_column, expected, atol=1e-12)


def test_processes_predict_the_bits_of_threads(
    client: Client, process_client: Client, run: str, write: Write, tmp_path: Path
) -> None:
    text = write("t.svm", to_text(*make_rows(seed=1)))
    for name, where in (("threads", client), ("processes", process_client)):
        predict(run, text, str(tmp_path / name), client=where)
    np.testing.assert_array_equal(margins_of(tmp_path / "threads"), margins_of(tmp_path / "processes"))


def test_empty_input_gives_an_empty_table(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    predict(run, write("t.svm", b"\n# nothing\n"), str(tmp_path / "p"), client=client)
    assert margins_of(tmp_path / "p").size == 0


def test_zero_based_text_is_read_as_training_was(client: Client, write: Write, tmp_path: Path) -> None:
    X, y = make_rows()
    url = fit_text(client, tmp_path, to_text(X, y, base=0), zero_based=True)
    predict(url, write("t.svm", to_text(X, y, base=0)), str(tmp_path / "p"), lambda_index=-1, client=client)
    np.testing.assert_allclose(margins_of(tmp_path / "p"), PathModel.load(url).decision_function(X, -1), atol=1e-12)


def test_data_that_count_from_elsewhere_are_refused(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    X, y = make_rows()
    with pytest.raises(BadLine, match="feature id 0, but the run was trained on data whose ids count from 1"):
        predict(run, write("t.svm", b"1 0:1\n"), str(tmp_path / "p"), client=client)
    from_arrays(X, y, str(tmp_path / "d"))
    with pytest.raises(UserError, match=r"its features count from 0, those of the run .* from 1"):
        predict(run, str(tmp_path / "d"), str(tmp_path / "p"), client=client)
    assert not (tmp_path / "p").exists()


def test_a_bad_line_is_named_and_nothing_is_written(
    client: Client, run: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.scoring.default_block_size", lambda *_: 100)
    good = to_text(*make_rows(20, seed=1))
    with pytest.raises(BadLine, match=r"t\.svm, line 41, column 3: expected id:value") as caught:
        predict(run, write("t.svm", good + good + b"1 x:1\n" + good), str(tmp_path / "out" / "p"), client=client)
    assert caught.value.line == 41
    assert list((tmp_path / "out").iterdir()) == []


def test_an_output_is_replaced_only_if_told(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    text, out = write("t.csv", to_text(*make_rows(10))), str(tmp_path / "p")
    predict(run, text, out, client=client)
    before = Path(out).read_bytes()
    with pytest.raises(OutputExists, match="replace it with --overwrite"):
        predict(run, text, out, client=client)
    with pytest.raises(BadLine):
        predict(run, write("bad.svm", b"1 x\n"), out, overwrite=True, client=client)
    assert Path(out).read_bytes() == before
    predict(run, text, out, lambda_index=1, overwrite=True, client=client)
    assert Path(out).read_bytes() != before
    with pytest.raises(OutputExists, match="is a folder; the output is a file"):
        predict(run, text, str(tmp_path), overwrite=True, client=client)
    with pytest.raises(UserError, match="the output is one of the inputs"):
        predict(run, text, text, overwrite=True, client=client)


def test_an_input_is_no_output_by_any_name(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    """It used to be replaced by the predictions."""
    text = Path(write("t.csv", to_text(*make_rows(10))))
    before = text.read_bytes()
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(text.parent)
    for name in ("folder/../t.csv", "linked/t.csv", "./t.csv"):
        out = f"{text.parent}/{name}" if name.startswith(".") else f"{tmp_path}/{name}"
        with pytest.raises(UserError, match="the output is one of the inputs"):
            predict(run, str(text), out, overwrite=True, client=client)
    assert text.read_bytes() == before


def test_nothing_but_predictions_is_replaced(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    text = write("t.svm", to_text(*make_rows(10)))
    precious = [write(name, b"precious") for name in ("notes.csv", "notes.csv.gz", "notes.jsonl", "notes")]
    for out in (*map(Path, precious), Path(run) / "path.parquet"):
        before = out.read_bytes()
        with pytest.raises(OutputExists, match="holds no predictions"):
            predict(run, text, str(out), overwrite=True, client=client)
        assert out.read_bytes() == before


def test_the_best_of_an_evaluation_is_taken(client: Client, write: Write, tmp_path: Path) -> None:
    url = fit_text(client, tmp_path, to_text(*make_rows()), length=8)
    text = write("t.svm", to_text(*make_rows(seed=1)))
    best = evaluate(url, text, metric="log_loss", client=client).best
    assert best not in (None, 7)
    assert predict(url, text, str(tmp_path / "p"), client=client).lambda_index == best


def test_without_an_evaluation_the_lowest_bic_is_taken_and_told(
    submit: Submit, client: Client, write: Write, tmp_path: Path
) -> None:
    X, y = make_rows(400)
    url = fit_text(client, tmp_path, to_text(X, y), length=10)
    rows, model = pq.read_table(f"{url}/path.parquet").to_pylist(), PathModel.load(url)
    for k, row in enumerate(rows):
        loss = np.logaddexp(0, -y * model.decision_function(X, k)).sum()
        assert row["bic"] == pytest.approx(2 * loss + row["nonzeros"] * np.log(400))
    best = int(np.argmin([row["bic"] for row in rows]))
    assert 0 < best < 9
    done = submit("predict", url, write("t.svm", to_text(X, y)), "--output", str(tmp_path / "p.csv"))
    assert f"Predicted by model {best} (λ = {rows[best]['lambda']:.5g}): the lowest BIC on the training" in done.stdout


def test_a_run_that_tells_no_bic_must_be_told_which_model(client: Client, write: Write, tmp_path: Path) -> None:
    url = fit_text(client, tmp_path, to_text(*make_rows()))
    earlier = pq.read_table(f"{url}/path.parquet").drop_columns(["bic"])
    pq.write_table(earlier, f"{url}/path.parquet")
    text = write("t.svm", to_text(*make_rows(seed=1)))
    with pytest.raises(UserError, match=r"dask-submit evaluate, or choose one with --lambda-index K"):
        predict(url, text, str(tmp_path / "p.csv"), client=client)
    assert predict(url, text, str(tmp_path / "p.csv"), lambda_index=2, client=client).lambda_index == 2


def table_of(path: Path) -> pa.Table:
    """A file of predictions, of whatever kind."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    return pa_json.read_json(path) if path.suffix == ".jsonl" else pa_csv.read_csv(path)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl"])
def test_every_kind_of_file_says_the_same(
    client: Client, run: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr("pipeline.scoring.default_block_size", lambda *_: 200)
    text = write("t.svm", to_text(*make_rows(seed=1)) + b"0 1:1\n")
    for name in (f"p{suffix}", "p.parquet"):
        predict(run, text, str(tmp_path / name), client=client)
        predict(run, text, str(tmp_path / name), overwrite=True, client=client)
    found, expected = table_of(tmp_path / f"p{suffix}"), pq.read_table(tmp_path / "p.parquet")
    assert found.column_names == expected.column_names
    for one, other in zip(found.columns, expected.columns, strict=True):
        assert one.cast(other.type).to_pylist() == other.to_pylist()


def test_labels_are_those_of_training(client: Client, write: Write, tmp_path: Path) -> None:
    X, y = make_rows()
    names = np.where(y > 0, 3, 7)  # and 3 is +1
    url = fit_text(client, tmp_path, to_text(X, names), positive=3.0)
    text = write("t.svm", to_text(X, np.r_[names[:-2], 0, 5]))  # the last two are not known
    predict(url, text, str(tmp_path / "p.parquet"), lambda_index=-1, client=client)
    table = pq.read_table(tmp_path / "p.parquet")
    np.testing.assert_array_equal(table["label"].to_numpy(), PathModel.load(url).predict(X, -1))
    assert table["true_label"].to_pylist() == [*names[:-2].tolist(), None, None]


def test_earlier_columns_come_first_as_they_were(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    predict(run, write("t.svm", b"1 1:1\n"), str(tmp_path / "p.parquet"), client=client)
    schema = pq.read_schema(tmp_path / "p.parquet")
    assert schema.names[:3] == ["example", "margin", "probability"]
    assert [str(schema.field(k).type) for k in range(3)] == ["int64", "double", "double"]


def test_standard_output_takes_csv_and_nothing_else(submit: Submit, run: str, write: Write, tmp_path: Path) -> None:
    text = write("t.svm", to_text(*make_rows(20, seed=1)))
    submit("predict", run, text, "--output", str(tmp_path / "p.csv"))
    done = submit("predict", run, text, "--output", "-")
    assert (done.returncode, done.stdout) == (0, (tmp_path / "p.csv").read_text())
    assert "Predicted by model" in done.stderr


def test_an_unknown_suffix_is_refused_before_any_work(submit: Submit, tmp_path: Path) -> None:
    done = submit("predict", "no-run", "no-input", "--output", str(tmp_path / "p.xlsx"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("written as .csv.gz, .csv, .jsonl or .parquet: choose one of these names\n")


def test_the_command_predicts_and_says_what_it_did(submit: Submit, run: str, write: Write, tmp_path: Path) -> None:
    text = write("t.svm", to_text(*make_rows(40, seed=1)) + b"1 777:1\n")
    done = submit("predict", run, text, "--output", str(tmp_path / "p"), "--lambda-index", "1")
    assert done.returncode == 0, done.stderr
    assert f"41 examples in {tmp_path / 'p'}: " in done.stdout
    assert "Predicted by model 1 (λ = " in done.stdout
    assert "1 of " in done.stdout
    assert margins_of(tmp_path / "p").size == 41


def test_the_command_tells_errors_in_one_line(submit: Submit, run: str, write: Write, tmp_path: Path) -> None:
    done = submit("predict", run, write("t.svm", b"1 1:x\n"), "--output", str(tmp_path / "p"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"dask-submit: error: {tmp_path / 't.svm'}, line 1, column 5: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_help_shows_two_examples(name: str) -> None:
    shown = CliRunner().invoke(command, [name, "--help"])
    assert shown.exit_code == 0
    assert shown.output.count(f"  dask-submit {name} ") >= 2


def test_a_line_beyond_the_limit_is_refused(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    source = write("new.svm", b"1 1:1\n1 2:1\n1 1:1 2:1 3:1\n")
    predict(run, source, str(tmp_path / "p.parquet"), max_line_bytes=13, client=client)
    with pytest.raises(BadLine, match=r"longer than 12 B: .* --max-line") as caught:
        predict(run, source, str(tmp_path / "q.parquet"), max_line_bytes=12, client=client)
    assert caught.value.line == 3
    assert not (tmp_path / "q.parquet").exists()


# --- other writers --------------------------------------------------------------------------------------------------


def test_a_second_prediction_to_the_same_file_is_refused(
    client: Client, run: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write("t.svm", to_text(*make_rows(20, seed=1)))
    output = str(tmp_path / "p.parquet")
    score, refused = Scorer.score, []

    def meanwhile(self: Scorer, sources: Any) -> Any:
        monkeypatch.setattr(Scorer, "score", score)
        with pytest.raises(OutputExists, match=rf"process {os.getpid()} on .* is writing here") as caught:
            predict(run, text, output, client=client)
        refused.append(caught)
        return score(self, sources)

    monkeypatch.setattr(Scorer, "score", meanwhile)
    monkeypatch.setattr("transforms.claim.HEARTBEAT_SECONDS", 0.1)
    predict(run, text, output, client=client)
    assert len(refused) == 1
    assert margins_of(output).size == 20
    assert [file.name for file in tmp_path.iterdir() if "p.parquet" in file.name] == ["p.parquet"]


def test_what_a_killed_prediction_left_goes_with_the_next(
    client: Client, run: str, write: Write, tmp_path: Path
) -> None:
    text = write("t.svm", to_text(*make_rows(20, seed=1)))
    dead = subprocess.Popen(["true"])
    dead.wait()
    claim = {"token": "x", "host": socket.gethostname(), "pid": dead.pid, "beat": 0}
    write("p.parquet.claim.json", json.dumps(claim).encode())
    write("p.parquet.0123abcd.tmp", b"PAR1 half")
    write("q.parquet.0123abcd.tmp", b"another's")
    predict(run, text, str(tmp_path / "p.parquet"), client=client)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.parquet", "q.parquet.0123abcd.tmp", "t.svm"]


def test_margins_beyond_all_numbers_are_not_written(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    model = PathModel.load(run)
    huge = replace(model, weights=np.full_like(model.weights, 1e308))
    text = write("t.svm", to_text(*make_rows(20, seed=1)))
    with pytest.raises(UserError, match=r"t\.svm: a margin is beyond all numbers"):
        predict(huge, text, str(tmp_path / "p.parquet"), client=client)
    assert not (tmp_path / "p.parquet").exists()


def test_a_first_word_that_may_be_a_feature_is_refused(client: Client, run: str, write: Write, tmp_path: Path) -> None:
    """Where training had weights, or the run does not say whether, it is pointed out."""
    text, output = write("bare.svm", b"1:0.5 2:1\n3:1 4:1\n"), str(tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"such as 1:0\.5, is read as label:weight, but .* had no weights"):
        predict(run, text, output, client=client)
    assert not Path(output).exists()
    model = PathModel.load(run)
    for weighted in (True, None):
        about = replace(model.record, dataset=replace(model.record.dataset, weighted=weighted))
        with pytest.warns(UserWarning, match=r"bare\.svm: .* label:weight\. .*write 0 in front of each line"):
            predict(replace(model, record=about), text, output, overwrite=True, client=client)


def test_predictions_go_to_no_device(submit: Submit, run: str, write: Write) -> None:
    done = submit("predict", run, write("t.svm", b"0 1:1\n"), "--output", "/dev/null")
    assert done.returncode == 2
    assert "/dev/null: no file, but a device or a pipe: name a file, or pass - for standard output" in done.stderr


def test_what_is_said_beside_predictions_is_json_if_asked_for(submit: Submit, run: str, write: Write) -> None:
    done = submit("predict", run, write("t.svm", b"0 1:1\n"), "--output", "-", "--log-json")
    assert done.returncode == 0
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert any("Predicted by model" in one.get("message", "") for one in said)
