"""The port of a worker or a reaper with its metrics and probes: `FEPFLOW_METRICS_PORT`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from fepflow.access.listening import address_of
from fepflow.deployments.http_server import HttpServer, bind
from fepflow.observability.metrics import Metrics, Probe, metrics_route, probe_routes, store_probe
from fepflow.services.prefect_api import is_answering
from fepflow.settings import Settings
from fepflow.store.store import Store


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
