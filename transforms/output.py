"""The output folder: what may be there already, unfinished work in OUTPUT/_temporary, and how it becomes a data set.

All or nothing: dataset.json comes last, and without it there is no data set. An old data set stays whole until the new
one is complete; then its dataset.json goes first, so that at no moment old and new files pass for one data set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transforms.claim import ClaimKeeper
from transforms.dataset_record import DATASET_JSON, DatasetRecord, read_dataset_record, write_dataset_record
from transforms.errors import ClaimLost, OutputExists, StoreUnreachable
from transforms.labels import LABELS_PARQUET
from transforms.plan import PLAN_SCHEMA, Plan, refuse_other_plan
from transforms.schema import listed, parse_object, read_record, record, shown, text
from transforms.storage import (
    StorageOptions,
    display,
    explained,
    is_local,
    make_folder,
    move,
    open_storage,
    read_whole,
    remove,
    remove_empty_folder,
    remove_leftovers,
    write_json,
)
from transforms.version import __version__

TEMPORARY = "_temporary"
PLAN_JSON, CLAIM_JSON, COMMIT_JSON = "plan.json", "claim.json", "commit.json"
_FILE_NAME = re.compile(rf"{re.escape(LABELS_PARQUET)}|part-[0-9]{{5,}}\.parquet")
# All that a conversion writes into OUTPUT/_temporary.
_UNFINISHED = re.compile(
    rf"({PLAN_JSON}|{CLAIM_JSON}|{COMMIT_JSON}|block-[0-9]+(-[0-9]+\.fragment|\.json)|({_FILE_NAME.pattern})(\.json)?)"
    r"(\.[0-9a-f]{8}\.tmp)?"
)
_COMMIT = record({"files": listed(text(_FILE_NAME))})


def is_finished(fs: Any, path: str, wanted: dict[str, Any], *, resume: bool, overwrite: bool) -> bool:
    """Does --resume find the data set complete? Raises if something is there and nothing was said about it."""
    where = display(fs, path)
    with explained(where):
        complete = _is_complete(fs, path, where, begun_is_fine=resume or overwrite)
    if not complete:
        return False
    if overwrite:
        _old_files(fs, path)  # refused now, not when the work is done
        return False
    if not resume:
        raise OutputExists(f"{where}: a data set is there already: replace it with --overwrite")
    stored = read_dataset_record(fs, path)
    refuse_other_plan(stored.plan.to_json() if stored.plan else {"inputs": stored.inputs}, wanted, where)
    return True


def _is_complete(fs: Any, path: str, where: str, *, begun_is_fine: bool) -> bool:
    """Is there a data set? Raises if there is something else that it must not replace."""
    fs.invalidate_cache()
    if fs.isfile(path):
        raise OutputExists(f"{where}: is a file; the output is a folder")
    if fs.exists(f"{path}/{DATASET_JSON}"):
        return True
    begun = fs.exists(f"{path}/{TEMPORARY}")
    if begun and not begun_is_fine:
        remedy = "continue it with --resume or start over with --overwrite"
        raise OutputExists(f"{where}: the folder holds an unfinished conversion: {remedy}")
    if not begun and fs.exists(path) and fs.ls(path, detail=False):
        raise OutputExists(f"{where}: the folder holds other files: choose an empty folder")
    return False


@dataclass
class Workplace:
    """The folder for unfinished work, claimed by this process, and the plan that governs it."""

    folder: str
    plan: Plan
    keeper: ClaimKeeper


@contextmanager
def workplace(
    output: str, options: StorageOptions, plan: Plan, wanted: dict[str, Any], *, resume: bool, overwrite: bool
) -> Iterator[Workplace]:
    """Claim OUTPUT/_temporary. When the work fails nothing is left behind, unless it is to be resumed."""
    fs, path = open_storage(output, options)
    folder = f"{path}/{TEMPORARY}"
    made = not fs.exists(path)
    keeper = ClaimKeeper(output, options, f"{folder}/{CLAIM_JSON}")
    keep = True  # what is there is another writer's, until the claim is ours
    try:
        make_folder(fs, folder)
        _refuse_foreign(fs, folder)
        keeper.take(takeover=resume or overwrite)
        keep = resume
        if not (resume or overwrite) and fs.exists(f"{path}/{DATASET_JSON}"):
            raise OutputExists(f"{display(fs, path)}: another writer has just finished a data set here")
        remove_leftovers(fs, folder)
        _undo_commit(fs, path)
        plan = _settle_plan(fs, folder, plan, wanted, resume=resume)
        yield Workplace(folder, plan, keeper)
        keep = False
    except (ClaimLost, StoreUnreachable):
        keep = True  # it is another writer's by now, or cannot be reached
        raise
    finally:
        keeper.release()
        if not keep:
            remove(fs, folder, recursive=True)
        if made and not keeper.unreachable:
            for place in (folder, path):
                remove_empty_folder(fs, place)


def _refuse_foreign(fs: Any, folder: str) -> None:
    """Raise if OUTPUT/_temporary leads elsewhere, or holds what no conversion left: it will be emptied."""
    remedy = "nothing was deleted. Choose another output, or look into it and delete it yourself"
    if is_local(fs) and Path(folder).is_symlink():
        raise OutputExists(f"{folder}: a link to {Path(folder).readlink()}, not an unfinished conversion: {remedy}")
    fs.invalidate_cache()
    for path in fs.ls(folder, detail=False) if fs.isdir(folder) else []:
        name = path.rstrip("/").rsplit("/", 1)[-1]
        if name not in ("", TEMPORARY) and _UNFINISHED.fullmatch(name) is None:
            raise OutputExists(f"{display(fs, path)}: no file of an unfinished conversion: {remedy}")


def _settle_plan(fs: Any, folder: str, plan: Plan, wanted: dict[str, Any], *, resume: bool) -> Plan:
    """The plan to follow: the stored one when there is something to resume, or else this one, stored."""
    path = f"{folder}/{PLAN_JSON}"
    if resume and fs.exists(path):
        stored = read_record(fs, path, PLAN_SCHEMA, "start over with --overwrite", OutputExists)
        versions = {"tool_version": __version__, "format_version": plan.format_version}
        refuse_other_plan(stored, wanted | versions, folder)
        now = {"on_bad_line": plan.on_bad_line, "max_line_bytes": plan.max_line_bytes}
        return Plan.from_json(stored | now)
    for leftover in fs.ls(folder, detail=False):
        if not leftover.endswith(f"/{CLAIM_JSON}"):
            remove(fs, leftover)
    write_json(fs, path, plan.to_json())
    return plan


def commit(fs: Any, path: str, place: Workplace, description: DatasetRecord) -> None:
    """Take an old data set away, move the parts into place, write dataset.json."""
    place.keeper.claim.check(fs)
    names = list(description.files)
    write_json(fs, f"{place.folder}/{COMMIT_JSON}", {"files": names})
    _remove_dataset(fs, path)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: move(fs, f"{place.folder}/{name}", f"{path}/{name}"), names))
        write_dataset_record(fs, path, description)
    except BaseException:
        _undo_commit(fs, path)
        raise


def _remove_dataset(fs: Any, path: str) -> None:
    """Delete an old data set: dataset.json first, then the files that it names, and no others."""
    names = _old_files(fs, path)
    remove(fs, f"{path}/{DATASET_JSON}")
    for name in names:
        remove(fs, f"{path}/{name}")


def _old_files(fs: Any, path: str) -> list[str]:
    """The files of the data set that is there, as far as dataset.json can be read.

    Only names that a conversion gives are taken: whatever else stands there would be a file of somebody else.
    """
    where = f"{path}/{DATASET_JSON}"
    try:
        content = parse_object(read_whole(fs, where))
        names = [LABELS_PARQUET, *(part["file"] for part in content["partitions"])]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        return []  # a damaged description: what it named is not known
    for name in names:
        if not _is_ours(name):
            raise OutputExists(
                f"{display(fs, where)}: it names {shown(name)}, which is no file of a data set: nothing was deleted. "
                "Choose another output, or look into the folder and delete it yourself"
            )
    return names


def _is_ours(name: Any) -> bool:
    """Is it a name that a conversion gives to the files it moves into place?"""
    return isinstance(name, str) and _FILE_NAME.fullmatch(name) is not None


def _undo_commit(fs: Any, path: str) -> None:
    """Delete what a commit that was cut off had moved already; it can be made again."""
    note = f"{path}/{TEMPORARY}/{COMMIT_JSON}"
    remedy = f"nothing was deleted. Delete {display(fs, f'{path}/{TEMPORARY}')} and convert again"
    try:
        names = read_record(fs, note, _COMMIT, remedy, OutputExists)["files"]
    except FileNotFoundError:
        return
    if not fs.exists(f"{path}/{DATASET_JSON}"):
        for name in names:
            remove(fs, f"{path}/{name}")
    remove(fs, note)
