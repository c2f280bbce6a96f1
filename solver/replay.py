"""What a block that was lost and made anew must be asked, to be where the others are.

Blocks keep little: the penalty, β, margins, slopes of the last sweep. All of it came with questions, so the last ones
that set it, asked again in their order, bring it back. A question says of itself what it replaces (questions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from solver.arrays import Coefficients, Float64
from solver.block import Step
from solver.point import Point
from solver.questions import QUESTIONS


class Question(NamedTuple):
    """A method of Block, what all blocks are given, and what is cut for each."""

    name: str
    shared: tuple[Any, ...]
    each: Any = None

    def without_step(self) -> Question:
        return self._replace(shared=tuple(None if isinstance(one, Step) else one for one in self.shared))


class Replay:
    """The questions to repeat. Their arrays are the caller's own, and are as they were: it promised (Blocks.ask)."""

    def __init__(self) -> None:
        self._kept: list[Question] = []
        self._iterate: Callable[[], tuple[Coefficients, Float64]] | None = None
        self._is_ahead = False  # have blocks been put where the next step leads?

    def note(self, question: Question) -> None:
        """A question that all blocks have answered."""
        about = QUESTIONS[question.name]
        self._kept = [one for one in self._kept if one.name not in about.replaces]
        if about.kept:
            self._kept.append(question)
        if "put" in about.replaces:
            self._iterate = None
        if about.moves or "put" in about.replaces:
            self._is_ahead = False

    def follow(self, iterate: Callable[[], tuple[Coefficients, Float64]]) -> None:
        """From here on β and margins are not those of the questions, but what this gives."""
        self._kept = [one for one in self._kept if one.name not in QUESTIONS["put"].replaces]
        self._iterate = iterate

    def due(self, question: Question) -> Question:
        """The question as it is to be asked: a step that has been made is not made again."""
        return question.without_step() if self._is_ahead else question

    def questions(self) -> Iterator[Question]:
        """What to ask blocks that are made anew."""
        yield from self._kept
        if self._iterate is not None:
            beta, margins = self._iterate()
            self._is_ahead = True
            yield Question("put", (Point(margins),), beta)
