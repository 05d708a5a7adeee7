"""The REST application on a real socket, over a store of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from fepflow.settings import settings
from fepflow.store.store import Store
from surfaces.access.caller import Caller
from surfaces.evaluations.fep import FepService
from surfaces.rest.app import create_app
from surfaces.rest.errors import Errors
from surfaces.rest.fep import fep_router

ANYBODY = Caller(None, frozenset({"admin"}))

Serve = Callable[..., AbstractContextManager[httpx.Client]]


class Admitted:
    """Around an application: everybody is admitted, as on a machine without keys."""

    def __init__(self, app: ASGIApp, caller: Caller = ANYBODY) -> None:
        self._app = app
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = self._caller
        await self._app(scope, receive, send)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_store: Callable[[str], str]) -> Iterator[Store]:
    monkeypatch.setenv("FEPFLOW_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    with Store.open(new_store(settings().store_address)) as opened:
        yield opened
    settings.cache_clear()


@contextmanager
def served_by(make: Callable[[], AbstractAsyncContextManager[ASGIApp]]) -> Iterator[httpx.Client]:
    """A client of an application on a real socket, which is made and run in a thread with an event loop of its own."""
    ready: Any = threading.Event()
    stopping: dict[str, Any] = {}

    async def main() -> None:
        async with make() as app:
            listening = socket.create_server(("127.0.0.1", 0))
            stopping["port"] = listening.getsockname()[1]
            server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
            stopping["server"] = server
            ready.set()
            await server.serve([listening])

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    with httpx.Client(base_url=f"http://127.0.0.1:{stopping['port']}", timeout=30, trust_env=False) as client:
        yield client
    stopping["server"].should_exit = True
    thread.join(10)
    assert not thread.is_alive()


@contextmanager
def served(store: Store) -> Iterator[httpx.Client]:
    """A client of FEP's interface over a store."""

    @asynccontextmanager
    async def fep() -> AsyncIterator[ASGIApp]:
        async with FepService.open(store) as service:
            yield Admitted(create_app([fep_router(service)], Errors({})))

    with served_by(fep) as client:
        yield client


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with served(store) as opened:
        yield opened
