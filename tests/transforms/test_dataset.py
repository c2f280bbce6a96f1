"""Reading a data set: whole, as a prefix, streamed; without copies; and what is said when it is damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from fsspec.implementations.memory import MemoryFile

from tests.damage import replace_table, unsealed
from tests.reference import columns_of, random_text, read_text
from transforms import Csc, Dataset, DatasetError, convert_libsvm, open_dataset, parts
from transforms import dataset as dataset_module
from transforms.dataset_record import BadLines, DatasetRecord
from transforms.labels import LabelMap, LabelsInfo
from transforms.storage import StorageOptions

Write = Callable[[str, bytes], str]


@pytest.fixture(scope="module", params=[False, True], ids=["valued", "ones"])
def made(request: pytest.FixtureRequest, client: Client, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of many small row groups."""
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "in.svm").write_bytes(random_text(7, 400, 150, 12, ones=request.param))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "ROW_GROUP_NNZ", 200)
        convert_libsvm(str(folder / "in.svm"), str(folder / "data"), partitions=2, client=client)
    return folder / "data"


@pytest.fixture
def dataset(made: Path) -> Dataset:
    return open_dataset(str(made))


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A data set to damage."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def joined(pieces: list[Csc]) -> Csc:
    counts = np.concatenate([np.diff(piece.indptr) for piece in pieces])
    data = [piece.data for piece in pieces if piece.data is not None]
    return Csc(
        np.concatenate([piece.features for piece in pieces]),
        np.concatenate([piece.bounds for piece in pieces]),
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([piece.indices for piece in pieces]),
        np.concatenate(data) if data else None,
    )


def assert_equal(a: Csc, b: Csc) -> None:
    for name in ("features", "bounds", "indptr", "indices", "data"):
        mine, other = getattr(a, name), getattr(b, name)
        assert (mine is None) == (other is None)
        if mine is not None:
            assert mine.dtype == other.dtype
            assert np.array_equal(mine, other), name


# --- the three ways to read -----------------------------------------------------------------------------------------


def test_the_arrays_have_the_types_of_the_format(dataset: Dataset) -> None:
    csc = dataset.partitions[0].read()
    kinds = [array.dtype for array in (csc.features, csc.bounds, csc.indptr, csc.indices)]
    assert kinds == [np.int64, np.float64, np.int64, np.int32]
    assert csc.data is None or csc.data.dtype == np.float32
    labels, weights = dataset.labels()
    assert labels.dtype == np.int8
    assert weights is None


def test_the_file_is_as_the_format_says(dataset: Dataset) -> None:
    for partition in dataset.partitions:
        file = pq.ParquetFile(partition.url)
        schema = file.schema_arrow
        assert schema.field("feature").type == pa.int64()
        assert schema.field("bound").type == pa.float64()
        assert schema.field("examples").type.value_type == pa.int32()
        assert pa.types.is_large_list(schema.field("examples").type)
        assert ("values" in schema.names) == partition.info.values
        assert file.metadata.num_row_groups == partition.info.row_groups > 5
        for group in range(file.metadata.num_row_groups):
            assert file.metadata.row_group(group).column(2).statistics.has_min_max


def test_streamed_row_groups_joined_are_the_whole(dataset: Dataset) -> None:
    for partition in dataset.partitions:
        pieces = list(partition.stream())
        assert len(pieces) == partition.info.row_groups
        assert_equal(joined(pieces), partition.read())


def test_a_row_group_is_small_unless_one_feature_is_larger(dataset: Dataset) -> None:
    for partition in dataset.partitions:
        for piece in partition.stream():
            assert piece.indices.size <= 200 or piece.features.size == 1


def test_a_prefix_is_exactly_the_features_above_the_bound(dataset: Dataset) -> None:
    for partition in dataset.partitions:
        whole = partition.read()
        middle = float(whole.bounds[whole.bounds.size // 2])
        for bound in (0.0, middle, np.nextafter(middle, 0), float(whole.bounds[0]), float(whole.bounds[-1]), 1e9, -1.0):
            keep = int((whole.bounds > bound).sum())
            prefix = partition.read(bound)
            assert columns_of(prefix) == {f: columns_of(whole)[f] for f in whole.features[:keep].tolist()}
            assert prefix.indptr.size == keep + 1
            assert prefix.indices.size == prefix.indptr[-1]
            pieces = list(partition.stream(bound))
            if pieces:
                assert_equal(joined(pieces), joined([prefix]))
            else:
                assert keep == 0


def test_feature_by_feature_it_is_what_the_text_said(dataset: Dataset, made: Path) -> None:
    reference = read_text((made.parent / "in.svm").read_bytes())
    columns: dict[int, dict[int, float]] = {}
    for partition in dataset.partitions:
        for piece in partition.stream():
            columns |= columns_of(piece)
    assert columns == reference.columns


# --- what is read, and what is copied -------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Every read of a file in fsspec's memory store: (offset, bytes)."""
    seen: list[tuple[int, int]] = []
    plain = MemoryFile.read

    def read(self: Any, size: int = -1) -> bytes:
        at = self.tell()
        data: bytes = plain(self, size)
        seen.append((at, len(data)))
        return data

    monkeypatch.setattr(MemoryFile, "read", read, raising=False)
    return seen


@pytest.fixture
def in_memory(made: Path) -> Iterator[Dataset]:
    """The data set on a store that is not a disk."""
    fs = fsspec.filesystem("memory")
    for path in made.iterdir():
        fs.pipe_file(f"/prefix-test/{path.name}", path.read_bytes())
    yield open_dataset("memory://prefix-test")
    fs.rm("/prefix-test", recursive=True)


@pytest.mark.parametrize("streamed", [False, True])
def test_row_groups_behind_the_prefix_stay_unread(
    in_memory: Dataset, reads: list[tuple[int, int]], streamed: bool
) -> None:
    partition = in_memory.partitions[0]
    metadata = pq.read_metadata(pa.BufferReader(fsspec.filesystem("memory").cat("/prefix-test/part-00000.parquet")))
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    whole = partition.read()

    def bytes_read(bound: float | None) -> int:
        reads.clear()
        pieces = list(partition.stream(bound)) if streamed else [partition.read(bound)]
        kept = sum(piece.features.size for piece in pieces)
        assert kept == (whole.bounds > (-1.0 if bound is None else bound)).sum()
        return sum(size for _, size in reads)

    everything, footer = bytes_read(None), bytes_read(1e9)
    # The bounds of the first group behind the prefix are read, to find that it is behind.
    assert everything - footer >= sum(_stored(group) for group in groups[1:]) > 0
    for rank in (0.9, 0.5, 0.1):
        bound = float(whole.bounds[int(rank * (whole.bounds.size - 1))])
        wanted = [group for group in groups if group.column(2).statistics.max > bound]
        assert 0 < len(wanted) < len(groups)
        # Bounds are read once more, to find the prefix.
        assert bytes_read(bound) - footer == pytest.approx(sum(_stored(group) for group in wanted), rel=0.25)


def _stored(group: Any) -> int:
    return sum(group.column(k).total_compressed_size for k in range(group.num_columns))


def test_arrays_are_views_of_what_arrow_decoded(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[pa.Table] = []
    plain = dataset_module._to_csc

    def keep(table: pa.Table) -> tuple[Csc, np.ndarray]:
        tables.append(table)
        return plain(table)

    monkeypatch.setattr(dataset_module, "_to_csc", keep)
    for partition in dataset.partitions:
        middle = float(partition.read().bounds[20])
        for piece in [partition.read(), partition.read(middle), *partition.stream()]:
            for array in (piece.features, piece.bounds, piece.indptr, piece.indices, piece.data):
                assert array is None or not array.flags.owndata
    partition = dataset.partitions[0]
    tables.clear()
    csc = partition.read()
    (table,) = tables
    assert table["examples"].num_chunks == 1
    examples = table["examples"].chunk(0)
    assert csc.indices.ctypes.data == examples.values.buffers()[1].address
    assert csc.indptr.ctypes.data == examples.buffers()[1].address
    assert csc.features.ctypes.data == table["feature"].chunk(0).buffers()[1].address
    if csc.data is not None:
        assert csc.data.ctypes.data == table["values"].chunk(0).values.buffers()[1].address


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no dataset\.json"),
        ("", r"dataset\.json: damaged"),
        ("{", r"dataset\.json: damaged"),
        ("\udcff", r"dataset\.json: damaged"),
        ("[]", r"dataset\.json: damaged \(it must be an object"),
        ('{"format": "other"}', "not the description of a dglmnet data set"),
        ('{"format": "dglmnet", "format_version": 99}', "format version 99.*update"),
        ('{"format": "dglmnet", "format_version": 0}', "format version 0.*convert again"),
        ('{"format": "dglmnet"}', "format version null"),
        ('{"format": "dglmnet", "format_version": 1}', r"dataset\.json: damaged"),
    ],
)
def test_a_wrong_description_is_named(copy: Path, content: str | None, message: str) -> None:
    if content is None:
        (copy / "dataset.json").unlink()
    else:
        (copy / "dataset.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DatasetError, match=message) as caught:
        open_dataset(str(copy))
    assert str(copy) in str(caught.value)


@pytest.mark.parametrize("key", ["examples", "features", "nnz", "labels", "partitions", "label_map"])
def test_a_description_that_lacks_something_is_damaged(copy: Path, key: str) -> None:
    about = json.loads((copy / "dataset.json").read_text())
    del about[key]
    (copy / "dataset.json").write_text(json.dumps(unsealed(about)))
    with pytest.raises(DatasetError, match=rf"dataset\.json.*{key}"):
        open_dataset(str(copy))


def test_a_place_without_a_data_set_is_told(tmp_path: Path, write: Write) -> None:
    with pytest.raises(DatasetError, match="no such folder"):
        open_dataset(str(tmp_path / "missing"))
    with pytest.raises(DatasetError, match="it is a file"):
        open_dataset(write("file.svm", b"1 1:1\n"))
    (tmp_path / "half" / "_temporary").mkdir(parents=True)
    with pytest.raises(DatasetError, match="--resume"):
        open_dataset(str(tmp_path / "half"))


READERS: dict[str, Callable[[Dataset], object]] = {
    "read": lambda dataset: [part.read() for part in dataset.partitions],
    "prefix": lambda dataset: [part.read(0.1) for part in dataset.partitions],
    "stream": lambda dataset: [list(part.stream()) for part in dataset.partitions],
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("damage", ["missing", "cut", "half", "empty", "text"])
def test_a_damaged_part_is_named(copy: Path, read: Callable[[Dataset], object], damage: str) -> None:
    _damage(copy / "part-00001.parquet", damage)
    with pytest.raises(DatasetError, match=r"part-00001\.parquet: this part .*(missing|damaged)"):
        read(open_dataset(str(copy)))


@pytest.mark.parametrize("damage", ["missing", "cut", "half", "empty", "text"])
def test_damaged_labels_are_named(copy: Path, damage: str) -> None:
    _damage(copy / "labels.parquet", damage)
    with pytest.raises(DatasetError, match=r"labels\.parquet: (missing|damaged)"):
        open_dataset(str(copy)).labels()


def test_labels_of_another_data_set_are_noticed(copy: Path) -> None:
    replace_table(copy, "labels.parquet", pq.read_table(copy / "labels.parquet").slice(0, 10))
    with pytest.raises(DatasetError, match="10 labels for 400 examples"):
        open_dataset(str(copy)).labels()


def _damage(path: Path, damage: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        replacement = {"cut": content[:-3], "half": content[: len(content) // 2], "empty": b"", "text": b"1 1:1\n" * 99}
        path.write_bytes(replacement[damage])


ABOUT = DatasetRecord(
    examples=1,
    features=1,
    nnz=1,
    label_map=LabelMap(-1, 1),
    index_base=1,
    labels=LabelsInfo(bytes=0, sha256="", weighted=False, negatives=1, positives=0),
    partitions=[],
    inputs=[],
    bad_lines=BadLines(),
)


def test_repr_shows_no_password() -> None:
    dataset = Dataset("ftp://user:hunter2@host/data", StorageOptions(password="hunter2"), ABOUT)
    assert "hunter2" not in repr(dataset)
    assert dataset.name == "ftp://host/data"
