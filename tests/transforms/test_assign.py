"""The assignment of features to partitions: even in nonzeros, and the frequent features spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import MAX_ID
from transforms.assign import assign_buckets, bucket_count, buckets_of
from transforms.strategies import STRATEGIES


@given(st.lists(st.integers(0, MAX_ID), min_size=1), st.sampled_from(STRATEGIES), st.integers(1, 3000))
@settings(max_examples=150)
def test_a_bucket_depends_on_the_id_alone_and_is_in_range(ids: list[int], strategy: str, partitions: int) -> None:
    count = bucket_count(partitions)
    assert count == 1 << (count.bit_length() - 1), "a power of two"
    features = np.array(ids, dtype=np.int64)
    buckets = buckets_of(strategy, features, count)
    assert ((buckets >= 0) & (buckets < count)).all()
    assert np.array_equal(buckets[::-1], buckets_of(strategy, features[::-1].copy(), count))


@given(st.lists(st.integers(0, MAX_ID - 16), min_size=1))
def test_neighbours_stay_together_in_sixteens(ids: list[int]) -> None:
    first = np.array(ids, dtype=np.int64) // 16 * 16
    together = [buckets_of("neighbours", first + k, 512) for k in range(16)]
    assert all(np.array_equal(together[0], other) for other in together)


def test_the_sixteens_of_neighbours_are_spread() -> None:
    buckets = buckets_of("neighbours", np.arange(0, 16 * 1000, 16), 512)
    assert (np.abs(np.diff(buckets)) > 100).mean() > 0.9
    assert np.bincount(buckets, minlength=512).max() <= 4


def test_spread_sends_close_ids_far_apart() -> None:
    buckets = buckets_of("spread", np.arange(1, 1001), 512)
    assert (np.abs(np.diff(buckets)) > 100).mean() > 0.9
    assert np.bincount(buckets, minlength=512).max() <= 4


def loads(nnz: np.ndarray, partitions: int) -> np.ndarray:
    owner = assign_buckets(nnz, partitions)
    assert owner.shape == nnz.shape
    assert ((owner >= 0) & (owner < partitions)).all()
    return np.bincount(owner, weights=nnz, minlength=partitions)


def by_feature(name: str, p: int) -> np.ndarray:
    """Nonzeros of features 1..p."""
    rng = np.random.default_rng(len(name))
    rank = np.arange(1, p + 1)
    kinds = {
        "uniform": np.full(p, 100),
        "zipf": np.ceil(1e6 / rank),
        "zipf, rare first": np.ceil(1e6 / rank)[::-1],
        "zipf, shuffled": rng.permutation(np.ceil(1e6 / rank)),
        "heavy tail": np.ceil(rng.pareto(1.2, p) * 10),
        "one-hot": rng.integers(1, 50, p),
        "two kinds": np.where(rank <= 200, 5000, 1),
    }
    return kinds[name].astype(np.int64)


KINDS = ["uniform", "zipf", "zipf, rare first", "zipf, shuffled", "heavy tail", "one-hot", "two kinds"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 16, 64])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partitions_are_even_within_a_tenth(kind: str, partitions: int, strategy: str) -> None:
    """Unless one feature alone is larger than a partition's share."""
    nnz = by_feature(kind, 200_000)
    buckets = buckets_of(strategy, np.arange(1, nnz.size + 1), bucket_count(partitions))
    in_buckets = np.bincount(buckets, weights=nnz, minlength=bucket_count(partitions))
    load, mean = loads(in_buckets, partitions), nnz.sum() / partitions
    assert load.max() <= 1.1 * max(mean, in_buckets.max())
    if in_buckets.max() < mean:
        assert load.max() <= 1.1 * mean
        assert load.min() >= 0.9 * mean


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("first", [1, 10**6, 10**9, 2**40, MAX_ID - 100_000])
def test_it_is_even_wherever_the_ids_begin(strategy: str, first: int) -> None:
    """Ids are often hashes, or start behind a large offset."""
    features = np.arange(first, first + 100_000)
    count = bucket_count(4)
    load = loads(np.bincount(buckets_of(strategy, features, count), minlength=count), 4)
    assert load.max() <= 1.1 * 25_000


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.integers(1, 6))
@settings(max_examples=200)
def test_few_buckets_are_dealt_as_well_as_the_largest_allows(sizes: list[int], partitions: int) -> None:
    """Largest first on the least loaded: at most 4/3 of the best possible, whatever the sizes."""
    nnz = np.array(sizes)
    best_possible = max(nnz.max(), nnz.sum() / partitions, *np.sort(nnz)[::-1][partitions - 1 : partitions + 1])
    rank = np.sort(nnz)[::-1]
    if nnz.size > partitions:
        best_possible = max(best_possible, rank[partitions - 1] + rank[partitions])
    assert loads(nnz, partitions).max() <= 4 / 3 * best_possible + 1e-9 + 0.02 * nnz.sum() / partitions * 2


@pytest.mark.parametrize("partitions", [2, 4, 8])
def test_every_partition_gets_its_share_of_the_frequent_features(partitions: int) -> None:
    """Ids ordered by frequency, as vocabularies are: the first thousand matter most to the solver."""
    nnz = np.ceil(1e6 / np.arange(1, 100_001)).astype(np.int64)
    count = bucket_count(partitions)
    buckets = buckets_of("spread", np.arange(1, nnz.size + 1), count)
    owner = assign_buckets(np.bincount(buckets, weights=nnz, minlength=count), partitions)[buckets]
    frequent = np.bincount(owner[:1000], minlength=partitions)
    assert frequent.min() >= 0.5 * 1000 / partitions
    assert frequent.max() <= 1.5 * 1000 / partitions


def test_nothing_to_assign_is_fine() -> None:
    assert loads(np.zeros(bucket_count(3), dtype=np.int64), 3).tolist() == [0, 0, 0]


def test_light_buckets_of_a_partition_are_one_run() -> None:
    """So that a Reduce task reads few ranges of each fragment."""
    owner = assign_buckets(np.full(4096, 3), 8)
    assert np.count_nonzero(np.diff(owner)) == 7
