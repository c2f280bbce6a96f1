"""Which partition a feature goes to: the split of {1..p} into S_1..S_M (section 2 of the paper).

The Map step knows no frequencies yet, so it sorts features into many more buckets than partitions; when it is
done, the buckets' nonzeros are known and `assign_buckets` deals them out evenly. A strategy is how a feature
finds its bucket:

spread      Fibonacci hashing: ids that are close, and so often alike in frequency, land far apart, so that
            every partition gets its share of the features that matter. The default.
neighbours  the same for sixteen neighbouring ids at a time, which stay together: for one-hot groups, whose members
            the solver then need not reconcile between blocks. Whole ranges of ids would keep more together, but
            where ids are ordered by frequency one partition would do all the work.
"""

from __future__ import annotations

import heapq

import numpy as np

from transforms.compiled import kernel, step

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NEIGHBOUR_BITS = 4  # `neighbours` keeps 2^4 ids together
HEAVY = 0.02  # a bucket with more than this share of a partition is placed on its own


def bucket_count(partitions: int) -> int:
    """How many buckets: enough for an even deal (a bucket is about 1/64 of a partition)."""
    return min(1 << 16, max(512, 1 << (64 * partitions - 1).bit_length()))


@step
def bucket_of(feature, spread, bits):  # type: ignore[no-untyped-def]
    """The bucket of a feature id, of 2^bits."""
    word = np.uint64(feature) if spread else np.uint64(feature) >> np.uint64(_NEIGHBOUR_BITS)
    return np.int64((word * _GOLDEN) >> np.uint64(64 - bits))


# In this file, as numba's cache of a function notices a change of its own file only.
@kernel
def order_by_bucket(found, order, counts, spread, bits, features, ordered, directory_features, directory_nnz):  # type: ignore[no-untyped-def]
    """Put the features that occur into the order (bucket, id); counts becomes where each one's nonzeros start.

    found[order] are the ids in rising order; without them (empty) an id is its own position in counts.
    """
    for k in range(max(order.size, counts.size)):
        at = order[k] if order.size else k
        if counts[at] > 0:
            bucket = bucket_of(found[at] if order.size else at, spread, bits)
            directory_features[bucket + 1] += 1
            directory_nnz[bucket + 1] += counts[at]
    for bucket in range(directory_nnz.size - 1):
        directory_features[bucket + 1] += directory_features[bucket]
        directory_nnz[bucket + 1] += directory_nnz[bucket]
    next_feature, next_nnz = directory_features.copy(), directory_nnz.copy()
    for k in range(max(order.size, counts.size)):
        at = order[k] if order.size else k
        count = counts[at]
        if count > 0:
            feature = found[at] if order.size else at
            bucket = bucket_of(feature, spread, bits)
            features[next_feature[bucket]], ordered[next_feature[bucket]] = feature, count
            counts[at] = next_nnz[bucket]
            next_feature[bucket] += 1
            next_nnz[bucket] += count


@kernel
def _buckets(features, spread, bits):  # type: ignore[no-untyped-def]
    result = np.empty(features.size, np.int64)
    for k in range(features.size):
        result[k] = bucket_of(features[k], spread, bits)
    return result


def buckets_of(strategy: str, features: np.ndarray, buckets: int) -> np.ndarray:
    """The bucket of each feature id."""
    result: np.ndarray = _buckets(features, strategy == "spread", buckets.bit_length() - 1)
    return result


def assign_buckets(nnz: np.ndarray, partitions: int) -> np.ndarray:
    """The partition of each bucket, so that nonzeros come out even and a partition is few runs of buckets.

    Heavy buckets (a very frequent feature) are placed one by one, largest first, on the least loaded
    partition; the light ones fill what is missing, in order, one run a partition.
    """
    target = nnz.sum() / partitions
    owner = np.zeros(nnz.size, dtype=np.int32)
    load = np.zeros(partitions)
    heap = [(0.0, k) for k in range(partitions)]
    heavy = np.flatnonzero(nnz > HEAVY * target)
    for bucket in heavy[np.argsort(-nnz[heavy], kind="stable")]:
        lightest, k = heapq.heappop(heap)
        owner[bucket] = k
        load[k] = lightest + nnz[bucket]
        heapq.heappush(heap, (load[k], k))
    light = np.setdiff1d(np.arange(nnz.size), heavy)
    room = np.maximum(target - load, 0.0)
    if light.size and nnz[light].sum() > 0:
        edges = np.cumsum(room * (nnz[light].sum() / room.sum()))
        middle = np.cumsum(nnz[light]) - nnz[light] / 2
        owner[light] = np.minimum(np.searchsorted(edges, middle, side="left"), partitions - 1)
    return owner
