"""A short run of the parser's fuzzer, and proof that it would notice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import parser as fuzzer
from tests.fuzz.lines import make_text
from tests.fuzz.parser import Difference, GuardedRoom, fuzz, run_case, verdict
from transforms.parser import PADDING, parse

ROOT = Path(__file__).resolve().parents[2]


def test_the_parser_reads_what_the_reference_reads_and_nothing_beyond() -> None:
    assert fuzz(seed=7, first=0, cases=2000, bounds_check=False) == ""


def test_the_parser_stays_within_its_arrays(request: pytest.FixtureRequest) -> None:
    """The compiled code is kept from run to run: compiling takes longer than the cases."""
    assert request.config.cache is not None
    kept = request.config.cache.mkdir("numba-bounds-check")
    assert fuzz(seed=8, first=0, cases=1000, bounds_check=True, cache=str(kept)) == ""


def test_a_case_is_the_same_again() -> None:
    assert make_text(random.Random("7-1")) == make_text(random.Random("7-1"))
    assert len({make_text(random.Random(f"7-{case}")) for case in range(200)}) > 150


@pytest.mark.parametrize("at_end", [True, False])
def test_a_read_beyond_the_edge_kills_the_process(at_end: bool) -> None:
    beyond = PADDING + 3 if at_end else -1
    program = f"""
import ctypes
from tests.fuzz.parser import GuardedRoom
array = GuardedRoom().place(b"1 1", at_end={at_end})
print(ctypes.string_at(array.ctypes.data, 1), flush=True)
ctypes.string_at(array.ctypes.data + {beyond}, 1)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.stdout == b"b'1'\n"
    assert done.returncode < 0


def test_a_process_that_dies_is_told_with_its_case() -> None:
    told = verdict(7, 123, -11, "")
    assert "SIGSEGV" in told and "--seed 7 --first 123 --cases 1" in told
    assert verdict(7, 123, 1, "Traceback\nDifference: rows\n") == "Difference: rows"
    assert verdict(7, 123, 0, "a warning") == ""


def test_a_parser_that_is_wrong_is_found_and_the_text_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(text: object, stop: int, **options: bool) -> object:
        parsed = parse(text, stop, **options)  # type: ignore[arg-type]
        parsed.values[parsed.values == 5] = 6
        return parsed

    monkeypatch.setattr(fuzzer, "parse", wrong)
    room = GuardedRoom()
    with pytest.raises(Difference) as caught:
        for case in range(2000):
            run_case(room, 7, case)
    text = str(caught.value).split("b'")[1].split("'")[0]
    assert len(text) < 12
    assert ":5" in text
