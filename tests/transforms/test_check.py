"""The integrity check: every kind of damage is found, and the file that has it is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from tests.damage import rewrite, unsealed
from tests.reference import random_text
from transforms import DatasetError, check_dataset, convert_libsvm, open_dataset, parts

PART = "part-00001.parquet"


@pytest.fixture(scope="module")
def made(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    (folder / "in.svm").write_bytes(random_text(9, 100, 60, 6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROW_GROUP_NNZ", 50)
        convert_libsvm(str(folder / "in.svm"), str(folder / "data"), partitions=3, client=client)
    return folder / "data"


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def problems(folder: Path) -> list[str]:
    return [str(problem) for problem in check_dataset(open_dataset(str(folder)))]


def test_a_whole_data_set_has_no_problems(data: Path) -> None:
    assert problems(data) == []


# --- damage that the checksum shows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [PART, "labels.parquet"])
def test_any_flipped_byte_is_found(data: Path, name: str) -> None:
    content = (data / name).read_bytes()
    for at in range(0, len(content), max(1, len(content) // 40)):
        flipped = bytearray(content)
        flipped[at] ^= 0x01
        (data / name).write_bytes(flipped)
        (problem,) = problems(data)
        assert problem.startswith(f"{data}/{name}: ")
        assert "its checksum differs: the file was changed or damaged" in problem


@pytest.mark.parametrize("name", [PART, "labels.parquet"])
def test_a_missing_or_cut_file_is_found(data: Path, name: str) -> None:
    content = (data / name).read_bytes()
    (data / name).write_bytes(content[:-1])
    (problem,) = problems(data)
    assert problem.startswith(f"{data}/{name}: ")
    assert f"{len(content) - 1} bytes, expected {len(content)}" in problem
    (data / name).unlink()
    (problem,) = problems(data)
    assert problem.startswith(f"{data}/{name}: ")
    assert "missing" in problem


def test_swapped_parts_are_found(data: Path) -> None:
    first, second = data / "part-00000.parquet", data / "part-00001.parquet"
    first.rename(data / "x")
    second.rename(first)
    (data / "x").rename(second)
    found = problems(data)
    assert [str(first) in found[0], str(second) in found[1]] == [True, True]


def test_every_damaged_file_is_named(data: Path) -> None:
    for name in ("part-00000.parquet", "part-00002.parquet"):
        (data / name).unlink()
    assert [problem.split(":")[0] for problem in problems(data)] == [
        f"{data}/part-00000.parquet",
        f"{data}/part-00002.parquet",
    ]


# --- damage with a right checksum: a writer's mistake ---------------------------------------------------------------


def changed(name: str, row: int, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(columns: dict[str, Any]) -> dict[str, Any]:
        columns[name][row] = value(columns[name][row])
        return columns

    return change


def swapped_rows(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: [values[1], values[0], *values[2:]] for name, values in columns.items()}


def twice_the_same(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: [values[0], values[0], *values[2:]] for name, values in columns.items()}


WRONG: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "order of bounds": (swapped_rows, "sorted by falling bound"),
    "a feature twice": (twice_the_same, "sorted by falling bound|nonzeros, expected"),
    "a bound": (changed("bound", 5, lambda bound: bound + 1e6), "sorted by falling bound"),
    "examples falling": (changed("examples", 0, lambda examples: examples[::-1]), "not rising"),
    "an example twice": (changed("examples", 0, lambda examples: [examples[0], *examples[:-1]]), "not rising"),
    "an example too large": (changed("examples", 0, lambda examples: [*examples[:-1], 100]), "outside 0..99"),
    "an example below 0": (changed("examples", 0, lambda examples: [-1, *examples[1:]]), "outside 0..99"),
    "a zero": (changed("values", 0, lambda values: [0.0, *values[1:]]), "zero or not finite"),
    "a nan": (changed("values", 0, lambda values: [float("nan"), *values[1:]]), "zero or not finite"),
    "a feature less": (lambda columns: {name: values[:-1] for name, values in columns.items()}, "expected"),
    "nnz": (changed("nnz", 3, lambda nnz: nnz + 1), "nnz|nonzeros, expected"),
    "values of another length": (changed("values", 0, lambda values: values[:-1]), "values|lengths"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_part_with_a_right_checksum_is_found(
    data: Path, change: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    rewrite(data, PART, change)
    found = problems(data)
    assert len(found) >= 1
    assert f"{data}/{PART}" in found[0]
    assert np.any([word in found[0] for word in message.split("|")]), found


def test_wrong_labels_with_a_right_checksum_are_found(data: Path) -> None:
    rewrite(data, "labels.parquet", changed("label", 0, lambda label: -label))
    (problem,) = problems(data)
    assert "labels.parquet" in problem
    assert "positive labels" in problem
    rewrite(data, "labels.parquet", changed("label", 0, lambda label: 3))
    assert "other than -1 and +1" in problems(data)[0]


@pytest.mark.parametrize("name", ["features", "nnz"])
def test_wrong_totals_are_found(data: Path, name: str) -> None:
    about = json.loads((data / "dataset.json").read_text())
    about[name] += 1
    (data / "dataset.json").write_text(json.dumps(unsealed(about)))
    with pytest.raises(DatasetError, match=rf"dataset\.json: damaged \({name} is "):
        problems(data)


def test_a_feature_in_two_parts_is_found(data: Path) -> None:
    """The same part listed twice, under two names."""
    about = json.loads((data / "dataset.json").read_text())
    shutil.copy(data / "part-00000.parquet", data / PART)
    about["features"] += about["partitions"][0]["features"] - about["partitions"][1]["features"]
    about["nnz"] += about["partitions"][0]["nnz"] - about["partitions"][1]["nnz"]
    about["partitions"][1] = about["partitions"][0] | {"file": PART}
    (data / "dataset.json").write_text(json.dumps(unsealed(about)))
    (problem,) = problems(data)
    assert "more than one part" in problem


def test_progress_is_told_in_bytes(data: Path) -> None:
    told: list[tuple[str, int, str] | int] = []

    class Watcher:
        def phase(self, name: str, total: int, unit: str) -> None:
            told.append((name, total, unit))

        def advance(self, amount: int) -> None:
            told.append(amount)

    dataset = open_dataset(str(data))
    check_dataset(dataset, Watcher())
    sizes = [part.info.bytes for part in dataset.partitions]
    assert told == [("check", sum(sizes), "B"), *sizes]
