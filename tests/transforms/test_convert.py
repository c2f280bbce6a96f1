"""The conversion: what was written is what is read back, whatever the blocks, partitions and cluster."""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.damage import unsealed
from tests.reference import Examples, files_of, random_text, read_back, read_text, texts
from transforms import BadLine, Dataset, UserError, check_dataset, convert_libsvm
from transforms import convert as convert_module
from transforms.cancelled import stop_if_cancelled
from transforms.inputs import Block
from transforms.mapreduce import Job, Mapped, count_lines, map_block

Write = Callable[[str, bytes], str]


def assert_same(dataset: Dataset, reference: Examples) -> None:
    got = read_back(dataset)
    assert got.columns == reference.columns
    assert got.labels == reference.labels
    assert got.weights == reference.weights
    assert dataset.n == len(reference.labels)
    assert dataset.p == len(reference.columns)
    assert dataset.nnz == sum(map(len, reference.columns.values()))


def assert_well_formed(dataset: Dataset, reference: Examples) -> None:
    """Rows by falling bound, the bound as its definition says, columns without values where all are one."""
    signs, weights = signs_of(dataset), weights_of(dataset)
    for partition in dataset.partitions:
        csc = partition.read()
        keys = list(zip((-csc.bounds).tolist(), csc.features.tolist(), strict=True))
        assert keys == sorted(keys)
        for k, feature in enumerate(csc.features.tolist()):
            expected = bound_by_definition(reference.columns[feature], signs, weights)
            assert csc.bounds[k] == pytest.approx(expected, rel=1e-12, abs=1e-300)
        values = [v for f in csc.features.tolist() for v in reference.columns[f].values()]
        assert (csc.data is None) == all(v == 1 for v in values)
        assert (csc.data is not None) == partition.info.values
    assert check_dataset(dataset) == []


def signs_of(dataset: Dataset) -> np.ndarray:
    return dataset.labels()[0].astype(float)


def weights_of(dataset: Dataset) -> np.ndarray:
    weights = dataset.labels()[1]
    return np.ones(dataset.n) if weights is None else weights.astype(float)


def bound_by_definition(column: dict[int, float], signs: np.ndarray, weights: np.ndarray) -> float:
    """max(Σ s|x| over y·x > 0, Σ s|x| over y·x < 0)."""
    terms = [signs[i] * x * weights[i] for i, x in column.items()]
    return float(max(sum(t for t in terms if t > 0), -sum(t for t in terms if t < 0)))


# --- round trips ----------------------------------------------------------------------------------------------------


@given(
    text=texts(),
    partitions=st.integers(1, 5),
    block_size=st.one_of(st.integers(1, 60), st.just(10**6)),
    strategy=st.sampled_from(["spread", "neighbours"]),
)
@settings(max_examples=30)
def test_what_was_written_is_read_back(
    client: Client, text: bytes, partitions: int, block_size: int, strategy: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.svm"
        source.write_bytes(text)
        dataset = convert_libsvm(
            str(source),
            f"{folder}/out",
            partitions=partitions,
            block_size=max(block_size, len(text) // 40),
            strategy=strategy,
            client=client,
        )
        reference = read_text(text)
        assert len(dataset.partitions) == partitions
        assert_same(dataset, reference)
        assert_well_formed(dataset, reference)


@given(text=texts(weighted=True), block_size=st.integers(20, 200))
@settings(max_examples=15)
def test_weights_are_read_back_and_enter_the_bound(client: Client, text: bytes, block_size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.svm"
        source.write_bytes(text)
        dataset = convert_libsvm(
            str(source), f"{folder}/out", partitions=2, block_size=max(block_size, len(text) // 30), client=client
        )
        reference = read_text(text)
        assert dataset.weighted
        assert_same(dataset, reference)
        assert_well_formed(dataset, reference)


@given(text=texts(zero_based=True, labels=("0", "1")), compressed=st.booleans())
@settings(max_examples=15)
def test_ids_may_count_from_0(client: Client, text: bytes, compressed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / ("in.svm.gz" if compressed else "in.svm")
        source.write_bytes(gzip.compress(text) if compressed else text)
        dataset = convert_libsvm(
            str(source), f"{folder}/out", partitions=3, block_size=97, zero_based=True, client=client
        )
        assert dataset.description["index_base"] == 0
        assert_same(dataset, read_text(text, zero_based=True))


def test_blocks_of_one_byte(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"\xef\xbb\xbf1 1:2\r\n\n-1 2:3 1:4 # x\n1 9:1"
    source = write("in.svm", text)
    dataset = convert_libsvm(source, str(tmp_path / "out"), partitions=2, block_size=1, client=client)
    assert_same(dataset, read_text(text))


def test_pieces_of_one_byte_of_a_compressed_file(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"\xef\xbb\xbf1 1:2\r\n\n-1 2:3 1:4 # x\n1 9:1"
    source = write("in.svm.gz", gzip.compress(text))
    dataset = convert_libsvm(source, str(tmp_path / "out"), partitions=2, block_size=1, client=client)
    assert_same(dataset, read_text(text))


def test_many_files_of_many_kinds_are_one_data_set(client: Client, tmp_path: Path, write: Write) -> None:
    texts_ = [random_text(seed, 40, 30, 5) for seed in range(4)]
    write("in/a.svm", texts_[0])
    write("in/b.svm.gz", gzip.compress(texts_[1]))
    write("in/c.svm", b"")
    write("in/d.svm", texts_[2].rstrip(b"\n"))
    write("in/e.svm", b"\xef\xbb\xbf" + texts_[3])
    write("in/_SUCCESS", b"")
    dataset = convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), block_size=300, client=client)
    assert_same(dataset, read_text(b"".join(texts_)))
    assert [Path(one["path"]).name[0] for one in dataset.description["inputs"]] == list("abcde")


# --- sizes at the edge ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"1 5:2\n-1\n",
        b"1\n-1\n",
        b"1 5:2\n-1 5:3\n",
        b"1 5:0\n-1 7:0.0\n",
        b"\n\n# nothing\n-1 1:1\n\n1",
        b"1 4611686018427387904:1\n-1 1:1\n",
    ],
    ids=["a row without features", "no features", "one feature", "zeros only", "blank lines", "the largest id"],
)
@pytest.mark.parametrize("partitions", [1, 3])
def test_small_data_sets(client: Client, tmp_path: Path, write: Write, text: bytes, partitions: int) -> None:
    out = str(tmp_path / "out")
    dataset = convert_libsvm(write("in.svm", text), out, partitions=partitions, client=client)
    assert_same(dataset, read_text(text))
    assert check_dataset(dataset) == []
    assert list(dataset.partitions[0].stream(bound_above=1e9)) == []


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing\n", b"\xef\xbb\xbf"])
def test_an_input_without_examples_is_an_error(client: Client, tmp_path: Path, write: Write, text: bytes) -> None:
    with pytest.raises(UserError, match="no examples"):
        convert_libsvm(write("in.svm", text), str(tmp_path / "out"), client=client)
    assert not (tmp_path / "out").exists()


def test_a_line_of_a_million_features(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"1 " + b" ".join(b"%d:1" % k for k in range(1, 10**6 + 1)) + b"\n-1 3:1\n"
    dataset = convert_libsvm(
        write("in.svm", text), str(tmp_path / "out"), partitions=3, block_size=1 << 18, client=client
    )
    assert (dataset.n, dataset.p, dataset.nnz) == (2, 10**6, 10**6 + 1)
    features = np.sort(np.concatenate([part.read().features for part in dataset.partitions]))
    assert np.array_equal(features, np.arange(1, 10**6 + 1))
    assert check_dataset(dataset) == []
    loads = [part.info.nnz for part in dataset.partitions]
    assert max(loads) <= 1.1 * sum(loads) / 3


def test_more_rows_in_a_block_than_16_bits_count(client: Client, tmp_path: Path, write: Write) -> None:
    rows = 70_000
    text = b"".join(b"%d %d:%d\n" % (row & 1, row % 7 + 1, row % 5 + 1) for row in range(rows))
    dataset = convert_libsvm(
        write("in.svm", text), str(tmp_path / "out"), partitions=2, block_size=1 << 25, client=client
    )
    seen = np.zeros(rows, dtype=int)
    for part in dataset.partitions:
        csc = part.read()
        assert csc.data is not None
        for k, feature in enumerate(csc.features.tolist()):
            examples = csc.indices[csc.indptr[k] : csc.indptr[k + 1]]
            assert np.array_equal(examples, np.arange(feature - 1, rows, 7))
            assert np.array_equal(csc.data[csc.indptr[k] : csc.indptr[k + 1]], examples % 5 + 1)
            seen[examples] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("rows", [2**16 - 1, 2**16, 2**16 + 1])
def test_rows_around_the_16_bit_limit(client: Client, tmp_path: Path, write: Write, rows: int) -> None:
    text = b"1 1:1\n" * (rows - 1) + b"0 2:1\n"
    dataset = convert_libsvm(
        write("in.svm", text), str(tmp_path / "out"), partitions=1, block_size=1 << 25, client=client
    )
    csc = dataset.partitions[0].read()
    assert csc.features.tolist() == [1, 2]
    assert csc.indices[-1] == rows - 1
    assert csc.indices[-2] == rows - 2


def test_more_rows_than_a_block_holds(client: Client, tmp_path: Path, write: Write) -> None:
    text = random_text(5, 2000, 50, 4)
    dataset = convert_libsvm(write("in.svm", text), str(tmp_path / "out"), partitions=3, block_size=4000, client=client)
    assert_same(dataset, read_text(text))


# --- values and bounds ----------------------------------------------------------------------------------------------


def test_only_parts_with_values_other_than_one_store_values(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"1 1:1 2:1 3:1\n-1 1:1 2:2 4:1.0\n"
    dataset = convert_libsvm(write("in.svm", text), str(tmp_path / "out"), partitions=4, client=client)
    with_values = set()
    for part in dataset.partitions:
        names = pq.read_schema(part.url).names
        assert names == ["feature", "nnz", "bound", "examples"] + (["values"] if part.info.values else [])
        if part.info.values:
            with_values |= set(part.read().features.tolist())
    assert with_values == {2}
    assert_same(dataset, read_text(text))


@pytest.mark.parametrize("block_size", [7, 10**6])
def test_blocks_of_ones_mix_with_blocks_of_values(
    client: Client, tmp_path: Path, write: Write, block_size: int
) -> None:
    text = b"1 1:1 2:1\n-1 1:2 2:1\n1 1:1 2:1\n-1 1:1\n"
    out = str(tmp_path / "out")
    dataset = convert_libsvm(write("in.svm", text), out, partitions=1, block_size=block_size, client=client)
    assert_same(dataset, read_text(text))
    assert_well_formed(dataset, read_text(text))


def test_ones_spelled_with_many_digits_are_still_ones(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"1 1:1.0000000000000000000000 2:1.00000000001\n-1 1:1\n"
    dataset = convert_libsvm(write("in.svm", text), str(tmp_path / "out"), partitions=1, client=client)
    assert dataset.partitions[0].info.values is False
    assert_same(dataset, read_text(text))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_bound_bounds_every_gradient(client: Client, tmp_path: Path, write: Write, weighted: bool) -> None:
    text = random_text(11, 60, 12, 5, weighted=weighted)
    dataset = convert_libsvm(write("in.svm", text), str(tmp_path / "out"), partitions=2, client=client)
    signs, weights = signs_of(dataset), weights_of(dataset)
    dense = np.zeros((dataset.n, 13))
    bounds = np.zeros(13)
    for part in dataset.partitions:
        csc = part.read()
        assert csc.data is not None
        bounds[csc.features] = csc.bounds
        for k, feature in enumerate(csc.features.tolist()):
            where = slice(csc.indptr[k], csc.indptr[k + 1])
            dense[csc.indices[where], feature] = csc.data[where]
    rng = np.random.default_rng(0)
    largest = np.zeros(13)
    for scale in (0.0, 0.1, 1.0, 10.0, 100.0):
        for _ in range(200):
            margins = dense @ (scale * rng.normal(size=13))
            gradient = dense.T @ (-weights * signs / (1 + np.exp(np.clip(signs * margins, -700, 700))))
            largest = np.maximum(largest, np.abs(gradient))
    assert (largest <= bounds * (1 + 1e-9)).all()
    assert (largest[1:] > 0.5 * bounds[1:]).any(), "a bound that is never nearly reached would be too loose"


# --- labels and weights ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "negative", "positive"),
    [
        (("-1", "+1"), -1, 1),
        (("0", "1"), 0, 1),
        (("1", "2"), 1, 2),
        (("1.5", "0.25"), 0.25, 1.5),
        (("-3", "-2"), -3, -2),
        (("1.0", "0.0"), 0, 1),
    ],
)
def test_two_labels_are_mapped_by_order(
    client: Client, tmp_path: Path, write: Write, labels: tuple[str, str], negative: float, positive: float
) -> None:
    text = f"{labels[0]} 1:1\n{labels[1]} 1:1\n{labels[0]} 2:1\n".encode()
    dataset = convert_libsvm(write("in.svm", text), str(tmp_path / "out"), client=client)
    assert dataset.description["label_map"] == {"-1": negative, "+1": positive}
    expected = [1 if float(label) == positive else -1 for label in (labels[0], labels[1], labels[0])]
    assert dataset.labels()[0].tolist() == expected
    assert dataset.description["labels"]["positives"] == expected.count(1)


def test_spellings_of_one_label_are_one_label(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"+1 1:1\n1 1:1\n1.0 1:1\n01 1:1\n1e0 1:1\n-1 1:1\n-1.000 1:1\n"
    dataset = convert_libsvm(write("in.svm", text), str(tmp_path / "out"), block_size=9, client=client)
    assert dataset.labels()[0].tolist() == [1, 1, 1, 1, 1, -1, -1]


def test_the_positive_label_can_be_chosen(client: Client, tmp_path: Path, write: Write) -> None:
    source = write("in.svm", b"1 1:1\n2 1:1\n2 2:1\n")
    dataset = convert_libsvm(source, str(tmp_path / "out"), positive_label=1, client=client)
    assert dataset.labels()[0].tolist() == [1, -1, -1]
    assert dataset.description["label_map"] == {"-1": 2, "+1": 1}


def test_a_positive_label_that_is_not_there_is_an_error(client: Client, tmp_path: Path, write: Write) -> None:
    with pytest.raises(UserError, match=r"positive label 7 .*found 1 and 2"):
        convert_libsvm(write("in.svm", b"1 1:1\n2 1:1\n"), str(tmp_path / "out"), positive_label=7, client=client)


@pytest.mark.parametrize("block_size", [6, 10**6])
@pytest.mark.parametrize(
    ("labels", "shown"),
    [([1, 1], "found 1: 1"), ([1, 2, 3], "found 3: 1, 2, 3"), ([5, -1, 0.5, 2], "found 4: -1, 0.5, 2, 5")],
)
def test_other_than_two_labels_is_an_error_that_lists_them(
    client: Client, tmp_path: Path, write: Write, labels: list[float], shown: str, block_size: int
) -> None:
    text = "".join(f"{label} 1:1\n" for label in labels).encode()
    with pytest.raises(UserError, match=shown):
        convert_libsvm(write("in.svm", text), str(tmp_path / "out"), block_size=block_size, client=client)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("block_size", [5, 10**6])
def test_weights_on_some_lines_only_is_an_error(client: Client, tmp_path: Path, write: Write, block_size: int) -> None:
    with pytest.raises(UserError, match="on every line or on none"):
        convert_libsvm(
            write("in.svm", b"1:2 1:1\n0 1:1\n1 1:1\n"), str(tmp_path / "out"), block_size=block_size, client=client
        )


def test_sums_of_weights_are_told(client: Client, tmp_path: Path, write: Write) -> None:
    source = write("in.svm", b"1:2 1:1\n0:0.5 1:1\n1:0.25\n")
    labels = convert_libsvm(source, str(tmp_path / "out"), block_size=8, client=client).description["labels"]
    assert (labels["weight_of_positives"], labels["weight_of_negatives"]) == (2.25, 0.5)


# --- bad lines ------------------------------------------------------------------------------------------------------


def test_id_0_is_an_error_that_names_the_option(client: Client, tmp_path: Path, write: Write) -> None:
    with pytest.raises(BadLine, match="--zero-based") as caught:
        convert_libsvm(write("in.svm", b"1 1:1\n0 2:1 0:1\n"), str(tmp_path / "out"), client=client)
    assert (caught.value.line, caught.value.column) == (2, 7)


@pytest.mark.parametrize("block_size", [1, 7, 10, 33, 10**6])
def test_a_bad_line_has_its_number_in_the_file_whatever_the_blocks(
    client: Client, tmp_path: Path, write: Write, block_size: int
) -> None:
    write("in/a.svm", b"1 1:1\n0 1:1\n")
    write("in/b.svm", b"1 1:1\n\n# c\n0 1:1\n" + b"1 2:3\n" * 5 + b"1 2:oops\n1 1:1\n")
    with pytest.raises(BadLine) as caught:
        convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), block_size=block_size, client=client)
    error = caught.value
    assert Path(error.path).name == "b.svm"
    assert (error.line, error.column, error.text) == (10, 5, "oops")
    assert not (tmp_path / "out").exists()


def test_a_bad_line_in_a_compressed_file_has_its_number(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"1 1:1\n0 1:1\n" * 20 + b"1 2\n1 1:1\n"
    with pytest.raises(BadLine) as caught:
        convert_libsvm(write("in.svm.gz", gzip.compress(text)), str(tmp_path / "out"), block_size=50, client=client)
    assert (caught.value.line, caught.value.column) == (41, 3)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("block_size", [13, 100, 10**6])
def test_skipped_lines_are_counted_and_the_first_named(
    client: Client, tmp_path: Path, write: Write, block_size: int, compressed: bool
) -> None:
    lines = [b"1 1:1", b"0 2:2", b"x", b"", b"# c"] * 30
    text = b"\n".join(lines)
    source = write("in.svm.gz", gzip.compress(text)) if compressed else write("in.svm", text)
    dataset = convert_libsvm(
        [source, write("other.svm", b"1 1:1\n1 q\n")],
        str(tmp_path / "out"),
        block_size=block_size,
        on_bad_line="skip",
        client=client,
    )
    bad = dataset.description["bad_lines"]
    assert bad["count"] == 31
    assert len(bad["first"]) == 10
    assert [f", line {5 * k + 3}, column 1:" in one for k, one in enumerate(bad["first"])] == [True] * 10
    assert all(Path(source).name in one for one in bad["first"])
    got = read_back(dataset)
    assert got.labels == [1.0, 0.0] * 30 + [1.0]


def test_a_skipped_line_adds_no_label(client: Client, tmp_path: Path, write: Write) -> None:
    source = write("in.svm", b"1 1:1\n0 1:1\n7 1:nan\n")
    dataset = convert_libsvm(source, str(tmp_path / "out"), on_bad_line="skip", client=client)
    assert dataset.labels()[0].tolist() == [1, -1]


def test_a_truncated_archive_is_an_error(client: Client, tmp_path: Path, write: Write) -> None:
    source = write("in.svm.gz", gzip.compress(random_text(1, 300, 50, 5))[:-100])
    with pytest.raises(UserError, match=r"in\.svm\.gz.*cut-off archive"):
        convert_libsvm(source, str(tmp_path / "out"), block_size=500, client=client)
    assert not (tmp_path / "out").exists()


def test_a_truncated_archive_can_be_skipped_like_a_bad_line(client: Client, tmp_path: Path, write: Write) -> None:
    """What came out whole before the cut is kept; the cut counts as a bad line."""
    text = random_text(1, 3000, 50, 5)
    good = write("good.svm", b"1 1:1\n-1 1:1\n")
    cut = write("in.svm.gz", gzip.compress(text)[:-2000])
    dataset = convert_libsvm([good, cut], str(tmp_path / "out"), block_size=500, on_bad_line="skip", client=client)
    bad = dataset.description["bad_lines"]
    assert bad["count"] >= 1
    assert any("in.svm.gz" in one and "archive" in one for one in bad["first"])
    assert read_back(dataset).labels[2:] == read_text(text).labels[: dataset.n - 2]


_bad_line_found = threading.Event()
_mapped_since: list[int] = []
_mapped_before_counting: list[int] = []


def _map_slowly(job: Job, block: Block) -> list[Mapped]:
    if block.index == 0:
        assert _bad_line_found.wait(60)
    elif _bad_line_found.is_set():
        _mapped_since.append(block.index)
        # However slow the machine, it has told its workers to stop before they get to the fiftieth.
        time.sleep(0.02 if len(_mapped_since) < 10 else 1.0 if len(_mapped_since) <= 50 else 0.0)
    return map_block(job, block)


def _count_and_note(job: Job, block: Block) -> int:
    _mapped_before_counting.append(len(_mapped_since))
    return count_lines(job, block)


def test_a_bad_line_is_told_before_the_rest_of_the_input_is_read(
    client: Client, tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block 0 is still at work when block 1 fails, so its lines have to be counted: at once, not behind 10 GB."""
    _bad_line_found.clear()
    _mapped_since.clear()
    _mapped_before_counting.clear()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        """The driver gets here once it knows of the bad line."""

        def note(*args: Any, **options: Any) -> Any:
            _bad_line_found.set()
            return function(*args, **options)

        return note

    monkeypatch.setattr(convert_module, "map_block", _map_slowly)
    monkeypatch.setattr(convert_module, "count_lines", _count_and_note)
    for name in ("_bad_line", "_drain"):
        monkeypatch.setattr(convert_module, name, noted(getattr(convert_module, name)))
    text = b"1 1:1\n0 1:1\n" * 10 + b"1 1:x\n0 1:1\n" * 10 + b"1 1:1\n0 1:1\n" * 4000
    with pytest.raises(BadLine) as caught:
        convert_libsvm(write("in.svm", text), str(tmp_path / "out"), block_size=120, client=client)
    assert caught.value.line == 21
    assert len(_mapped_before_counting) == 1
    assert _mapped_before_counting[0] < 50, "of 400 blocks"


@pytest.mark.parametrize("name", ["in.svm", "in.svm.gz"])
@pytest.mark.parametrize("block_size", [30, 10**6])
def test_a_line_beyond_the_limit_is_a_bad_line(
    client: Client, tmp_path: Path, write: Write, name: str, block_size: int
) -> None:
    long = b"1 " + b" ".join(b"%d:1" % k for k in range(1, 40))
    text = b"1 1:1\n0 1:1\n\n" + long + b"\n0 2:1\n"
    source = write(name, gzip.compress(text) if name.endswith(".gz") else text)
    options: dict[str, Any] = {"block_size": block_size, "client": client, "partitions": 1}
    convert_libsvm(source, str(tmp_path / "all"), max_line_bytes=len(long), **options)
    with pytest.raises(BadLine, match=r"longer than 186 B: .* --max-line") as caught:
        convert_libsvm(source, str(tmp_path / "out"), max_line_bytes=len(long) - 1, **options)
    assert (caught.value.line, caught.value.column) == (4, 1)
    dataset = convert_libsvm(source, str(tmp_path / "out"), max_line_bytes=len(long) - 1, on_bad_line="skip", **options)
    assert dataset.labels()[0].tolist() == [1, -1, -1]
    (told,) = dataset.description["bad_lines"]["first"]
    assert "line 4, column 1: the line is longer" in told


def test_resume_reads_lines_again_that_were_too_long_before(client: Client, tmp_path: Path, write: Write) -> None:
    text = b"1 1:1\n0 1:1\n1 2:1 3:1 4:1 5:1\n0 2:1\n"
    source = write("in.svm", text)
    options: dict[str, Any] = {"block_size": 10, "client": client, "on_bad_line": "skip", "resume": True}

    def stop(*args: Any) -> None:
        raise UserError("stopped by the test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert_module, "_catalogue", stop)
        with pytest.raises(UserError, match="stopped by the test"):
            convert_libsvm(source, str(tmp_path / "out"), max_line_bytes=8, **options)
    assert_same(convert_libsvm(source, str(tmp_path / "out"), max_line_bytes=80, **options), read_text(text))


def _work_until_cancelled(begun: str, ended: str) -> None:
    Path(begun).touch()
    try:
        while True:
            stop_if_cancelled()
            time.sleep(0.01)
    finally:
        Path(ended).touch()


@pytest.mark.parametrize("where", ["client", "process_client"])
def test_a_task_that_was_cancelled_notices(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> None:
    client: Client = request.getfixturevalue(where)
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    future = client.submit(_work_until_cancelled, str(begun), str(ended), pure=False)
    while not begun.exists():
        time.sleep(0.01)
    assert not ended.exists()
    client.cancel([future], force=True)
    while not ended.exists():  # for ever, if it does not notice: the suite has a time limit for each test
        time.sleep(0.01)


class _Watcher:
    """Counts what was told of the Map phase."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int, str]] = []
        self.done: dict[str, int] = {}

    def phase(self, name: str, total: int, unit: str) -> None:
        self.phases.append((name, total, unit))
        self.done[name] = 0

    def advance(self, amount: int) -> None:
        self.done[self.phases[-1][0]] += amount


def test_progress_adds_up(client: Client, tmp_path: Path, write: Write) -> None:
    text = random_text(2, 300, 40, 5)
    watcher = _Watcher()
    dataset = convert_libsvm(
        [write("a.svm", text), write("b.svm.gz", gzip.compress(text))],
        str(tmp_path / "out"),
        block_size=1000,
        client=client,
        progress=watcher,
    )
    sizes = sum(one["size"] for one in dataset.description["inputs"])
    assert watcher.phases == [("map", sizes, "B"), ("reduce", dataset.nnz, "nonzeros")]
    assert watcher.done == {"map": sizes, "reduce": dataset.nnz}


# --- many small files -----------------------------------------------------------------------------------------------


def write_parts(folder: Path, lines: list[bytes], suffix: str = "") -> None:
    """A file for each line; every fifth lacks its newline."""
    folder.mkdir()
    for k, line in enumerate(lines):
        text = line if k % 5 == 0 else line + b"\n"
        (folder / f"{k:05d}.svm{suffix}").write_bytes(gzip.compress(text, mtime=0) if suffix else text)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("block_size", [100, 3000, 10**6])
def test_many_small_files_are_one_text(client: Client, tmp_path: Path, suffix: str, block_size: int) -> None:
    text = random_text(7, 200, 60, 6, weighted=True)
    write_parts(tmp_path / "in", text.splitlines(), suffix)
    dataset = convert_libsvm(
        str(tmp_path / "in"), str(tmp_path / "out"), partitions=2, block_size=block_size, client=client
    )
    assert_same(dataset, read_text(text))
    assert_well_formed(dataset, read_text(text))
    assert len(dataset.description["inputs"]) == 200


_tasks_seen: list[tuple[int, int]] = []


def _map_and_note(job: Job, block: Block) -> list[Mapped]:
    _tasks_seen.append((len(pickle.dumps(job)), len(block.spans)))
    return map_block(job, block)


def test_small_files_share_tasks_that_do_not_carry_the_list_of_inputs(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parts(tmp_path / "in", random_text(7, 500, 60, 6).splitlines())
    _tasks_seen.clear()
    monkeypatch.setattr(convert_module, "map_block", _map_and_note)
    convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), client=client)
    assert [files for _, files in _tasks_seen] == [500]
    assert all(size < 2000 for size, _ in _tasks_seen)


def test_a_bad_line_in_one_of_many_files_is_named(client: Client, tmp_path: Path) -> None:
    write_parts(tmp_path / "in", [b"1 1:1\n\n0 2:2"] * 60 + [b"1 1:1\n# c\n1 2:oops"] + [b"0 1:1"] * 9)
    for block_size in (50, 10**6):
        with pytest.raises(BadLine) as caught:
            convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), block_size=block_size, client=client)
        assert Path(caught.value.path).name == "00060.svm"
        assert (caught.value.line, caught.value.column, caught.value.text) == (3, 5, "oops")


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("block_size", [40, 10**6])
def test_skipped_lines_of_many_files_are_named(client: Client, tmp_path: Path, suffix: str, block_size: int) -> None:
    write_parts(tmp_path / "in", [b"1 1:1\n0 2:2\nx", b"0 3:1\n1 1"] * 10, suffix)
    dataset = convert_libsvm(
        str(tmp_path / "in"), str(tmp_path / "out"), on_bad_line="skip", block_size=block_size, client=client
    )
    bad = dataset.description["bad_lines"]
    assert bad["count"] == 20
    expected = [f"{k:05d}.svm{suffix}, line {2 + (k + 1) % 2}, " for k in range(10)]
    assert all(what in one for what, one in zip(expected, bad["first"], strict=True))
    assert dataset.labels()[0].tolist() == [1, -1, -1] * 10


def test_a_broken_archive_among_many_files_costs_no_other(client: Client, tmp_path: Path) -> None:
    write_parts(tmp_path / "in", [b"1 1:1", b"0 2:2", b"1 3:3", b"0 4:4"], ".gz")
    broken = tmp_path / "in" / "00001.svm.gz"
    broken.write_bytes(broken.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"00001\.svm\.gz: damaged or cut-off archive"):
        convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), client=client)
    dataset = convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), on_bad_line="skip", client=client)
    assert read_back(dataset).labels == [1.0, 1.0, 0.0]
    (told,) = dataset.description["bad_lines"]["first"]
    assert "00001.svm.gz, line 1" in told and "archive" in told


@pytest.mark.parametrize(
    ("lines", "name", "message"),
    [
        ([b"1 1:1"] * 5 + [b"0 1:1"] * 5 + [b"2 1:1"] * 3, "00010.svm", "found 3: 0, 1, 2"),
        ([b"1 1:1"] * 8, "00000.svm", "found 1: 1"),
        ([b"1:2 1:1"] * 5 + [b"0 1:1"] * 5, "00005.svm", "Write a weight on every line or on none"),
    ],
)
def test_a_file_whose_labels_or_weights_do_not_go_with_the_others_is_named(
    client: Client, tmp_path: Path, lines: list[bytes], name: str, message: str
) -> None:
    write_parts(tmp_path / "in", lines)
    with pytest.raises(UserError, match=message) as caught:
        convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), client=client)
    assert name in str(caught.value)


def test_of_labels_in_several_blocks_the_first_file_of_each_is_named(client: Client, tmp_path: Path) -> None:
    write_parts(tmp_path / "in", [b"1 1:1"] * 5 + [b"0 1:1"] * 5 + [b"2 1:1"] * 5)
    with pytest.raises(UserError, match="found 3: 0, 1, 2") as caught:
        convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), block_size=20, client=client)
    assert all(f"{label} in {tmp_path}/in/{k:05d}.svm" in str(caught.value) for k, label in ((0, 1), (5, 0), (10, 2)))


def test_what_was_mapped_of_many_files_is_not_mapped_again(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parts(tmp_path / "in", [b"1 1:1", b"0 2:2", b"x"] * 40, ".gz")
    options: dict[str, Any] = {"on_bad_line": "skip", "block_size": 2000, "client": client, "partitions": 2}

    def refuse(*args: Any) -> None:
        raise UserError("stopped by the test")

    with monkeypatch.context() as patch:
        patch.setattr(convert_module, "_catalogue", refuse)
        with pytest.raises(UserError, match="stopped by the test"):
            convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), resume=True, **options)
    fragments = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/_temporary").glob("*.fragment")}
    assert len(fragments) > 1

    class Watcher(_Watcher):
        def phase(self, name: str, total: int, unit: str) -> None:
            if name == "reduce":
                assert fragments == {path: path.stat().st_mtime_ns for path in fragments}
            super().phase(name, total, unit)

    watcher = Watcher()
    convert_libsvm(str(tmp_path / "in"), str(tmp_path / "out"), resume=True, progress=watcher, **options)
    convert_libsvm(str(tmp_path / "in"), str(tmp_path / "fresh"), **options)
    assert "reduce" in watcher.done
    assert files_of(tmp_path / "out") == files_of(tmp_path / "fresh")


# --- the same bytes -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "a.svm").write_bytes(random_text(1, 500, 200, 8))
    (folder / "b.svm.gz").write_bytes(gzip.compress(random_text(2, 300, 300, 8), mtime=0))
    (folder / "c.svm").write_bytes(random_text(3, 100, 50, 5, ones=True))
    return folder


OPTIONS: dict[str, Any] = {"partitions": 3, "block_size": 5000}


def test_two_processes_give_the_same_bytes_as_threads(
    client: Client, process_client: Client, tmp_path: Path, mixed_input: Path
) -> None:
    convert_libsvm(str(mixed_input), str(tmp_path / "threads"), client=client, **OPTIONS)
    convert_libsvm(str(mixed_input), str(tmp_path / "processes"), client=process_client, **OPTIONS)
    threads, processes = files_of(tmp_path / "threads"), files_of(tmp_path / "processes")
    assert set(threads) == {"dataset.json", "labels.parquet", *(f"part-{k:05d}.parquet" for k in range(3))}
    assert threads == processes


def test_a_second_run_gives_the_same_bytes(client: Client, tmp_path: Path, mixed_input: Path) -> None:
    for name in ("one", "two"):
        convert_libsvm(str(mixed_input), str(tmp_path / name), client=client, **OPTIONS)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


@pytest.mark.parametrize("block_size", [300, 1717, 10**7])
def test_the_block_size_does_not_show_in_the_parts(
    client: Client, tmp_path: Path, mixed_input: Path, block_size: int
) -> None:
    one = convert_libsvm(str(mixed_input), str(tmp_path / "one"), client=client, **OPTIONS)
    two = convert_libsvm(
        str(mixed_input), str(tmp_path / "two"), client=client, **(OPTIONS | {"block_size": block_size})
    )
    for mine, other in zip(one.partitions, two.partitions, strict=True):
        a, b = mine.read(), other.read()
        assert sorted(a.features.tolist()) == sorted(b.features.tolist())
        order_a, order_b = np.argsort(a.features), np.argsort(b.features)
        assert np.allclose(a.bounds[order_a], b.bounds[order_b], rtol=1e-12)
    assert read_back(one) == read_back(two)
    assert np.array_equal(one.labels()[0], two.labels()[0])


def test_dataset_json_tells_what_was_done(client: Client, tmp_path: Path, mixed_input: Path) -> None:
    dataset = convert_libsvm(str(mixed_input), str(tmp_path / "out"), client=client, **OPTIONS)
    about = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert unsealed(about) == dataset.description
    assert {"format_version", "tool_version", "label_map", "index_base", "inputs", "partitions"} <= set(about)
    assert (about["examples"], about["index_base"]) == (900, 1)
    assert [set(one) for one in about["inputs"]] == [{"path", "size", "version"}] * 3
    for part in about["partitions"]:
        assert {"features", "nnz", "bytes", "sha256"} <= set(part)
        assert part["bytes"] == (tmp_path / "out" / part["file"]).stat().st_size


def test_partitions_are_even(client: Client, tmp_path: Path, mixed_input: Path) -> None:
    for strategy in ("spread", "neighbours"):
        dataset = convert_libsvm(
            str(mixed_input), str(tmp_path / strategy), client=client, strategy=strategy, **OPTIONS
        )
        loads = [part.info.nnz for part in dataset.partitions]
        assert max(loads) <= 1.1 * sum(loads) / 3
        assert min(loads) >= 0.9 * sum(loads) / 3


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": 0}, "partitions must be at least 1"),
        ({"block_size": 0}, "block size"),
        ({"strategy": "best"}, "spread, neighbours"),
        ({"on_bad_line": "ignore"}, "raise or skip"),
        ({"resume": True, "overwrite": True}, "exclude each other"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, write: Write, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        convert_libsvm(write("in.svm", b"1 1:1\n0 1:1\n"), str(tmp_path / "out"), **options)


def test_a_cluster_is_made_when_there_is_none(tmp_path: Path, write: Write) -> None:
    text = b"1 1:1\n0 1:2\n"
    assert_same(convert_libsvm(write("in.svm", text), str(tmp_path / "out")), read_text(text))


def test_an_input_in_the_output_folder_is_refused(client: Client, tmp_path: Path, write: Write) -> None:
    source = write("out/in.svm", b"1 1:1\n0 1:1\n")
    with pytest.raises(UserError, match="output folder"):
        convert_libsvm(source, str(tmp_path / "out"), overwrite=True, client=client)
    assert Path(source).read_bytes() == b"1 1:1\n0 1:1\n"
