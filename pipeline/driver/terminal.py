"""A terminal that stays with a driver: it shows the progress, and Ctrl-C asks what to do with the run.

On a terminal: detach (the run goes on), cancel it, or go on watching; a second Ctrl-C detaches. Where nobody can be
asked (a script, SIGTERM), an interrupt cancels, as it ends the work of a driver in this process.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import click
from distributed import Client, Future

from pipeline.commands.shared import OUTPUT, Interrupted, Terminated, say
from pipeline.display import SilentDisplay, open_display
from pipeline.driver.follow import Follower
from pipeline.driver.moving import ANSWER_SECONDS
from pipeline.driver.record import CANCELLED, CUT_OFF, FINISHED, DriverRecord, RunFolder
from pipeline.driver.status import kept_line
from pipeline.driver.submission import ask_to_cancel, forget, standing
from pipeline.driver.task import Outcome
from transforms import UserError
from transforms.errors import ClusterLost
from transforms.liveness import UNREACHABLE

logger = logging.getLogger("dglmnet")
CANCEL_SECONDS = 60.0  # a driver looks at each round, and at each task of a conversion, whether it is wanted
Choice = Literal["detach", "cancel", "go on"]


class DriverFailed(click.ClickException):
    """The driver ended otherwise than well; told as the command's own error."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: object = None) -> None:
        click.echo(f"dask-submit: error: {OUTPUT.scrub(' '.join(self.message.split()))}", err=True)


@contextmanager
def interrupts_told(output: str, storage_options: dict[str, Any] | None, command: str) -> Iterator[None]:
    """An interrupt in here says what the run keeps, and how to go on with it, wherever its driver is."""
    try:
        yield
    except KeyboardInterrupt:
        try:
            kept = f": {kept_line(RunFolder.of(output, storage_options), command)}"
        except (UserError, OSError):  # a run that cannot be read is not what the user asked about
            kept = ""
        raise Interrupted(f"interrupted{kept}") from None


def stay(
    client: Client, folder: RunFolder, record: DriverRecord, future: Future | None, *, quiet: bool, log_json: bool
) -> bool:
    """Follow the driver to its end: True when it finished, False if the user detached. Raises what it raised."""
    follower = Follower(client, folder, record, future)
    try:
        while True:
            try:
                with open_display(quiet=quiet, log_json=log_json) as display:
                    return conclude(follower.follow(display))
            except KeyboardInterrupt as interrupt:
                choice = choose(interrupt)
            if choice == "detach":
                tell_where(folder)
                return False
            if choice == "cancel":
                outcome = cancel(client, folder, record, follower)
                if outcome.state == CANCELLED:
                    raise KeyboardInterrupt
                return conclude(outcome)
    finally:
        follower.close()


def choose(interrupt: KeyboardInterrupt, ask: Callable[[], str] | None = None) -> Choice:
    """What an interrupt means: the user is asked, if there is one."""
    if isinstance(interrupt, Terminated) or not _both_are_terminals():
        return "cancel"
    try:
        answer = (ask or _ask)()
    except (click.Abort, KeyboardInterrupt):  # a second Ctrl-C, or the end of input: leave nothing undone
        return "detach"
    return {"d": "detach", "c": "cancel", "g": "go on"}[answer]  # type: ignore[return-value]


def _both_are_terminals() -> bool:
    """Can a question be asked and answered? A stream that is closed is None."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _ask() -> str:
    answer: str = click.prompt(
        "\nThe run is on the cluster: detach, cancel, or go on watching?",
        type=click.Choice(["d", "c", "g"], case_sensitive=False),
        err=True,
    )
    return answer.lower()


def tell_where(folder: RunFolder) -> None:
    """How to find a run again."""
    say(
        f"The run goes on on the cluster. Find it again with\n"
        f"  dask-submit attach {folder.shown}\n  dask-submit status {folder.shown}"
    )


def cancel(client: Client, folder: RunFolder, record: DriverRecord, follower: Follower) -> Outcome:
    """Ask the driver to end, and wait until it has: it stores nothing half, and lets go of the workers' memory."""
    logger.info("cancelling")
    deadline = time.monotonic() + CANCEL_SECONDS
    while time.monotonic() < deadline:
        try:
            ask_to_cancel(client, folder, record)
        except UNREACHABLE as error:
            logger.debug("cannot ask the driver: %s", error)
            outcome = _take_back(client, folder, record)
            if outcome is not None:
                return outcome
        outcome = follower.follow(SilentDisplay(), seconds=2.0)
        if outcome is not None:
            return outcome
    raise DriverFailed(
        f"the driver was asked to end and has not within {CANCEL_SECONDS:.0f} s: it does at its next round. "
        f"See `dask-submit status {folder.shown}`"
    )


def _take_back(client: Client, folder: RunFolder, record: DriverRecord) -> Outcome | None:
    """Cancel a driver that cannot be asked, its worker being stopped: if that comes back, the driver ends itself."""
    try:
        found = standing(client, record.key)
        if found is None or not found.started or found.silent < ANSWER_SECONDS:
            return None
        forget(client, folder, record)
    except (ClusterLost, *UNREACHABLE):
        raise DriverFailed(
            f"the scheduler at {record.scheduler} does not answer, so the run could not be cancelled. "
            f"See `dask-submit status {folder.shown}`"
        ) from None
    message = f"its worker {found.worker} does not answer; the driver ends if that comes back. {record.again}"
    logger.warning("the driver cannot be asked to end: %s", message)
    folder.write((folder.read() or record).end(CANCELLED, message))
    return Outcome(CANCELLED, message)


def conclude(outcome: Outcome | None) -> bool:
    """The outcome as this process's own: nothing when it finished, or else the error."""
    assert outcome is not None
    if outcome.trace:
        logger.debug("%s", outcome.trace)
    if outcome.state == FINISHED:
        return True
    if outcome.usage:
        raise UserError(outcome.message)
    words = {CANCELLED: "the run was cancelled", CUT_OFF: f"the run was cut off: {outcome.message}"}
    message = words.get(outcome.state, outcome.message or outcome.state)
    raise DriverFailed(message, code=130 if outcome.state == CANCELLED else 1)
