"""What the soak notices: processes that grow, and results that are not what they were."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from distributed import Client

from benchmarks.soak.growth import Growth
from benchmarks.soak.results import dataset_parts, flip_bit, write_examples
from transforms import convert_libsvm


@pytest.mark.parametrize(("leak", "flat"), [(0.0, True), (20e6, False)])
def test_memory_that_grows_is_noticed(leak: float, flat: bool) -> None:
    growth = Growth({"driver (1)": [(60.0 * k, 300e6 + leak * k, 10, 20) for k in range(24)]})
    lines, found = growth.report()
    assert found is flat
    assert ("GROWS" in lines[0]) is not flat


def test_flipped_bit_is_another_data_set(client: Client, tmp_path: Path) -> None:
    write_examples(tmp_path / "train.svm", n=50, p=20, per_row=5)
    convert_libsvm([str(tmp_path / "train.svm")], str(tmp_path / "data"), partitions=2, client=client)
    before = dataset_parts(str(tmp_path / "data"))
    assert sorted(before) == ["labels.parquet", "part-00000.parquet", "part-00001.parquet"]
    flip_bit(tmp_path / "data" / "part-00001.parquet", random.Random(0))
    after = dataset_parts(str(tmp_path / "data"))
    assert [name for name in before if before[name] != after[name]] == ["part-00001.parquet"]
