"""Files of predictions: what they hold, and how each kind is written. The suffix of a name says which kind it is.

Parquet libraries are loaded when a file is written, so that a name that cannot be used is refused at once.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transforms.errors import UserError
from transforms.secrets import hide_in_urls

if TYPE_CHECKING:
    import pyarrow as pa

STDOUT = "-"  # in place of a file: standard output, as CSV
PARQUET, CSV, JSONL = "parquet", "csv", "jsonl"
KINDS = {".csv.gz": CSV, ".csv": CSV, ".jsonl": JSONL, ".parquet": PARQUET}
COMPRESSED = ".gz"
# Of a model for two labels, and of one for numbers. Earlier versions wrote the first of them only, in this order.
CLASSES = ("example", "margin", "probability", "label", "true_label")
NUMBERS = ("example", "prediction", "true_label")
EARLIER = (("example", "margin", "probability"), ("example", "prediction"))
FIRST_LINE = 1 << 10  # bytes: more than any header has

WriteTable = Callable[["pa.Table"], None]


def kind_of(output: str) -> str:
    """The kind of file that a name asks for; a name without a suffix is Parquet's."""
    if output == STDOUT:
        return CSV
    name = output.rstrip("/").rpartition("/")[2]
    for suffix, kind in KINDS.items():
        if name.endswith(suffix):
            return kind
    if "." in name.lstrip("."):
        *most, last = KINDS
        raise UserError(
            f"{hide_in_urls(output)}: predictions are written as {', '.join(most)} or {last}: choose one of these names"
        )
    return PARQUET


def schema_of(names: Sequence[str], metadata: dict[str, str]) -> pa.Schema:
    import pyarrow as pa

    types = {"example": pa.int64()}
    return pa.schema([(name, types.get(name, pa.float64())) for name in names], metadata=metadata)


@contextmanager
def open_writer(file: Any, output: str, schema: pa.Schema) -> Iterator[WriteTable]:
    """What writes tables of this schema to an open file, as its name asks for."""
    kind = kind_of(output)
    if kind == PARQUET:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=False) as writer:
            yield writer.write_table
        return
    with _compressed(file) if output.endswith(COMPRESSED) else _as_it_is(file) as text:
        if kind == CSV:
            text.write(_header(schema.names))
        yield lambda table: _write_lines(text, table, kind)


@contextmanager
def _compressed(file: Any) -> Iterator[Any]:
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        yield packed


@contextmanager
def _as_it_is(file: Any) -> Iterator[Any]:
    yield file


def _header(names: Sequence[str]) -> bytes:
    return (",".join(names) + "\n").encode()


def _write_lines(file: Any, table: pa.Table, kind: str) -> None:
    """A line for each row. Numbers are the shortest that mean the same; what is not known is empty, or null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [pc.fill_null(pc.cast(column, pa.string()), "null" if kind == JSONL else "") for column in table.columns]
    if kind == JSONL:
        keys = [f'{"{" if k == 0 else ", "}"{name}": ' for k, name in enumerate(table.column_names)]
        pieces = [piece for pair in zip(keys, columns, strict=True) for piece in pair]
        lines = pc.binary_join_element_wise(*pieces, "}\n", "")
    else:
        lines = pc.binary_join_element_wise(*columns[:-1], pc.binary_join_element_wise(columns[-1], "\n", ""), ",")
    file.write("".join(lines.to_pylist()).encode())


def holds_predictions(file: Any, output: str) -> bool:
    """Was this open file, which has the name `output`, written by a prediction?"""
    kind = kind_of(output)
    if kind == PARQUET:
        import pyarrow.parquet as pq

        return tuple(pq.read_schema(file).names) in (CLASSES, NUMBERS, *EARLIER)
    with _unpacked(file) if output.endswith(COMPRESSED) else _as_it_is(file) as text:
        head: bytes = text.read(FIRST_LINE)
    if kind == CSV:
        return head.startswith((_header(CLASSES), _header(NUMBERS)))
    return not head or head.startswith((b'{"example": 0, "margin": ', b'{"example": 0, "prediction": '))


@contextmanager
def _unpacked(file: Any) -> Iterator[Any]:
    with gzip.GzipFile(mode="rb", fileobj=file) as text:
        yield text
