"""Time limits for work in Python that has none of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from ctypes import c_ulong, py_object, pythonapi
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

IN_LOOP: ContextVar[bool] = ContextVar("in_loop", default=False)
"""True while work is tried on the event loop, which it may hold up for milliseconds only; see NotInLoopError."""

AGAIN_SECONDS = 0.05
"""Pause between attempts to stop a thread: a callback of the garbage collector may have swallowed the exception."""


class NotInLoopError(Exception):
    """Work takes longer than the event loop can wait: it begins anew in a thread."""


class _Stopped(SystemExit):
    """Ends a thread. Libraries do not catch it, because it is not an Exception, and the thread prints no traceback."""


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return the result of `work`, or raise its exception; the caller waits.

    Work that takes longer is stopped, and TimeoutError is raised. It runs in a thread of its own, because an exception
    can be raised in a thread from outside. The exception takes effect between two steps of Python. A call of C, for
    example the search for a regular expression, needs a limit of its own.
    """
    outcome: Future[T] = Future()
    context = copy_context()
    ended = Event()

    def execute() -> None:
        with suppress(_Stopped):
            try:
                outcome.set_result(context.run(work))
            except Exception as error:
                outcome.set_exception(error)
            finally:
                ended.set()

    thread = Thread(target=execute, name="fepflow-limited", daemon=True)
    thread.start()
    try:
        return outcome.result(seconds)
    finally:
        if not outcome.done():
            Thread(target=_stop, args=[thread, ended], name="fepflow-stop", daemon=True).start()


def _stop(thread: Thread, ended: Event) -> None:
    identifier = thread.ident or 0
    while thread.is_alive() and not ended.is_set():
        if not _would_lose_exception(identifier):
            pythonapi.PyThreadState_SetAsyncExc(c_ulong(identifier), py_object(_Stopped))
        ended.wait(AGAIN_SECONDS)


def _would_lose_exception(identifier: int) -> bool:
    """Return whether a thread runs a `__del__`, which would swallow the exception and leave its object half closed.

    The object may belong to other code, because the garbage collector runs in any thread that allocates. The hook for
    swallowed exceptions is not interrupted either: it would be stopped while it reports the last one.
    """
    hook = getattr(sys.unraisablehook, "func", sys.unraisablehook)
    names = {"__del__", getattr(hook, "__name__", "")}
    frame = sys._current_frames().get(identifier)
    while frame is not None and frame.f_code.co_name not in names:
        frame = frame.f_back
    return frame is not None
