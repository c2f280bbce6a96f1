"""Progress of long work: a bar for each phase on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import logging
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

logger = logging.getLogger("dglmnet")
LOG_EVERY_SECONDS = 5.0


def amount(value: float, unit: str) -> str:
    """1234567 B -> "1.2 MB", 1234567 nonzeros -> "1.2 M nonzeros"."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {prefix}{unit if unit == 'B' else ' ' + unit}"
    return f"{value:.0f} {unit}"


class _Speed(ProgressColumn):
    """How fast a phase goes."""

    def render(self, task: Task) -> Text:
        elapsed = task.finished_time or task.elapsed
        speed = task.completed / elapsed if elapsed else None
        return Text(f"{amount(speed, task.fields['unit'])}/s" if speed else "", style="cyan")


class TerminalProgress:
    """A bar per phase, with its speed and the time left."""

    def __init__(self, console: Console) -> None:
        self._bars = RichProgress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            _Speed(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._task: Any = None

    def __enter__(self) -> TerminalProgress:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def phase(self, name: str, total: int, unit: str) -> None:
        self._task = self._bars.add_task(name, total=max(total, 1), unit=unit, completed=0 if total else 1)

    def advance(self, amount: int) -> None:
        self._bars.advance(self._task, amount)


class LogProgress:
    """A line when a phase begins and ends, and now and then between."""

    def __enter__(self) -> LogProgress:
        self._name, self._unit, self._total, self._done = "", "", 0, 0
        self._started = self._told = time.monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def phase(self, name: str, total: int, unit: str) -> None:
        self._name, self._unit, self._total, self._done = name, unit, total, 0
        self._started = self._told = time.monotonic()
        event = {"event": "phase", "phase": name, "total": total, "unit": unit}
        logger.info("%s: %s to do", name, amount(total, unit), extra={"event": event})

    def advance(self, amount_done: int) -> None:
        self._done += amount_done
        now = time.monotonic()
        finished = self._done >= self._total
        if finished or now - self._told >= LOG_EVERY_SECONDS:
            self._told = now
            speed = self._done / max(now - self._started, 1e-9)
            share = 100 * self._done / max(self._total, 1)
            event = {"event": "progress", "phase": self._name, "done": self._done, "total": self._total}
            logger.info("%s: %.0f %%, %s/s", self._name, share, amount(speed, self._unit), extra={"event": event})


class SilentProgress:
    """Nothing, for --quiet."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def phase(self, name: str, total: int, unit: str) -> None:
        pass

    def advance(self, amount: int) -> None:
        pass


def show_progress(*, quiet: bool, log_json: bool) -> TerminalProgress | LogProgress | SilentProgress:
    """The display that suits where standard error goes."""
    if quiet:
        return SilentProgress()
    console = Console(stderr=True)
    return TerminalProgress(console) if console.is_terminal and not log_json else LogProgress()
