"""Data sets and models that are wrong in themselves, their checksums right: refused, never handed to a kernel."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline import PathModel, PathOptions, Watcher, evaluate, fit_path, predict
from pipeline.report.write import write_report
from tests.damage import make_right, replace_table, rewrite, unsealed
from tests.pipeline.runs import fit_text, make_rows, to_text
from transforms import DatasetError, UserError, parts

PART = "part-00001.parquet"
Change = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def made(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set, train, and a run of it, run."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROW_GROUP_NNZ", 100)
        fit_text(client, folder, to_text(*make_rows()), length=3)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def first(name: str, change: Callable[[Any], Any]) -> Change:
    """Change a column's first entry."""

    def changed(columns: dict[str, Any]) -> dict[str, Any]:
        columns[name][0] = change(columns[name][0])
        return columns

    return changed


HOSTILE_PARTS: dict[str, Change] = {
    "an example beyond all": first("examples", lambda ids: [*ids[:-1], 2**31 - 1]),
    "an example one too large": first("examples", lambda ids: [*ids[:-1], 200]),
    "an example below 0": first("examples", lambda ids: [-(2**31), *ids[1:]]),
    "examples falling": first("examples", lambda ids: ids[::-1]),
    "a negative feature": first("feature", lambda _: -1),
    "the smallest feature": first("feature", lambda _: -(2**63)),
    "the largest feature": first("feature", lambda _: 2**63 - 1),
    "fewer values than examples": first("values", lambda values: values[:-1]),
    "no values": first("values", lambda values: []),
    "a nan": first("values", lambda values: [math.nan, *values[1:]]),
    "an infinity": first("values", lambda values: [math.inf, *values[1:]]),
    "a bound that is not a number": first("bound", lambda _: math.nan),
    "an infinite bound": first("bound", lambda _: math.inf),
    "a wrong count": first("nnz", lambda nnz: nnz + 1),
    "an enormous count": first("nnz", lambda nnz: 2**62),
}


@pytest.mark.parametrize("change", HOSTILE_PARTS.values(), ids=HOSTILE_PARTS)
def test_a_hostile_part_is_refused_wherever_it_is_read(client: Client, folder: Path, change: Change) -> None:
    rewrite(folder / "train", PART, change)
    data, run, out = str(folder / "train"), str(folder / "run"), str(folder / "p.parquet")
    works: list[Callable[[], object]] = [
        lambda: predict(run, data, out, client=client),
        lambda: fit_path(data, str(folder / "new"), path=PathOptions(length=2), client=client),
        lambda: fit_path(data, str(folder / "new"), path=PathOptions(length=2), residency="stream", client=client),
    ]
    for work in works:
        with pytest.raises(DatasetError, match=rf"train/{PART}: this part is damaged"):
            work()
    assert not (folder / "p.parquet").exists()
    assert not (folder / "new").exists()


def drop(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.drop_columns([name])


def cast(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, pa.field(name, kind), table[name].cast(kind))

    return changed


def with_nulls(name: str) -> Callable[[pa.Table], pa.Table]:
    def changed(table: pa.Table) -> pa.Table:
        at, kind = table.column_names.index(name), table[name].type
        column = pa.array([None, *table[name].to_pylist()[1:]], kind)
        return table.set_column(at, pa.field(name, kind), column)

    return changed


def null_item(table: pa.Table) -> pa.Table:
    at, kind = table.column_names.index("examples"), pa.large_list(pa.int32())
    rows = table["examples"].to_pylist()
    rows[0][0] = None
    return table.set_column(at, pa.field("examples", kind), pa.array(rows, kind))


PART_TABLES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    **{f"no {name}": (drop(name), "its columns must be") for name in ("feature", "nnz", "bound", "examples", "values")},
    "feature of text": (cast("feature", pa.string()), "column feature must be of type int64, found string"),
    "feature of int32": (cast("feature", pa.int32()), "column feature must be of type int64, found int32"),
    "bound of float32": (cast("bound", pa.float32()), "column bound must be"),
    "examples of int64": (cast("examples", pa.large_list(pa.int64())), "column examples must be"),
    "examples of short lists": (cast("examples", pa.list_(pa.int32())), "column examples must be"),
    "values of float64": (cast("values", pa.large_list(pa.float64())), "column values must be"),
    "another column": (lambda table: table.append_column("x", table["nnz"]), "its columns must be"),
    "columns in another order": (lambda table: table.select(table.column_names[::-1]), "its columns must be"),
    **{f"a missing {name}": (with_nulls(name), f"column {name} has values that are missing") for name in ("feature",)},
    "a missing example": (null_item, "column examples has values that are missing"),
}


@pytest.mark.parametrize(("change", "message"), PART_TABLES.values(), ids=PART_TABLES)
def test_a_part_with_other_columns_is_refused(
    client: Client, folder: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    """A missing column used to be told as a lost worker, out of memory."""
    replace_table(folder / "train", PART, change(pq.read_table(folder / "train" / PART)))
    for residency in ("memory", "stream"):
        with pytest.raises(DatasetError, match=rf"train/{PART}: this part is damaged \({message}"):
            fit_path(str(folder / "train"), str(folder / "new"), residency=residency, client=client)


HOSTILE_LABELS: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "one label less": (lambda table: table.slice(1), "199 labels for 200 examples"),
    "labels of int32": (cast("label", pa.int32()), "column label must be of type int8"),
    "a missing label": (with_nulls("label"), "column label has values that are missing"),
    "no column": (lambda table: table.rename_columns(["y"]), "its columns must be label, found y"),
    "a weight": (lambda table: table.append_column("weight", table["label"].cast(pa.float32())), "its columns must be"),
}


@pytest.mark.parametrize(("change", "message"), HOSTILE_LABELS.values(), ids=HOSTILE_LABELS)
def test_hostile_labels_are_refused(
    client: Client, folder: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    data = folder / "train"
    replace_table(data, "labels.parquet", change(pq.read_table(data / "labels.parquet")))
    with pytest.raises(DatasetError, match=rf"train/labels\.parquet: damaged \({message}"):
        fit_path(str(data), str(folder / "new"), client=client)
    with pytest.raises(DatasetError, match=rf"train/labels\.parquet: damaged \({message}"):
        evaluate(str(folder / "run"), str(data), client=client)


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0])
def test_weights_of_examples_that_are_no_weights_are_refused(client: Client, folder: Path, weight: float) -> None:
    data = folder / "train"
    table = pq.read_table(data / "labels.parquet")
    weights = pa.array([weight, *[1.0] * (table.num_rows - 1)], pa.float32())
    replace_table(data, "labels.parquet", table.append_column("weight", weights))
    make_right(data, "labels.parquet", weighted=True, weight_of_positives=1.0, weight_of_negatives=1.0)
    for work in (
        lambda: fit_path(str(data), str(folder / "new"), client=client),
        lambda: predict(str(folder / "run"), str(data), str(folder / "p.parquet"), client=client),
    ):
        with pytest.raises(DatasetError, match=r"labels\.parquet: damaged \(weights that are negative or not finite"):
            work()


# --- models ---------------------------------------------------------------------------------------------------------


def column(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    """Change a column, given as a list; its type stays."""

    def changed(table: pa.Table) -> pa.Table:
        field = table.schema.field(name)
        return table.set_column(
            table.column_names.index(name), field, pa.array(change(table[name].to_pylist()), field.type)
        )

    return changed


HOSTILE_MODELS: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "a negative id": ("coefficients", column("feature", lambda ids: [-1, *ids[1:]]), "feature ids"),
    "the smallest id": ("coefficients", column("feature", lambda ids: [-(2**63), *ids[1:]]), "feature ids"),
    "the largest id": ("coefficients", column("feature", lambda ids: [*ids[:-1], 2**63 - 1]), "feature ids outside"),
    "id 0 where they count from 1": ("coefficients", column("feature", lambda ids: [0, *ids[1:]]), "feature ids"),
    "ids not sorted": ("coefficients", column("feature", lambda ids: ids[::-1]), "feature ids must rise"),
    "an id twice": ("coefficients", column("feature", lambda ids: [*ids[:-1], ids[-2]]), "feature ids must rise"),
    "a nan": ("coefficients", column("weight", lambda w: [math.nan, *w[1:]]), "weights that are not finite"),
    "an infinity": ("coefficients", column("weight", lambda w: [*w[:-1], -math.inf]), "weights that are not finite"),
    "a missing id": ("coefficients", with_nulls("feature"), "column feature has values that are missing"),
    "a missing weight": ("coefficients", with_nulls("weight"), "column weight has values that are missing"),
    "a missing λ": ("coefficients", with_nulls("lambda_index"), "column lambda_index has values that are missing"),
    "a negative λ": ("coefficients", column("lambda_index", lambda k: [-1, *k[1:]]), "lambda_index must rise"),
    "ids of text": ("coefficients", cast("feature", pa.string()), "column feature must be of type int64"),
    "no weights": ("coefficients", drop("weight"), "no column weight"),
    "λ of text": ("path", cast("lambda", pa.string()), "column lambda must be of type double, found string"),
    "λ not a number": ("path", column("lambda", lambda lam: [math.nan, *lam[1:]]), "lambda must be finite"),
    "λ rising": ("path", column("lambda", lambda lam: lam[::-1]), "lambda must be finite, above 0, and fall"),
    "an index that skips": ("path", column("index", lambda k: [*k[:-1], 9]), "index must count from 0"),
    "negative nonzeros": ("path", column("nonzeros", lambda k: [-1, *k[1:]]), "nonzeros must be finite and at least 0"),
    "a missing objective": ("path", with_nulls("objective"), "column objective has values that are missing"),
    "no rounds": ("path", drop("rounds"), "no column rounds"),
    "a metric that is not a number": (
        "path",
        lambda table: table.append_column("auc", pa.array([math.nan] * table.num_rows)),
        "auc must be finite",
    ),
    "another column": (
        "path",
        lambda table: table.append_column("Gap", table["gap"]),
        "column 'Gap' does not belong here",
    ),
    "λ beyond all": ("path", column("lambda", lambda lam: [1e308, *lam[1:]]), "lambda must be from 1e-100"),
    "λ next to 0": ("path", column("lambda", lambda lam: [*lam[:-1], 5e-324]), "lambda must be from 1e-100"),
    "endless seconds": ("path", column("seconds", lambda s: [1e308, *s[1:]]), "seconds must be at most"),
    "a line search of nan": (
        "path",
        column("line_search_seconds", lambda s: [math.nan, *s[1:]]),
        "line_search_seconds",
    ),
    "a gap that is not a number": ("path", column("gap", lambda gaps: [math.nan, *gaps[1:]]), "gap must be finite"),
}


@pytest.mark.parametrize(("name", "change", "message"), HOSTILE_MODELS.values(), ids=HOSTILE_MODELS)
def test_a_hostile_model_is_refused_wherever_it_is_read(
    client: Client, folder: Path, name: str, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = folder / "run" / f"{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    run = str(folder / "run")
    works: list[Callable[[], object]] = [
        lambda: PathModel.load(run),
        lambda: predict(run, str(folder / "train"), str(folder / "p.parquet"), client=client),
        lambda: write_report(run),
    ]
    for work in works:
        with pytest.raises(UserError, match=rf"run/{name}\.parquet: damaged \({message}"):
            work()


@pytest.mark.parametrize("name", ["train/dataset.json", "train/labels.parquet", "train/part-00000.parquet"])
@pytest.mark.timeout(60)
def test_a_named_pipe_in_a_data_set_is_not_waited_for(client: Client, folder: Path, name: str) -> None:
    make_right(folder / "train", "part-00000.parquet")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=rf"{name}: a named pipe, not a file"):
        fit_path(str(folder / "train"), str(folder / "new"), client=client)
    assert not (folder / "new").exists()


@pytest.mark.parametrize("name", ["run.json", "path.parquet", "coefficients.parquet", "trace.parquet"])
@pytest.mark.parametrize("lay", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
@pytest.mark.timeout(60)
def test_neither_pipe_nor_device_in_a_run_is_read(folder: Path, name: str, lay: Callable[[Path], None]) -> None:
    (folder / "run" / name).unlink()
    lay(folder / "run" / name)
    with pytest.raises(UserError, match=rf"run/{name}: a (named pipe|device), not a file"):
        write_report(str(folder / "run"))


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_metrics_beyond_all_numbers_are_not_stored(client: Client, folder: Path) -> None:
    """They used to be, or, where a margin was not a number, the evaluation did not end."""
    path = folder / "run" / "coefficients.parquet"
    pq.write_table(column("weight", lambda w: [1e308] * len(w))(pq.read_table(path)), path)
    before = (folder / "run" / "path.parquet").read_bytes()
    with pytest.raises(UserError, match=r"not finite.*nothing was stored"):
        evaluate(str(folder / "run"), str(folder / "train"), client=client)
    assert (folder / "run" / "path.parquet").read_bytes() == before


def test_weights_of_features_that_the_data_do_not_have_are_not_resumed(client: Client, folder: Path) -> None:
    path = folder / "run" / "coefficients.parquet"
    pq.write_table(column("feature", lambda ids: [*ids[:-1], 10**9])(pq.read_table(path)), path)
    about = json.loads((folder / "run" / "run.json").read_text())
    (folder / "run" / "run.json").write_text(json.dumps(unsealed(about) | {"complete": False}))
    with pytest.raises(UserError, match=r"coefficients\.parquet: it has weights of features that the data"):
        fit_path(str(folder / "train"), str(folder / "run"), path=PathOptions(length=3), resume=True, client=client)


@pytest.mark.parametrize("blocks", [[[0], [7]], [[0, 1], [1]], [[1], [0]], [[0]]])
def test_blocks_that_do_not_hold_the_partitions_are_not_resumed(
    client: Client, folder: Path, blocks: list[list[int]]
) -> None:
    about = json.loads((folder / "run" / "run.json").read_text())
    (folder / "run" / "run.json").write_text(json.dumps(unsealed(about) | {"complete": False, "blocks": blocks}))
    with pytest.raises(UserError, match=r"run\.json: damaged \(blocks must hold the partitions 0 to 1"):
        fit_path(str(folder / "train"), str(folder / "run"), path=PathOptions(length=3), resume=True, client=client)


def test_a_data_set_that_is_converted_again_under_a_streaming_fit_ends_the_fit(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to end with a mixture of two data sets, complete."""
    X, y = make_rows(seed=5)
    (folder / "other.svm").write_bytes(to_text(X, y))
    from transforms import convert_libsvm

    class Converts(Watcher):
        def solution(self, solution: Any) -> None:
            if solution.lambda_index == 1:
                convert_libsvm(
                    str(folder / "other.svm"), str(folder / "train"), partitions=2, overwrite=True, client=client
                )

    with pytest.raises(DatasetError, match=r"train/part-0000[01]\.parquet: this part is damaged \("):
        fit_path(
            str(folder / "train"), str(folder / "new"), path=PathOptions(length=8), residency="stream",
            client=client, watcher=Converts(),
        )  # fmt: skip
    assert json.loads((folder / "new" / "run.json").read_text())["complete"] is False
    assert len(PathModel.load(str(folder / "new"))) == 2


def test_no_flipped_bit_gives_another_model(client: Client, folder: Path) -> None:
    path = folder / "train" / PART
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(10):
        flipped = bytearray(content)
        flipped[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged \(its checksum differs"):
            fit_path(str(folder / "train"), str(folder / "new"), path=PathOptions(length=2), client=client)


@pytest.mark.parametrize("name", ["coefficients", "path"])
def test_no_flipped_bit_of_a_model_is_taken_for_another_model(folder: Path, name: str) -> None:
    """Pages have checksums. A bit of the footer may have no meaning."""
    path = folder / "run" / f"{name}.parquet"
    content, before = path.read_bytes(), PathModel.load(str(folder / "run"))
    refused = 0
    for at in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        path.write_bytes(flipped)
        try:
            model = PathModel.load(str(folder / "run"))
        except UserError:
            refused += 1
            continue
        assert model.path == before.path
        assert np.array_equal(model.features, before.features)
        assert np.array_equal(model.weights, before.weights)
    assert refused > len(content) // 7 // 4


@pytest.mark.parametrize("residency", ["memory", "stream"])
def test_what_a_worker_process_finds_damaged_is_told_as_such(
    process_client: Client, folder: Path, residency: str
) -> None:
    content = bytearray((folder / "train" / PART).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "train" / PART).write_bytes(content)
    with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged \(its checksum differs"):
        fit_path(str(folder / "train"), str(folder / "new"), residency=residency, client=process_client)
    with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged \(its checksum differs"):
        predict(str(folder / "run"), str(folder / "train"), str(folder / "p.parquet"), client=process_client)
    assert not (folder / "new").exists()
