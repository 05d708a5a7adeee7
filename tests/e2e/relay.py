"""A way to a server that can be cut off, as if the server were gone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def relayed(host: str, port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """A port of the loopback that leads to `host:port`, and what cuts it off for good."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="relay", daemon=True)
    thread.start()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, port)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async def stop() -> None:
        server.close()
        pumps = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def cut() -> None:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)

    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connection, "127.0.0.1", 0), loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1], cut
    finally:
        cut()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
