"""Where options come from beside the command line: a YAML file and Dask's configuration. config.py says what they mean.

A value is kept as it is written, so that an option reads it just as it would read it on the command line: `1e-4` is a
number although YAML takes it for text, and `010` is ten. No message quotes the text of a file: it may hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.config
import yaml

from transforms.errors import UserError
from transforms.storage import explained, open_storage, redact

DASK_KEY = "dglmnet"
_NULL = "tag:yaml.org,2002:null"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Entry:
    """A key as it is written, what it is set to, and where that stands."""

    key: str
    where: str  # "run.yaml, line 3: fit.tol"
    value: Any  # None, text, a list of texts (None for what is none), or a mapping
    inside: tuple[Entry, ...] = ()  # of a mapping


def canonical(key: str) -> str:
    """path_length and path-length are the same key."""
    return key.replace("_", "-")


def entries_of_file(url: str) -> tuple[Entry, ...]:
    """What a YAML file sets."""
    return entries_of_text(_read(url), redact(url))


def _read(url: str) -> str:
    where = redact(url)
    with explained(where):
        try:
            fs, path = open_storage(url)
            content: bytes = fs.cat_file(path)
            return content.decode("utf-8-sig")
        except FileNotFoundError:
            raise UserError(f"{where}: no such file") from None
        except IsADirectoryError:
            raise UserError(f"{where}: a folder, not a file of options") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not text in UTF-8 (byte {error.start:,}): expected a YAML file") from None


def entries_of_text(text: str, name: str) -> tuple[Entry, ...]:
    """What YAML text sets; `name` is how messages call it."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None or node.tag == _NULL:
            return ()
        if not isinstance(node, yaml.MappingNode):
            found = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
            raise UserError(f"{_place(name, node.start_mark)}: expected options, such as `workers: 4`, found {found}")
        return _entries(loader, node, name, ())
    except yaml.YAMLError as error:
        raise UserError(_syntax(error, name)) from None
    finally:
        if loader is not None:
            loader.dispose()


def _place(name: str, mark: Any) -> str:
    return f"{name}, line {mark.line + 1}"


def _syntax(error: yaml.YAMLError, name: str) -> str:
    """YAML's complaint, without what it quotes from the file."""
    mark = getattr(error, "problem_mark", None)
    place = f"{_place(name, mark)}, column {mark.column + 1}" if mark else name
    told = [getattr(error, "context", None), getattr(error, "problem", None) or "characters that YAML does not allow"]
    return f"{place}: not YAML: " + re.sub(r" ?'[^']{3,}'| ?\"[^\"]{3,}\"", "", ", ".join(filter(None, told)))


def _entries(loader: Any, node: yaml.MappingNode, name: str, path: tuple[str, ...]) -> tuple[Entry, ...]:
    """The entries of a mapping, and those of mappings in it: sections hold options, and no option goes deeper."""
    _refuse_duplicates(node, name)
    entries = []
    for key, value in node.value:
        here = (*path, str(key.value) if isinstance(key, yaml.ScalarNode) else "?")
        nested = isinstance(value, yaml.MappingNode) and not path
        inside = _entries(loader, value, name, here) if nested else ()
        where = f"{_place(name, key.start_mark)}: {'.'.join(here)}"
        entries.append(Entry(here[-1], where, _value(loader, value, name), inside))
    return tuple(entries)


def _refuse_duplicates(node: yaml.MappingNode, name: str) -> None:
    seen: dict[str, Any] = {}
    for key, _ in node.value:
        text = canonical(str(key.value))
        if isinstance(key, yaml.ScalarNode) and text in seen:
            first = seen[text].start_mark.line + 1
            raise UserError(f"{_place(name, key.start_mark)}: {key.value} is set twice, first in line {first}")
        seen[text] = key


def _value(loader: Any, node: yaml.Node, name: str) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == _NULL else node.value
    if isinstance(node, yaml.SequenceNode):
        return [one.value if isinstance(one, yaml.ScalarNode) and one.tag != _NULL else None for one in node.value]
    _refuse_duplicates(node, name)
    return loader.construct_document(node)


def entries_of_dask() -> tuple[Entry, ...]:
    """What Dask's configuration sets under `dglmnet`: its YAML files, DASK_DGLMNET__* and dask.config.set."""
    found = dask.config.get(DASK_KEY, None)
    if found is None:
        return ()
    if not isinstance(found, Mapping):
        raise UserError(f"Dask's configuration: {DASK_KEY}: expected options, such as {DASK_KEY}.workers")
    return _dask_entries(found, (DASK_KEY,))


def _dask_entries(found: Mapping[Any, Any], path: tuple[str, ...]) -> tuple[Entry, ...]:
    entries = []
    for key, value in found.items():
        here = (*path, str(key))
        inside = _dask_entries(value, here) if isinstance(value, Mapping) and len(path) == 1 else ()
        entries.append(Entry(here[-1], f"Dask's configuration: {'.'.join(here)}", _dask_value(value), inside))
    return tuple(entries)


def _dask_value(value: Any) -> Any:
    """Dask reads a variable of the environment as Python where it can; an option reads text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return [None if one is None or isinstance(one, (list, tuple, dict)) else str(one) for one in value]
    return str(value)
