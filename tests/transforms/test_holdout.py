"""Holding examples out: the split depends on what an example says and on nothing else."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from tests.pipeline.runs import make_rows, to_text
from transforms import Dataset, UserError, convert_libsvm
from transforms.holdout import example_hashes, held_out_part, training_part
from transforms.parser import Parsed, padded, parse

Write = Callable[[str, bytes], str]


def parsed(text: bytes) -> Parsed:
    return parse(padded(text), len(text))


def hashes(text: bytes) -> list[float]:
    values: list[float] = example_hashes(parsed(text)).tolist()
    return values


def rows(part: Parsed) -> list[tuple[float, tuple[int, ...], tuple[float, ...]]]:
    return [
        (label, tuple(part.ids[a:b].tolist()), tuple(part.values[a:b].tolist()))
        for label, a, b in zip(part.labels.tolist(), part.indptr[:-1], part.indptr[1:], strict=True)
    ]


def side(text: bytes, fraction: float) -> bytes:
    """The lines that are not held out."""
    keep = [h >= fraction for h in hashes(text)]
    return b"".join(line for line, kept in zip(text.splitlines(keepends=True), keep, strict=True) if kept)


def test_both_sides_together_are_all_examples() -> None:
    text = to_text(*make_rows(n=4000))
    for fraction in (0.0, 0.1, 0.5, 0.9):
        inside, outside = training_part(parsed(text), fraction), held_out_part(parsed(text), fraction)
        assert sorted(rows(inside) + rows(outside)) == sorted(rows(parsed(text)))
        # Binomial: within five standard deviations.
        assert abs(outside.labels.size - 4000 * fraction) <= 5 * np.sqrt(4000 * fraction * (1 - fraction))


def test_what_is_held_out_at_a_fraction_is_held_out_at_a_larger_one() -> None:
    text = to_text(*make_rows(n=500))
    assert set(rows(held_out_part(parsed(text), 0.1))) <= set(rows(held_out_part(parsed(text), 0.3)))


@pytest.mark.parametrize(
    "same",
    [b"1 7:2 3:0.5", b"+1.0 3:5e-1 7:2.0", b"  1\t3:.5 7:2  # a comment", b"1 3:0.5 7:2\r", b"1:9 3:0.5 5:0 7:2"],
    ids=["order", "numbers", "blanks", "CRLF", "weight and zero"],
)
def test_how_an_example_is_written_does_not_matter(same: bytes) -> None:
    assert hashes(same + b"\n") == hashes(b"1 3:0.5 7:2\n")


@pytest.mark.parametrize("other", [b"-1 3:0.5 7:2", b"1 3:0.5 7:3", b"1 3:0.5 8:2", b"1 3:2 7:0.5", b"1 3:0.5", b"1"])
def test_what_an_example_says_does_matter(other: bytes) -> None:
    assert hashes(other + b"\n") != hashes(b"1 3:0.5 7:2\n")


@pytest.mark.parametrize("how", ["plain", "small blocks", "gzip", "two files"])
def test_the_data_set_is_that_of_the_text_without_what_is_held_out(
    client: Client, tmp_path: Path, write: Write, how: str
) -> None:
    text = to_text(*make_rows(n=300))
    half = text.index(b"\n", len(text) // 2) + 1
    inputs = {
        "gzip": lambda: [write("in.svm.gz", gzip.compress(text))],
        "two files": lambda: [write("1.svm", text[:half]), write("2.svm", text[half:])],
    }.get(how, lambda: [write("in.svm", text)])()
    block_size = 700 if how == "small blocks" else None
    made = convert_libsvm(
        inputs, str(tmp_path / "made"), hold_out=0.3, partitions=2, block_size=block_size, client=client
    )
    expected = convert_libsvm(write("kept.svm", side(text, 0.3)), str(tmp_path / "kept"), partitions=2, client=client)
    assert 150 < made.n < 270
    assert content(made) == content(expected)
    assert made.description["plan"]["hold_out"] == 0.3


def content(dataset: Dataset) -> list[str]:
    return [part["sha256"] for part in [dataset.description["labels"], *dataset.description["partitions"]]]


def test_a_conversion_that_holds_out_otherwise_is_not_resumed(client: Client, tmp_path: Path, write: Write) -> None:
    text, output = write("in.svm", to_text(*make_rows())), str(tmp_path / "out")
    convert_libsvm(text, output, hold_out=0.2, client=client)
    assert convert_libsvm(text, output, hold_out=0.2, resume=True, client=client).n < 200
    with pytest.raises(UserError, match=r"hold out was 0\.2, is 0\.0"):
        convert_libsvm(text, output, resume=True, client=client)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5])
def test_a_fraction_that_is_none_is_refused(client: Client, tmp_path: Path, write: Write, fraction: float) -> None:
    with pytest.raises(UserError, match="hold_out must lie between 0"):
        convert_libsvm(write("in.svm", b"1 1:1\n-1 2:1\n"), str(tmp_path / "out"), hold_out=fraction, client=client)


def test_too_little_left_is_told(client: Client, tmp_path: Path, write: Write) -> None:
    with pytest.raises(UserError, match="not held out: hold out less"):
        convert_libsvm(write("in.svm", b"1 1:1\n-1 2:1\n"), str(tmp_path / "out"), hold_out=0.999999, client=client)
