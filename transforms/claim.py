"""One writer at a time: the claim on an output folder while it is being made.

A claim is a small file, created only if it is not there (atomic on disks, HDFS and S3). Its owner rewrites it
every few seconds; a newcomer that watches it stand still knows that the owner is dead and may take over. Tasks look
at it before they write (`Claim.check`), so that a writer that lost its claim, or gave up, cannot add anything later.

Work that is started again elsewhere when its worker is lost (`claims_of`) takes over the claims of its earlier starts
at once, and never those of a later one: a lost start that comes back finds its claim gone.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from transforms.errors import ClaimHeld, ClaimLost, UserError
from transforms.schema import parse_record, record, text, whole
from transforms.storage import (
    create_exclusively,
    display,
    explained,
    is_local,
    open_storage,
    read_whole,
    remove,
    write_json,
)

logger = logging.getLogger("dglmnet")
_HOLDER = record({"token": text(), "host": text(), "pid": whole()}, {"beat": whole(), "work": text(), "start": whole()})
HEARTBEAT_SECONDS = 5.0
PATIENCE_SECONDS = 20.0
NOTICE_SECONDS = HEARTBEAT_SECONDS + 1.0  # for an owner that lives to see that its claim was taken over


@dataclass(frozen=True)
class Start:
    """Work that may be started several times, one start after the other: which work, and which start of it."""

    work: str
    number: int


_START: ContextVar[Start | None] = ContextVar("start", default=None)


@contextmanager
def claims_of(start: Start) -> Iterator[None]:
    """Claims that this thread takes in here belong to this start."""
    token = _START.set(start)
    try:
        yield
    finally:
        _START.reset(token)


@dataclass(frozen=True)
class Claim:
    """Who may write: handed to every task."""

    path: str
    token: str

    def check(self, fs: Any) -> None:
        """Raise unless this claim still holds."""
        if _read_holder(fs, self.path).get("token") != self.token:
            raise ClaimLost(f"{display(fs, self.path)}: this work was stopped or taken over by another")


def _read_holder(fs: Any, path: str) -> dict[str, Any]:
    """What a claim says; nothing if there is none, or none that can be read."""
    fs.invalidate_cache()
    try:
        with explained(display(fs, path)):
            return parse_record(read_whole(fs, path), _HOLDER)
    except (FileNotFoundError, ValueError):
        return {}


def process_at_work(fs: Any, path: str) -> str | None:
    """Who holds the claim at `path`, for those who look and do not wait; None if nobody, or a process that ended."""
    holder = _read_holder(fs, path)
    here = is_local(fs) and holder.get("host") == socket.gethostname()
    if not holder or (here and not _is_running(holder.get("pid"))):
        return None
    return f"process {holder.get('pid')} on {holder.get('host')}" + ("" if here else ", unless it was killed")


class ClaimKeeper:
    """Takes a claim, keeps it fresh in the background, and gives it back."""

    def __init__(self, url: str, options: dict[str, Any], path: str) -> None:
        self._fs, _ = open_storage(url, options)
        self.claim = Claim(path, uuid.uuid4().hex)
        self._start = _START.get()
        self._stop = threading.Event()
        self._beat = 0
        self.unreachable = False  # the store was gone when the claim was to be given back
        self._thread = threading.Thread(target=self._keep_fresh, name="dglmnet-claim", daemon=True)

    def take(self, *, takeover: bool) -> None:
        """Claim the folder; with takeover, a claim whose owner is dead is replaced."""
        if not self._create():
            holder = self._holder()
            if not takeover or self._is_alive(holder):
                who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
                remedy = "wait for it, or choose another output"
                if not takeover:
                    remedy = "if it is dead, continue with --resume or start over with --overwrite"
                raise ClaimHeld(f"{display(self._fs, self.claim.path)}: {who} is writing here: {remedy}")
            self._replace(holder)
        self._thread.start()

    def _replace(self, holder: dict[str, Any]) -> None:
        """Take a claim over. An earlier start of this work may live, unheard of: it has time to see that."""
        self._write()
        if self._is_earlier_start(holder) and not self._is_dead(holder):
            time.sleep(NOTICE_SECONDS)
            if self._holder().get("token") == holder["token"]:  # it was refreshing its claim that very moment
                self._write()
        self.claim.check(self._fs)

    def release(self) -> None:
        """Give the claim back, unless it is somebody else's by now, or the store is gone."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        try:
            self.claim.check(self._fs)
            remove(self._fs, self.claim.path)
        except ClaimLost:
            return
        except (UserError, OSError) as error:
            self.unreachable = True
            logger.warning("cannot give back %s: %s", display(self._fs, self.claim.path), error)

    def at_work(self) -> dict[str, Any] | None:
        """Who holds the claim and is alive, for those who only look."""
        holder = self._holder()
        return holder if holder and self._is_alive(holder) else None

    def _content(self) -> dict[str, Any]:
        content = {"token": self.claim.token, "host": socket.gethostname(), "pid": os.getpid(), "beat": self._beat}
        return content | ({"work": self._start.work, "start": self._start.number} if self._start else {})

    def _create(self) -> bool:
        return create_exclusively(self._fs, self.claim.path, json.dumps(self._content()).encode())

    def _write(self) -> None:
        write_json(self._fs, self.claim.path, self._content())

    def _holder(self) -> dict[str, Any]:
        return _read_holder(self._fs, self.claim.path)

    def _is_earlier_start(self, holder: dict[str, Any]) -> bool:
        """Was the claim taken by an earlier start of this work?"""
        mine = self._start
        return mine is not None and holder.get("work") == mine.work and holder.get("start", 0) < mine.number

    def _is_dead(self, holder: dict[str, Any]) -> bool:
        """Is it a process of this machine that does not exist any more?"""
        here = is_local(self._fs) and holder.get("host") == socket.gethostname()
        return here and not _is_running(holder.get("pid"))

    def _is_alive(self, holder: dict[str, Any]) -> bool:
        """Same machine: does the process exist. Elsewhere: does the claim change while we watch."""
        if self._is_dead(holder) or self._is_earlier_start(holder):
            return False
        if holder:
            logger.info(
                "process %s on %s has claimed %s: watching for up to %g s whether it is alive",
                holder.get("pid"),
                holder.get("host"),
                display(self._fs, self.claim.path),
                PATIENCE_SECONDS,
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.5)
            if self._holder() != holder:
                return True
        return False

    def _keep_fresh(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            self._beat += 1
            try:
                if self._holder().get("token") != self.claim.token:
                    return
                self._write()
            except (UserError, OSError) as error:  # storage that is away for a moment; the next beat may get through
                logger.warning("cannot refresh %s: %s", display(self._fs, self.claim.path), error)


@contextmanager
def claimed(url: str, options: dict[str, Any], path: str) -> Iterator[ClaimKeeper]:
    """Hold the claim at `path` while the block runs; that of a dead process is taken over."""
    keeper = ClaimKeeper(url, options, path)
    keeper.take(takeover=True)
    try:
        yield keeper
    finally:
        keeper.release()


def _is_running(pid: Any) -> bool:
    """Is there such a process on this machine?"""
    if not isinstance(pid, int) or not 0 < pid < 1 << 31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
