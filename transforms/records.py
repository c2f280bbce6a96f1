"""Stored JSON objects as frozen dataclasses: a field of the object is a typed attribute.

Whoever reads a record has checked it (transforms/schema.py). Fields that this version does not know are kept, and
written again after those it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, Self


class FromJson(Protocol):
    """A class that can be made of JSON, for a field that holds one, or a list of them."""

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Any: ...


def of(kind: type[FromJson], *, perhaps: bool = False) -> dict[str, Any]:
    """Metadata of a field that holds a record, or a list of records; with `perhaps`, one that may be absent."""
    return {"kind": kind, "absent": perhaps}


PERHAPS: dict[str, Any] = {"absent": True}  # metadata of a field that may be absent: None here, and then not written


@dataclass(frozen=True, kw_only=True)
class Record:
    """A JSON object whose fields are those of the dataclass, in their order."""

    others: Mapping[str, Any] = field(default_factory=dict)  # what a later version added

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """The record that a checked object is."""
        kinds = {one.name: one.metadata.get("kind") for one in fields(cls) if one.name != "others"}
        known = {name: _read(kinds[name], value) for name, value in content.items() if name in kinds}
        return cls(**known, others={name: value for name, value in content.items() if name not in kinds})

    def to_json(self) -> dict[str, Any]:
        """The object as it is stored."""
        content = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name != "others" and not (value is None and one.metadata.get("absent")):
                content[one.name] = _plain(value)
        return content | dict(self.others)


def _read(kind: type[FromJson] | None, value: Any) -> Any:
    if kind is None or value is None:
        return value
    return [kind.from_json(one) for one in value] if isinstance(value, list) else kind.from_json(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.to_json() if hasattr(value, "to_json") else value
