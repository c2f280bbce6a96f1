"""What stored JSON must look like, field by field, and the one way to read it.

A check takes a value and its place (`partitions[3].bytes`) and raises Mismatch unless the value is what it must be.
Checks are put together from smaller ones: `record({"bytes": whole(), "sha256": text(SHA256)})`. Fields that no check
names are let through, so that a later version may add some.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from transforms.errors import UserError
from transforms.storage import display, explained, read_whole, write_json

Check = Callable[[Any, str], None]

SEAL = "checksum"  # the field of a file's own checksum
LARGEST = 2**63 - 1
SHA256 = re.compile("[0-9a-f]{64}")
_UNPRINTABLE = re.compile("[\0\ud800-\udfff]")  # neither can be shown or be part of a path
_LONGEST_SHOWN = 60


class Mismatch(ValueError):
    """A value that is not what its field must hold."""


def read_record(
    fs: Any, path: str, check: Check, remedy: str, error_class: type[UserError] = UserError
) -> dict[str, Any]:
    """The JSON object at `path`, checked. A file that is not there is the caller's to explain (FileNotFoundError)."""
    where = display(fs, path)
    with explained(where):
        data = read_whole(fs, path)
    try:
        return parse_record(data, check)
    except ValueError as error:
        raise error_class(f"{where}: damaged ({error}): {remedy}") from None


def parse_record(data: bytes, check: Check) -> dict[str, Any]:
    """The JSON object that these bytes are, checked. Raises ValueError, saying in one line what is wrong."""
    content = parse_object(data)
    check(content, "")
    seal = content.pop(SEAL, None)
    if seal is not None and seal != _seal_of(content):
        raise Mismatch("its own checksum differs: it was changed")
    return content


def write_sealed(fs: Any, path: str, content: dict[str, Any]) -> None:
    """Write JSON that carries its own checksum, so that a flipped bit in a number is noticed, too."""
    write_json(fs, path, content | {SEAL: _seal_of(content)})


def _seal_of(content: dict[str, Any]) -> str:
    """A checksum that does not depend on how JSON is laid out."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object that these bytes are; no key may stand twice."""
    content = parse(data)
    if not isinstance(content, dict):
        refuse("", "an object", content)
    found: dict[str, Any] = content
    return found


def parse(data: bytes) -> Any:
    """What these bytes say in JSON."""
    try:
        return json.loads(data, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Mismatch(f"{shown(twice)} stands twice")
    return content


def refuse(place: str, expected: str, found: Any) -> None:
    raise Mismatch(f"{place or 'it'} must be {expected}, found {shown(found)}")


# --- checks ---------------------------------------------------------------------------------------------------------


def anything(value: Any, place: str) -> None:
    """Whatever JSON can say."""


def never(value: Any, place: str) -> None:
    """A field that must not be there."""
    raise Mismatch(f"{place} does not belong here")


def whole(low: int = 0, high: int = LARGEST) -> Check:
    def check(value: Any, place: str) -> None:
        if type(value) is not int or not low <= value <= high:
            refuse(place, f"a whole number from {low} to {high}", value)

    return check


def number(low: float = -sys.float_info.max, high: float = sys.float_info.max) -> Check:
    """A finite number."""

    def check(value: Any, place: str) -> None:
        if type(value) not in (int, float) or not low <= value <= high:
            refuse(
                place, "a finite number" + (f" from {low:g} to {high:g}" if low > -sys.float_info.max else ""), value
            )

    return check


def flag(value: Any, place: str) -> None:
    if type(value) is not bool:
        refuse(place, "true or false", value)


def text(pattern: re.Pattern[str] | None = None, choices: Sequence[str] = ()) -> Check:
    """A string, of a pattern or one of some."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or _UNPRINTABLE.search(value):
            refuse(place, "text", value)
        if choices and value not in choices:
            refuse(place, f"one of {', '.join(choices)}", value)
        if pattern is not None and not pattern.fullmatch(value):
            refuse(place, f"text of the form {pattern.pattern}", value)

    return check


def moment(value: Any, place: str) -> None:
    """A time with its zone, as ISO 8601 writes it."""
    try:
        aware = isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        refuse(place, "a time with its zone, such as 2026-01-31T12:00:00+00:00", value)


def optional(check: Check) -> Check:
    """null, or what `check` wants."""

    def check_unless_null(value: Any, place: str) -> None:
        if value is not None:
            check(value, place)

    return check_unless_null


def listed(check: Check) -> Check:
    """A list of such values."""

    def check_all(value: Any, place: str) -> None:
        if not isinstance(value, list):
            refuse(place, "a list", value)
        for k, one in enumerate(value):
            check(one, f"{place}[{k}]")

    return check_all


def mapping(check: Check) -> Check:
    """An object with any keys, and such values."""

    def check_all(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            refuse(place, "an object", value)
        for key, one in value.items():
            if _UNPRINTABLE.search(key):
                refuse(f"a key of {place or 'it'}", "text", key)
            check(one, _inside(place, key))

    return check_all


def record(required: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields, and perhaps the others."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            refuse(place, "an object", value)
        for name, field in required.items():
            if name not in value:
                raise Mismatch(f"{_inside(place, name)} is missing")
            field(value[name], _inside(place, name))
        for name, field in (others or {}).items():
            if name in value:
                field(value[name], _inside(place, name))

    return check


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def shown(value: Any) -> str:
    """A value in a few words, on one line, whatever it is."""
    if isinstance(value, (dict, list)):
        kind = "an object" if isinstance(value, dict) else "a list"
        return f"{kind} of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) > 10**_LONGEST_SHOWN:
        return "a number of very many digits"
    shown = ascii(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
