"""How the work goes, for people and machines: one display for converting, fitting, evaluating, alone or in turn.

On a terminal, a line for the stage at work (bar, speed, time left; in a fit the round at work below it), and above it a
tick for each stage that is done and a row for each λ. Elsewhere log lines, or with --log-json an event a line. All
are told the same events (pipeline/events.py), so that the work knows one object, whoever watches.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import singledispatchmethod
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pipeline.events import (
    Advanced,
    BlocksPlaced,
    Event,
    Noted,
    PathBegun,
    PhaseBegun,
    RoundDone,
    SolutionStored,
    StageBegun,
    StartedAgain,
    Watcher,
)
from pipeline.placement import Placement
from solver import RoundRecord, Solution
from solver.compiling import COMPILING, watched, working_seconds

logger = logging.getLogger("dglmnet")
LOG_EVERY_SECONDS = 5.0
REFRESH_PER_SECOND = 8
NAME_WIDTH = 9  # of a stage, so that all line up
COMPILING_WORDS = "compiling kernels for this machine, once"


class Display(Watcher):
    """Who shows people or machines how the work goes. This one, and one that says nothing else, shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class SilentDisplay(Display):
    """Nothing, for --quiet."""


def open_display(*, quiet: bool, log_json: bool) -> Display:
    """The display that suits where standard error goes."""
    if quiet:
        return SilentDisplay()
    console = Console(stderr=True)
    # FORCE_COLOR makes rich take a pipe for a terminal: colours would be right there, bars would not.
    terminal = sys.stderr.isatty() and console.is_terminal and not console.is_dumb_terminal
    return TerminalDisplay(console) if terminal and not log_json else LogDisplay()


# --- words ----------------------------------------------------------------------------------------------------------


def amount(value: float, unit: str) -> str:
    """1234567 B -> "1.2 MB", 1234567 nonzeros -> "1.2 M nonzeros"."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.1f} {prefix}{unit if unit == 'B' else ' ' + unit}"
    return f"{value:.0f} {unit}"


def duration(seconds: float) -> str:
    """0.42 -> "0.4 s", 83 -> "1:23", 4000 -> "1:06:40"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def relative_gap(gap: float | None, objective: float) -> str:
    if gap is None or math.isnan(gap):
        return "-"
    return f"{gap / objective if objective else 0.0:.1e}"


def placement_line(placements: Sequence[Placement]) -> str:
    """Which worker holds what, in a sentence."""
    blocks = sum(len(one.groups) for one in placements)
    ways = sorted({one.residency for one in placements})
    chosen = [f"{way} on {sum(one.residency == way for one in placements)}" for way in ways]
    return f"{blocks} blocks on {len(placements)} workers; columns: {', '.join(chosen) if len(ways) > 1 else ways[0]}"


def round_line(record: RoundRecord, total: int) -> str:
    gap = getattr(record, "gap", None)
    certified = "" if gap is None else f"gap {relative_gap(gap, record.objective)}  "
    return (
        f"λ {record.lambda_index + 1}/{total} = {record.lam:.4g}  round {record.round:>3}  f = {record.objective:.8g}  "
        f"decrease {record.relative_decrease:.1e}  {certified}α = {record.alpha:.3g}  nonzeros {record.nonzeros:,}  "
        f"{record.seconds:.3f} s"
    )


def solution_line(solution: Solution, total: int) -> str:
    return (
        f"λ {solution.lambda_index + 1:>2}/{total} = {solution.lam:<10.4g} f = {solution.objective:<14.9g} "
        f"gap {relative_gap(solution.gap, solution.objective)}  {solution.nonzeros:>8,} nonzeros  "
        f"{solution.rounds:>3} rounds  {solution.seconds:6.2f} s{'' if solution.converged else '  NOT CONVERGED'}"
    )


# --- log lines ------------------------------------------------------------------------------------------------------


class LogDisplay(Display):
    """Log lines; with the JSON formatter, an event each."""

    def __init__(self) -> None:
        self._stage = ""
        self._begun = self._started = self._told = working_seconds()
        self._told_compiling = False
        self._phase, self._unit, self._to_do, self._done = "", "", 0, 0
        self._lambdas = 0

    def __enter__(self) -> Self:
        self._watching = watched(self._tell_compiling)
        self._watching.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.__exit__(kind, error, trace)
        if error is None:
            self._finish_stage()

    def _tell_compiling(self) -> None:
        """Once, however many kernels there are."""
        if not self._told_compiling:
            self._told_compiling = True
            logger.info("%s", COMPILING_WORDS, extra={"event": {"event": "compile"}})

    def tell(self, event: Event) -> None:
        self._show(event)

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        """Of other events it says nothing."""

    @_show.register
    def _stage_begun(self, event: StageBegun) -> None:
        self._finish_stage()
        self._stage, self._begun = event.stage, working_seconds()

    def _finish_stage(self) -> None:
        if self._stage:
            seconds = working_seconds() - self._begun
            event = {"event": "stage", "stage": self._stage, "seconds": seconds}
            logger.info("%s: done in %s", self._stage, duration(seconds), extra={"event": event})
        self._stage = ""

    @_show.register
    def _started_again(self, event: StartedAgain) -> None:
        self._stage = ""
        logger.warning(event.text, extra={"event": {"event": "again", "message": event.text}})

    @_show.register
    def _noted(self, event: Noted) -> None:
        logger.info(event.text, extra={"event": {"event": "note", "message": event.text}})

    @_show.register
    def _phase_begun(self, event: PhaseBegun) -> None:
        self._phase, self._unit, self._to_do, self._done = event.phase, event.unit, event.total, 0
        self._started = self._told = working_seconds()
        told = {"event": "phase", "phase": event.phase, "total": event.total, "unit": event.unit}
        logger.info("%s: %s to do", event.phase, amount(event.total, event.unit), extra={"event": told})

    @_show.register
    def _advanced(self, event: Advanced) -> None:
        self._done += event.amount
        now = working_seconds()
        if self._done < self._to_do and now - self._told < LOG_EVERY_SECONDS:
            return
        self._told = now
        speed = self._done / max(now - self._started, 1e-9)
        share = 100 * self._done / max(self._to_do, 1)
        told = {"event": "progress", "phase": self._phase, "done": self._done, "total": self._to_do}
        logger.info("%s: %.0f %%, %s/s", self._phase, share, amount(speed, self._unit), extra={"event": told})

    @_show.register
    def _placed(self, event: BlocksPlaced) -> None:
        workers = [
            {"name": str(one.worker.name), "blocks": one.groups, "residency": one.residency} for one in event.placements
        ]
        logger.info(placement_line(event.placements), extra={"event": {"event": "placed", "workers": workers}})

    @_show.register
    def _path_begun(self, event: PathBegun) -> None:
        self._lambdas = len(event.lambdas)
        told = {"event": "path", "lambda_max": event.largest, "lambdas": list(event.lambdas), "done": event.done}
        to_do = self._lambdas - event.done
        logger.info("λmax = %.6g; %d of %d λ to do", event.largest, to_do, self._lambdas, extra={"event": told})

    @_show.register
    def _round_done(self, event: RoundDone) -> None:
        fields = asdict(event.record)
        told = {"event": "round", "lambda": fields.pop("lam")} | fields
        logger.info(round_line(event.record, self._lambdas), extra={"event": told})

    @_show.register
    def _solution_stored(self, event: SolutionStored) -> None:
        solution = event.solution
        names = (
            "lambda_index",
            "objective",
            "gap",
            "nonzeros",
            "rounds",
            "seconds",
            "line_search_seconds",
            "converged",
        )
        told = {"event": "solution", "lambda": solution.lam} | {name: getattr(solution, name) for name in names}
        told["gap"] = None if math.isnan(solution.gap) else solution.gap
        logger.info(solution_line(solution, self._lambdas), extra={"event": told})


# --- a terminal -----------------------------------------------------------------------------------------------------


@dataclass
class _Phase:
    """A phase at work: how much, how fast."""

    name: str
    total: int
    unit: str
    done: int = 0
    started: float = field(default_factory=working_seconds)
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or working_seconds()) - self.started

    @property
    def speed(self) -> str:
        return f"{amount(self.done / self.seconds, self.unit)}/s" if self.done and self.seconds > 0 else ""

    @property
    def left(self) -> str:
        if not self.done or self.done >= self.total:
            return ""
        return f"{duration(self.seconds * (self.total - self.done) / self.done)} left"

    def __str__(self) -> str:
        return f"{self.name} {duration(self.seconds)}{', ' + self.speed if self.speed else ''}"


class TerminalDisplay(Display):
    """The stage at work in one or two lines that stay at the bottom; what is done goes above them and stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._spinner = Spinner("dots", style="cyan")
        self._stage, self._begun, self._compiled = "", 0.0, 0.0
        self._phases: list[_Phase] = []
        self._lambdas, self._done, self._round = 0, 0, ""
        self._live = Live(
            console=console,
            get_renderable=self._running,
            refresh_per_second=REFRESH_PER_SECOND,
            redirect_stdout=False,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        self._streams = [(h, h.stream) for h in logger.handlers if isinstance(h, logging.StreamHandler)]
        for handler, _ in self._streams:
            handler.setStream(sys.stderr)  # rich's: a warning goes above the bars, not through them
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish_stage("[green]✓[/]" if error is None else "[red]✗[/]")
        for handler, stream in self._streams:
            handler.setStream(stream)
        self._live.stop()

    def tell(self, event: Event) -> None:
        self._show(event)

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        """Of other events it says nothing."""

    @_show.register
    def _stage_begun(self, event: StageBegun) -> None:
        self._finish_stage("[green]✓[/]")
        self._stage, self._begun, self._compiled = event.stage, working_seconds(), COMPILING.seconds

    def _finish_stage(self, mark: str) -> None:
        name, self._stage = self._stage, ""
        if name:
            self._end_phase()
            details = "; ".join(str(phase) for phase in self._phases) or (f"{self._done} λ" if self._lambdas else "")
            compiled = COMPILING.seconds - self._compiled
            if compiled:
                details += f"{'; ' if details else ''}kernels compiled, once: {duration(compiled)}"
            seconds = duration(working_seconds() - self._begun)
            self._print(f"{mark} [bold]{name:<{NAME_WIDTH}}[/] {seconds:>7}  [dim]{details}[/]")
        self._phases, self._lambdas, self._done, self._round = [], 0, 0, ""

    @_show.register
    def _started_again(self, event: StartedAgain) -> None:
        self._finish_stage("[red]✗[/]")
        logger.warning(event.text)

    @_show.register
    def _noted(self, event: Noted) -> None:
        self._print(Text(f"  {event.text}"))

    @_show.register
    def _phase_begun(self, event: PhaseBegun) -> None:
        self._end_phase()
        self._phases.append(_Phase(event.phase, event.total, event.unit))

    def _end_phase(self) -> None:
        if self._phases and self._phases[-1].ended is None:
            self._phases[-1].ended = working_seconds()

    @_show.register
    def _advanced(self, event: Advanced) -> None:
        phase = self._phases[-1]
        phase.done += event.amount
        if phase.done >= phase.total:
            self._end_phase()

    @_show.register
    def _placed(self, event: BlocksPlaced) -> None:
        self.note(placement_line(event.placements))

    @_show.register
    def _path_begun(self, event: PathBegun) -> None:
        self._lambdas, self._done = len(event.lambdas), event.done
        done = f"; {event.done} of {self._lambdas} λ are done" if event.done else ""
        self.note(f"λmax = {event.largest:.6g}{done}")
        self._print(_row("", "λ", "nonzeros", "objective", "rel. gap", "rounds", "time", style="dim"))

    @_show.register
    def _round_done(self, event: RoundDone) -> None:
        record = event.record
        gap = relative_gap(getattr(record, "gap", None), record.objective)
        self._round = (
            f"λ {record.lam:.4g}  round {record.round}  f {record.objective:.7g}  rel. gap {gap}  "
            f"α {record.alpha:.3g}  {record.nonzeros:,} nonzeros"
        )

    @_show.register
    def _solution_stored(self, event: SolutionStored) -> None:
        solution = event.solution
        self._done, self._round = self._done + 1, ""
        self._print(
            _row(
                f"{solution.lambda_index + 1}/{self._lambdas}",
                f"{solution.lam:.5g}",
                f"{solution.nonzeros:,}",
                f"{solution.objective:.8g}",
                relative_gap(solution.gap, solution.objective),
                f"{solution.rounds}" if solution.converged else f"{solution.rounds}!",
                duration(solution.seconds) if solution.seconds >= 60 else f"{solution.seconds:.2f} s",
                style="" if solution.converged else "yellow",
            )
        )

    def _print(self, what: str | Text) -> None:
        """Above the bars. A line is cut rather than wrapped."""
        self._console.print(what, highlight=False, no_wrap=True, overflow="ellipsis", crop=True)

    def _running(self) -> RenderableType:
        """What the bottom of the terminal shows now; called by rich several times a second."""
        if not self._stage:
            return Text("")
        if COMPILING.is_at_work:
            return self._line(Text(f"{COMPILING_WORDS}: {COMPILING.count} done", style="yellow"), self._elapsed())
        fitting = self._lambdas > 0
        line = self._path_line() if fitting else self._phase_line()
        return Group(line, Text(f"  {self._round}", no_wrap=True, overflow="ellipsis")) if fitting else line

    def _line(self, *cells: RenderableType) -> Table:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(width=NAME_WIDTH, no_wrap=True)
        for cell in cells:
            bar = isinstance(cell, ProgressBar)
            grid.add_column(ratio=1 if bar else None, no_wrap=True, justify="left" if bar else "right")
        grid.add_row(self._spinner, Text(self._stage, style="bold"), *cells)
        return grid

    def _phase_line(self) -> Table:
        if not self._phases:
            return self._line(ProgressBar(pulse=True), self._elapsed())
        phase = self._phases[-1]
        total = max(phase.total, 1)
        share = 100.0 * phase.done / total if phase.total else 100.0
        bar = ProgressBar(total=total, completed=phase.done if phase.total else 1)
        speed, left = Text(phase.speed, style="cyan"), Text(phase.left)
        return self._line(Text(phase.name), bar, Text(f"{share:.0f} %"), speed, left, self._elapsed())

    def _path_line(self) -> Table:
        # No time left: each λ takes longer than the one before, by how much only the data know.
        bar = ProgressBar(total=self._lambdas, completed=self._done)
        return self._line(bar, Text(f"{self._done}/{self._lambdas} λ", style="cyan"), self._elapsed())

    def _elapsed(self) -> Text:
        return Text(duration(working_seconds() - self._begun), style="dim")


def _row(*cells: str, style: str) -> Text:
    """A row of the path's table, 74 characters wide."""
    widths = (7, 11, 10, 14, 9, 7, 9)
    return Text(" ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)), style=style)
