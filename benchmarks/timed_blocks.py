"""Blocks with a clock on every question, so that a benchmark can say where the time goes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from solver import Blocks


class TimedBlocks(Blocks):
    """Passes every question on, waits until all blocks have answered, and adds up the seconds by question."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.seconds: Counter[str] = Counter()

    @property
    def sizes(self) -> Sequence[int]:
        return self._blocks.sizes

    def ask(self, name: str, *shared: Any, each: Any = None) -> list[Any]:
        began = time.perf_counter()
        answers = list(self._blocks.ask(name, *shared, each=each))
        self.seconds[name] += time.perf_counter() - began  # type: ignore[assignment]
        return answers
