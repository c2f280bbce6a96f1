"""One writer at a time: the claim on an output folder while it is being made.

A claim is a small file, created only if it is not there (atomic on disks, HDFS and S3). Its owner rewrites it
every few seconds; a newcomer that watches it stand still knows that the owner is dead and may take over. Tasks look
at it before they write (`Claim.check`), so that a writer that lost its claim, or gave up, cannot add anything later.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

from transforms.errors import ClaimHeld, ClaimLost
from transforms.storage import display, is_local, open_storage, remove, write_json

logger = logging.getLogger("dglmnet")
HEARTBEAT_SECONDS = 5.0
PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Claim:
    """Who may write: handed to every task."""

    path: str
    token: str

    def check(self, fs: Any) -> None:
        """Raise unless this claim still holds."""
        try:
            fs.invalidate_cache()
            holder = json.loads(fs.cat_file(self.path))["token"]
        except (FileNotFoundError, ValueError, KeyError):
            holder = None
        if holder != self.token:
            raise ClaimLost(f"{display(fs, self.path)}: this work was stopped or taken over by another")


class ClaimKeeper:
    """Takes a claim, keeps it fresh in the background, and gives it back."""

    def __init__(self, url: str, options: dict[str, Any], path: str) -> None:
        self._fs, _ = open_storage(url, options)
        self.claim = Claim(path, uuid.uuid4().hex)
        self._stop = threading.Event()
        self._beat = 0
        self._thread = threading.Thread(target=self._keep_fresh, name="dglmnet-claim", daemon=True)

    def take(self, *, takeover: bool) -> None:
        """Claim the folder; with takeover, a claim whose owner is dead is replaced."""
        if not self._create():
            holder = self._holder()
            if not takeover or self._is_alive(holder):
                who = f"process {holder.get('pid')} on {holder.get('host')}"
                remedy = "wait for it, or choose another output"
                if not takeover:
                    remedy = "if it is dead, continue with --resume or start over with --overwrite"
                raise ClaimHeld(f"{display(self._fs, self.claim.path)}: {who} is writing here: {remedy}")
            self._write()
            self.claim.check(self._fs)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        try:
            self.claim.check(self._fs)
        except ClaimLost:
            return  # somebody else's by now
        remove(self._fs, self.claim.path)

    def at_work(self) -> dict[str, Any] | None:
        """Who holds the claim and is alive, for those who only look."""
        holder = self._holder()
        return holder if holder and self._is_alive(holder) else None

    def _content(self) -> dict[str, Any]:
        return {"token": self.claim.token, "host": socket.gethostname(), "pid": os.getpid(), "beat": self._beat}

    def _create(self) -> bool:
        try:
            with self._fs.open(self.claim.path, "xb") as file:
                file.write(json.dumps(self._content()).encode())
        except FileExistsError:
            return False
        return True

    def _write(self) -> None:
        write_json(self._fs, self.claim.path, self._content())

    def _holder(self) -> dict[str, Any]:
        try:
            self._fs.invalidate_cache()
            holder: dict[str, Any] = json.loads(self._fs.cat_file(self.claim.path))
        except (FileNotFoundError, ValueError):
            return {}
        return holder

    def _is_alive(self, holder: dict[str, Any]) -> bool:
        """Same machine: does the process exist. Elsewhere: does the claim change while we watch."""
        if is_local(self._fs) and holder.get("host") == socket.gethostname():
            try:
                os.kill(int(holder["pid"]), 0)
            except (ProcessLookupError, KeyError):
                return False
            except PermissionError:
                pass
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
            except OSError as error:  # storage that is away for a moment; the next beat may get through
                logger.warning("cannot refresh %s: %s", display(self._fs, self.claim.path), error)
