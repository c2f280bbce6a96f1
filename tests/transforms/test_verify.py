"""What is read of a data set is what dataset.json says: any other bit or file is refused, and the file is named."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from tests.damage import make_right, unsealed
from tests.reference import random_text
from transforms import Dataset, DatasetError, convert_libsvm, open_dataset, parts, verify
from transforms.storage import sha256_of

PART = "part-00001.parquet"


@pytest.fixture(scope="module")
def made(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets of the same size: data, other."""
    folder = tmp_path_factory.mktemp("verify")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROW_GROUP_NNZ", 50)
        for seed, name in ((9, "data"), (10, "other")):
            (folder / f"{name}.svm").write_bytes(random_text(seed, 100, 60, 6))
            convert_libsvm(str(folder / f"{name}.svm"), str(folder / name), partitions=3, client=client)
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "data", tmp_path / "data")
    return tmp_path / "data"


READERS: dict[str, Callable[[Dataset], object]] = {
    "read": lambda dataset: [part.read() for part in dataset.partitions],
    "stream": lambda dataset: [list(part.stream()) for part in dataset.partitions],
    "groups": lambda dataset: [list(part.read_groups([0])) for part in dataset.partitions],
    "bounds": lambda dataset: [part.read_bounds() for part in dataset.partitions],
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_flipped_bit_of_a_part_is_read(data: Path, read: Callable[[Dataset], object]) -> None:
    content = (data / PART).read_bytes()
    for k in range(60):
        flipped = bytearray(content)
        flipped[k * len(content) // 60] ^= 1 << k % 8
        (data / PART).write_bytes(flipped)
        with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged \(its checksum differs"):
            read(open_dataset(str(data)))


def test_no_flipped_bit_of_the_labels_is_read(data: Path) -> None:
    content = (data / "labels.parquet").read_bytes()
    for k in range(60):
        flipped = bytearray(content)
        flipped[k * len(content) // 60] ^= 1 << k % 8
        (data / "labels.parquet").write_bytes(flipped)
        with pytest.raises(DatasetError, match=r"labels\.parquet: damaged \(its checksum differs"):
            open_dataset(str(data)).labels()


def test_a_flipped_bit_of_the_ids_is_noticed_where_they_alone_are_read(data: Path) -> None:
    about = json.loads((data / "dataset.json").read_text())
    about["partitions"][1]["features_sha256"] = "0" * 64
    (data / "dataset.json").write_text(json.dumps(unsealed(about)))
    with pytest.raises(DatasetError, match=rf"{PART}: .*the checksum of its feature ids differs"):
        open_dataset(str(data)).partitions[1].read_features()


def test_a_data_set_without_checksums_of_ids_is_read(data: Path) -> None:
    """As earlier versions wrote them: the whole file is hashed then."""
    about = json.loads((data / "dataset.json").read_text())
    for part in about["partitions"]:
        del part["features_sha256"]
    (data / "dataset.json").write_text(json.dumps(unsealed(about)))
    part = open_dataset(str(data)).partitions[1]
    np.testing.assert_array_equal(part.read_features(), part.read().features)
    flipped = bytearray((data / PART).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (data / PART).write_bytes(flipped)
    with pytest.raises(DatasetError, match="its checksum differs"):
        open_dataset(str(data)).partitions[1].read_features()


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_part_that_another_conversion_replaced_is_not_mixed_in(
    made: Path, data: Path, read: Callable[[Dataset], object]
) -> None:
    dataset = open_dataset(str(data))
    read(dataset)
    shutil.copy(made / "other" / PART, data / "new")
    (data / "new").replace(data / PART)
    with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged"):
        read(dataset)


def test_a_part_that_is_replaced_while_it_is_read_is_noticed(made: Path, data: Path) -> None:
    """The open file is still the old one, but from the next on it would not be."""
    groups = open_dataset(str(data)).partitions[1].stream()
    next(groups)
    shutil.copy(made / "other" / PART, data / "new")
    (data / "new").replace(data / PART)
    with pytest.raises(DatasetError, match=rf"{PART}: .*replaced or written to while it was read"):
        list(groups)


def test_a_part_that_is_replaced_after_it_was_hashed_is_noticed(
    made: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = sha256_of

    def hash_then_replace(fs: object, path: str) -> str:
        digest = original(fs, path)
        if path.endswith(PART):
            shutil.copy(made / "other" / PART, data / "new")
            (data / "new").replace(path)
        return digest

    monkeypatch.setattr(verify, "sha256_of", hash_then_replace)
    with pytest.raises(DatasetError, match=rf"{PART}: .*replaced or written to while it was read"):
        open_dataset(str(data)).partitions[1].read()


def test_a_copy_of_the_same_bytes_may_take_a_part_s_place(data: Path) -> None:
    dataset = open_dataset(str(data))
    before = dataset.partitions[1].read()
    shutil.copy(data / PART, data / "new")
    os.utime(data / "new", (1, 1))
    (data / "new").replace(data / PART)
    np.testing.assert_array_equal(dataset.partitions[1].read().indices, before.indices)


def test_a_file_is_hashed_once_for_each_opening(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    original = sha256_of

    def hash_and_tell(fs: object, path: str) -> str:
        hashed.append(Path(path).name)
        return original(fs, path)

    monkeypatch.setattr(verify, "sha256_of", hash_and_tell)
    dataset = open_dataset(str(data))
    for _ in range(3):
        for read in READERS.values():
            read(dataset)
    assert sorted(hashed) == [f"part-{k:05d}.parquet" for k in range(3)]
    READERS["stream"](open_dataset(str(data)))
    assert len(hashed) == 6


def test_a_remote_part_is_fetched_once_and_watched_by_its_identity(data: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    for path in data.iterdir():
        fs.pipe_file(f"/verify/{path.name}", path.read_bytes())
    dataset = open_dataset("memory://verify")
    READERS["stream"](dataset)
    fs.pipe_file(f"/verify/{PART}", (data / PART).read_bytes()[:-1] + b"?")
    with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged \(its checksum differs"):
        READERS["stream"](dataset)
    fs.rm("/verify", recursive=True)


@pytest.mark.parametrize(("fact", "value"), [("row_groups", 1), ("largest_bound", 3.25), ("values", False)])
def test_facts_about_a_part_that_are_not_true_are_noticed(data: Path, fact: str, value: object) -> None:
    make_right(data, PART, **{fact: value})
    with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged"):
        READERS["bounds"](open_dataset(str(data)))


def test_no_flipped_bit_of_the_description_changes_what_it_says(data: Path) -> None:
    path = data / "dataset.json"
    content, before = path.read_bytes(), open_dataset(str(data)).description
    refused = 0
    for at in range(0, 8 * len(content), 61):
        spoiled = bytearray(content)
        spoiled[at // 8] ^= 1 << at % 8
        path.write_bytes(spoiled)
        try:
            found = open_dataset(str(data)).description
        except DatasetError:
            refused += 1
        else:
            assert {name: found[name] for name in before} == before
    assert refused > 100
