"""Options of commands, made of the fields of options classes (solver/options.py), where a new one is written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field
from types import UnionType
from typing import Any, get_args, get_type_hints

import click

from pipeline.commands.shared import Decorator, Size
from solver.options import options_of


class Numbers(click.ParamType):
    """Numbers separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(piece) for piece in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: expected numbers separated by commas, such as 8,4,2.5", param, ctx)


def options_from(
    kind: type[Any], *, names: Mapping[str, str] | None = None, choices: Mapping[str, Sequence[str]] | None = None
) -> list[Decorator]:
    """An option for each field that people set. names: of options that are called otherwise than the field."""
    names, choices, hints = names or {}, choices or {}, get_type_hints(kind)
    made: list[Decorator] = []
    for field in options_of(kind):
        flag = names.get(field.name, field.name.replace("_", "-"))
        if _plain(hints[field.name]) is bool:
            spelling = f"--{flag}/--no-{flag}" if field.default is None else f"--{flag}"
            made.append(click.option(spelling, is_flag=True, default=field.default, help=_words(field)))
        else:
            type_ = click.Choice(choices[field.name]) if field.name in choices else _type(field, hints[field.name])
            given = None if field.default == () else field.default
            made.append(_option(flag, type_, field, default=given, words=_words(field)))
    return made


def options_from_all(kinds: Mapping[str, type[Any]]) -> list[Decorator]:
    """The options of several algorithms: one for each name, whose default is that of the algorithm that is chosen."""
    made: list[Decorator] = []
    for name in dict.fromkeys(field.name for kind in kinds.values() for field in options_of(kind)):
        having = {
            algorithm: (field, get_type_hints(kind)[name])
            for algorithm, kind in kinds.items()
            for field in options_of(kind)
            if field.name == name
        }
        field, hint = next(iter(having.values()))
        words = _of_several({algorithm: one for algorithm, (one, _) in having.items()}, len(kinds))
        made.append(_option(name.replace("_", "-"), _type(field, hint), field, default=None, words=words))
    return made


def _option(flag: str, type_: Any, field: Field[Any], *, default: Any, words: str) -> Decorator:
    shown = default is not None
    metavar = field.metadata["metavar"]
    return click.option(f"--{flag}", type=type_, default=default, show_default=shown, metavar=metavar, help=words)


def _of_several(fields: Mapping[str, Field[Any]], algorithms: int) -> str:
    """What an option means to each algorithm that has it, and its defaults."""
    first, *others = fields.items()
    words = _words(first[1])
    for name, field in others:
        if _words(field) != words:
            own = _words(field)
            words += f" With --algorithm {name}: {own[0].lower()}{own[1:]}"
    if len(fields) < algorithms:
        words += f" For --algorithm {' and '.join(fields)} only."
    defaults = {name: field.default for name, field in fields.items() if field.default is not None}
    if not defaults:
        return words
    plain, *rest = defaults.items()
    differing = [f"{name} {value}" for name, value in rest if value != plain[1]]
    return f"{words} [default: {'; '.join([str(plain[1]), *differing])}]"


def _words(field: Field[Any]) -> str:
    return str(field.metadata["words"])


def _plain(hint: Any) -> Any:
    """int of int | None."""
    return next(one for one in get_args(hint) if one is not type(None)) if isinstance(hint, UnionType) else hint


def _type(field: Field[Any], hint: Any) -> Any:
    if field.metadata["unit"] == "bytes":
        return Size()
    plain, least = _plain(hint), field.metadata["least"]
    if plain is int and least is not None:
        return click.IntRange(least)
    return plain if plain in (int, float, str) else Numbers()
