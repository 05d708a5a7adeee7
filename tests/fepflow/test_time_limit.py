"""Work under a time limit: its result, its error, or its end."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from itertools import count

import pytest

from fepflow.time_limit import within


def test_the_result_and_the_error_of_work_are_those_of_the_call() -> None:
    assert within(5, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)


def test_work_sees_the_context_of_its_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="other")
    variable.set("caller's")
    assert within(5, variable.get) == "caller's"


def test_work_in_python_that_takes_too_long_is_stopped_even_if_it_catches_exceptions() -> None:
    threads: list[threading.Thread] = []

    def work() -> None:
        threads.append(threading.current_thread())
        for number in count():
            try:
                sum(range(number % 100))
            except Exception:
                continue

    with pytest.raises(TimeoutError):
        within(0.1, work)
    threads[0].join(5)
    assert not threads[0].is_alive()


def test_work_is_stopped_even_if_the_first_stops_are_swallowed() -> None:
    """As by a callback of the garbage collector or a `__del__` that happens to run."""
    threads: list[threading.Thread] = []
    swallowed: list[int] = []

    def work() -> None:
        threads.append(threading.current_thread())
        for number in count():
            try:
                sum(range(number % 100))
            except SystemExit:
                swallowed.append(number)
                if len(swallowed) == 3:
                    raise

    with pytest.raises(TimeoutError):
        within(0.1, work)
    threads[0].join(5)
    assert not threads[0].is_alive()
    assert len(swallowed) == 3
