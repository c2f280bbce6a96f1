"""The driver's cores: work cut into parts that run side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """So many threads, by default one for each core that this process may use. One of them is the caller's own."""

    def __init__(self, count: int | None = None) -> None:
        self.count = len(os.sched_getaffinity(0)) if count is None else count

    def map(self, work: Callable[[int, int], T], cuts: Sequence[int]) -> list[T]:
        """work(cuts[0], cuts[1]), work(cuts[1], cuts[2]), ... side by side."""
        (lo, hi), *others = pairwise(cuts)
        if not others:
            return [work(lo, hi)]
        waiting = [_pool(self.count - 1).submit(work, *other) for other in others]
        return [work(lo, hi), *(one.result() for one in waiting)]

    def even_cuts(self, size: int, worth: int) -> list[int]:
        """Cut `size` items into equal parts, one per thread, none with fewer than `worth` items."""
        parts = max(1, min(self.count, size // worth))
        return [size * k // parts for k in range(parts + 1)]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="search")
