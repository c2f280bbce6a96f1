"""How a fit goes, for people and machines: a line per round, a row per λ, a bar over the path."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from pipeline.blocks import Placement
from solver import RoundRecord, Solution

logger = logging.getLogger("dglmnet")


def placement_line(placements: Sequence[Placement]) -> str:
    """Which worker holds what, in a sentence."""
    blocks = sum(len(one.groups) for one in placements)
    ways = sorted({one.residency for one in placements})
    chosen = [f"{way} on {sum(one.residency == way for one in placements)}" for way in ways]
    return f"{blocks} blocks on {len(placements)} workers; columns: {', '.join(chosen) if len(ways) > 1 else ways[0]}"


def round_line(record: RoundRecord, total: int) -> str:
    return (
        f"λ {record.lambda_index + 1}/{total} = {record.lam:.4g}  round {record.round:>3}  f = {record.objective:.8g}  "
        f"decrease {record.relative_decrease:.1e}  α = {record.alpha:.3g}  nonzeros {record.nonzeros:,}  "
        f"{record.seconds:.3f} s"
    )


def solution_line(solution: Solution, total: int) -> str:
    share = solution.gap / solution.objective if solution.objective else 0.0
    return (
        f"λ {solution.lambda_index + 1:>2}/{total} = {solution.lam:<10.4g} f = {solution.objective:<14.9g} "
        f"gap {share:.1e}  {solution.nonzeros:>8,} nonzeros  {solution.rounds:>3} rounds  {solution.seconds:6.2f} s"
        f"{'' if solution.converged else '  NOT CONVERGED'}"
    )


class LogFit:
    """Log lines; with the JSON formatter, an event each."""

    def __enter__(self) -> LogFit:
        self._total = 0
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def placed(self, placements: Sequence[Placement]) -> None:
        event = {
            "event": "placed",
            "workers": [
                {"name": str(one.worker.name), "blocks": one.groups, "residency": one.residency} for one in placements
            ],
        }
        logger.info(placement_line(placements), extra={"event": event})

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        self._total = len(lambdas)
        event = {"event": "path", "lambda_max": largest, "lambdas": list(lambdas), "done": done}
        logger.info("λmax = %.6g; %d of %d λ to do", largest, len(lambdas) - done, len(lambdas), extra={"event": event})

    def round(self, record: RoundRecord) -> None:
        fields = asdict(record)
        event = {"event": "round", "lambda": fields.pop("lam")} | fields
        logger.info(round_line(record, self._total), extra={"event": event})

    def solution(self, solution: Solution) -> None:
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
        event = {"event": "solution", "lambda": solution.lam} | {name: getattr(solution, name) for name in names}
        logger.info(solution_line(solution, self._total), extra={"event": event})


class TerminalFit:
    """A bar over the path with the round at work below it; a row for each λ that is done."""

    def __init__(self, console: Console) -> None:
        self._bars = RichProgress(
            TextColumn("path"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task: Any = None
        self._total = 0

    def __enter__(self) -> TerminalFit:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def placed(self, placements: Sequence[Placement]) -> None:
        self._bars.console.print(placement_line(placements), highlight=False)

    def begin(self, lambdas: Sequence[float], done: int, largest: float) -> None:
        self._total = len(lambdas)
        self._bars.console.print(f"λmax = {largest:.6g}", highlight=False)
        self._task = self._bars.add_task("", total=len(lambdas), completed=done)

    def round(self, record: RoundRecord) -> None:
        text = (
            f"round {record.round}  f = {record.objective:.8g}  decrease {record.relative_decrease:.1e}  "
            f"α = {record.alpha:.3g}  {record.nonzeros:,} nonzeros  {record.seconds:.3f} s"
        )
        self._bars.update(self._task, description=text)

    def solution(self, solution: Solution) -> None:
        self._bars.console.print(solution_line(solution, self._total), highlight=False)
        self._bars.update(self._task, advance=1, description="")


def show_fit(*, quiet: bool, log_json: bool) -> LogFit | TerminalFit:
    """The display that suits where standard error goes; --quiet silences the logger itself."""
    console = Console(stderr=True)
    return TerminalFit(console) if console.is_terminal and not (quiet or log_json) else LogFit()
