"""What a long piece of work tells whoever watches it. Displays are in pipeline/; the work itself knows this only."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A watcher of work that goes through phases."""

    def phase(self, name: str, total: int, unit: str) -> None:
        """A phase begins: `total` of `unit` ("B" for bytes) are to be done."""

    def advance(self, amount: int) -> None:
        """So much more of the phase is done."""


class NoProgress:
    """Nobody watches."""

    def phase(self, name: str, total: int, unit: str) -> None:
        pass

    def advance(self, amount: int) -> None:
        pass
