"""The gRPC server: the services of fepflow, health, reflection, TLS, and the relay before a server without keys."""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from hpack import Decoder, HPACKError

from fepflow.access.access import Access
from fepflow.access.listening import HEAD_SECONDS, Acceptor, address_of, most_connections
from fepflow.api.evaluations.fep import FepService
from fepflow.api.grpc.calls import AUTHORITY, PEER, SERVICES, Interceptor
from fepflow.api.grpc.fep.v1 import fep_pb2_grpc
from fepflow.api.grpc.services import EvaluationServicer, OperationServicer
from fepflow.errors import InfrastructureError
from fepflow.store.store import Store

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of a message, both ways: what gRPC's clients take unless they are told otherwise."""

MAX_CALLS = 200
"""Calls at once, over all connections; a further one is refused."""

GRACE = 10.0
"""Seconds that calls have to end when the server stops."""

_IDENTITY_ONLY = 1
"""Compressed messages are refused: a small one would become a huge one before its size is looked at."""


def _options(max_message: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", max_message),
        ("grpc.max_send_message_length", max_message),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        ("grpc.max_concurrent_streams", 100),
        ("grpc.so_reuseport", 0),  # a port that another process has is an error
        # A client that pings more often than this, or without calls, is sent away after two of these pings.
        ("grpc.http2.min_ping_interval_without_data_ms", 60_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 60_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.keepalive_permit_without_calls", 0),
        # A connection has a deadline until it has been set up, and there are only so many.
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.server_handshake_timeout_ms", int(HEAD_SECONDS * 1_000)),
        ("grpc.http2.settings_timeout", int(HEAD_SECONDS * 1_000)),
        # A connection is closed when nothing has been asked for five minutes, or when nobody is there any more.
        ("grpc.max_connection_idle_ms", 300_000),
        ("grpc.keepalive_time_ms", 120_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]


HEALTHS = ("", *SERVICES)
"""Names that health checks know: the whole server, and its services."""


class _Healths(health.aio.HealthServicer):  # type: ignore[name-defined, misc]  # its stubs are without asyncio
    """The health service of gRPC's library, with its missing method."""

    async def List(self, request: health_pb2.HealthListRequest, context: Any) -> health_pb2.HealthListResponse:
        """Return the health of each service."""
        found = {name: await self.Check(health_pb2.HealthCheckRequest(service=name), context) for name in HEALTHS}
        return health_pb2.HealthListResponse(statuses=found)


class GrpcServer:
    """A server that answers at this address: `HOST:PORT`."""

    def __init__(self, server: grpc.aio.Server, healths: Any, address: str, grace: float) -> None:
        self.address = address
        self._server = server
        self._healths = healths
        self._grace = grace
        self._stopping: asyncio.Task[None] | None = None

    def stop(self) -> asyncio.Task[None]:
        """Start to stop: health says NOT_SERVING, new calls are refused, and running calls have the grace period."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        return self._stopping

    async def wait_stopped(self) -> None:
        """Stop, and return when it has."""
        await self.stop()

    async def _stop(self) -> None:
        await self._healths.enter_graceful_shutdown()
        await self._server.stop(self._grace)


@asynccontextmanager
async def serve_grpc(
    service: FepService,
    store: Store,
    access: Access,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: tuple[Path, Path] | None = None,
    max_message: int = MAX_MESSAGE,
    max_calls: int = MAX_CALLS,
    grace: float = GRACE,
) -> AsyncIterator[GrpcServer]:
    """Serve while the context lasts; port 0 is any free port. `tls` has the files of the certificate chain and key.

    After that, running calls have `grace` seconds. `fepflow.access.listening` decides where a server may listen, and
    has read the files. Where no key is asked for, a relay before it looks at the host of each call. Raises
    InfrastructureError for a port that is taken.
    """
    guard = Interceptor(access, max_message, max(1, max_calls // 4))
    server = grpc.aio.server(None, None, [guard], _options(max_message), maximum_concurrent_rpcs=max_calls)
    # What is generated has no types.
    add_evaluations: Any = fep_pb2_grpc.add_EvaluationServiceServicer_to_server
    add_operations: Any = fep_pb2_grpc.add_AsyncEvaluationServiceServicer_to_server
    healths: Any = _Healths()
    add_evaluations(EvaluationServicer(service, max_message), server)
    add_operations(OperationServicer(store, service, max_message), server)
    health_pb2_grpc.add_HealthServicer_to_server(healths, server)
    reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    async with AsyncExitStack() as stack:
        if await access.asks_for_keys():
            bound = _bind(server, host, port, tls)
            await server.start()
        else:
            context = _context(tls)
            listener = stack.enter_context(_listen(host, port))
            path = Path(stack.enter_context(TemporaryDirectory(prefix="fepflow-grpc-"))) / "socket"
            server.add_insecure_port(f"unix:{path}")
            await server.start()
            bound = listener.getsockname()[1]
            await stack.enter_async_context(relaying(listener, path, context, max(1, most_connections() // 2)))
        for name in HEALTHS:
            await healths.set(name, health_pb2.HealthCheckResponse.SERVING)
        served = GrpcServer(server, healths, address_of(host, bound), grace)
        stack.push_async_callback(served.wait_stopped)
        yield served


def _bind(server: grpc.aio.Server, host: str, port: int, tls: tuple[Path, Path] | None) -> int:
    address = address_of(host, port)
    try:
        if tls is None:
            return server.add_insecure_port(address)
        certificate, key = (path.read_bytes() for path in tls)
        return server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    except RuntimeError:
        raise _taken(address) from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError:
        raise _taken(address_of(host, port)) from None


def _context(tls: tuple[Path, Path] | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(*tls)
    return context


def _taken(address: str) -> InfrastructureError:
    return InfrastructureError(
        f"gRPC cannot listen on {address}: another program does; choose another port with FEPFLOW_GRPC_PORT"
    )


_PREFACE = 24
_HEADERS, _CONTINUATION = 0x1, 0x9
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_MAX_BLOCK, _MAX_FRAMES = 65_536, 16
"""Bytes of the headers of a call, and frames that they come in. gRPC takes less."""
_MAX_VALUE = 100
_CHUNK = 65_536
_CLOSE_SECONDS = 5


@asynccontextmanager
async def relaying(listener: socket.socket, path: Path, tls: ssl.SSLContext | None, most: int) -> AsyncIterator[None]:
    """Relay connections of `listener` to the server at the socket `path`, `most` of them at once.

    Where no key is asked for, the host (`:authority`) says whether a call is meant for this machine, or came through a
    tunnel or a proxy; gRPC for Python keeps it to itself. The relay reads the headers of each call, and adds two of its
    own to them: it changes no other byte. The server listens on a socket in a folder of this process's user only. Each
    connection holds three descriptors of this process.
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
