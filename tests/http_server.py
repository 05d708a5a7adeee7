"""Applications on real sockets, in this process, as the product serves them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager

from starlette.types import ASGIApp

from fepflow.deployments.http_server import HttpServer, bind


class PromptServer(HttpServer):
    """uvicorn looks ten times a second whether it is to end, and then waits as long again: too long after each test."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app, tls=None)
        self._told = asyncio.Event()

    def stop(self) -> None:
        self._told.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110  # it has no event for it
            await asyncio.sleep(0.001)


@contextmanager
def serving(
    make: Callable[[], AbstractAsyncContextManager[ASGIApp]], bound: socket.socket | None = None
) -> Iterator[str]:
    """The address of an application, which is made and served by a thread with an event loop of its own."""
    started: Future[Callable[[], object]] = Future()
    with bound or bind("127.0.0.1", 0, "--port") as listener:

        async def serve() -> None:
            async with make() as app:
                server, loop = PromptServer(app), asyncio.get_running_loop()
                started.set_result(lambda: loop.call_soon_threadsafe(server.stop))
                await server.serve([listener])

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        thread.start()
        stop = started.result(60)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop()
            thread.join(30)
        assert not thread.is_alive()
