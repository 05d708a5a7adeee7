"""REST, gRPC and result pages: `python -m fepflow.deployments.api`, which `fepflow serve` starts.

One process serves all, over one store. It executes no runs: requested runs are flow runs of a deployment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, suppress

import click
from fastapi import APIRouter
from starlette.routing import Route
from starlette.types import ASGIApp

from fepflow.access.access import Access
from fepflow.access.listening import Listening, address_of, allowed_origins, listening_on
from fepflow.api.evaluations.fep import FepService
from fepflow.api.evaluations.service import EvaluationService
from fepflow.api.grpc.server import GrpcServer, serve_grpc
from fepflow.api.rest.evalguard import PATHS, Catalogue, evalguard_error, evalguard_router
from fepflow.api.rest.evalguard import operations as evalguard_operations
from fepflow.api.rest.evaluations import error_envelope, evaluations_router
from fepflow.api.rest.fep import COMPONENTS, fep_router
from fepflow.api.rest.http import Errors, create_app, error_response
from fepflow.api.rest.middleware import AccessMiddleware, with_cors
from fepflow.calls.traces import require_traces
from fepflow.deployments.http_server import STOP_SECONDS, HttpServer, bind
from fepflow.deployments.server import write_private
from fepflow.errors import FepflowError, MissingExtraError
from fepflow.observability import logs
from fepflow.observability.metrics import (
    OF_API,
    PATH,
    HttpMetrics,
    Metrics,
    Probe,
    metrics_route,
    probe_routes,
    store_probe,
)
from fepflow.pages.rendering import prepare
from fepflow.pages.routes import Pages, html_error
from fepflow.pages.session import PagesMiddleware
from fepflow.services.prefect_api import is_answering
from fepflow.settings import Settings, settings
from fepflow.store.store import Store

LOOPBACK = "127.0.0.1"


async def serve_api(config: Settings, host: str, *, behind_tls: bool) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises UserError if listening is not allowed, InfrastructureError for a port."""
    with Store.open(config.store_address) as store, ExitStack() as opened:
        listening = listening_on(host, store, config, behind_tls=behind_tls)
        rest = opened.enter_context(bind(host, config.api_port, "FEPFLOW_API_PORT"))
        async with (
            Access(store, config, may_be_open=listening.may_be_open) as access,
            FepService.open(store) as fep,
            _grpc(store, config, listening, host, access, fep) as grpc,
        ):
            app = _application(store, config, listening, access, fep, behind_tls=behind_tls)
            if listening.notice:
                click.echo(f"notice: {listening.notice}")
            await asyncio.to_thread(prepare)
            server = HttpServer(app, tls=listening.tls)

            def stop() -> None:
                server.stop()
                grpc.stop()

            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop)
            scheme = "http" if listening.tls is None else "https"
            at = f"{scheme}://{address_of(host, rest.getsockname()[1])}"
            # For programs on this machine.
            write_private(config.api_file, json.dumps({"pid": os.getpid(), "rest": at, "grpc": grpc.address}))
            click.echo(f"REST and result pages at {at}")
            click.echo(f"gRPC at {grpc.address}")
            try:
                await server.serve([rest])
            finally:
                config.api_file.unlink(missing_ok=True)


def _application(
    store: Store, config: Settings, listening: Listening, access: Access, fep: FepService, *, behind_tls: bool
) -> ASGIApp:
    probes = {"store": store_probe(store), "prefect": Probe(is_answering)}
    of_evalguard = dict.fromkeys((f"/v1{path}" for path in PATHS), evalguard_error)
    errors = Errors(
        {"/api": error_envelope, "/v1": error_response, PATH: error_response, **of_evalguard, "": html_error}
    )
    routers = [
        fep_router(fep),
        evaluations_router(EvaluationService(store), fep.pool),
        evalguard_router(Catalogue(config.evalguard_folder), store),
        APIRouter(routes=[*probe_routes(probes), metrics_route(Metrics(store, probes, OF_API))]),
        Pages(store).router(),
        *_traces_router(),
    ]
    app = create_app(routers, errors, evalguard_operations(), COMPONENTS)
    origins = allowed_origins(config)
    guarded = AccessMiddleware(app, access, errors.render, max_body=int(config.max_body))
    with_pages = PagesMiddleware(guarded, access, secure=listening.tls is not None or behind_tls)
    routes = [route for router in (*routers, app.router) for route in router.routes]
    return HttpMetrics(with_cors(with_pages, origins), routes)


def _traces_router() -> Iterator[APIRouter]:
    """Yield the route on which agents on other machines export their spans, if the library that reads them is
    installed.
    """
    with suppress(MissingExtraError):
        require_traces()
        from fepflow.calls.otlp_receiver import PATH, OtlpApp, Spool

        yield APIRouter(routes=[Route(PATH, OtlpApp(Spool()), methods=["POST"], include_in_schema=False)])


def _grpc(
    store: Store, config: Settings, listening: Listening, host: str, access: Access, fep: FepService
) -> AbstractAsyncContextManager[GrpcServer]:
    return serve_grpc(fep, store, access, host=host, port=config.grpc_port, tls=listening.tls, grace=STOP_SECONDS)


def main(arguments: list[str] | None = None) -> int:
    """Serve; print errors as sentences."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.api", description=__doc__)
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on")
    parser.add_argument("--behind-tls", action="store_true", help="a proxy before us terminates TLS")
    options = parser.parse_args(arguments)
    try:
        logs.set_up("api")
        asyncio.run(serve_api(settings(), options.host, behind_tls=options.behind_tls))
    except FepflowError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
