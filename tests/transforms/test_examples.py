"""The one reader of text: a new format is one entry, and conversions and scoring read it alike."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client

from pipeline import PathOptions, evaluate, fit_path, predict
from tests.pipeline.runs import make_rows, to_text
from transforms import BadLine, UserError, convert_libsvm, examples
from transforms.examples import FORMATS, Format, Reader, format_of
from transforms.inputs import InputFile
from transforms.parser import Parsed, padded, parse


def parse_csv(text: np.ndarray, stop: int, *, zero_based: bool, bad_lines: int) -> Parsed:
    """A label and the values of features 1, 2, ..., with commas between them."""
    lines = []
    for line in text[:stop].tobytes().decode().splitlines():
        label, *values = line.split(",")
        lines.append(" ".join([label, *(f"{k}:{value}" for k, value in enumerate(values, 1))]) + "\n")
    content = "".join(lines).encode()
    return parse(padded(content), len(content), zero_based=zero_based, bad_lines=bad_lines)


@pytest.fixture
def csv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "FORMATS", (Format("CSV", ".csv", parse_csv), *FORMATS))


def to_csv(rows: np.ndarray, labels: np.ndarray) -> bytes:
    return "".join(
        f"{label:g},{','.join(repr(value) for value in row)}\n"
        for label, row in zip(labels, rows.tolist(), strict=True)
    ).encode()


@pytest.mark.usefixtures("csv")
def test_one_entry_makes_a_format_that_is_converted_judged_and_predicted_alike(client: Client, tmp_path: Path) -> None:
    X, y = make_rows()
    (tmp_path / "a.csv").write_bytes(to_csv(X.toarray(), y))
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(to_csv(X.toarray(), y)))
    (tmp_path / "c.svm").write_bytes(to_text(X, y))
    sets = [
        convert_libsvm(str(tmp_path / name), str(tmp_path / f"{name}.data"), partitions=2, client=client)
        for name in ("a.csv", "b.csv.gz", "c.svm")
    ]
    assert len({part.info.sha256 for one in sets for part in one.partitions}) == 2, "the same two parts of each"
    run = str(tmp_path / "run")
    fit_path(sets[0], run, path=PathOptions(length=2), client=client)
    judged = [
        evaluate(run, str(tmp_path / name), client=client).path[-1]["auc"] for name in ("a.csv", "b.csv.gz", "c.svm")
    ]
    assert len(set(judged)) == 1
    predict(run, [str(tmp_path / "a.csv"), str(tmp_path / "c.svm")], str(tmp_path / "p.parquet"), client=client)
    margins = pq.read_table(tmp_path / "p.parquet")["margin"].to_numpy()
    assert np.array_equal(margins[:200], margins[200:])


@pytest.mark.usefixtures("csv")
def test_a_bad_line_of_any_format_is_named_by_its_place(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n-1,3\n1,many\n")
    with pytest.raises(BadLine, match=r"a\.csv, line 3, column 5: expected a number after the colon"):
        convert_libsvm(str(tmp_path / "a.csv"), str(tmp_path / "out"), block_size=6, client=client)


def test_text_of_any_name_is_libsvm() -> None:
    for name in ("a.svm", "a", "a.csv", "a.txt.gz", ".gz"):
        assert format_of(InputFile(name, name, 1, "")).name == "LIBSVM"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_bad_line": "ignore"}, "on_bad_line must be raise or skip, got 'ignore'"),
        ({"max_line_bytes": 0}, "the longest line must be at least 1 byte, got 0"),
    ],
)
def test_options_by_which_nothing_can_be_read_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Reader(1, **options)  # type: ignore[arg-type]
