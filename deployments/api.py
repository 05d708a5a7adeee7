"""The network's interfaces, REST and gRPC: `python -m deployments.api`, which `fepflow serve` starts.

One process for both, over one store. It executes no runs: those that it is asked for are flow runs of a deployment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import asdict, dataclass

import click
import uvicorn
from starlette.types import ASGIApp

from deployments.server import write_private
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.settings import Settings, settings
from fepflow.store.store import Store
from surfaces.access.access import Access
from surfaces.access.listening import Listening, allowed_origins, listening_on
from surfaces.evalguard_catalogue import Catalogue
from surfaces.evaluations.fep import FepService
from surfaces.evaluations.operations import Operations
from surfaces.evaluations.service import EvaluationService
from surfaces.grpc.server import GrpcServer, serve_grpc
from surfaces.rest.app import create_app
from surfaces.rest.errors import Errors
from surfaces.rest.evalguard import evalguard_router
from surfaces.rest.evaluations import error_envelope, evaluations_router
from surfaces.rest.fep import fep_router
from surfaces.rest.middleware import AccessMiddleware, with_cors

LOOPBACK = "127.0.0.1"
KEEP_ALIVE, STOP_SECONDS = 15, 5
"""Seconds for which an idle connection stays open, and which requests under way have when we stop."""


@dataclass(frozen=True)
class Interfaces:
    """Where the interfaces are, for programs on this machine; written to the home folder."""

    pid: int
    rest: str
    grpc: str


async def serve_api(config: Settings, host: str, *, behind_tls: bool) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UserError where we may not listen so, InfrastructureError for a port."""
    with Store.open(config.store_address) as store:
        listening = listening_on(host, store, config, behind_tls=behind_tls)
        rest = _bind(host, config.api_port, "FEPFLOW_API_PORT")
        async with (
            Access(store, config, may_be_open=listening.may_be_open) as access,
            FepService.open(store) as fep,
            _grpc(store, config, listening, host, access, fep) as grpc,
        ):
            app = _application(store, config, access, fep)
            if listening.notice:
                click.echo(f"notice: {listening.notice}")
            server = _Server(_uvicorn(app, listening))

            def stop() -> None:
                server.stop()
                grpc.stop()

            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop)
            scheme = "http" if listening.tls is None else "https"
            at = Interfaces(os.getpid(), f"{scheme}://{_named(host)}:{rest.getsockname()[1]}", grpc.address)
            write_private(config.api_file, json.dumps(asdict(at)))
            click.echo(f"REST at {at.rest}")
            click.echo(f"gRPC at {at.grpc}")
            try:
                await server.serve([rest])
            finally:
                config.api_file.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """As uvicorn's, which after a signal would end the process before the audit log and the store are closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to the loop."""
        yield

    def stop(self) -> None:
        """Answer what is under way, and end."""
        self.should_exit = True


def _application(store: Store, config: Settings, access: Access, fep: FepService) -> ASGIApp:
    errors = Errors({"/api": error_envelope})
    app = create_app([fep_router(fep), evaluations_router(EvaluationService(store))], errors)
    app.include_router(evalguard_router(Catalogue(config.evalguard_folder), store), prefix="/v1", tags=["EvalGuard"])
    origins = allowed_origins(config)
    guarded = AccessMiddleware(app, access, errors.render, max_body=int(config.max_body), origins=origins)
    return with_cors(guarded, origins)


def _grpc(
    store: Store, config: Settings, listening: Listening, host: str, access: Access, fep: FepService
) -> AbstractAsyncContextManager[GrpcServer]:
    operations, tls = Operations(store, fep), listening.tls
    return serve_grpc(fep, operations, access, host=host, port=config.grpc_port, tls=tls, grace=STOP_SECONDS)


def _uvicorn(app: ASGIApp, listening: Listening) -> uvicorn.Config:
    certificate, key = listening.tls or (None, None)
    return uvicorn.Config(
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


def _bind(host: str, port: int, variable: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InfrastructureError(
            f"port {port} on {host} cannot be used ({error.strerror}): choose another with {variable}"
        ) from None


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def main(arguments: list[str] | None = None) -> int:
    """Serve; what goes wrong is a sentence."""
    parser = argparse.ArgumentParser(prog="python -m deployments.api", description=__doc__)
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on")
    parser.add_argument("--behind-tls", action="store_true", help="a proxy before us terminates TLS")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(serve_api(settings(), options.host, behind_tls=options.behind_tls))
    except FepflowError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
