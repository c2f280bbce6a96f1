"""What is told of a peer that failed."""

from __future__ import annotations

import io

import pytest

from benchmarks.peers import _last_line

JAVA = """Py4JJavaError: o42.count
Caused by: SparkException: aborted
    at x
Caused by: BadIds: 7 after 9
    ... 1 more
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [(JAVA, "Caused by: BadIds: 7 after 9"), ("first\nValueError: last\n\n", "ValueError: last"), ("", "no message")],
)
def test_a_failure_is_told_by_its_cause(said: str, told: str) -> None:
    assert _last_line(io.StringIO(said)) == told
