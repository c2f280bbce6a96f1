"""Row groups that are read again come straight from their pages: the same bits as by Arrow, or the same errors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from tests.damage import make_right
from transforms import Dataset, DatasetError, Partition, from_arrays, open_dataset, parts
from transforms.pages import Lists, Memory, PageReader

PART = "part-00000.parquet"


def matrix(n: int, p: int, density: float, *, valued: bool = True, seed: int = 0) -> sp.csc_array:
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=density, format="csc", rng=rng, dtype=np.float32)
    X.data[:] = rng.normal(size=X.data.size) if valued else 1
    return X


def store(X: sp.csc_array, folder: Path) -> Dataset:
    y = np.where(np.random.default_rng(1).random(X.shape[0]) < 0.5, 1, -1)
    return from_arrays(X, y, str(folder), partitions=1)


def read(partition: Partition, again: PageReader | None = None) -> list[Lists]:
    return list(partition.read_groups(range(partition.info.row_groups), again))


def assert_same(found: list[Lists], expected: list[Lists]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.indptr, other.indptr)
        assert other.indices is not None
        every = np.tile(np.arange(other.indices.max() + 1), one.indptr.size - 1)
        np.testing.assert_array_equal(every if one.indices is None else one.indices, other.indices)
        assert (one.data is None) == (other.data is None)
        if one.data is not None and other.data is not None:
            assert one.data.tobytes() == other.data.tobytes()


SHAPES = {
    "few examples in many": matrix(2_000_000, 30, 1e-4),  # differences of up to 21 bits
    "dense": matrix(700, 60, 1.0),  # differences of no bits
    "well filled": matrix(50_000, 40, 0.4),  # several pages of values
    "short lists": matrix(500, 3_000, 0.003),
    "ones": matrix(50_000, 30, 0.2, valued=False),
}


@pytest.mark.parametrize("X", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("row_group", [100, 1 << 20])
def test_pages_give_the_bits_that_arrow_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, X: sp.csc_array, row_group: int
) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_NNZ", max(row_group, X.nnz // 20))
    (partition,) = store(X, tmp_path / "data").partitions
    again = PageReader(Memory())
    expected = read(partition)
    assert_same(read(partition, again), expected)
    assert all(again.knows(group) for group in range(partition.info.row_groups))
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", None)  # Arrow decodes none of them again
    assert_same(read(partition, again), expected)


@pytest.mark.parametrize(
    "how",
    [
        {"compression": "zstd"},
        {"data_page_version": "1.0", "compression": "none"},
        {"data_page_version": "2.0", "compression": "none"},  # dictionaries
        {"data_page_version": "2.0", "compression": "none", "use_dictionary": False},  # plain examples
    ],
)
def test_row_groups_that_others_wrote_are_left_to_arrow(tmp_path: Path, how: dict[str, object]) -> None:
    store(matrix(300, 20, 0.3), tmp_path / "data")
    path = tmp_path / "data" / PART
    pq.write_table(pq.read_table(path), path, row_group_size=7, **how)
    make_right(tmp_path / "data", PART, row_groups=3)
    (partition,) = open_dataset(str(tmp_path / "data")).partitions
    again = PageReader(Memory())
    expected = read(partition)
    for _ in range(2):
        assert_same(read(partition, again), expected)
    assert not any(again.knows(group) for group in range(3))


def replace_by(content: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path.parent / "new").write_bytes(content(path.read_bytes()))
        (path.parent / "new").replace(path)

    return change


def flip_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)[0]
        file.seek(1000)
        file.write(bytes([byte ^ 1]))


def remove(path: Path) -> None:
    path.unlink()


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a flipped bit": (replace_by(lambda old: old[:1000] + bytes([old[1000] ^ 1]) + old[1001:]), "its checksum differs"),
    "a bit flipped in place": (flip_in_place, "its checksum differs"),
    "cut off": (lambda path: os.truncate(path, 2000), "2000 bytes, expected"),
    "gone": (remove, "this part of the data set is missing"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_file_that_changes_between_rounds_is_noticed(
    tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    (partition,) = store(matrix(3000, 10, 0.3), tmp_path / "data").partitions
    again = PageReader(Memory())
    for _ in range(2):
        read(partition, again)
    change(tmp_path / "data" / PART)
    with pytest.raises(DatasetError, match=rf"{PART}: .*{message}"):
        read(partition, again)


def test_a_file_that_is_cut_off_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_NNZ", 1000)
    (partition,) = store(matrix(3000, 10, 0.3), tmp_path / "data").partitions
    again = PageReader(Memory())
    read(partition, again)
    groups = partition.read_groups(range(10), again)
    next(groups)
    os.truncate(tmp_path / "data" / PART, 6000)
    with pytest.raises(DatasetError, match=rf"{PART}: this part is damaged \(\d+ bytes are missing"):
        list(groups)


def test_another_file_that_takes_its_place_while_it_is_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_NNZ", 1000)
    (partition,) = store(matrix(3000, 10, 0.3), tmp_path / "data").partitions
    store(matrix(3000, 10, 0.3, seed=5), tmp_path / "other")
    again = PageReader(Memory())
    read(partition, again)
    groups = partition.read_groups(range(10), again)
    next(groups)
    (tmp_path / "other" / PART).replace(tmp_path / "data" / PART)
    with pytest.raises(DatasetError, match=rf"{PART}: .*replaced or written to while it was read"):
        list(groups)


def test_a_copy_of_the_same_bytes_may_take_its_place(tmp_path: Path) -> None:
    (partition,) = store(matrix(3000, 10, 0.3), tmp_path / "data").partitions
    again = PageReader(Memory())
    expected = read(partition)
    read(partition, again)
    shutil.copy(tmp_path / "data" / PART, tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "data" / PART)
    assert_same(read(partition, again), expected)


def test_pages_of_any_other_bytes_are_refused_or_well_formed(tmp_path: Path) -> None:
    """A disk may give other bytes under the same identity. No kernel may see an example that there is not."""
    n = 3000
    (partition,) = store(matrix(n, 10, 0.3), tmp_path / "data").partitions
    again = PageReader(Memory())
    read(partition, again)
    path, rng, refused = tmp_path / "data" / PART, np.random.default_rng(0), 0
    content, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    for _ in range(300):
        other = bytearray(content)
        for at in rng.integers(4, len(content) - 2000, 3):
            other[at] = int(rng.integers(256))
        path.write_bytes(other)
        os.utime(path, ns=times)
        try:
            (lists,) = read(partition, again)
        except DatasetError:
            refused += 1
            continue
        assert lists.indices is not None
        assert lists.indices.min() >= 0 and lists.indices.max() < n
        assert lists.data is not None and np.isfinite(lists.data).all()
        for lo, hi in zip(lists.indptr[:-1], lists.indptr[1:], strict=True):
            assert (np.diff(lists.indices[lo:hi]) > 0).all()
    assert 0 < refused < 300


def test_memory_is_used_again_once_nobody_holds_it() -> None:
    memory = Memory()
    first = memory.empty(1000, np.float32)
    part, home = first[10:20], first.ctypes.data
    second = memory.empty(1000, np.int32)
    assert not np.shares_memory(first, second)
    del first
    assert memory.empty(1000, np.int32).ctypes.data != home  # a part of it is still held
    del part
    assert memory.empty(990, np.float32).ctypes.data == home


def test_memory_is_bounded_by_what_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP_NNZ", 1000)
    (partition,) = store(matrix(3000, 60, 0.3), tmp_path / "data").partitions
    memory = Memory()
    again = PageReader(memory)
    for _ in range(3):
        for lists in partition.read_groups(range(partition.info.row_groups), again):
            assert lists.indices is not None
            assert lists.indices.size < 2000
    assert partition.info.row_groups > 50
    assert memory.size < 5 * 1.125 * 4 * 2000  # packed examples; the lists that are used, and those that are next
