"""A `python` target in threads of the run's own process: sync functions in daemon threads, async ones in a loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

from fepflow.calls.python.calls import FORM, Failure
from fepflow.calls.python.source import MODULES
from fepflow.calls.python.worker import Entry, answer_text, awaited_text, failure_of, is_pending
from fepflow.calls.thread_pool import ThreadPool

RESPONSE_SECONDS = 0.5
"""How long the loop of async functions may not answer before it is given up: one of them holds it up."""

given_up = Event()
"""Set once a call was cut off in this process: it may still be at work."""

T = TypeVar("T")

logger = logging.getLogger("fepflow.calls")

Reply = str | Failure
"""JSON text of an answer, or why there is none."""


class Threads:
    """Calls a function, at most `most` at once.

    A call that is given up goes on in its thread, as Python cannot stop it; another thread takes its place, and the
    process can end without it.
    """

    def __init__(self, entry: Entry, folder: Path, limit: int, most: int) -> None:
        self._entry = entry
        self._folder = folder
        self._limit = limit
        self._workers = ThreadPool("agent", most, computes=True)
        self._loop = LoopThread()

    async def ask(self, request: dict[str, Any]) -> Reply:
        """Call it once; cancelling gives the call up."""
        pending: list[Any] = []
        job = self._workers.begin(lambda: self._called(request, pending))
        try:
            reply = await self._workers.result(job)
            return reply if reply is not None else await self._loop.run(self._awaited(pending[0]))
        except asyncio.CancelledError:
            given_up.set()
            self._workers.give_up(job)
            raise

    def _called(self, request: dict[str, Any], pending: list[Any]) -> Reply | None:
        try:
            MODULES.activate(self._folder)
            returned = self._entry.begin(request, FORM)
            if not is_pending(returned):
                return answer_text(returned, self._limit, FORM)
            pending.append(returned)
        except BaseException as error:  # an agent may raise anything, SystemExit and CancelledError, too
            return Failure(**failure_of(error, self._folder))
        return None

    async def _awaited(self, pending: Any) -> Reply:
        try:
            return await awaited_text(pending, self._limit, FORM)
        except BaseException as error:
            return Failure(**failure_of(error, self._folder))

    async def aclose(self) -> None:
        """Let the threads end, when they can."""
        self._workers.close()
        self._loop.close()


class LoopThread:
    """An event loop in a daemon thread: clients that async functions share belong to one loop.

    A loop that a function holds up is left to it, and further calls get a new one.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sign_of_life: Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns; cancelling cancels it."""
        try:
            await self._leave_if_held_up()
            future = asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._ask_for_a_sign()
            raise

    def _ask_for_a_sign(self) -> None:
        if self._loop is not None and self._sign_of_life is None:
            sign: Future[None] = Future()
            self._sign_of_life = sign
            self._loop.call_soon_threadsafe(lambda: sign.set_result(None))

    async def _leave_if_held_up(self) -> None:
        sign = self._sign_of_life
        if sign is None:
            return
        await asyncio.wait({asyncio.wrap_future(sign)}, timeout=RESPONSE_SECONDS)
        if self._sign_of_life is not sign:
            return
        self._sign_of_life = None
        if not sign.done():
            logger.warning("an async function holds up its event loop: further calls get another one")
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda _, context: logger.debug("%s", context.get("message")))
            Thread(target=_run_loop, args=(loop,), name="fepflow-agent-loop", daemon=True).start()
        return self._loop

    def close(self) -> None:
        """Cancel what is under way, and end the loop."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_later(RESPONSE_SECONDS, loop.stop)
    loop.run_forever()
    with suppress(Exception):
        loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
