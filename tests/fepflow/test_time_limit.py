"""Work under a time limit: its result, its error, or its end."""

from __future__ import annotations

import sys
import threading
import time
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
    threads[0].join(30)
    assert not threads[0].is_alive()


def test_work_is_stopped_even_if_the_first_stops_are_swallowed() -> None:
    """As by a callback of the garbage collector that happens to run."""
    threads: list[threading.Thread] = []
    swallowed: list[int] = []

    def work() -> None:
        threads.append(threading.current_thread())
        for number in range(3):
            try:
                for _ in count():
                    pass
            except SystemExit:
                swallowed.append(number)
        for _ in count():
            pass

    with pytest.raises(TimeoutError):
        within(0.5, work)
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert swallowed == [0, 1, 2]


def test_an_object_that_work_collects_is_finalized_whole_and_work_is_stopped_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    is_late, finalized = threading.Event(), threading.Event()

    class Slow:
        def __del__(self) -> None:
            is_late.wait(5)
            ends_at = time.monotonic() + 0.3  # some tries to stop the thread
            while time.monotonic() < ends_at:
                pass
            finalized.set()

    def work() -> None:
        threads.append(threading.current_thread())
        Slow()
        for _ in count():
            pass

    with pytest.raises(TimeoutError):
        within(0.1, work)
    is_late.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    assert finalized.is_set()
    assert not unraisable
