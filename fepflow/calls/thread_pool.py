"""Threads for work that would hold up the event loop.

They are apart from asyncio's own pool, so that whatever happens here, other people's `asyncio.to_thread` has its turn.
Python cannot stop a thread: one that overruns its limit is given up, another takes its place, and the process can end
without it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from time import monotonic
from typing import Any, Generic, TypeVar

from fepflow.errors import CheckTimeoutError

T = TypeVar("T")

_SHORT_TURN = 0.0005
"""Seconds of the interpreter that a thread may have while the event loop waits for it; Python's own choice is 0.005.

With that, a ticking loop beside five busy threads came late by 230 ms (p99); with this one, by 60 ms."""

Outcome = tuple[Any, BaseException | None]


@dataclass(eq=False)
class Job(Generic[T]):
    """Something that a thread does."""

    work: Callable[[], T]
    context: Context = field(default_factory=copy_context)
    done: Future[Outcome] = field(default_factory=Future)
    thread: Thread | None = None
    started: float = 0.0

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends so soon; nothing else happens in the caller's thread meanwhile."""
        with suppress(TimeoutError):
            self.done.result(seconds)
        return self.done.done()

    def result(self) -> T:
        """What the work, which has ended, returned or raised."""
        value, error = self.done.result(0)
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]  # what `work` returned

    def execute(self) -> Outcome | None:
        """Do the work, unless it was cancelled. Its error is a value: a future cannot hold any exception."""
        if not self.done.set_running_or_notify_cancel():
            return None
        self.thread, self.started = current_thread(), monotonic()
        try:
            return self.context.run(self.work), None
        except Exception as error:
            return None, error
        except BaseException as error:  # sys.exit() in a user's check is a fault of the check
            return None, RuntimeError(f"{type(error).__name__}: {error}")


class _ShortTurns:
    """Python's switch interval is the process's: shorter while anything of ours wants it, then as it was."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanting = 0
        self._usual = _SHORT_TURN

    def change(self, by: int) -> None:
        """So many more, or fewer, want it."""
        with self._lock:
            if self._wanting == 0:
                self._usual = sys.getswitchinterval()
            self._wanting += by
            turn = _SHORT_TURN if self._wanting else self._usual
            if turn < self._usual or not self._wanting:
                sys.setswitchinterval(turn)


_short_turns = _ShortTurns()


@contextmanager
def short_turns() -> Iterator[None]:
    """While it lasts, a waiting thread gets the interpreter after half a millisecond. May be nested and overlap."""
    _short_turns.change(+1)
    try:
        yield
    finally:
        _short_turns.change(-1)


class ThreadPool:
    """Up to `most` daemon threads, started as they are needed; jobs begin in their order.

    `computes` says that the work is done in Python: the event loop and the threads have the interpreter in turns then.
    """

    def __init__(self, name: str, most: int, *, computes: bool) -> None:
        self._name = f"fepflow-{name}"
        self._most = most
        self._computes = computes
        self._jobs: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: set[Thread] = set()
        self._unfinished = 0

    async def run(self, work: Callable[[], T], limit: float | None = None, who: str = "it") -> T:
        """What `work` returns, or raises.

        Raises CheckTimeoutError, in the name of `who`, when it takes longer than `limit` seconds from its beginning;
        waiting for a thread does not count.
        """
        return await self.result(self.begin(work), limit, who)

    async def result(self, job: Job[T], limit: float | None = None, who: str = "it") -> T:
        """As `run`, for a job that has begun."""
        done = asyncio.wrap_future(job.done)
        if limit is not None:
            await self._within(limit, job, done, who)
        await done
        return job.result()

    async def _within(self, limit: float, job: Job[Any], done: asyncio.Future[Outcome], who: str) -> None:
        left = limit
        try:
            while not done.done() and left > 0:
                await asyncio.wait({done}, timeout=left)
                left = job.started + limit - monotonic() if job.thread is not None else limit
        except asyncio.CancelledError:
            done.cancel()
            raise
        if not done.done():
            done.cancel()
            self.give_up(job)
            raise CheckTimeoutError(f"{who} did not answer within {limit:g} s")

    def begin(self, work: Callable[[], T]) -> Job[T]:
        """Hand the work to a thread."""
        job = Job(work)
        with self._lock:
            self._unfinished += 1
            self._start_if_needed()
        self._jobs.put(job)
        return job

    @property
    def is_here(self) -> bool:
        """Whether the caller is one of the threads."""
        return current_thread() in self._threads

    @property
    def is_idle(self) -> bool:
        """Whether a job that begins now would have a thread at once."""
        return self._unfinished == 0

    def close(self) -> None:
        """Let the threads end once they have done what they are at. No job may begin afterwards."""
        with self._lock:
            for _ in self._threads:
                self._jobs.put(None)

    def _start_if_needed(self) -> None:
        if len(self._threads) < min(self._unfinished, self._most):
            thread = Thread(target=self._work, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            outcome = self._outcome(job)
            with self._lock:
                is_wanted = current_thread() in self._threads
                self._unfinished -= is_wanted
            if outcome is not None:
                job.done.set_result(outcome)
            del job, outcome  # else they would be kept until the next job comes
            if not is_wanted:
                return

    def _outcome(self, job: Job[Any]) -> Outcome | None:
        if not self._computes:
            return job.execute()
        with short_turns():
            return job.execute()

    def give_up(self, job: Job[Any]) -> None:
        """Abandon a job. A thread that runs it goes on alone, and another one takes its place."""
        job.done.cancel()
        with self._lock:
            if job.thread in self._threads and not job.done.done():
                self._threads.discard(job.thread)
                self._unfinished -= 1
                self._start_if_needed()


READERS = ThreadPool("readers", 1, computes=True)
"""For answers of a target that are not small: decoding, redacting, finding what was asked for. Two of them would not be
faster, for Python computes in one thread at a time, and the event loop would wait for both."""

SEARCHES = ThreadPool("searches", 12, computes=False)
"""For searches that leave the interpreter to others meanwhile; with more those would have no processor for it."""

LOOKUPS = ThreadPool("lookups", 4, computes=True)
"""For work in Python that looks at the clock; with more the event loop would wait longer for its turn."""

USER_CHECK_POOL = ThreadPool("checks", 1, computes=True)
"""For checks that are not ours: one at a time, as in a plain loop, so that they need not be safe for threads."""

EMBEDDERS = ThreadPool("embedders", 1, computes=False)
"""For embedders of the user's own: one batch at a time, for models are large, and often not safe for threads."""

OTHERS_CALLS = ThreadPool("calls", 64, computes=False)
"""For functions that call a model and wait."""
