"""Dask clusters inside a process, made for the time of a call: nobody beyond this machine reaches them, and nothing of
them stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed.core
from distributed import Nanny, Worker

HERE = "127.0.0.1:0"


class PagelessWorker(Worker):  # type: ignore[misc]
    """A worker in this process, without pages to look at."""

    def __init__(self, *positional: Any, **options: Any) -> None:
        super().__init__(*positional, **options | {"dashboard": False})


class PagelessNanny(Nanny):  # type: ignore[misc]
    """The nanny of a worker in a process of its own, without pages to look at."""

    def __init__(self, *positional: Any, **options: Any) -> None:
        super().__init__(*positional, **options | {"dashboard": False})


def pageless(*, processes: bool) -> dict[str, Any]:
    """How a LocalCluster is made whose scheduler and workers listen on this machine alone, and have no pages.

    Nobody would be told where the pages are. They load bokeh, which takes longer than all the rest, and the scheduler's
    would be kept for ever.
    """
    return {
        "dashboard_address": HERE,
        "worker_dashboard_address": HERE,
        "scheduler_kwargs": {"dashboard": False},
        "worker_class": PagelessNanny if processes else PagelessWorker,
    }


@contextmanager
def nothing_kept() -> Iterator[None]:
    """Dask caches which arguments each handler takes, and so keeps the scheduler and workers of every cluster."""
    try:
        yield
    finally:
        for one in vars(distributed.core).values():
            if hasattr(one, "cache_clear"):
                one.cache_clear()
