"""Questions: what the outer loops may ask of blocks (block.py).

Each is a method of Block. It says of itself how the answers of several blocks become one, what a block that is made
anew must be asked again (replay.py), and which vector of an answer is only wanted as a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from solver.arrays import Float64
from solver.kernels import vectors
from solver.layout import Layout

Join = Callable[[Sequence[Any], Layout], Any]


class About(NamedTuple):
    """What is known of a question.

    join: how the answers of several blocks become one. moves: it brings the step of the last round. kept: it sets what
    later calls build on, so that a block which is made anew must be asked it, too. replaces: the kept ones before it
    that do not matter any more. summed: the field of the answer that is a vector over examples of which only the sum
    over the blocks is wanted; "" is the answer itself.
    """

    join: Join
    moves: bool = False
    kept: bool = False
    replaces: tuple[str, ...] = ()
    summed: str | None = None


QUESTIONS: dict[str, About] = {}


def asked(
    join: Join, *, moves: bool = False, kept: bool = False, replaces: Sequence[str] = (), summed: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a method that the outer loops call."""

    def declare(method: Callable[..., Any]) -> Callable[..., Any]:
        QUESTIONS[method.__name__] = About(join, moves, kept, tuple(replaces), summed)
        return method

    return declare


def join_answers(name: str, answers: Sequence[Any], layout: Layout) -> Any:
    """The answers of blocks to one question, as one block over all their features would give it."""
    return QUESTIONS[name].join(answers, layout)


def is_summed(name: str) -> bool:
    """Is there a vector in the answers to this question of which only the sum is wanted?"""
    return QUESTIONS[name].summed is not None


def take_summed(name: str, answer: Any) -> tuple[Any, Float64]:
    """An answer without that vector, and the vector. In its place stands an empty one."""
    field, empty = QUESTIONS[name].summed, np.empty(0)
    return (replace(answer, **{field: empty}), getattr(answer, field)) if field else (empty, answer)


def put_summed(name: str, answer: Any, total: Float64) -> Any:
    """An answer with the sum in place of its own vector."""
    field = QUESTIONS[name].summed
    return replace(answer, **{field: total}) if field else total


def summed(parts: Sequence[Float64], layout: Layout) -> Float64:
    """The sum, in the order of the blocks. An empty part is in the sum that another one stands for."""
    filled = [part for part in parts if part.size]
    if len(filled) == 1:
        return filled[0]
    total = filled[0].copy()
    for part in filled[1:]:
        vectors.add(total, part)
    return total


def joined_arrays(parts: Sequence[Float64], layout: Layout) -> Float64:
    """Of each feature one number: those of the blocks one after another."""
    return np.concatenate([np.empty(0), *parts])


def total(parts: Sequence[Float64], layout: Layout | None = None) -> Float64:
    """The sum of small arrays, in the order of the blocks."""
    return sum(parts[1:], start=parts[0])


def nothing(parts: Sequence[Any], layout: Layout) -> None:
    return None
