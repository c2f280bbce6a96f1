"""Options from a file (--config) and from Dask's configuration (dglmnet.*), checked against the commands themselves.

A key at the top is for every command that has such an option; a section, named after a command, holds that command's
own, which win. The command line wins over the file, the file over Dask's configuration, and `null` stands for "as if it
were not set". The options of the commands are the schema: it cannot differ from what the commands take.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import click

from pipeline.config.source import Entry, canonical, entries_of_dask, entries_of_file
from transforms.errors import UserError

SECTION_ALIASES = {"convert": "convert-libsvm"}
Schema = dict[str, dict[str, click.Parameter]]  # command -> key -> the option or argument that takes it
Settings = dict[str, dict[str, Any]]  # command -> the parameter's name -> value, as click takes defaults


def defaults_for(command: str, url: str | None) -> dict[str, Any]:
    """What Dask's configuration and the file at `url`, if there is one, set for a command. All of both is checked."""
    layers = [entries_of_dask(), entries_of_file(url) if url is not None else ()]
    if not any(layers):
        return {}
    known = schema()
    merged: dict[str, Any] = {}
    for entries in layers:
        merged |= settings(entries, known)[command]
    return {name: value for name, value in merged.items() if value is not None}


def schema() -> Schema:
    """Every key of every command that takes --config."""
    from pipeline.commands.dask import command as everything  # here, as the commands need this module

    context = click.Context(everything)
    commands = {name: everything.get_command(context, name) for name in everything.list_commands(context)}
    return {name: _keys(one) for name, one in commands.items() if one is not None and takes_config(one)}


def takes_config(command: click.Command) -> bool:
    return any("--config" in option.opts for option in command.params)


def _keys(command: click.Command) -> dict[str, click.Parameter]:
    """An option's key is its long name, an argument's its name in lower case."""
    found = {}
    for parameter in command.params:
        if not parameter.expose_value:
            continue  # --config and --version say what to do now
        longs = [name[2:] for name in parameter.opts if name.startswith("--")]
        for key in longs if isinstance(parameter, click.Option) else [parameter.name or ""]:
            found[canonical(key)] = parameter
    return found


def settings(entries: Iterable[Entry], known: Schema) -> Settings:
    """What the entries set for each command; every one is checked, whichever command is to run."""
    checker = _Checker(known)
    for entry in entries:
        if _section(entry.key) in known:
            checker.set_section(entry, _section(entry.key))
        else:
            checker.set_everywhere(entry)
    checker.finish()
    return {command: checker.shared[command] | checker.own[command] for command in known}


def _section(key: str) -> str:
    return SECTION_ALIASES.get(canonical(key), canonical(key))


class _Checker:
    """Collects what is set and what is wrong."""

    def __init__(self, known: Schema) -> None:
        self.known = known
        self.shared: Settings = {command: {} for command in known}
        self.own: Settings = {command: {} for command in known}
        self.problems: list[str] = []
        self.seen: set[tuple[str, str]] = set()

    def set_everywhere(self, entry: Entry) -> None:
        commands = [command for command, keys in self.known.items() if canonical(entry.key) in keys]
        if not commands:
            self.problems.append(f"{entry.where}: no such option or command{self._hint_at_top(entry.key)}")
        elif self._is_new(entry, ""):
            # One that several commands share is checked once for each: it may mean something else there.
            for command in commands:
                self._set(self.shared, entry, command)

    def set_section(self, entry: Entry, section: str) -> None:
        if entry.value is not None and not isinstance(entry.value, dict):
            self.problems.append(f"{entry.where}: expected the options of {section}, one a line, found a value")
        elif self._is_new(entry, "section"):
            for one in entry.inside:
                if canonical(one.key) not in self.known[section]:
                    self.problems.append(f"{one.where}: {section} has no such option{self._hint(one.key, section)}")
                elif self._is_new(one, section):
                    self._set(self.own, one, section)

    def _is_new(self, entry: Entry, section: str) -> bool:
        """Is this the first of its name? convert and convert-libsvm, path-length and path_length, are the same."""
        name = (section, _section(entry.key))
        if name in self.seen:
            self.problems.append(f"{entry.where}: set twice, in two spellings")
        new = name not in self.seen
        self.seen.add(name)
        return new

    def _set(self, settings: Settings, entry: Entry, command: str) -> None:
        parameter = self.known[command][canonical(entry.key)]
        try:
            value = None if entry.value is None else checked_value(parameter, entry.value)
        except click.BadParameter as error:
            problem = f"{entry.where}: {error.message.rstrip('.')}"
            if problem not in self.problems:
                self.problems.append(problem)
        else:
            settings[command][parameter.name or ""] = value

    def _hint_at_top(self, key: str) -> str:
        names = [*self.known, *SECTION_ALIASES, *(name for keys in self.known.values() for name in keys)]
        return _nearest(key, names) or f". The commands are {', '.join(self.known)}; their --help names their options"

    def _hint(self, key: str, section: str) -> str:
        others = [command for command, keys in self.known.items() if canonical(key) in keys]
        if others:
            return f"; {', '.join(others)} {'has' if len(others) == 1 else 'have'}"
        return _nearest(key, self.known[section]) or f"; --help of {section} names those that it has"

    def finish(self) -> None:
        if self.problems:
            more = len(self.problems) - 1
            tail = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
            raise UserError(self.problems[0] + tail)


def _nearest(key: str, names: Iterable[str]) -> str:
    """A hint at the name most like the key; "tolerance" is not much like "tol", but begins with it."""
    key, known = canonical(key).lower(), set(names)
    begun = [name for name in sorted(known) if len(name) > 2 and (key.startswith(name) or name.startswith(key))]
    near = difflib.get_close_matches(key, known, 1) or begun
    return f": did you mean {near[0]}?" if near else ""


def checked_value(parameter: click.Parameter, value: Any) -> Any:
    """The value as click takes a default; raises click.BadParameter if the option would refuse it."""
    several = parameter.nargs != 1 or parameter.multiple
    value = _shaped(parameter, value, several=several)
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return _truth(parameter, value)
    for one in value if several else [value]:
        parameter.type.convert(one, parameter, None)
    return value


def _truth(parameter: click.Parameter, value: str) -> bool:
    try:
        return bool(click.BOOL.convert(value, parameter, None))
    except click.BadParameter:
        raise click.BadParameter(f"expected true or false, found {value!r}") from None


def _shaped(parameter: click.Parameter, value: Any, *, several: bool) -> Any:
    """A list where the option may be given several times; a mapping where it takes JSON; text everywhere else."""
    if isinstance(value, dict):
        if parameter.type.name != "json":
            raise click.BadParameter("expected a value, found a mapping")
        return value
    if isinstance(value, list):
        if not several and parameter.type.name != "numbers":
            raise click.BadParameter("expected one value, found a list")
        if None in value or not value:
            raise click.BadParameter("expected a list of values, such as [a, b]")
        return value if several else ",".join(value)
    return [value] if several else value
