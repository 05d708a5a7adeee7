"""Limits on connections: their number, and the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from socket import socket

from fepflow.host import most_files

HEAD_SECONDS = 10.0
"""Seconds for TLS, and for the head of a request, from its first byte or the connection's beginning."""

BODY_SECONDS = 60.0
"""Seconds for the body of a request, and for a client that reads nothing of a response."""

MAX_CONNECTIONS = 1_000
_SHARE = 5


def most_connections() -> int:
    """Return the maximum number of connections of an interface: a fifth of the process's descriptors, at most 1,000.

    The rest is for the store, for files and for agents.
    """
    files = most_files()
    return MAX_CONNECTIONS if files is None else max(1, min(MAX_CONNECTIONS, files // _SHARE))


def address_of(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Acceptor:
    """An acceptor of a limited number of connections, for protocols that `make` creates.

    `count` is the number of open connections. A further connection replaces the one that has been idle for the longest
    time: one in the middle of TLS, or else the one that `make_room` closes. If none can be replaced, the new one is
    closed. asyncio's own server accepts any number, a hundred at a time.
    """

    def __init__(
        self,
        listener: socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        most: int,
        count: Callable[[], int],
        make_room: Callable[[], bool],
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._most = most
        self._count = count
        self._make_room = make_room
        self._handshakes: dict[asyncio.Task[None], None] = {}
        listener.setblocking(False)
        self._task = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Stop accepting connections."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())  # it is about to be closed
        for task in (self._task, *self._handshakes):
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no connection is accepted any more."""
        await asyncio.gather(self._task, *self._handshakes, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # no descriptor is free, or the client has left
                await asyncio.sleep(0.1)
                continue
            if not self._has_room():
                connection.close()
            elif self._tls is None:
                await self._begin(connection)
            else:
                task = asyncio.create_task(self._begin(connection))
                self._handshakes[task] = None
                task.add_done_callback(self._handshakes.pop)
            await asyncio.sleep(0)  # others have their turn, however many clients there are

    def _has_room(self) -> bool:
        if len(self._handshakes) + self._count() < self._most:
            return True
        return any(task.cancel() for task in self._handshakes) or self._make_room()

    async def _begin(self, connection: socket) -> None:
        with suppress(OSError):  # it closes the connection itself
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HEAD_SECONDS,
            )
