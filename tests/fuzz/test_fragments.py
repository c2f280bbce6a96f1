"""Fragments that a conversion left behind, spoiled: passed over, refused in one line, or used without harm."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.fuzz.mutations import spoil_bytes
from tests.reference import random_text
from transforms import UserError
from transforms.fragments import (
    Origin,
    by_feature,
    find_fragment,
    read_bucket_nnz,
    read_labels,
    read_notes,
    read_runs,
    write_fragment,
)
from transforms.parser import padded, parse
from transforms.parts import merge_runs
from transforms.storage import open_storage

PLAN, BUCKETS = b"0123456789abcdef", 512


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fragments") / "block-000000-0000.fragment"
    text = random_text(3, 40, 30, 5) + b"1 x\n"
    parsed = parse(padded(text), len(text), bad_lines=3)
    assert parsed.bad
    fs, place = open_storage(str(path))
    origin = Origin(PLAN, np.array([parsed.labels.size]))
    write_fragment(fs, place, origin, parsed, by_feature(parsed, "spread", BUCKETS))
    return path


def use(path: Path) -> bool:
    """What a resumed conversion does with it; whether it was taken for a fragment."""
    fs, place = open_storage(str(path))
    fragment = find_fragment(fs, place, PLAN)
    if fragment is None or int(fragment.header["buckets"]) != BUCKETS:
        return False
    try:
        read_bucket_nnz(fs, fragment), read_notes(fs, fragment)
    except ValueError:
        return False
    labels, _ = read_labels(fs, [fragment])[0]
    runs = read_runs(fs, [fragment], [0], np.array([[0, BUCKETS]]))
    signs = np.where(labels > 0, 1, -1).astype(np.int8)
    csc = merge_runs(runs, signs, None)
    assert csc.indices.size == 0 or 0 <= csc.indices.min() <= csc.indices.max() < max(fragment.rows, 1)
    return True


def test_a_whole_fragment_is_used(written: Path) -> None:
    assert use(written)


def test_spoiled_fragments_do_no_harm(written: Path, tmp_path: Path) -> None:
    content, path = written.read_bytes(), tmp_path / "block-000000-0000.fragment"
    for seed in range(1500):
        path.write_bytes(spoil_bytes(Random(seed), content))
        try:
            use(path)
        except (UserError, OSError) as error:
            assert str(path) in str(error), (seed, error)
            assert "\n" not in str(error)
