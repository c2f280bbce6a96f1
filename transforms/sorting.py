"""A radix sort of feature ids and bounds, of which Map and Reduce sort a million at a time."""

from __future__ import annotations

import numpy as np

from transforms.compiled import kernel

FEW = 1 << 12  # keys that numpy sorts in half a millisecond: the kernel takes longer to load, and far longer to compile


def argsort(keys: np.ndarray) -> np.ndarray:
    """np.argsort(keys, kind="stable") of uint64 keys."""
    order: np.ndarray = np.argsort(keys, kind="stable") if keys.size <= FEW else radix_argsort(keys)
    return order


@kernel
def radix_argsort(keys):  # type: ignore[no-untyped-def]
    """The same by a radix sort that passes over digits all keys share."""
    order, next_order = np.arange(keys.size), np.empty(keys.size, np.int64)
    keys, next_keys = keys.copy(), np.empty_like(keys)  # moved along, as looking them up would miss the cache
    differ = np.uint64(0)
    for k in range(keys.size):
        differ |= keys[k] ^ keys[0]
    starts = np.empty(1 << 11, np.int64)
    for digit in range(6):
        shift = np.uint64(11 * digit)
        if (differ >> shift) & np.uint64(0x7FF) == 0:
            continue
        starts[:] = 0
        for k in range(keys.size):
            starts[(keys[k] >> shift) & np.uint64(0x7FF)] += 1
        total = 0
        for k in range(starts.size):
            starts[k], total = total, total + starts[k]
        for k in range(keys.size):
            bucket = (keys[k] >> shift) & np.uint64(0x7FF)
            to = starts[bucket]
            next_order[to], next_keys[to] = order[k], keys[k]
            starts[bucket] = to + 1
        order, next_order = next_order, order
        keys, next_keys = next_keys, keys
    return order
