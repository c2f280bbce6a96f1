"""Errors that are the user's to mend: each says what was found, where, and what to do. The commands exit with 2."""

from __future__ import annotations


class UserError(Exception):
    """Bad use or bad input, told in one line."""


class NoWorkers(UserError):
    """No worker is there, or none that answers."""


class ClusterLost(Exception):
    """A part of the cluster went away in the middle of the work: which one, and what to do about it."""

    def __init__(self, what: str, remedy: str = "Then run the same command again") -> None:
        super().__init__(what, remedy)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}{'' if self.what.endswith('?') else '.'} {self.args[1]}"


class WorkerLost(ClusterLost):
    """A worker is gone, or is there and does not answer."""


class TooFewWorkers(ClusterLost):
    """What workers are left cannot go on with the work."""


class SchedulerLost(ClusterLost):
    """The scheduler is gone, or does not answer."""


class StoreUnreachable(UserError):
    """A store that does not answer: there is no use in asking it anything more."""


class BadLine(UserError):
    """A line of an input that is not LIBSVM text. `hint`: what it looks like instead, and what to do."""

    def __init__(self, path: str, line: int, column: int, text: str, expected: str, hint: str = "") -> None:
        super().__init__(path, line, column, text, expected, hint)
        self.path, self.line, self.column, self.text, self.expected = path, line, column, text, expected
        self.hint = hint

    @property
    def place_and_reason(self) -> str:
        found = f", found {self.text!r}" if self.text else ""
        return f"{self.path}, line {self.line}, column {self.column}: {self.expected}{found}"

    def __str__(self) -> str:
        return f"{self.place_and_reason}. {self.hint}" if self.hint else self.place_and_reason


class DatasetError(UserError):
    """A data set that is missing, damaged, or of another format. `where`: its file or folder, if `what` has it not."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.what, self.where = what, where

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class BrokenArchive(UserError):
    """A compressed input that is damaged or cut off."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class OutputExists(UserError):
    """The output is there already, or another writer is at it. A caller that knows a better remedy may replace it."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what, self.remedy = what, remedy

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}" if self.remedy else self.what


class ClaimHeld(OutputExists):
    """Another writer is at it."""


class ClaimLost(OutputExists):
    """This writer may write no more: it gave up, or another took over."""
