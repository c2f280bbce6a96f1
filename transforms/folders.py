"""Local inputs: the files below a folder, links followed; loops, dead links and what is no file are passed over."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transforms.errors import UserError

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def is_hidden(name: str) -> bool:
    """Names that systems put beside data: _SUCCESS, _temporary, .part-0.crc."""
    return name.startswith(("_", "."))


def named_files(path: str) -> list[dict[str, Any]]:
    """What a path stands for: itself, or the files below it, as fsspec describes files. Sorted by path."""
    status = _status(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if stat.S_ISDIR(status.st_mode):
        return sorted(_below(path, _folders_above(path)), key=lambda info: str(info["name"]))
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path}: {_kind(status)}, not a file: write what it gives to a file, and pass that")
    return [_info(path, status)]


def matching_files(path: str) -> list[dict[str, Any]]:
    """As named_files; but what nobody named, and cannot be read as a file or folder, is passed over with a warning."""
    what = _unfit(path, _folders_above(str(Path(path).parent)) if Path(path).is_symlink() else [])
    if what:
        _warn(path, what)
        return []
    return named_files(path)


def dead_link(path: str) -> str:
    """What to say of a link that leads nowhere; nothing if it is none."""
    link = Path(path)
    return f"a link to {link.readlink()}, which is not there" if link.is_symlink() and _status(path) is None else ""


def _below(folder: str, above: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """The files below a folder; `above` are the folders that they lie in, this one included."""
    with os.scandir(folder) as entries:
        paths = [entry.path for entry in entries if not is_hidden(entry.name)]
    for path in paths:
        what = _unfit(path, above)
        status = _status(path)
        if what or status is None:
            _warn(path, what)
        elif stat.S_ISDIR(status.st_mode):
            yield from _below(path, [*above, _identity(status)])
        else:
            yield _info(path, status)


def _unfit(path: str, above: Sequence[tuple[int, int]]) -> str:
    """Why something that was found in a folder is not read; nothing if it can be."""
    status = _status(path)
    if status is None:
        return dead_link(path) or "gone since the folder was listed"
    if stat.S_ISDIR(status.st_mode):
        return "a link to a folder that it lies in" if _identity(status) in above else ""
    return "" if stat.S_ISREG(status.st_mode) else f"{_kind(status)}, not a file"


def _folders_above(folder: str) -> list[tuple[int, int]]:
    """A folder and those that it lies in: a link to one of them would go round in circles."""
    real = Path(folder).resolve()
    return [_identity(one.stat()) for one in (real, *real.parents)]


def _status(path: str) -> os.stat_result | None:
    """Of the file itself, or of what a link leads to; None if there is nothing."""
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return None
        raise


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _info(path: str, status: os.stat_result) -> dict[str, Any]:
    return {"name": path, "size": status.st_size, "mtime": status.st_mtime}


def _kind(status: os.stat_result) -> str:
    return KINDS.get(stat.S_IFMT(status.st_mode), "something else")


def refuse_pipes(path: str) -> None:
    """Raise UserError for a pipe, socket or device in the place of a file: reading it might never end."""
    status = Path(path).stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise UserError(f"{path}: {_kind(status)}, not a file: remove it")


def _warn(path: str, what: str) -> None:
    warnings.warn(f"{path}: passed over: {what}", stacklevel=2)


def why_no_dataset(fs: Any, path: str) -> str:
    """What a folder without dataset.json is instead, and what to do."""
    if not fs.exists(path):
        return "no such folder. Make one of LIBSVM text with convert-libsvm TEXT FOLDER"
    if fs.isfile(path):
        return "it is a file. Convert it with convert-libsvm first"
    if fs.exists(f"{path}/_temporary"):
        return "a conversion did not finish here. Continue it with convert-libsvm --resume"
    if fs.exists(f"{path}/run.json"):
        return "it is a run. Pass the data set that it was fitted to, or another"
    return "there is no dataset.json in it. Make one of LIBSVM text with convert-libsvm TEXT FOLDER"
