"""A way to a server that can be cut off, as if the server were gone, and mended; that holds a request back, or loses
its answer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from yarl import URL

from .conftest import Stack


class Relay:
    """A port of the loopback that leads to a stack's server; `env` is what makes a process use it."""

    def __init__(self, stack: Stack, loop: asyncio.AbstractEventLoop) -> None:
        server = URL(stack.api_url)
        self._there = server.host, server.port
        self._loop = loop
        self._server: asyncio.Server | None = None
        self._held = self._unanswered = b""
        self._free = asyncio.Event()
        self.holds = threading.Event()
        """Set once a request is held."""
        self.port = 0
        self.mend()
        self.env = {**stack.prefect, "PREFECT_API_URL": str(server.with_port(self.port))}

    def cut(self) -> None:
        """End all connections; new ones are refused."""
        self._wait(self._stop())

    def mend(self) -> None:
        """Take connections again, at the same port."""
        self._wait(self._start())

    def hold(self, text: bytes) -> None:
        """Hold back the first request with this text in it, until `release`; all others pass."""
        self._held = text

    def release(self) -> None:
        """Hand on what is held, also if who has sent it has gone."""
        self._loop.call_soon_threadsafe(self._free.set)

    def lose_answer(self, text: bytes) -> None:
        """Hand on the first request with this text in it, and end the connection instead of handing on the answer."""
        self._unanswered = text

    async def _pass(self, data: bytes, lost: asyncio.Event) -> None:
        if self._unanswered and self._unanswered in data:
            self._unanswered = b""
            lost.set()
        if self._held and self._held in data:
            self._held = b""
            self.holds.set()
            await self._free.wait()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        pumps = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._there)
        except OSError:
            writer.transport.abort()
            return
        lost = asyncio.Event()

        async def answer(data: bytes) -> None:
            if lost.is_set():
                raise ConnectionAbortedError

        await asyncio.gather(_pump(reader, back, lambda data: self._pass(data, lost)), _pump(there, writer, answer))


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, before: Callable[[bytes], Awaitable[None]]
) -> None:
    with contextlib.suppress(OSError, asyncio.CancelledError):
        while data := await reader.read(65_536):
            await before(data)
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextmanager
def relayed(stack: Stack) -> Iterator[Relay]:
    """A relay to a stack's server, for the length of a `with` block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="relay", daemon=True)
    thread.start()
    relay = Relay(stack, loop)
    try:
        yield relay
    finally:
        relay.cut()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
