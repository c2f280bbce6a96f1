"""The cores of a process: work cut into parts that run side by side."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cache
from itertools import pairwise
from typing import TypeVar

from threadpoolctl import ThreadpoolController

K = TypeVar("K")
T = TypeVar("T")
STRIP = 1 << 18  # examples: a pass over them takes long beside handing them to a thread


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

    def over_strips(self, work: Callable[[int, int], T], n: int) -> list[T]:
        """work(lo, hi) of every strip of n examples, side by side; the results in the order of the strips.

        Strips depend on n alone. Sums of strips, added in this order, have the same bits for any number of threads.
        """
        if is_one_strip(n):
            return [work(0, n)]
        spans = list(pairwise(strips(n)))
        found: dict[int, T] = {}
        waiting = iter(enumerate(spans))

        def take() -> None:
            for k, span in waiting:
                found[k] = work(*span)

        helpers = [_pool(self.count - 1).submit(take) for _ in range(min(self.count, len(spans)) - 1)]
        take()
        for helper in helpers:
            helper.result()
        return [found[k] for k in range(len(spans))]


def is_one_strip(n: int) -> bool:
    return n <= STRIP


def strips(n: int) -> list[int]:
    """Where n examples are cut into equal strips, each of at most STRIP of them."""
    parts = max(1, -(-n // STRIP))
    return [n * k // parts for k in range(parts + 1)]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="search")


@cache
def blas() -> ThreadpoolController:
    """The threads of BLAS, to be limited. Found once: that takes longer than a small fit."""
    return ThreadpoolController()


def one_ahead(read: Callable[[Iterator[K]], Generator[T, None, None]], asked: Iterable[K]) -> Iterator[T]:
    """read(asked), which must give one item for each; a thread makes the next one while the caller uses the last.

    `asked` is gone through by the caller's thread, one ahead too. An error of `read` comes out in its place. When no
    more is wanted, the thread ends, and then `read` is closed.
    """
    handed: deque[K] = deque()

    def one_by_one() -> Iterator[K]:
        while handed:
            yield handed.popleft()

    items = read(one_by_one())
    with closing(items), ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        waiting: deque[Future[T]] = deque()
        for one in asked:
            handed.append(one)
            waiting.append(pool.submit(next, items))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        for last in waiting:
            yield last.result()
        next(items, None)  # it may find something wrong at its end
