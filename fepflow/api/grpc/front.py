"""A relay before an open gRPC server, which tells it for which host a call is: gRPC for Python keeps that to itself.

Where no key is asked for, the host (`:authority`) says whether a call is meant for this machine, or came through a
tunnel or a proxy. The relay listens on the port, reads the headers of each call, and adds two of its own to them: it
changes no other byte. The server behind it listens on a socket in a folder of this process's user only.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from socket import socket

from hpack import Decoder, HPACKError

from fepflow.access.connections import Acceptor

AUTHORITY, PEER = "fepflow-authority", "fepflow-peer"
"""Metadata that the relay adds: the host that a call is for, empty unless there is exactly one, and who calls."""

_PREFACE = 24
_HEADERS, _CONTINUATION = 0x1, 0x9
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_MAX_BLOCK, _MAX_FRAMES = 65_536, 16
"""Bytes of the headers of a call, and frames that they come in. gRPC takes less."""
_MAX_VALUE = 100
_CHUNK = 65_536
_CLOSE_SECONDS = 5


@asynccontextmanager
async def relaying(listener: socket, path: Path, tls: ssl.SSLContext | None, most: int) -> AsyncIterator[None]:
    """Relay connections of `listener` to the server at the socket `path`, `most` of them at once.

    Each holds three descriptors of this process.
    """
    connections: set[asyncio.Task[None]] = set()
    waiting: dict[asyncio.Task[None], None] = {}
    """Return the connections without a call yet, the oldest first."""

    async def relay(reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        waiting[task] = None
        try:
            with suppress(OSError, IncompleteReadError, HPACKError, ValueError):
                await _relay(reader, writer, path, lambda: waiting.pop(task, None))
        except asyncio.CancelledError:  # of this task alone, and nobody waits for how it ends
            writer.transport.abort()
        finally:
            waiting.pop(task, None)
            await _close(writer)
            connections.discard(task)

    def make() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(StreamReader(_CHUNK), relay)

    def make_room() -> bool:
        if not waiting:
            return False
        task = next(iter(waiting))
        del waiting[task]
        return task.cancel()

    acceptor = Acceptor(listener, make, tls, most, lambda: len(connections), make_room)
    try:
        yield
    finally:
        acceptor.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, acceptor.wait_closed(), return_exceptions=True)


async def _close(writer: StreamWriter) -> None:
    """Send what was written, to whoever takes it within seconds."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()
    writer.transport.abort()


async def _relay(reader: StreamReader, writer: StreamWriter, path: Path, on_call: Callable[[], object]) -> None:
    """Relay one connection until either side ends it. `on_call` is told of each call."""
    upstream, to_server = await asyncio.open_unix_connection(str(path))
    try:
        directions = [
            asyncio.create_task(_requests(reader, to_server, str(writer.get_extra_info("peername")[0]), on_call)),
            asyncio.create_task(_copy(upstream, writer)),
        ]
        try:
            done, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in directions:
                task.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        for task in done:
            task.result()
    finally:
        await _close(to_server)


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


async def _requests(reader: StreamReader, writer: StreamWriter, peer: str, on_call: Callable[[], object]) -> None:
    """Pass frames on (RFC 9113, 4), and add to the headers of each call. Raises ValueError for headers without end."""
    decoder, block, frames = Decoder(), b"", 0
    writer.write(await reader.readexactly(_PREFACE))
    while True:
        head = await reader.readexactly(9)
        size, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], head[5:]
        if kind not in (_HEADERS, _CONTINUATION):
            writer.write(head)
            while size:
                data = await reader.readexactly(min(size, _CHUNK))
                size -= len(data)
                writer.write(data)
                await writer.drain()
            continue
        frames += 1
        if len(block) + size > _MAX_BLOCK or frames > _MAX_FRAMES:
            raise ValueError("the headers of a call are too large")
        data = await reader.readexactly(size)
        block += _fragment(data, flags) if kind == _HEADERS else data
        writer.write(head[:4] + bytes([flags & ~_END_HEADERS]) + stream + data)
        if flags & _END_HEADERS:
            hosts = [value for name, value in decoder.decode(block, raw=True) if name == b":authority"]
            host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
            added = _literal(AUTHORITY, host) + _literal(PEER, peer)
            writer.write(len(added).to_bytes(3) + bytes([_CONTINUATION, _END_HEADERS]) + stream + added)
            block, frames = b"", 0
            on_call()
        await writer.drain()


def _fragment(data: bytes, flags: int) -> bytes:
    """Return the headers in a frame, without padding and priority (RFC 9113, 6.2)."""
    padding = data[0] if flags & _PADDED and data else 0
    start = bool(flags & _PADDED) + (5 if flags & _PRIORITY else 0)
    return data[start : len(data) - padding]


def _literal(name: str, value: str) -> bytes:
    """Return a header that no table of the connection keeps (RFC 7541, 6.2.2), its value cut and in plain ASCII."""
    text = value[:_MAX_VALUE].encode("ascii", "replace")
    return bytes([0, len(name)]) + name.encode() + bytes([len(text)]) + text
