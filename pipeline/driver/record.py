"""driver.json in a run folder: where the run's driver was submitted, and what became of it. It holds no secrets.

The command that submits writes it first, so that the driver can tell whether it sees the same folder; the driver writes
it when it starts and when it ends. A driver that finds itself started already was lost with its worker: it resumes the
run, a few times at most.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import dask

from pipeline.run import DRIVER
from transforms.schema import flag, moment, optional, read_record, record, text, whole
from transforms.storage import (
    StorageOptions,
    display,
    is_local,
    make_folder,
    open_storage,
    write_json,
)

SUBMITTED, RUNNING = "submitted", "running"
FINISHED, FAILED, CANCELLED, CUT_OFF = "finished", "failed", "cancelled", "cut off"
ENDED = (FINISHED, FAILED, CANCELLED, CUT_OFF)
NAMES = "dglmnet-driver-"  # with which published names and keys of drivers begin
MOST_STARTS = 4  # as often as Dask itself, by default, tries a task whose workers die


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


_RECORD = record(
    {"command": text(), "scheduler": text(), "key": text(), "submitted": moment},
    {
        "state": text(choices=(SUBMITTED, RUNNING, *ENDED)),
        "started": optional(moment),
        "ended": optional(moment),
        "worker": optional(text()),
        "message": optional(text()),
        "usage": flag,
        "starts": whole(),
        "begun": flag,
    },
)


@dataclass(frozen=True)
class DriverRecord:
    """What driver.json says."""

    command: str  # fit, pipeline
    scheduler: str
    key: str  # of the Dask task
    submitted: str
    state: str = SUBMITTED
    started: str | None = None  # the first time
    ended: str | None = None
    worker: str | None = None  # its name and address
    message: str | None = None  # why it failed
    usage: bool = False  # and whether the user can mend that
    starts: int = 0  # more than one: it was lost with its worker
    begun: bool = False  # the run folder holds what this run made

    @property
    def seconds(self) -> float:
        """How long the driver worked; 0 if it did not."""
        if not (self.started and self.ended):
            return 0.0
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def again(self) -> str:
        """What to do about a run that was cut off."""
        how = "run the same command again" if self.command == "pipeline" else "continue with --resume"
        return f"What is done is kept: {how}"

    @property
    def lost(self) -> str:
        """What to say of a driver that is gone for good."""
        where = f" {self.worker}" if self.worker else ""
        times = f", as it was {self.starts - 1} times before" if self.starts > 1 else ""
        return f"the driver was lost with its worker{where}{times}. Was it killed, or out of memory? {self.again}"

    def started_again(self, lost: str | None) -> str:
        """What to say of a driver that was lost, with that worker, and goes on."""
        where = f" {lost}" if lost else ""
        start = f"start {self.starts} of {MOST_STARTS}"
        return f"the driver was lost with its worker{where}: it goes on at {self.worker} ({start})"

    def start(self, worker: str) -> DriverRecord:
        started = self.started or now()
        return replace(self, state=RUNNING, started=started, ended=None, worker=worker, starts=self.starts + 1)

    def end(self, state: str, message: str | None, *, usage: bool = False) -> DriverRecord:
        return replace(self, state=state, ended=now(), message=message, usage=usage)


def is_trusted(scheduler: str) -> bool:
    """May a client connect to this address because driver.json says so?

    A Dask client executes what its scheduler sends, and whoever may write a run's folder may write its driver.json. A
    tls:// address has to prove itself by the user's own CA; this machine is taken for the user's own, too, and so is
    the address that Dask's configuration names.
    """
    if scheduler.startswith("tls://") or scheduler == dask.config.get("scheduler-address", None):
        return True
    try:
        host = urlsplit(scheduler).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, or no address at all
        return False


@dataclass(frozen=True)
class RunFolder:
    """A run's folder, the same for whoever looks at it: local paths are absolute."""

    url: str = field(repr=False)
    storage: StorageOptions = field(repr=False)
    shown: str  # without secrets

    @classmethod
    def of(cls, url: str, options: dict[str, Any] | None) -> RunFolder:
        storage = StorageOptions(options or {})
        fs, path = open_storage(url, storage)
        return cls(path if is_local(fs) else url, storage, display(fs, path))

    @property
    def name(self) -> str:
        """Under which the driver of this run is published on the scheduler."""
        return f"{NAMES}{hashlib.sha256(self.shown.encode()).hexdigest()[:16]}"

    @property
    def local(self) -> bool:
        return is_local(open_storage(self.url, self.storage)[0])

    def read(self) -> DriverRecord | None:
        """What driver.json says, if it is there."""
        fs, path = open_storage(self.url, self.storage)
        remedy = "delete it, and submit again with --resume"
        try:
            content = read_record(fs, f"{path}/{DRIVER}", _RECORD, remedy)
        except (FileNotFoundError, NotADirectoryError):
            return None
        known = {field.name for field in fields(DriverRecord)}
        return DriverRecord(**{name: value for name, value in content.items() if name in known})

    def write(self, record: DriverRecord) -> None:
        fs, path = open_storage(self.url, self.storage)
        make_folder(fs, path)
        write_json(fs, f"{path}/{DRIVER}", asdict(record))
