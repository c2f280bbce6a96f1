"""Names in stored files are plain names of our own: nothing outside the folder is read or deleted because of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from tests.damage import unsealed
from tests.reference import random_text
from transforms import DatasetError, OutputExists, convert_libsvm, open_dataset

FOREIGN = [
    "../precious.txt",
    "../../precious.txt",
    "sub/../../precious.txt",
    "{outside}/precious.txt",
    "file://{outside}/precious.txt",
    "memory://precious.txt",
    "part-00000.parquet/../../precious.txt",
    "..",
    ".",
    "",
    "precious.txt",
    "part-00000.parquet\n",
    "part-٠٠٠٠٠.parquet",
    7,
    None,
    ["part-00000.parquet"],
]


@pytest.fixture
def folder(client: Client, tmp_path: Path) -> Path:
    """A data set in tmp_path/home/out, with a precious file at every level around it, and inside."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "in.svm").write_bytes(random_text(9, 60, 20, 4))
    convert_libsvm(str(home / "in.svm"), str(home / "out"), partitions=2, client=client)
    for place in (tmp_path, home, home / "out"):
        (place / "precious.txt").write_text("precious")
    return home


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def foreign(name: Any, folder: Path) -> Any:
    return name.format(outside=folder.parent) if isinstance(name, str) else name


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(unsealed(json.loads(path.read_text())) | changes))


@pytest.mark.parametrize("name", FOREIGN, ids=repr)
def test_overwrite_deletes_nothing_that_a_description_names_elsewhere(client: Client, folder: Path, name: Any) -> None:
    path = folder / "out" / "dataset.json"
    parts = json.loads(path.read_text())["partitions"]
    edit(path, partitions=[parts[0], parts[1] | {"file": foreign(name, folder)}])
    before = listing(folder.parent)
    with pytest.raises(OutputExists, match=r"out/dataset\.json: it names .*nothing was deleted"):
        convert_libsvm(str(folder / "in.svm"), str(folder / "out"), overwrite=True, client=client)
    assert listing(folder.parent) == before


@pytest.mark.parametrize("name", FOREIGN, ids=repr)
@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_an_undone_commit_deletes_nothing_elsewhere(client: Client, folder: Path, name: Any, how: str) -> None:
    out = folder / "out"
    (out / "dataset.json").unlink()
    (out / "_temporary").mkdir()
    (out / "_temporary" / "commit.json").write_text(json.dumps({"files": ["labels.parquet", foreign(name, folder)]}))
    before = listing(folder.parent)
    with pytest.raises(OutputExists, match=r"commit\.json: damaged \(files\[1\] .*nothing was deleted"):
        convert_libsvm(str(folder / "in.svm"), str(out), client=client, **{how: True})  # type: ignore[arg-type]
    after = listing(folder.parent)
    after.pop(str(out / "_temporary" / "commit.json"), None), before.pop(str(out / "_temporary" / "commit.json"))
    assert after == before


@pytest.mark.parametrize("name", FOREIGN, ids=repr)
def test_no_part_or_label_file_is_read_from_elsewhere(folder: Path, name: Any) -> None:
    path = folder / "out" / "dataset.json"
    about = json.loads(path.read_text())
    edit(path, partitions=[about["partitions"][0] | {"file": foreign(name, folder)}, about["partitions"][1]])
    with pytest.raises(DatasetError, match=r"out/dataset\.json: damaged \(partitions\[0\]\.file must be"):
        open_dataset(str(folder / "out"))
    edit(path, partitions=about["partitions"], labels=about["labels"] | {"file": foreign(name, folder)})
    with pytest.raises(DatasetError, match=r"out/dataset\.json: damaged \(labels\.file must be"):
        open_dataset(str(folder / "out"))


def test_a_part_listed_twice_is_refused(folder: Path) -> None:
    path = folder / "out" / "dataset.json"
    first, second = json.loads(path.read_text())["partitions"]
    edit(path, partitions=[first, second | {"file": first["file"]}])
    with pytest.raises(DatasetError, match=r"partitions\[1\]\.file must be part-00001\.parquet"):
        open_dataset(str(folder / "out"))


@pytest.mark.parametrize("name", ["examples", "features", "nnz"])
def test_counts_that_do_not_agree_are_refused(folder: Path, name: str) -> None:
    path = folder / "out" / "dataset.json"
    edit(path, **{name: json.loads(path.read_text())[name] + 1})
    with pytest.raises(DatasetError, match=rf"damaged \({name} is "):
        open_dataset(str(folder / "out"))
