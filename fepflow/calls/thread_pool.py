"""Threads for work that would block the event loop, and event loops in threads of their own.

They are separate from asyncio's pool, so that other uses of `asyncio.to_thread` are never delayed. Python cannot stop a
thread: one that overruns its limit is abandoned, another one replaces it, and the process can end without it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from time import monotonic
from typing import Any, TypeVar

from fepflow.errors import CheckTimeoutError

T = TypeVar("T")

Outcome = tuple[Any, BaseException | None]


@dataclass(eq=False)
class _Job:
    """Work for a thread, and its start."""

    work: Callable[[], Any]
    context: Context = field(default_factory=copy_context)
    done: Future[Outcome] = field(default_factory=Future)
    thread: Thread | None = None
    started: float = 0.0

    def execute(self) -> Outcome | None:
        """Do the work, unless it was cancelled. An error is returned, because a future cannot hold every exception."""
        if not self.done.set_running_or_notify_cancel():
            return None
        self.thread, self.started = current_thread(), monotonic()
        try:
            return self.context.run(self.work), None
        except Exception as error:
            return None, error
        except BaseException as error:  # sys.exit() in a user's check is a fault of the check
            return None, RuntimeError(f"{type(error).__name__}: {error}")


class ThreadPool:
    """Up to `most` daemon threads, started on demand; jobs start in their order."""

    def __init__(self, name: str, most: int) -> None:
        self._name = f"fepflow-{name}"
        self._most = most
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = Lock()
        self._threads: set[Thread] = set()
        self._unfinished = 0

    async def run(
        self, work: Callable[[], T], limit: float | None = None, who: str = "it", *, abandon: bool = False
    ) -> T:
        """Return the result of `work`, or raise its exception.

        Raises CheckTimeoutError, in the name of `who`, if it takes longer than `limit` seconds after its start; waiting
        for a thread does not count. With `abandon`, work whose caller is cancelled is abandoned, too.
        """
        job = self._begin(work)
        done, left = asyncio.wrap_future(job.done), limit
        try:
            while not done.done() and (left is None or left > 0):
                await asyncio.wait({done}, timeout=left)
                if limit is not None and job.thread is not None:
                    left = job.started + limit - monotonic()
        except asyncio.CancelledError:
            done.cancel()
            if abandon:
                self._give_up(job)
            raise
        if not done.done():
            done.cancel()
            self._give_up(job)
            raise CheckTimeoutError(f"{who} did not answer within {limit:g} s")
        value, error = done.result()
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]  # what `work` returned

    def _begin(self, work: Callable[[], Any]) -> _Job:
        job = _Job(work)
        with self._lock:
            self._unfinished += 1
            self._start_if_needed()
        self._jobs.put(job)
        return job

    @property
    def is_here(self) -> bool:
        """True in one of the threads."""
        return current_thread() in self._threads

    def close(self) -> None:
        """Let the threads end after their present jobs. No job may start afterwards."""
        with self._lock:
            for _ in self._threads:
                self._jobs.put(None)

    def _start_if_needed(self) -> None:
        if len(self._threads) < min(self._unfinished, self._most):
            thread = Thread(target=self._work, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = job.execute()
            with self._lock:
                is_wanted = current_thread() in self._threads
                self._unfinished -= is_wanted
            if outcome is not None:
                job.done.set_result(outcome)
            del job, outcome  # else they would be kept until the next job comes
            if not is_wanted:
                return

    def _give_up(self, job: _Job) -> None:
        """Abandon a job. Its thread continues alone, and another one replaces it."""
        job.done.cancel()
        with self._lock:
            if job.thread in self._threads and not job.done.done():
                self._threads.discard(job.thread)
                self._unfinished -= 1
                self._start_if_needed()


READERS = ThreadPool("readers", 1)
"""A thread for large answers of a target: it decodes, redacts and looks up. Two of them would not be faster, for Python
computes in one thread at a time, and the event loop would wait for both."""

LOOKUPS = ThreadPool("lookups", 2)
"""Threads for checks of large values, slow paths and slow patterns, for decoding and for reading models' responses.

With more of them the event loop would wait longer for its turn, and so would each of them, whose time limit goes on.
"""

USER_CHECK_POOL = ThreadPool("checks", 1)
"""The thread of checks that are not ours: one at a time, as in a plain loop, so that they need not be thread-safe."""

EMBEDDERS = ThreadPool("embedders", 1)
"""The thread of the user's own embedders: one batch at a time, for models are large, and often not thread-safe."""

OTHERS_CALLS = ThreadPool("calls", 64)
"""Threads for functions that call a model and wait."""


# --- event loops in threads ------------------------------------------------------------------------------------------


CLOSE_SECONDS = 2.0
"""Longest wait for the thread at the end, which may be busy with work that cannot be cancelled, such as an import."""

logger = logging.getLogger("fepflow.calls")


class LoopThread:
    """A daemon thread that starts with the first work; `cleanup` runs in it before it ends."""

    def __init__(self, name: str, cleanup: Callable[[], Awaitable[None]] | None = None) -> None:
        self._name = name
        self._cleanup = cleanup
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closing = asyncio.Event()
        self.closed = False

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, which is cancelled with the caller. Raises RuntimeError once closed."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin the work. Raises RuntimeError once closed."""
        with self._lock:
            if self.closed:
                work.close()
                raise RuntimeError(f"{self._name} is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_exception_handler(lambda _, context: logger.debug("%s", context.get("message")))
                self._thread = Thread(target=self._work, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
                if self._cleanup is not None:
                    atexit.register(self._join)  # for an owner that did not get to close it
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def aclose(self) -> None:
        """Cancel running work, clean up, and wait for the end of the thread."""
        self.close()
        if self._thread is not None:
            atexit.unregister(self._join)
            await asyncio.to_thread(self._join)

    def close(self) -> None:
        """Cancel running work, and let the thread end when it can."""
        with self._lock:
            was_closed, self.closed = self.closed, True
            if self._loop is not None and not was_closed:
                self._loop.call_soon_threadsafe(self._closing.set)

    def _join(self) -> None:
        self.close()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._closing.wait()
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way, timeout=CLOSE_SECONDS)
        if self._cleanup is not None:
            with suppress(Exception):
                await self._cleanup()


RESPONSE_SECONDS = 0.5
"""Time without a response after which the loop of async functions is abandoned: a function blocks it."""


class AgentLoop:
    """An event loop in a thread: clients that async functions share belong to one loop.

    A loop that a function blocks is abandoned, and further calls get a new one.
    """

    def __init__(self) -> None:
        self._thread = LoopThread("fepflow-agent-loop")
        self._sign_of_life: Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the coroutine, which is cancelled with the caller."""
        try:
            await self._leave_if_held_up()
        except BaseException:
            work.close()
            raise
        try:
            return await self._thread.run(work)
        except asyncio.CancelledError:
            self._sign_of_life = self._sign_of_life or self._thread.submit(asyncio.sleep(0))
            raise

    async def _leave_if_held_up(self) -> None:
        sign = self._sign_of_life
        if sign is None:
            return
        await asyncio.wait({asyncio.wrap_future(sign)}, timeout=RESPONSE_SECONDS)
        if self._sign_of_life is not sign:
            return
        self._sign_of_life = None
        if not sign.done():
            logger.warning("an async function blocks its event loop: further calls get another one")
            self._thread.close()
            self._thread = LoopThread("fepflow-agent-loop")

    def close(self) -> None:
        """Cancel running work, and let the loop end."""
        self._thread.close()
