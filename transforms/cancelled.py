"""Cancelling: Dask cannot stop a task that runs, so a long one asks now and then whether it is still wanted."""

from __future__ import annotations

from typing import Any

from distributed.worker import thread_state


class TaskCancelled(Exception):
    """Nobody waits for this task any more."""


def stop_if_cancelled() -> None:
    """Raise if the Dask task that this thread runs was cancelled. Outside of a task nothing happens."""
    state: dict[str, Any] | None = getattr(thread_state, "execution_state", None)
    if state is None:
        return
    # Read without the event loop: a lookup in a dict, and an answer that is a moment old does no harm.
    task = state["worker"].state.tasks.get(thread_state.key)
    if task is None or task.state == "cancelled":
        raise TaskCancelled(str(thread_state.key))
