"""What is refused before anything slow is loaded: inputs that are not there, folders that are no runs, outputs that are
there already.

Whoever does the work asks again, and more: this is so that a mistyped name is told at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transforms.errors import DatasetError, OutputExists, UserError


def refuse_missing_inputs(urls: Sequence[str], storage_options: dict[str, Any] | None) -> None:
    """Raise if a local input is not there. What lies elsewhere takes long to ask for, and is asked for once."""
    from transforms.inputs import find_inputs
    from transforms.storage import StorageOptions, is_local, open_storage
    from transforms.streams import is_stream

    options = StorageOptions(storage_options or {})
    for url in urls:
        if "://" in url or is_stream(url):
            continue
        fs, path = open_storage(url, options)
        if is_local(fs) and not fs.exists(path):
            find_inputs([url], options)


def refuse_missing_run(url: str) -> None:
    """Raise if there is no run in a local folder."""
    if "://" not in url and not (Path(url) / "run.json").exists():
        why = "there is no run.json in it" if Path(url).exists() else "no such folder"
        raise UserError(f"{Path(url).absolute()}: not a run: {why}. Make one with dask-submit fit")


def refuse_missing_dataset(url: str, storage_options: dict[str, Any] | None) -> None:
    """Raise if there is no data set in a local folder."""
    if "://" in url or (Path(url) / "dataset.json").exists():
        return
    from transforms.folders import why_no_dataset
    from transforms.storage import StorageOptions, display, open_storage

    fs, path = open_storage(url, StorageOptions(storage_options or {}))
    if not fs.exists(f"{path}/dataset.json"):
        raise DatasetError(f"not a data set: {why_no_dataset(fs, path)}", display(fs, path))


def refuse_existing(path: str, inside: str, message: str, remedy: str = "replace it with --overwrite") -> None:
    """Raise if a local output is there already. inside: the file that makes a folder what it is; "" of a file."""
    if "://" not in path and (Path(path) / inside if inside else Path(path)).is_file():
        raise OutputExists(f"{Path(path).absolute()}: {message}: {remedy}")
