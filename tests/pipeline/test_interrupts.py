"""Signals: a command that is asked to end does, whatever it is doing in that moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_A_CALLBACK = """
import gc, signal, sys, time
from pipeline.commands.shared import errors_as_exit_codes

class Diagnosis:
    def _gc_callback(self, phase, info):  # as Dask's is called
        gc.callbacks.clear()
        signal.raise_signal(int(sys.argv[1]))

class Finalised:
    def __del__(self):
        signal.raise_signal(int(sys.argv[1]))

with errors_as_exit_codes("test"):
    if sys.argv[2] == "gc":
        gc.callbacks.append(Diagnosis()._gc_callback)
        gc.collect()
    else:
        Finalised()
    time.sleep(60)
print("went on")
"""


@pytest.mark.parametrize("where", ["gc", "del"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_garbage_is_collected_is_not_lost(number: int, where: str) -> None:
    """Python drops what is raised there."""
    words = [sys.executable, "-c", IN_A_CALLBACK, str(int(number)), where]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "test: error: interrupted\n")
