"""The page of a run of 100,000 cases with three checks, as a browser asks for it, and its filters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from benchmarks.large_verdict import CASES, SUITE, fill
from benchmarks.measuring import Line, middle
from fepflow.access.caller import SCOPES, Caller
from fepflow.analysis.metrics import compute_verdict
from fepflow.deployments.http_server import HttpServer, bind
from fepflow.pages.rendering import prepare
from fepflow.pages.routes import Pages
from fepflow.store.store import Store
from fepflow.suite.models import Suite

MAX_PAGE = 1.0
PAGES = {
    "opening the run": "",
    "those failed of a check": "?show=failed&check=acc",
    "all, of a check": "?check=safe",
    "a text of one case": "?text=answer+99999",
    "a text of no case": "?text=nowhere+at+all",
    "the last page": "?page=2000",
    "a case": "/case?id=99999",
}


def pages() -> Iterator[Line]:
    """Each page, asked for three times by the middle one."""
    with TemporaryDirectory() as folder, Store.open(f"sqlite:///{Path(folder, 'store.db')}") as store:
        fill(store)
        _finish(store)
        with _served(store) as address:
            for what, path in PAGES.items():
                first = _seconds(f"{address}/runs/large{path}")
                again = middle(lambda path=path: _seconds(f"{address}/runs/large{path}"))  # type: ignore[misc]
                figure = f"{first:.2f} s at first, {again:.2f} s again"
                yield Line(f"{what}, of {CASES:,} cases", figure, f"{MAX_PAGE:g} s", first < MAX_PAGE)


def _finish(store: Store) -> None:
    verdict = compute_verdict(store, store.runs.get("large"), Suite.model_validate(SUITE))
    store.leases.acquire("large", "bench/1/a", 60)
    metrics = [metric.model_dump(mode="json") for metric in verdict.metrics]
    found = verdict.model_dump(mode="json", exclude={"metrics"})
    store.leases.finish("large", "bench/1/a", "completed", outcome=verdict.outcome, verdict=found, metrics=metrics)


def _seconds(address: str) -> float:
    began = time.perf_counter()
    with urlopen(address, timeout=120) as answer:  # noqa: S310  # our own loopback address
        answer.read()
    return time.perf_counter() - began


@contextmanager
def _served(store: Store) -> Iterator[str]:
    prepare()
    app = FastAPI(openapi_url=None)
    app.include_router(Pages(store).router())

    async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = Caller(None, frozenset(SCOPES))
        await app(scope, receive, send)

    listener = bind("127.0.0.1", 0, "--port")
    server = HttpServer(admitted, tls=None)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join()
