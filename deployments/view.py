"""Result pages for a person on this machine, as `fepflow view` serves them."""

from __future__ import annotations

import asyncio
import signal
import webbrowser

import click
from fastapi import FastAPI
from starlette.types import ASGIApp

from fepflow.access.access import Access
from fepflow.access.listening import listening_on
from fepflow.api.rest.http import Errors
from fepflow.api.rest.middleware import AccessMiddleware, HeadAsGet
from fepflow.deployments.http_server import HttpServer, bind
from fepflow.observability.metrics import probe_routes, store_probe
from fepflow.page_links import run_path
from fepflow.pages.rendering import prepare
from fepflow.pages.routes import Pages, html_error
from fepflow.pages.session import PagesMiddleware
from fepflow.settings import Settings
from fepflow.store.store import Store

LOOPBACK = "127.0.0.1"


async def view(config: Settings, run_id: str | None, port: int, *, open_browser: bool) -> None:
    """Serve until Ctrl-C. Raises NotFoundError, and InfrastructureError for a port that cannot be used."""
    with Store.open(config.store_address) as store:
        if run_id is not None:
            store.runs.get(run_id)  # else only the page would say that there is no such run
        path = "/" if run_id is None else run_path(run_id)
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
