"""A thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_SECONDS = 2.0
"""How long closing waits for the thread, which may be busy with what cannot be cancelled, such as an import."""


class LoopThread:
    """A daemon thread that starts with the first work; `cleanup` runs in it before it ends."""

    def __init__(self, name: str, cleanup: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._cleanup = cleanup
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._closing = asyncio.Event()
        self.closed = False

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, which is cancelled with the caller. Raises RuntimeError once closed."""
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self.closed:
                work.close()
                raise RuntimeError(f"{self._name} is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._work, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
                atexit.register(self._close)  # for an owner that did not get to close it
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def aclose(self) -> None:
        """Cancel running work, clean up, and end the thread."""
        if self._thread is None:
            self.closed = True
        else:
            atexit.unregister(self._close)
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            was_closed, self.closed = self.closed, True
            if self._loop is None or self._thread is None:
                return
            if not was_closed:
                self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_SECONDS)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        await self._closing.wait()
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        with suppress(Exception):
            await self._cleanup()
