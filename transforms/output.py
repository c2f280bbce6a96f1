"""The output folder: what may be there already, unfinished work in OUTPUT/_temporary, and how it becomes a data set.

All or nothing: dataset.json comes last, and without it there is no data set. An old data set stays whole until the new
one is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transforms.claim import ClaimKeeper
from transforms.dataset import DATASET_JSON
from transforms.errors import OutputExists
from transforms.labels import LABELS_PARQUET
from transforms.parts import PartInfo
from transforms.plan import Plan, refuse_other_plan
from transforms.storage import StorageOptions, display, explained, is_local, open_storage, read_json, remove, write_json
from transforms.version import FORMAT_VERSION, __version__

TEMPORARY = "_temporary"
PLAN_JSON = "plan.json"


def is_finished(fs: Any, path: str, wanted: dict[str, Any], *, resume: bool, overwrite: bool) -> bool:
    """Does --resume find the data set complete? Raises if something is there and nothing was said about it."""
    fs.invalidate_cache()
    with explained(display(fs, path)):
        is_file = fs.isfile(path)
    if is_file:
        raise OutputExists(f"{display(fs, path)}: is a file; the output is a folder")
    if not fs.exists(f"{path}/{DATASET_JSON}"):
        if not (resume or overwrite) and fs.exists(path) and fs.ls(path, detail=False):
            left = fs.exists(f"{path}/{TEMPORARY}")
            what = "an unfinished conversion" if left else "other files"
            remedy = "continue it with --resume or start over with --overwrite" if left else "choose an empty folder"
            raise OutputExists(f"{display(fs, path)}: the folder holds {what}: {remedy}")
        return False
    if overwrite:
        return False
    if not resume:
        raise OutputExists(f"{display(fs, path)}: a data set is there already: replace it with --overwrite")
    stored = read_json(fs, f"{path}/{DATASET_JSON}")
    refuse_other_plan(stored.get("plan", {}) | {"inputs": stored.get("inputs")}, wanted, display(fs, path))
    return True


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
    fs.makedirs(folder, exist_ok=True)
    keeper = ClaimKeeper(output, options, f"{folder}/claim.json")
    keeper.take(takeover=resume or overwrite)
    keep = False
    try:
        plan = _settle_plan(fs, folder, plan, wanted, resume=resume, keep=f"{folder}/claim.json")
        yield Workplace(folder, plan, keeper)
    except OutputExists:
        keep = True  # the leftovers are another plan's: not ours to delete
        raise
    except BaseException:
        keep = resume
        raise
    finally:
        keeper.release()
        if not keep:
            remove(fs, folder, recursive=True)
            if made and is_local(fs) and fs.exists(path) and not fs.ls(path, detail=False):
                fs.rmdir(path)


def _settle_plan(fs: Any, folder: str, plan: Plan, wanted: dict[str, Any], *, resume: bool, keep: str) -> Plan:
    """The plan to follow: the stored one when there is something to resume, or else this one, stored."""
    path = f"{folder}/{PLAN_JSON}"
    if resume and fs.exists(path):
        stored = read_json(fs, path)
        refuse_other_plan(stored, wanted | {"tool_version": __version__, "format_version": FORMAT_VERSION}, folder)
        return Plan(**(stored | {"on_bad_line": plan.on_bad_line}))
    for leftover in fs.ls(folder, detail=False):
        if not leftover.endswith(keep.rsplit("/", 1)[1]):
            remove(fs, leftover)
    write_json(fs, path, plan.to_json())
    return plan


def describe(
    *,
    examples: int,
    label_map: dict[str, float],
    labels: dict[str, Any],
    parts: Sequence[PartInfo],
    plan: Plan,
    bad_lines: dict[str, Any],
) -> dict[str, Any]:
    """dataset.json. It holds no times, so that equal input gives equal bytes."""
    options = plan.to_json()
    inputs = options.pop("inputs")
    return {
        "format": "dglmnet",
        "format_version": FORMAT_VERSION,
        "tool_version": __version__,
        "examples": examples,
        "features": sum(part.features for part in parts),
        "nnz": sum(part.nnz for part in parts),
        "label_map": label_map,
        "index_base": 0 if plan.zero_based else 1,
        "labels": labels,
        "partitions": [part.to_json() for part in parts],
        "inputs": inputs,
        "bad_lines": bad_lines,
        "plan": options,
    }


def commit(fs: Any, path: str, place: Workplace, description: dict[str, Any]) -> None:
    """Take an old data set away, move the parts into place, write dataset.json."""
    place.keeper.claim.check(fs)
    remove(fs, f"{path}/{DATASET_JSON}")
    for name in fs.ls(path, detail=False):
        base = name.rsplit("/", 1)[-1]
        if base == LABELS_PARQUET or (base.startswith("part-") and base.endswith(".parquet")):
            remove(fs, name)
    names = [LABELS_PARQUET, *(part["file"] for part in description["partitions"])]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: fs.mv(f"{place.folder}/{name}", f"{path}/{name}"), names))
    write_json(fs, f"{path}/{DATASET_JSON}", description)
