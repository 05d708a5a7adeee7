"""The HTTP server under REST and the pages: uvicorn, which ends when it is told to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from fepflow.errors import InfrastructureError

KEEP_ALIVE, STOP_SECONDS = 15, 5
"""Seconds for which an idle connection stays open, and which requests under way have when we stop."""


class HttpServer(uvicorn.Server):
    """As uvicorn's, which after a signal would end the process before the audit log and the store are closed.

    `tls` is the files of the certificate chain and of its key.
    """

    def __init__(self, app: ASGIApp, *, tls: tuple[Path, Path] | None) -> None:
        certificate, key = tls or (None, None)
        super().__init__(
            uvicorn.Config(
                app,
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
        """Leave them to the loop."""
        yield

    def stop(self) -> None:
        """Answer what is under way, and end."""
        self.should_exit = True


def bind(host: str, port: int, named_by: str) -> socket.socket:
    """Listen there. Raises InfrastructureError, which says what chooses another port: `named_by`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InfrastructureError(
            f"port {port} on {host} cannot be used ({error.strerror}): choose another with {named_by}"
        ) from None
    # asyncio sends at once (TCP_NODELAY) over sockets that name their protocol only; else a response may wait 40 ms.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, fileno=listener.detach())
