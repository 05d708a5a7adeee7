"""Result pages for a person on this machine: `python -m fepflow.deployments.view`, which `fepflow view` starts."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import webbrowser

import click
from fastapi import FastAPI
from starlette.types import ASGIApp

from fepflow.access.access import Access
from fepflow.access.listening import listening_on
from fepflow.api.rest.errors import Errors
from fepflow.api.rest.middleware import AccessMiddleware, HeadAsGet
from fepflow.deployments.http_server import HttpServer, bind
from fepflow.errors import FepflowError
from fepflow.observability.probes import probe_routes, store_probe
from fepflow.pages.rendering import prepare
from fepflow.pages.routes import Pages, html_error
from fepflow.pages.session import PagesMiddleware
from fepflow.settings import Settings, settings
from fepflow.store.store import Store

LOOPBACK = "127.0.0.1"


async def view(config: Settings, path: str, port: int, *, open_browser: bool) -> None:
    """Serve until Ctrl-C. Raises InfrastructureError for a port that cannot be used."""
    with Store.open(config.store_address) as store:
        listening = listening_on(LOOPBACK, store, config, behind_tls=False)
        listener = bind(LOOPBACK, port, "--port")
        async with Access(store, config, may_be_open=listening.may_be_open) as access:
            await asyncio.to_thread(prepare)
            server = HttpServer(application(store, config, access), tls=None)
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, server.stop)
            address = f"http://{LOOPBACK}:{listener.getsockname()[1]}{path}"
            click.echo(f"Pages at {address}; Ctrl-C ends this")
            if open_browser:
                await asyncio.to_thread(webbrowser.open, address)
            await server.serve([listener])


def application(store: Store, config: Settings, access: Access) -> ASGIApp:
    """Return the pages with their middleware."""
    errors = Errors({"": html_error})
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    app.router.routes.extend(probe_routes({"store": store_probe(store)}))
    app.include_router(Pages(store).router())
    errors.install(app)
    app.add_middleware(HeadAsGet)
    guarded = AccessMiddleware(app, access, errors.render, max_body=int(config.max_body))
    return PagesMiddleware(guarded, access, secure=False)


def main(arguments: list[str] | None = None) -> int:
    """Serve; print errors as sentences."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.view", description=__doc__)
    parser.add_argument("--path", default="/", help="page to open")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0: any")
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(view(settings(), options.path, options.port, open_browser=not options.no_browser))
    except FepflowError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
