"""Data sets whose labels are numbers: what is stored, what is refused, and that two labels are stored as ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

from tests.damage import rewrite, unsealed
from transforms import DatasetError, OutputExists, UserError, check_dataset, convert_libsvm, from_arrays, open_dataset
from transforms.dataset_record import DatasetRecord
from transforms.output import TEMPORARY

Write = Callable[[str, bytes], str]
Y = np.array([0.1, -2.5, 1e-7, 3.4e38, 0.30000000000000004, -0.0])
X = np.array([[1, 0, 2], [0, 3, 0], [1, 1, 1], [0, 0, 0], [5, 0, 0.5], [-1, 2, 0]], dtype=np.float32)
WEIGHTS = np.array([1, 2, 0.5, 0, 4, 1], dtype=np.float32)


def text_of(y: np.ndarray = Y, weights: np.ndarray | None = None) -> bytes:
    rows = []
    for i, label in enumerate(y):
        weight = "" if weights is None else f":{weights[i]}"
        pairs = [f"{j + 1}:{x:g}" for j, x in enumerate(X[i % len(X)]) if x]
        rows.append(" ".join([f"{float(label)!r}{weight}", *pairs]))
    return ("\n".join(rows) + "\n").encode()


def change_description(folder: Path, **change: Any) -> None:
    path = folder / "dataset.json"
    path.write_text(json.dumps(unsealed(json.loads(path.read_text())) | change))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_labels_are_the_numbers_of_the_text(
    client: Client, write: Write, tmp_path: Path, weights: np.ndarray | None
) -> None:
    url = write("in.svm", text_of(weights=weights))
    dataset = convert_libsvm(url, str(tmp_path / "out"), numeric_labels=True, block_size=30, client=client)
    labels, stored = dataset.labels()
    np.testing.assert_array_equal(labels, Y)
    assert labels.dtype == np.float64
    np.testing.assert_equal(stored, weights)
    assert dataset.numeric
    assert (dataset.as_written(labels) == Y).all()
    assert check_dataset(dataset) == []


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_columns_are_sorted_by_their_norms(tmp_path: Path, weights: np.ndarray | None) -> None:
    dataset = from_arrays(X, Y, str(tmp_path / "out"), sample_weight=weights, partitions=1, numeric_labels=True)
    csc = dataset.partitions[0].read()
    norms = np.sqrt((np.ones(6) if weights is None else weights) @ X.astype(np.float64) ** 2)
    np.testing.assert_allclose(csc.bounds, norms[csc.features])
    assert (np.diff(csc.bounds) <= 0).all()


def test_text_arrays_and_dask_arrays_give_the_same_labels_and_parts(
    client: Client, write: Write, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"partitions": 2, "numeric_labels": True}
    from_text = convert_libsvm(
        write("in.svm", text_of().replace(b" 1:", b" 0:").replace(b" 2:", b" 1:").replace(b" 3:", b" 2:")),
        str(tmp_path / "text"),
        zero_based=True,
        client=client,
        **how,
    )
    in_memory = from_arrays(X, Y, str(tmp_path / "arrays"), **how)
    chunks = da.from_array(X, chunks=(2, 3)).map_blocks(sp.csr_matrix)
    lazy = from_arrays(chunks, Y, str(tmp_path / "dask"), client=client, **how)
    for other in (in_memory, lazy):
        assert [part.sha256 for part in other.record.partitions] == [
            part.sha256 for part in from_text.record.partitions
        ]
        np.testing.assert_array_equal(other.labels()[0], Y)
        assert other.record.labels.largest == 3.4e38


def test_a_description_says_what_labels_and_bounds_are(tmp_path: Path) -> None:
    from_arrays(X, Y, str(tmp_path / "out"), numeric_labels=True, sample_weight=WEIGHTS)
    about = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert (about["format_version"], about["bound"], "label_map" in about) == (2, "norm", False)
    labels = about["labels"]
    assert (labels["kind"], labels["smallest"], labels["largest"], labels["weight"]) == ("number", -2.5, 3.4e38, 8.5)
    assert "positives" not in labels
    assert about["plan"]["numeric_labels"] is True


def test_two_labels_are_described_as_ever(tmp_path: Path) -> None:
    from_arrays(X, Y > 0.2, str(tmp_path / "out"))
    about = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert about["format_version"] == about["plan"]["format_version"] == 1
    assert not {"bound", "kind", "smallest", "largest", "weight"} & {*about, *about["labels"]}
    assert "numeric_labels" not in about["plan"]
    assert DatasetRecord.from_json(about).to_json() == about


def test_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    from_arrays(X, Y, str(tmp_path / "out"), numeric_labels=True)
    change_description(tmp_path / "out", format_version=3)
    with pytest.raises(DatasetError, match="format version 3, but this dglmnet reads 1 and 2: update dglmnet"):
        open_dataset(str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 1}, "label_map is missing"),
        ({"label_map": {"-1": 0, "+1": 1}}, "label_map does not belong here"),
        ({"bound": "logistic"}, "bound must be one of norm"),
    ],
)
def test_numbers_are_not_taken_for_two_labels(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    from_arrays(X, Y, str(tmp_path / "out"), numeric_labels=True)
    change_description(tmp_path / "out", **change)
    with pytest.raises(DatasetError, match=message):
        open_dataset(str(tmp_path / "out"))


def test_two_labels_are_not_taken_for_numbers(tmp_path: Path) -> None:
    from_arrays(X, Y > 0.2, str(tmp_path / "out"))
    labels = open_dataset(str(tmp_path / "out")).description["labels"]
    change_description(tmp_path / "out", labels=labels | {"kind": "number"})
    with pytest.raises(DatasetError, match=r"labels\.kind does not belong here"):
        open_dataset(str(tmp_path / "out"))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1e39, 7.0])
def test_a_label_file_with_other_numbers_is_damaged(tmp_path: Path, wrong: float) -> None:
    from_arrays(X, np.arange(6.0), str(tmp_path / "out"), numeric_labels=True)
    rewrite(tmp_path / "out", "labels.parquet", lambda columns: {"label": [wrong, *columns["label"][1:]]})
    with pytest.raises(DatasetError, match=r"labels\.parquet: damaged \(labels"):
        open_dataset(str(tmp_path / "out")).labels()


@pytest.mark.parametrize(
    ("line", "message"),
    [(b"nan 1:1\n", "nan and inf are not allowed"), (b"1e39 1:1\n", "does not fit float32"), (b"x 1:1\n", "a label")],
)
def test_what_is_no_number_is_a_bad_line(
    client: Client, write: Write, tmp_path: Path, line: bytes, message: str
) -> None:
    url = write("in.svm", text_of() + line)
    with pytest.raises(UserError, match=rf"in\.svm, line 7, column 1: .*{message}"):
        convert_libsvm(url, str(tmp_path / "out"), numeric_labels=True, client=client)


@pytest.mark.parametrize("y", [[1.0, np.nan], [1.0, 1e39]])
def test_arrays_of_labels_out_of_range_are_refused(tmp_path: Path, y: list[float]) -> None:
    with pytest.raises(UserError, match=r"y has labels that are nan or inf, or beyond 3\.4e38"):
        from_arrays(np.eye(2), y, str(tmp_path / "out"), numeric_labels=True)


def test_a_positive_label_does_not_go_with_numbers(client: Client, write: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a positive label does not go with numeric labels"):
        convert_libsvm(
            write("in.svm", text_of()), str(tmp_path / "out"), numeric_labels=True, positive_label=1, client=client
        )
    assert not (tmp_path / "out").exists()


def test_one_number_alone_is_enough(client: Client, write: Write, tmp_path: Path) -> None:
    dataset = convert_libsvm(write("in.svm", b"2 1:1\n"), str(tmp_path / "out"), numeric_labels=True, client=client)
    assert dataset.labels()[0].tolist() == [2.0]


def test_no_examples_are_told(client: Client, write: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the input has no examples"):
        convert_libsvm(write("in.svm", b"# none\n"), str(tmp_path / "out"), numeric_labels=True, client=client)


def test_what_is_held_out_is_the_same_as_ever(client: Client, write: Write, tmp_path: Path) -> None:
    y = np.tile([0.0, 1.0], 100)
    rows = b"".join(f"{label:g} {1 + i}:1\n".encode() for i, label in enumerate(y))
    url = write("in.svm", rows)
    two = convert_libsvm(url, str(tmp_path / "two"), hold_out=0.3, client=client)
    numbers = convert_libsvm(url, str(tmp_path / "numbers"), hold_out=0.3, numeric_labels=True, client=client)
    kept = [
        np.sort(np.concatenate([part.read_features() for part in one.partitions])).tolist() for one in (two, numbers)
    ]
    assert kept[0] == kept[1]
    assert 100 < len(kept[0]) < 180


def test_a_conversion_is_not_resumed_with_labels_of_another_kind(
    client: Client, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, out = write("in.svm", text_of(np.arange(6) % 2)), str(tmp_path / "out")

    def stop(*_: Any) -> None:
        raise UserError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("transforms.convert.commit", stop)
        with pytest.raises(UserError, match="stopped"):
            convert_libsvm(url, out, resume=True, client=client)
    with pytest.raises(OutputExists, match="numeric labels was False, is True"):
        convert_libsvm(url, out, numeric_labels=True, resume=True, client=client)
    convert_libsvm(url, out, resume=True, client=client)
    with pytest.raises(OutputExists, match="numeric labels was False, is True"):
        convert_libsvm(url, out, numeric_labels=True, resume=True, client=client)


def test_a_conversion_of_numbers_that_was_cut_off_goes_on(
    client: Client, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, out = write("in.svm", text_of(weights=WEIGHTS)), str(tmp_path / "out")

    def stop(*_: Any) -> None:
        raise UserError("stopped")

    how: dict[str, Any] = {"numeric_labels": True, "resume": True, "block_size": 30, "client": client}
    with monkeypatch.context() as patch:
        patch.setattr("transforms.convert.write_labels", stop)
        with pytest.raises(UserError, match="stopped"):
            convert_libsvm(url, out, **how)
    assert list((tmp_path / "out" / TEMPORARY).glob("*.fragment"))
    labels, weights = convert_libsvm(url, out, **how).labels()
    np.testing.assert_array_equal(labels, Y)
    assert weights is not None
    np.testing.assert_array_equal(weights, WEIGHTS)
