"""The display: one look on a terminal, log lines elsewhere, events for machines, nothing when quiet."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from pipeline.commands.shared import JsonFormatter
from pipeline.display import Display, LogDisplay, SilentDisplay, TerminalDisplay, amount, duration, open_display
from pipeline.driver.events import EventDisplay, Replay
from pipeline.events import Event
from solver import RoundRecord, Solution
from solver.arrays import Coefficients
from solver.compiling import COMPILING


def record(round_: int) -> RoundRecord:
    return RoundRecord(0, 883.5, round_, 13706.6, 1e-3, 0.5, 1234567, 0.1, 0.02)


def solution(k: int, *, converged: bool = True) -> Solution:
    beta = Coefficients(np.arange(3), np.ones(3))
    return Solution(k, 883.5 / 2**k, beta, 123456789.123, 12.5, 17, "tolerance" if converged else "limit", 83.0, 0.1)


def play(display: Display) -> None:
    """A pipeline as it goes."""
    with display:
        display.note("no --test: 20 % of the examples are held out to judge the models")
        display.stage("convert")
        display.phase("map", 2_000_000, "B")
        display.advance(1_000_000)
        display.advance(1_000_000)
        display.phase("reduce", 500_000, "nonzeros")
        display.advance(500_000)
        display.stage("fit")
        display.begin([883.5, 441.75], 0, 1767.0)
        display.round(record(1))
        display.solution(solution(0))
        display.round(record(2))
        display.solution(solution(1, converged=False))
        display.stage("evaluate")
        display.phase("judge", 2, "models")
        display.advance(2)


def plain(raw: str) -> list[str]:
    """What stands on the screen, line by line, without colours and movements."""
    return [line for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", raw)) if line.strip()]


def on_terminal(width: int) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=40, legacy_windows=False)
    display = TerminalDisplay(console)
    play(display)
    assert isinstance(console.file, io.StringIO)
    return plain(console.file.getvalue())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, on_terminal(width))) <= width


def test_stages_that_are_done_are_ticked_with_their_seconds_and_every_lambda_has_a_row() -> None:
    lines = on_terminal(80)
    kept = [line for line in lines if line.startswith("✓") or re.match(r" +\d+/2 ", line)]
    assert [line.split()[:2] for line in kept] == [
        ["✓", "convert"],
        ["1/2", "883.5"],
        ["2/2", "441.75"],
        ["✓", "fit"],
        ["✓", "evaluate"],
    ]
    assert re.match(r"✓ convert +\d+\.\d s +map \d+\.\d s, .*B/s; reduce \d+\.\d s, .* nonzeros/s", kept[0])
    assert re.search(r"1/2 +883\.5 +3 +1\.2345679e\+08 +1\.0e-07 +17 +1:23$", kept[1])
    assert " 17! " in kept[2]  # it did not converge


def test_the_running_line_shows_the_path_and_the_round_at_work() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=40, legacy_windows=False)
    display = TerminalDisplay(console)
    with display:
        display.stage("fit")
        display.begin([883.5, 441.75], 1, 1767.0)
        display.round(record(3))
        display._live.refresh()
    assert isinstance(console.file, io.StringIO)
    text = "\n".join(plain(console.file.getvalue()))
    assert re.search(r"fit +━+.*1/2 λ", text)
    assert "λ 883.5  round 3  f 13706.6" in text
    assert "1 of 2 λ are done" in text


def test_a_stage_that_fails_is_crossed_out() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, legacy_windows=False)
    with pytest.raises(ValueError, match="broken"), TerminalDisplay(console) as display:
        display.stage("convert")
        raise ValueError("broken")
    assert isinstance(console.file, io.StringIO)
    assert any(line.startswith("✗ convert") for line in plain(console.file.getvalue()))


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What the package logs, an object a line."""
    logger, stream = logging.getLogger("dglmnet"), io.StringIO()
    before = logger.handlers, logger.level, logger.propagate
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    yield stream
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def test_machines_get_an_event_for_everything(logged: io.StringIO) -> None:
    play(LogDisplay())
    events = [json.loads(line) for line in logged.getvalue().splitlines()]
    names = [
        "note",
        "phase",
        "progress",
        "phase",
        "progress",
        "stage",
        "path",
        "round",
        "solution",
        "round",
        "solution",
    ]
    assert [event["event"] for event in events] == [*names, "stage", "phase", "progress", "stage"]
    assert [event["stage"] for event in events if event["event"] == "stage"] == ["convert", "fit", "evaluate"]
    assert all(event["seconds"] >= 0 for event in events if event["event"] == "stage")


def test_compiling_is_one_log_line_however_many_kernels(logged: io.StringIO) -> None:
    with LogDisplay():
        for watcher in 2 * COMPILING.watchers:
            watcher()
    assert [json.loads(line)["event"] for line in logged.getvalue().splitlines()] == ["compile"]
    assert not COMPILING.watchers


def test_a_terminal_says_that_kernels_are_compiled_and_counts_that_in_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40, legacy_windows=False)
    with TerminalDisplay(console) as display:
        display.stage("convert")
        display.phase("map", 2_000_000, "B")
        monkeypatch.setattr(COMPILING, "_depth", 1)
        monkeypatch.setattr(COMPILING, "_began", perf_counter() - 5.0)
        console.print(display._running())
        monkeypatch.setattr(COMPILING, "_depth", 0)
        monkeypatch.setattr(COMPILING, "_seconds", COMPILING.seconds + 5.0)
    assert isinstance(console.file, io.StringIO)
    lines = plain(console.file.getvalue())
    assert any("compiling kernels for this machine, once: " in line for line in lines)
    assert any(line.startswith("✓ convert") and "kernels compiled, once: 5.0 s" in line for line in lines)


def test_quiet_says_nothing(logged: io.StringIO, capfd: pytest.CaptureFixture[str]) -> None:
    display = open_display(quiet=True, log_json=False)
    assert isinstance(display, SilentDisplay)
    play(display)
    assert (logged.getvalue(), *capfd.readouterr()) == ("", "", "")


def test_a_pipe_is_no_terminal_even_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert isinstance(open_display(quiet=False, log_json=False), LogDisplay)


def test_warnings_go_above_the_bars(logged: io.StringIO) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, legacy_windows=False)
    with TerminalDisplay(console) as display:
        display.stage("fit")
        logging.getLogger("dglmnet").warning("look out")
    logging.getLogger("dglmnet").warning("afterwards")
    assert isinstance(console.file, io.StringIO)
    assert any("look out" in line for line in plain(console.file.getvalue()))
    assert "look out" not in logged.getvalue()
    assert "afterwards" in logged.getvalue()


def test_amounts_and_durations_read_well() -> None:
    assert [amount(999, "B"), amount(1234567, "B"), amount(2.5e9, "nonzeros")] == ["999 B", "1.2 MB", "2.5 G nonzeros"]
    assert [duration(0.42), duration(83), duration(4000)] == ["0.4 s", "1:23", "1:06:40"]


@dataclass(frozen=True)
class Warmed(Event):
    """An event that no display knows yet."""

    degrees: int

    name: ClassVar = "warmed"


def test_a_new_event_is_a_class_that_travels_to_every_display() -> None:
    """And what a display has no handler for does not disturb it."""
    told: list[Event] = []

    class Watching(SilentDisplay):
        def tell(self, event: Event) -> None:
            told.append(event)

    sent: list[dict[str, Any]] = []
    driver = EventDisplay(lambda message: sent.append(json.loads(json.dumps(message))), lambda event: None)
    for display in (driver, LogDisplay(), TerminalDisplay(Console(file=io.StringIO())), SilentDisplay()):
        display.tell(Warmed(21))
    for message in (*sent, *driver.summary()[1]):
        Replay(Watching()).show(message)
    assert told == [Warmed(21), Warmed(21)]
