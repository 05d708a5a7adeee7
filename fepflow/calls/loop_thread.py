"""An event loop in a thread of its own, for work that may hold up a loop, or whose connections belong to one loop."""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

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
