"""Prefect's server for this machine alone: `python -m fepflow.deployments.prefect_server --port N`.

Prefect asks every caller for the login that it finds in PREFECT_SERVER_API_AUTH_STRING. Here, what a web page from
elsewhere has a browser send is refused, too: requests for another host (DNS rebinding), and those of another origin.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import timedelta
from uuid import UUID

import uvicorn
from prefect.server.api.server import create_app
from prefect.server.concurrency.lease_storage.filesystem import ConcurrencyLeaseStorage
from prefect.settings import get_current_settings
from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

LEASE = timedelta(minutes=1)
HOSTS = ("127.0.0.1", "localhost")


class OwnOrigin:
    """Refuses what a page of another origin sends; programs name no origin."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._origins = {f"http://{host}:{port}" for host in HOSTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, connection, or the server's life (ASGI 3)."""
        app = self._app
        if scope["type"] in ("http", "websocket"):
            origin = Headers(scope=scope).get("origin")
            if origin is not None and origin not in self._origins:
                refusal = PlainTextResponse("requests of pages from elsewhere are refused", status_code=403)
                app = refusal if scope["type"] == "http" else WebSocketClose(1008, "another origin")
        await app(scope, receive, send)


def application(port: int) -> ASGIApp:
    """Prefect's API and UI, for callers on this machine."""
    return TrustedHostMiddleware(OwnOrigin(create_app(final=True), port), allowed_hosts=HOSTS)


async def renew_leases(storage: ConcurrencyLeaseStorage) -> None:
    """Renew the leases of shared limits once, so that each one ends if its holder is gone.

    Prefect looks for ended leases in an index. A server that is killed between writing a lease and its entry in the
    index would leave its places taken for good.
    """
    for file in storage.storage_path.glob("????????-*.json"):
        await storage.renew_lease(UUID(file.stem), LEASE)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.prefect_server", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    asyncio.run(renew_leases(ConcurrencyLeaseStorage()))
    keep_alive = get_current_settings().server.api.keepalive_timeout
    uvicorn.run(application(port), host=HOSTS[0], port=port, timeout_keep_alive=keep_alive, log_level="warning")


if __name__ == "__main__":
    main()
