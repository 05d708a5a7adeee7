"""The gRPC server: fepflow's services, health and reflection, with or without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from fepflow.access.access import Access
from fepflow.access.connections import HEAD_SECONDS, address_of, most_connections
from fepflow.api.evaluations.fep import FepService
from fepflow.api.grpc.calls import SERVICES, Interceptor
from fepflow.api.grpc.fep.v1 import fep_pb2_grpc
from fepflow.api.grpc.front import relaying
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
