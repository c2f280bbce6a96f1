"""Files of a data set rewritten with a right size and checksum: what a writer's mistake, or an enemy, could leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.schema import SEAL


def unsealed(about: dict[str, Any]) -> dict[str, Any]:
    """dataset.json or run.json without its own checksum, as one who changes it on purpose would leave it."""
    return {name: value for name, value in about.items() if name != SEAL}


def rewrite(data: Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change a file's columns, given as lists, and let dataset.json say that it is right."""
    table = pq.read_table(data / name)
    columns = change({column: table[column].to_pylist() for column in table.column_names})
    replace_table(data, name, pa.table(columns, schema=table.schema))


def replace_table(data: Path, name: str, table: pa.Table) -> None:
    pq.write_table(table, data / name)
    make_right(data, name, row_groups=pq.ParquetFile(data / name).num_row_groups)


def make_right(data: Path, name: str, **facts: Any) -> None:
    """Put a file's size and checksum, and these facts, into dataset.json."""
    content = (data / name).read_bytes()
    facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    about = json.loads((data / "dataset.json").read_text())
    for info in [about["labels"], *about["partitions"]]:
        if info["file"] == name:
            info |= {key: value for key, value in facts.items() if key != "row_groups" or key in info}
    (data / "dataset.json").write_text(json.dumps(unsealed(about)))
