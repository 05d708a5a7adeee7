"""The REST application on a real socket, over a store of its own."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from fepflow.access.caller import Caller
from fepflow.api.evaluations.fep import FepService
from fepflow.api.rest.fep import COMPONENTS, fep_router
from fepflow.api.rest.http import Errors, create_app
from fepflow.settings import settings
from fepflow.store.store import Store
from tests.http_server import serving

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Else each client reads the certificates of all authorities, for nothing."""

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
    """A client of an application."""
    with (
        serving(make) as address,
        httpx.Client(base_url=address, timeout=30, trust_env=False, verify=NO_TLS) as client,
    ):
        yield client


@contextmanager
def served(store: Store) -> Iterator[httpx.Client]:
    """A client of FEP's interface over a store."""

    @asynccontextmanager
    async def fep() -> AsyncIterator[ASGIApp]:
        async with FepService.open(store) as service:
            yield Admitted(create_app([fep_router(service)], Errors({}), models=COMPONENTS))

    with served_by(fep) as client:
        yield client


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with served(store) as opened:
        yield opened
