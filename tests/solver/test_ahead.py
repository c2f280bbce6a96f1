"""One item is made ahead of its use, by a thread that ends with the iteration."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from threading import Event

import pytest

from solver.threads import one_ahead

WAIT = 60  # seconds, at most: nothing takes that long


def squares(asked: Iterator[int]) -> Generator[int, None, None]:
    for number in asked:
        yield number**2


def ahead_threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("ahead")}


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_it_gives_what_is_read_in_that_order(count: int) -> None:
    assert list(one_ahead(squares, range(count))) == [k**2 for k in range(count)]


def test_the_next_is_read_while_one_is_used_and_no_more() -> None:
    begun = [Event() for _ in range(5)]

    def read(asked: Iterator[int]) -> Generator[int, None, None]:
        for number in asked:
            begun[number].set()
            yield number

    for number in one_ahead(read, range(5)):
        if number < 4:
            assert begun[number + 1].wait(WAIT)
        assert not any(one.is_set() for one in begun[number + 2 :])


def test_what_is_asked_is_gone_through_by_the_caller() -> None:
    """It may depend on what the caller has found so far."""
    callers: list[threading.Thread] = []

    def asked() -> Iterator[int]:
        for number in range(4):
            callers.append(threading.current_thread())
            yield number

    assert len(list(one_ahead(squares, asked()))) == 4
    assert set(callers) == {threading.current_thread()}


def test_an_error_of_the_reading_thread_reaches_the_caller_as_it_is() -> None:
    error = OSError(5, "the disk does not read")

    def read(asked: Iterator[int]) -> Generator[int, None, None]:
        for number in asked:
            if number == 2:
                raise error
            yield number

    before, found = ahead_threads(), []
    with pytest.raises(OSError, match="the disk does not read") as caught:
        for number in one_ahead(read, range(5)):
            found.append(number)
    assert caught.value is error
    assert found == [0, 1]
    assert ahead_threads() == before


def test_what_is_found_wrong_at_the_end_reaches_the_caller() -> None:
    def read(asked: Iterator[int]) -> Generator[int, None, None]:
        yield from asked
        raise ValueError("it was replaced")

    with pytest.raises(ValueError, match="it was replaced"):
        list(one_ahead(read, range(3)))


def test_an_iteration_that_is_given_up_ends_the_thread_and_closes_the_reader() -> None:
    closed = []

    def read(asked: Iterator[int]) -> Generator[int, None, None]:
        try:
            yield from asked
        finally:
            closed.append(True)

    before = ahead_threads()
    items = one_ahead(read, range(100))
    assert next(iter(items)) == 0
    assert ahead_threads() > before
    del items
    assert closed == [True]
    assert ahead_threads() == before
