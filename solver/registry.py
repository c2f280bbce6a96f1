"""Modules by name, each loaded when it is first asked for: the names are there before anything slow is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


class Registry(MutableMapping[str, T]):
    """`modules`: the name of a thing, and of the module that it is."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._found: dict[str, Any] = dict(modules)

    def __getitem__(self, name: str) -> T:
        found = self._found[name]
        if isinstance(found, str):
            found = self._found[name] = import_module(found)
        loaded: T = found
        return loaded

    def __setitem__(self, name: str, value: T) -> None:
        self._found[name] = value

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found
