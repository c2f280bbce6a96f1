"""Ways to spoil a stored file, each decided by a random generator alone, so that a seed is a case.

JSON is spoiled as a document (wrong types, sizes, names, missing and doubled keys) or as bytes. Parquet is spoiled as a
table (types, nulls, orders, ranges), which is then written well, or as bytes.
"""

from __future__ import annotations

import copy
import io
import json
import math
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DEEP = "\x00deep\x00"  # stands for a value that json.dumps could not write
NUMBERS: list[Any] = [
    0, 1, -1, 2, 7, 255, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30,
    10**400, 0.0, -0.0, 0.5, 1.5, -1.5, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf,
]  # fmt: skip
TEXTS = [
    "", " ", "x", "0", "1", "-1", "true", "null", "nan", "../canary.txt", "../../canary.txt", "..", ".", "/", "~",
    "sub/../../canary.txt", "part-00000.parquet", "part-00001.parquet", "part-99999.parquet", "part-00000.parquet/..",
    "labels.parquet", "labels.parquet\n", "dataset.json", "file:///etc/hostname", "memory://canary", "unknown://x/y",
    "C:\\canary", "a\0b", "\ud800", "\x1b[31m", "line\nbreak", "é" * 9, "x" * 5000, "2026-01-01T00:00:00",
    "2026-01-01T00:00:00+00:00", "0" * 64, "g" * 64, "A" * 64, "raise", "skip", "spread", "running", "finished",
    "auprc",
]  # fmt: skip
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [{}], {"": None}, {"a": [1, {"b": 2}]}, [None] * 3, DEEP]


# --- JSON -----------------------------------------------------------------------------------------------------------


def spoil_json(rng: Random, content: dict[str, Any], outside: str) -> bytes:
    """The document with one to three things wrong, as bytes."""
    document = copy.deepcopy(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _spoil_somewhere(rng, document, outside)
    if rng.random() < 0.02:
        return spoil_bytes(rng, json.dumps(content).encode())
    if rng.random() < 0.02:
        replacement = rng.choice([value for value in [*NUMBERS, *TEXTS, *OTHERS] if not isinstance(value, dict)])
        document = replacement
    text = _dumped(document)
    if rng.random() < 0.03:
        text = _doubled_key(rng, text)
    return _encoded(rng, text)


def _spoil_somewhere(rng: Random, document: Any, outside: str) -> None:
    holder, key = rng.choice(list(_places(document)) or [({}, "")])
    if not holder:
        return
    action = rng.random()
    if action < 0.55:
        holder[key] = _hostile(rng, holder[key], document, outside)
    elif action < 0.7:
        del holder[key]
    elif action < 0.8 and isinstance(holder, dict):
        holder[rng.choice(["extra", "", "file", "../x", "\0", "features", "plan"])] = _hostile(
            rng, 1, document, outside
        )
    elif action < 0.9 and isinstance(holder, dict):
        holder[str(key) + rng.choice(["x", " ", "\0", "S"])] = holder.pop(key)
    elif isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    else:
        holder[key] = [holder[key]] if rng.random() < 0.5 else {"value": holder[key]}


def _places(node: Any) -> Any:
    """Every (container, key) of a document."""
    if isinstance(node, dict):
        for key in node:
            yield node, key
            yield from _places(node[key])
    elif isinstance(node, list):
        for k in range(len(node)):
            yield node, k
            yield from _places(node[k])


def _hostile(rng: Random, value: Any, document: Any, outside: str) -> Any:
    kind = rng.random()
    if kind < 0.3 and isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300:
        return rng.choice([value + 1, value - 1, -value, value * 2, float(value), str(value), value + 0.5, value // 2])
    if kind < 0.55:
        return rng.choice(NUMBERS)
    if kind < 0.8:
        text = rng.choice([*TEXTS, f"{outside}/canary.txt", f"file://{outside}/canary.txt"])
        return text if not isinstance(value, str) or rng.random() < 0.7 else value + text
    if kind < 0.9:
        holder, key = rng.choice(list(_places(document)) or [([1], 0)])
        return copy.deepcopy(holder[key])
    return copy.deepcopy(rng.choice(OTHERS))


def _dumped(document: Any) -> str:
    text = json.dumps(document)
    return text.replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000)


def _doubled_key(rng: Random, text: str) -> str:
    at = text.find("{")
    names = [part.split('"')[-2] for part in text.split(":")[:-1] if part.count('"') >= 2]
    return text[: at + 1] + f'"{rng.choice(names or ["a"])}": 1, ' + text[at + 1 :] if at >= 0 else text


def _encoded(rng: Random, text: str) -> bytes:
    raw = text.encode("utf-8", errors="surrogatepass")
    kind = rng.random()
    if kind < 0.01:
        return text.encode(rng.choice(["utf-16", "utf-32", "utf-8-sig"]), errors="surrogatepass")
    if kind < 0.02:
        at = rng.randrange(len(raw) + 1)
        return raw[:at] + rng.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\0"]) + raw[at:]
    if kind < 0.03:
        return raw + rng.choice([b"x", b"{}", b"\0" * 9, raw])
    return raw


# --- bytes ----------------------------------------------------------------------------------------------------------


def spoil_bytes(rng: Random, raw: bytes) -> bytes:
    """Bits flipped, ranges cut out, zeroed, doubled or overwritten, the end cut off."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if not data:
            break
        at = rng.randrange(len(data))
        size = min(rng.choice((1, 1, 2, 4, 8, 64, 1000)), len(data) - at)
        kind = rng.random()
        if kind < 0.5:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.6:
            data[at : at + size] = rng.randbytes(size)
        elif kind < 0.7:
            data[at : at + size] = rng.choice((b"\0", b"\xff", b"\x80")) * size
        elif kind < 0.8:
            del data[at : at + size]
        elif kind < 0.9:
            data[at:at] = data[at : at + size]
        else:
            del data[at:]
    return bytes(data)


# --- Parquet --------------------------------------------------------------------------------------------------------


def spoil_table(rng: Random, table: pa.Table) -> bytes:
    """The table with one or two things wrong, written as Parquet in one way or another."""
    while True:
        try:
            return _written(rng, _changed(rng, table))
        except (pa.ArrowException, OverflowError, ValueError):
            continue  # not every change can be made of every type, or written


def _changed(rng: Random, table: pa.Table) -> pa.Table:
    for _ in range(rng.choice((1, 1, 2))):
        names = table.column_names
        if names and len(set(names)) == len(names):
            table = rng.choice(_TABLE_CHANGES)(rng, table)
    return table


def _written(rng: Random, table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(
        table,
        buffer,
        compression=rng.choice(("none", "snappy", "zstd", "gzip")),
        use_dictionary=rng.random() < 0.5,
        row_group_size=rng.choice((1, 2, 5, 1000, None)),
        write_statistics=rng.random() < 0.7,
        data_page_version=rng.choice(("1.0", "2.0")),
        version=rng.choice(("1.0", "2.4", "2.6")),
        store_schema=rng.random() < 0.8,
    )
    return buffer.getvalue()


def _change_cells(rng: Random, table: pa.Table) -> pa.Table:
    name = rng.choice(table.column_names)
    rows = table[name].to_pylist()
    for _ in range(rng.choice((1, 1, 3)) if rows else 0):
        at = rng.randrange(len(rows))
        rows[at] = _hostile_cell(rng, rows[at])
    return _with_column(table, name, rows, table[name].type)


def _hostile_cell(rng: Random, value: Any) -> Any:
    if isinstance(value, list):
        kind = rng.random()
        if kind < 0.2 or not value:
            return rng.choice(([], [0], value[:-1], value + value, value[::-1], value[1:]))
        value = list(value)
        value[rng.randrange(len(value))] = _hostile_cell(rng, value[0])
        return value
    if isinstance(value, float):
        return rng.choice((math.nan, math.inf, -math.inf, 0.0, -0.0, -value, value * 2, 1e308, 1e-320, value + 1))
    if isinstance(value, int) and not isinstance(value, bool):
        return rng.choice(
            (-1, 0, value + 1, value - 1, -value, 2**31 - 1, -(2**31), 2**62 + 1, 2**63 - 1, -(2**63), 127)
        )
    return rng.choice((None, True, False, value))


def _with_column(table: pa.Table, name: str, rows: list[Any], kind: pa.DataType) -> pa.Table:
    """The column replaced, where the values fit its type."""
    try:
        column = pa.array(rows, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return table
    return table.set_column(table.column_names.index(name), pa.field(name, kind), column)


def _change_type(rng: Random, table: pa.Table) -> pa.Table:
    kinds = [
        pa.int8(),
        pa.int32(),
        pa.int64(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.bool_(),
        pa.binary(),
        pa.timestamp("ns"),
        pa.decimal128(20, 2),
        pa.list_(pa.int32()),
        pa.large_list(pa.int32()),
        pa.large_list(pa.int64()),
        pa.large_list(pa.float32()),
        pa.large_list(pa.large_list(pa.int32())),
        pa.null(),
        pa.struct([("a", pa.int32())]),
        pa.dictionary(pa.int8(), pa.int64()),
        pa.map_(pa.string(), pa.int32()),
    ]
    name, kind = rng.choice(table.column_names), rng.choice(kinds)
    at = table.column_names.index(name)
    try:
        return table.set_column(at, pa.field(name, kind), table[name].cast(kind))
    except pa.ArrowException:
        return table.set_column(at, pa.field(name, kind), pa.nulls(table.num_rows, kind))


def _change_nulls(rng: Random, table: pa.Table) -> pa.Table:
    name = rng.choice(table.column_names)
    rows, kind = table[name].to_pylist(), table[name].type
    if pa.types.is_large_list(kind):
        kind = pa.large_list(kind.value_type)
    if rows:
        at = rng.randrange(len(rows))
        rows[at] = [None, *rows[at][1:]] if isinstance(rows[at], list) and rows[at] and rng.random() < 0.5 else None
    return _with_column(table, name, rows, kind)


def _change_rows(rng: Random, table: pa.Table) -> pa.Table:
    n = table.num_rows
    at, size = rng.randrange(n + 1), rng.randrange(n + 1)
    return rng.choice(
        (
            lambda: table.slice(at, size),
            lambda: table.slice(0, 0),
            lambda: pa.concat_tables([table, table]),
            lambda: pa.concat_tables([table, table.slice(at, size)]),
            lambda: table.take(pa.array(rng.sample(range(n), n))),
            lambda: table.take(pa.array(list(range(n))[::-1])),
        )
    )()


def _change_columns(rng: Random, table: pa.Table) -> pa.Table:
    names = table.column_names
    name, other = rng.choice(names), rng.choice(names)
    return rng.choice(
        (
            lambda: table.drop_columns([name]),
            lambda: table.rename_columns([one if one != name else rng.choice(TEXTS[2:9]) for one in names]),
            lambda: table.select(names[::-1]),
            lambda: table.append_column("extra", table[name]),
            lambda: table.append_column(other, table[name]),
            lambda: table.set_column(names.index(name), other, table[other]),
            lambda: table.select([]),
        )
    )()


_TABLE_CHANGES = [
    _change_cells,
    _change_cells,
    _change_cells,
    _change_type,
    _change_nulls,
    _change_rows,
    _change_columns,
]
