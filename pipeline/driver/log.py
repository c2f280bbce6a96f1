"""What a driver's thread logs and warns of, handed on to its terminal, without the values of storage options."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("dglmnet")

_SINKS: dict[int, Callable[[int, str], None]] = {}
_showwarning = warnings.showwarning


class _Forward(logging.Handler):
    """Log records of a thread that runs a driver become events."""

    def emit(self, record: logging.LogRecord) -> None:
        sink = _SINKS.get(record.thread or 0)
        if sink is not None:
            sink(record.levelno, record.getMessage())


_FORWARD = _Forward()


def _show_warning(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
    if threading.get_ident() in _SINKS:
        logger.warning("warning: %s", message)
    else:
        _showwarning(message, category, *rest, **more)


@contextmanager
def logs_told(tell: Callable[[int, str], None]) -> Iterator[None]:
    """Hand on what this thread logs and warns of. A worker may run several drivers, so each has its thread's entry."""
    global _showwarning
    if warnings.showwarning is not _show_warning:
        _showwarning, warnings.showwarning = warnings.showwarning, _show_warning
    warnings.simplefilter("default", append=True)  # forgets which warnings an earlier run has shown
    logger.addHandler(_FORWARD)
    me = threading.get_ident()
    _SINKS[me] = tell
    try:
        yield
    finally:
        del _SINKS[me]
