"""Do this machine and all workers see the same storage, and can it do what jobs need?

Small files are written into a folder of their own below the URL: one from here that every worker reads, and one from
each worker that is read here and by the next worker. All are deleted again.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pipeline.doctor.questions import Cluster, Failure
from pipeline.doctor.row import OK, WARN, WRONG, Row
from transforms import UserError
from transforms.secrets import without_secrets
from transforms.storage import (
    StorageOptions,
    create_exclusively,
    display,
    explain,
    explained,
    is_local,
    make_folder,
    open_storage,
    redact,
    remove,
    remove_empty_folder,
)
from transforms.stores import ObjectStore, store_of

T = TypeVar("T")
HERE = "here"
STORE_SECONDS = 45.0  # for a step: stores that fail are asked again for up to 40 s
NOT_SHARED = "use storage that this machine and all workers share: s3://, hdfs://, or a network file system"


@dataclass(frozen=True)
class Trial:
    """The folder of the trial, the same for whoever looks at it: local paths are absolute."""

    url: str = field(repr=False)
    options: StorageOptions = field(repr=False)
    local: bool
    made: tuple[str, ...] = ()  # folders above it that are missing, the lowest first

    @classmethod
    def below(cls, url: str, options: dict[str, Any] | None) -> Trial:
        fs, path = open_storage(url, options)
        name = f"dglmnet-doctor-{uuid.uuid4().hex[:12]}"
        place = path if is_local(fs) else url.rstrip("/")
        return cls(f"{place}/{name}", StorageOptions(options or {}), is_local(fs), tuple(_missing(fs, path)))

    def open(self) -> tuple[Any, str]:
        return open_storage(self.url, self.options)

    def make(self) -> None:
        make_folder(*self.open())

    def write(self, name: str) -> None:
        fs, path = self.open()
        if not create_exclusively(fs, f"{path}/{name}", self.content(name)):
            raise UserError(f"{display(fs, path)}/{name}: another file has its name")

    def holds(self, name: str) -> bool:
        """Is the file there, with the right content?"""
        fs, path = self.open()
        fs.invalidate_cache()
        try:
            with explained(display(fs, path)):
                return bool(fs.cat_file(f"{path}/{name}") == self.content(name))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def names(self) -> set[str]:
        fs, path = self.open()
        fs.invalidate_cache()
        with explained(display(fs, path)):
            return {one.rstrip("/").rsplit("/", 1)[-1] for one in fs.ls(path, detail=False)}

    def content(self, name: str) -> bytes:
        return f"{self.url.rsplit('/', 1)[-1]}: a file of `dask-submit doctor`, written by {name}\n".encode()

    def remove(self) -> None:
        fs, path = self.open()
        with explained(display(fs, path)):
            remove(fs, path, recursive=True)
            for folder in self.made:
                remove_empty_folder(fs, folder)


def _missing(fs: Any, path: str) -> Iterator[str]:
    """Folders that have to be made; in object stores there are none to make."""
    while path.strip("/") and not isinstance(store_of(fs), ObjectStore) and not fs.exists(path):
        yield path
        path = path.rpartition("/")[0]


def _name_of(address: str) -> str:
    return f"worker-{hashlib.sha256(address.encode()).hexdigest()[:12]}"


def check_storage(url: str, options: dict[str, Any] | None, cluster: Cluster | None) -> list[Row]:
    """The rows of a folder at a URL, asked of this machine and, if there is a cluster, of all workers."""
    shown = redact(url)
    rows: list[Row] = []
    try:
        trial = _within(lambda: Trial.below(url, options))
        _within(trial.make)
        try:
            rows.append(_within(lambda: _write_here(trial, shown)))
            rows += _ask_workers(trial, cluster) if cluster else []
            rows.append(_within(lambda: _exclusive_row(trial, shown)))
        finally:
            _clean(trial, cluster)
    except (UserError, OSError) as error:
        what = str(error) if isinstance(error, UserError) else explain(error, shown) or f"{shown}: {error}"
        rows.append(Row("storage", HERE, what, WRONG, "check the address, its permissions and your credentials"))
    return rows


def _within(step: Callable[[], T]) -> T:
    """A step of this process with a time limit: a network file system that is gone keeps who asks it for ever."""
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((step(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, name="dglmnet-doctor", daemon=True).start()
    try:
        found, error = done.get(timeout=STORE_SECONDS)
    except queue.Empty:
        raise UserError(f"the storage does not answer within {STORE_SECONDS:.0f} s") from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]


def _write_here(trial: Trial, shown: str) -> Row:
    started = time.perf_counter()
    trial.write(HERE)
    if not trial.holds(HERE) or HERE not in trial.names():
        raise UserError(f"{shown}: a file that was just written is not there")
    return Row("storage", HERE, f"{shown}: written, read and listed in {time.perf_counter() - started:.2f} s")


def _exclusive_row(trial: Trial, shown: str) -> Row:
    fs, path = trial.open()
    with explained(shown):
        if store_of(fs).refuses(fs, f"{path}/{HERE}"):
            return Row("exclusive creation", HERE, "the store refuses to create a file that is there")
    remedy = "a second writer of the same output is noticed only after a while: start one job at a time for an output"
    return Row("exclusive creation", HERE, "the store creates a file although it is there", WARN, remedy)


def _ask_workers(trial: Trial, cluster: Cluster) -> list[Row]:
    able = {cluster.names[address]: _name_of(address) for address in cluster.able()}
    visits = cluster.ask(visit, trial, patience=STORE_SECONDS, needs_package=True)
    wrote = sorted(able[name] for name, seen in visits.items() if seen is True)
    seen_here = _within(lambda: {name for name in wrote if trial.holds(name)} & trial.names())
    across = cluster.ask(read_next, trial, wrote, patience=STORE_SECONDS, needs_package=True) if len(wrote) > 1 else {}
    return [
        _worker_row(name, trial, seen, back=able[name] in seen_here, across=across.get(name, True))
        for name, seen in visits.items()
    ]


@without_secrets
def visit(worker: Any, trial: Trial) -> bool:
    """Read the file that was written from where the command runs and, if it is there, write another."""
    if not trial.holds(HERE):
        return False
    trial.write(_name_of(worker.address))
    return True


@without_secrets
def read_next(worker: Any, trial: Trial, names: list[str]) -> bool:
    """Is the file of the next worker there?"""
    later = [name for name in names if name > _name_of(worker.address)]
    return trial.holds((later or names)[0])


def _worker_row(name: str, trial: Trial, seen: bool | Failure, *, back: bool, across: bool | Failure) -> Row:
    if isinstance(seen, Failure):
        return Row("storage", name, seen.reason, WRONG, "see that it has the same libraries, network and credentials")
    if not seen:
        kind = "the path is a folder of its own machine" if trial.local else "it sees another store"
        return Row("storage", name, f"does not see what is written here: {kind}", WRONG, NOT_SHARED)
    if not back:
        return Row("storage", name, "what it writes is not seen here", WRONG, NOT_SHARED)
    if isinstance(across, Failure):
        return Row("storage", name, across.reason, WRONG, "see that it has the same libraries, network and credentials")
    if not across:
        return Row("storage", name, "does not see what another worker writes", WRONG, NOT_SHARED)
    return Row("storage", name, "reads and writes what others write and read", OK)


def _clean(trial: Trial, cluster: Cluster | None) -> None:
    """Every worker deletes too: where storage is not shared, each has files of its own."""
    if cluster:
        cluster.ask(clean, trial, patience=STORE_SECONDS, needs_package=True)
    _within(trial.remove)


@without_secrets
def clean(_: Any, trial: Trial) -> None:
    trial.remove()
