"""Blocks with a clock on every call, so that a benchmark can say where the time goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from solver import Blocks


class TimedBlocks:
    """Passes every call on, waits until all blocks have answered, and adds up the seconds by method."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.seconds: Counter[str] = Counter()

    @property
    def as_blocks(self) -> Blocks:
        return cast(Blocks, self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._blocks, name)
        return self._timed(name, found) if callable(found) else found

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            answers = method(*arguments, **named)
            answers = answers if answers is None else list(answers)
            self.seconds[name] += time.perf_counter() - began  # type: ignore[assignment]
            return answers

        return call
