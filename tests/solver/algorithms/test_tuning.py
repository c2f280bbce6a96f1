"""The constants of the certified search: each has one name, one meaning, and its reason beside it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from solver import batches
from solver.algorithms.certified import tuning

MODULES = (tuning, batches)
GROUPS = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if name.isupper() and is_dataclass(value) and not isinstance(value, type)
}


def test_no_name_has_two_meanings() -> None:
    names = Counter(field.name for group in GROUPS.values() for field in fields(group))
    assert len(names) > 80
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_cannot_be_changed_in_place(name: str) -> None:
    group: Any = GROUPS[name]
    with pytest.raises(FrozenInstanceError):
        setattr(group, fields(group)[0].name, 0)


def test_every_constant_is_used() -> None:
    folder = Path(tuning.__file__).parent
    files = [*folder.glob("*.py"), *folder.parents[1].glob("*.py")]
    used = set(re.findall(r"\b([A-Z_]+)\.([a-z_0-9]+)", "\n".join(file.read_text() for file in files)))
    written = {(name, field.name) for name, group in GROUPS.items() for field in fields(group)}
    assert written - used == set()


def test_no_module_of_the_search_has_constants_of_its_own() -> None:
    """A number at the top of a file has no unit, no reason, and no place in the list."""
    folder = Path(tuning.__file__).parent
    for file in sorted(folder.glob("*.py")):
        numbers = re.findall(r"^[A-Z_, ]+ = \(?-?[0-9].*", file.read_text(), flags=re.MULTILINE)
        assert numbers == [], file.name
