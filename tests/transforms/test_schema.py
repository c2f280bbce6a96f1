"""Stored JSON, field by field: what is wrong is told with its place, in one line, whatever it is."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pipeline
import solver
import transforms
from transforms import UserError
from transforms.schema import (
    SHA256,
    Check,
    flag,
    listed,
    mapping,
    moment,
    number,
    optional,
    parse_record,
    read_record,
    record,
    text,
    whole,
)
from transforms.storage import open_storage, read_parquet

NAN, INF = float("nan"), float("inf")
ACCEPTED: list[tuple[Check, Any]] = [
    (whole(), 0),
    (whole(), 2**63 - 1),
    (whole(1, 3), 3),
    (number(), -1.5),
    (number(), 7),
    (number(0, 1), 1),
    (flag, True),
    (text(), ""),
    (text(), "é\n"),
    (text(SHA256), "0" * 64),
    (text(choices=("a", "b")), "b"),
    (moment, "2026-01-31T12:00:00+00:00"),
    (optional(flag), None),
    (listed(whole()), [1, 2]),
    (mapping(number()), {"a": 1.0}),
    (record({"a": whole()}), {"a": 1, "more": None}),
    (record({"a": whole()}, {"b": flag}), {"a": 1, "b": False}),
]
REFUSED: list[tuple[Check, Any, str]] = [
    (whole(), True, "value must be a whole number"),
    (whole(), 1.0, "value must be a whole number"),
    (whole(), -1, "value must be a whole number from 0"),
    (whole(), 2**63, "value must be a whole number"),
    (whole(), "1", "value must be a whole number"),
    (number(), True, "value must be a finite number"),
    (number(), NAN, "value must be a finite number"),
    (number(), INF, "value must be a finite number"),
    (number(), 10**400, "found a number of very many digits"),
    (number(0, 1), 1.5, "value must be a finite number from 0 to 1"),
    (flag, 1, "value must be true or false, found 1"),
    (text(), None, "value must be text, found null"),
    (text(), "a\0", "value must be text"),
    (text(), "\ud800", "value must be text"),
    (text(SHA256), "0" * 64 + "\n", "value must be text of the form"),
    (text(choices=("a", "b")), "c", "value must be one of a, b, found 'c'"),
    (moment, "2026-01-31T12:00:00", "value must be a time with its zone"),
    (moment, 7, "value must be a time with its zone"),
    (listed(whole()), [1, "x"], "value[1] must be a whole number"),
    (listed(whole()), {}, "value must be a list, found an object of 0"),
    (mapping(number()), {"a": {}}, "value.a must be a finite number, found an object of 0"),
    (record({"a": whole()}), {}, "value.a is missing"),
    (record({"a": record({"b": listed(flag)})}), {"a": {"b": [0]}}, "value.a.b[0] must be true or false, found 0"),
    (record({}, {"b": flag}), {"b": None}, "value.b must be true or false, found null"),
    (record({}), [], "value must be an object, found a list of 0"),
    (text(choices=("a",)), "x" * 999, "xxx…"),
]


@pytest.mark.parametrize(("check", "value"), ACCEPTED)
def test_what_a_field_must_hold_is_let_through(check: Check, value: Any) -> None:
    check(value, "value")


@pytest.mark.parametrize(("check", "value", "message"), REFUSED)
def test_anything_else_is_refused_with_its_place(check: Check, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        check(value, "value")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe\xff", "codec can't decode"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": {"b": 1, "b": 1}}', "'b' stands twice"),
        (b"[1]", "it must be an object, found a list of 1"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"a": 1} x', "Extra data"),
    ],
)
def test_bytes_that_are_no_record_are_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    fs, path = open_storage(str(tmp_path / "x.json"))
    with pytest.raises(UserError, match=rf"x\.json: damaged \(.*{message}.*\): convert again$") as caught:
        read_record(fs, path, record({"a": whole()}), "convert again")
    assert "\n" not in str(caught.value)


def test_a_record_is_what_json_says() -> None:
    assert parse_record(b'{"a": 1, "b": [1.5, null]}', record({"a": whole()})) == {"a": 1, "b": [1.5, None]}


# --- nothing is unpickled -------------------------------------------------------------------------------------------

FORBIDDEN = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def _modules() -> list[Path]:
    return [path for package in (transforms, solver, pipeline) for path in Path(package.__path__[0]).rglob("*.py")]


@pytest.mark.parametrize("path", _modules(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_module_loads_pickles(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not FORBIDDEN & {name.split(".")[0] for name in names}
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False


def test_a_pickle_in_a_parquet_file_is_not_opened(tmp_path: Path) -> None:
    """Older Arrow built extension types by unpickling what the file says."""
    import pickle

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.write_text, (tmp_path / "harm", "done")

    field = pa.field(
        "feature",
        pa.int64(),
        metadata={
            "ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": pickle.dumps(Bomb()).decode("latin1").encode(),
        },
    )
    pq.write_table(pa.table([[1, 2]], schema=pa.schema([field])), tmp_path / "x.parquet")
    loaded: list[str] = []
    active = True
    sys.addaudithook(lambda event, args: loaded.append(event) if active and event == "pickle.find_class" else None)
    fs, path = open_storage(str(tmp_path / "x.parquet"))
    try:
        read_parquet(fs, path)
    finally:
        active = False
    assert not (tmp_path / "harm").exists()
    assert loaded == []


def test_json_never_makes_objects() -> None:
    assert json.loads('{"py/object": "os.system"}') == parse_record(b'{"py/object": "os.system"}', record({}))
