"""Dask clusters inside a process, made for the time of a call: nobody beyond this machine reaches them, and nothing of
them stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed.core

# Scheduler and workers have pages of their own. Nobody is told where, and the scheduler's would be kept for ever.
PAGES: dict[str, Any] = {
    "dashboard_address": "127.0.0.1:0",
    "worker_dashboard_address": "127.0.0.1:0",
    "scheduler_kwargs": {"dashboard": False},
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
