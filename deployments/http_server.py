"""The HTTP server of REST, pages and metrics: uvicorn, with deadlines, a limit of connections, and an orderly end.

A worker or a reaper serves its metrics and probes with it, if `FEPFLOW_METRICS_PORT` is set."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import h11
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from fepflow.access.listening import BODY_SECONDS, HEAD_SECONDS, Acceptor, address_of, most_connections
from fepflow.errors import InfrastructureError
from fepflow.observability.metrics import Metrics, Probe, metrics_route, probe_routes, store_probe
from fepflow.services.prefect_api import is_answering
from fepflow.settings import Settings
from fepflow.store.store import Store

KEEP_ALIVE, STOP_SECONDS = 15, 5
"""Seconds for which an idle connection stays open, and which requests under way have when we stop."""

MAX_HEAD = 65_536
"""Bytes of the head of a request."""

_logger = logging.getLogger("fepflow.http")
_logger.setLevel(logging.ERROR)  # a warning would be a line for each request that cannot be read, whoever sends them


class HttpServer(uvicorn.Server):
    """A uvicorn server whose process does not end on a signal before the audit log and the store are closed.

    `tls` has the files of the certificate chain and of its key.
    """

    def __init__(self, app: ASGIApp, *, tls: tuple[Path, Path] | None) -> None:
        certificate, key = tls or (None, None)
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                log_config=None,
                access_log=False,  # the audit log is more, and shows no secret
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=STOP_SECONDS,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the event loop."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on these sockets."""
        await super().startup(sockets=[])
        make = partial(Connection, self.config, self.server_state, {})
        self.servers += [
            Acceptor(listener, make, self.config.ssl, most_connections(), self._count, self._make_room)  # type: ignore[misc]  # alike enough
            for listener in sockets or ()
        ]

    def _count(self) -> int:
        return len(self.server_state.connections)

    def _make_room(self) -> bool:
        """Close the connection that has been idle for the longest time."""
        connections: Any = self.server_state.connections
        waiting = [one for one in connections if one.waiting_since is not None]
        if waiting:
            min(waiting, key=lambda one: one.waiting_since).leave()
        return bool(waiting)

    def stop(self) -> None:
        """Answer the running requests, and end."""
        self.should_exit = True


class Connection(H11Protocol):
    """A connection of a client, with deadlines for the head and the body of a request, and for reading the response.

    uvicorn has only a time-out for idle connections, which ends with the first byte.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _logger
        self.conn = _StrictConnection(h11.SERVER, MAX_HEAD)
        self.waiting_since: float | None = None
        """Since when nobody works on a request of this connection, by the loop's clock; None while somebody does."""
        self._phase: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Wait for a request."""
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget all deadlines."""
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(BODY_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def leave(self) -> None:
        """Close the connection at once, to make room for another one."""
        self.connections.discard(self)
        self.transport.abort()

    def _set_deadline(self) -> None:
        """Set a deadline if the client should send more: one for a head, and one for a body."""
        if self.conn.their_state is not h11.IDLE and self.cycle is not None and not self.cycle.response_complete:
            self.waiting_since = None
        phase = self.conn.their_state if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) else None
        if phase is self._phase and self._deadline is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._phase, self._deadline = phase, None
        if phase is not None and not self.transport.is_closing():
            seconds = HEAD_SECONDS if phase is h11.IDLE else BODY_SECONDS
            self._deadline = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # to the application, the client has left
            self.cycle.message_event.set()
        has_begun = self._phase is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
            for event in (
                h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
                h11.Data(data=b"The request did not come in time."),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _StrictConnection(h11.Connection):
    """A connection that refuses a request of ambiguous length, which could hide a second request."""

    def next_event(self) -> Any:
        """Return h11's next event, or refuse the request."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers]
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("Transfer-Encoding beside Content-Length, or in HTTP/1.0")
        return event


def bind(host: str, port: int, named_by: str) -> socket.socket:
    """Listen on a port. Raises InfrastructureError with the setting `named_by` that chooses another port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InfrastructureError(
            f"port {port} on {host} cannot be used ({error.strerror}): choose another with {named_by}"
        ) from None
    # asyncio sends at once (TCP_NODELAY) over sockets that name their protocol only; else a response may wait 40 ms.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, fileno=listener.detach())


@asynccontextmanager
async def metrics_port(config: Settings, store: Store | None, *own: CollectorRegistry) -> AsyncIterator[None]:
    """Serve /metrics, /livez and /readyz while the body runs, if a port is set. No key is required.

    `own` are metrics of the process's work. Raises InfrastructureError for a port that cannot be used.
    """
    if config.metrics_port is None or store is None:
        yield
        return
    listener = bind(config.metrics_host, config.metrics_port, "FEPFLOW_METRICS_PORT")
    probes = {"store": store_probe(store), "prefect": Probe(is_answering)}
    routes = [*probe_routes(probes), metrics_route(Metrics(store, probes, *own))]
    server = HttpServer(Starlette(routes=routes), tls=None)
    click.echo(f"metrics at http://{address_of(config.metrics_host, listener.getsockname()[1])}/metrics")
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.stop()
        await serving
