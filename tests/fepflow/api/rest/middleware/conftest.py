"""The middleware around an application of the tests' own, on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from fepflow.access.access import Access
from fepflow.access.credentials import create_key
from fepflow.access.listening import allowed_origins
from fepflow.api.rest.middleware import AccessMiddleware, with_cors
from fepflow.errors import FepflowError
from fepflow.settings import Settings
from fepflow.store.store import Store

MAX_BODY = 10_000


@dataclass
class Service:
    """The application while it is served; `seen` is what it was called for."""

    address: str
    store: Store
    home: Path
    client: httpx.AsyncClient
    seen: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def key(self, *scopes: Any, lifetime: float | None = None) -> dict[str, str]:
        """The header of a new key."""
        return {"X-API-Key": create_key(self.store, "tests", scopes or ("read", "evaluate"), lifetime)[1]}

    async def send(self, method: str, path: str, headers: Any = None, content: Any = None) -> httpx.Response:
        return await self.client.request(method, path, headers=headers, content=content)

    async def raw(self, request: bytes) -> bytes:
        """What is answered to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    def entries(self) -> list[tuple[str | None, str, str | None, str]]:
        """Caller, action, resource and outcome, the oldest first."""
        return [
            (entry.caller, entry.action, entry.resource, entry.outcome)
            for entry in self.store.access.audit_entries(1000)[::-1]
        ]


def application(seen: list[str]) -> Starlette:
    async def answer(request: Request) -> Response:
        body = await request.body()
        seen.append(f"{request.method} {request.url.path}")
        return JSONResponse({"caller": request.state.caller.name, "bytes": len(body)}, status_code=201)

    async def health(request: Request) -> Response:
        return Response("well")

    async def broken(request: Request) -> Response:
        raise ValueError("a fault of ours")

    async def swallows(request: Request) -> Response:
        """As frameworks do that take whatever happens to a body for a bad body."""
        try:
            await request.body()
        except Exception:
            return Response("what a body", status_code=400)
        return Response()

    async def endless(request: Request) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            for number in range(10**9):
                seen.append(str(number))
                yield b"x"
                await asyncio.sleep(0)

        return StreamingResponse(chunks())

    async def connect(websocket: Any) -> None:
        seen.append("websocket")
        await websocket.accept()

    methods = ["GET", "POST", "PUT", "DELETE", "PATCH"]
    return Starlette(
        routes=[
            Route("/v1/health", health),
            Route("/v1/broken", broken, methods=methods),
            Route("/v1/swallows", swallows, methods=methods),
            Route("/v1/endless", endless),
            Route("/api/evaluations/{id}", health),
            WebSocketRoute("/v1/socket", connect),
            Route("/v1/{rest:path}", answer, methods=methods),
            Route("/api/{rest:path}", answer, methods=methods),
        ]
    )


def render(path: str, error: FepflowError) -> Response:
    return JSONResponse({"error": str(error), "path": path}, status_code=error.http_status)


Serve = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def store(tmp_path: Path, new_store: Callable[[str], str]) -> Iterator[Store]:
    with Store.open(new_store(f"sqlite:///{tmp_path / 'home' / 'fepflow.db'}")) as opened:
        yield opened


@pytest.fixture
def serve(tmp_path: Path, store: Store) -> Serve:
    @asynccontextmanager
    async def serving(*, may_be_open: bool = True, wrap_store: Any = None, **fields: Any) -> AsyncIterator[Service]:
        settings = Settings.model_validate({"home": tmp_path / "home", "max_body": MAX_BODY, **fields})
        origins = allowed_origins(settings)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            client = httpx.AsyncClient(base_url=address, timeout=30, trust_env=False)
            service = Service(address, store, tmp_path / "home", client)
            async with Access(wrap_store(store) if wrap_store else store, settings, may_be_open=may_be_open) as access:
                inner = AccessMiddleware(application(service.seen), access, render, max_body=settings.max_body)
                config = uvicorn.Config(
                    with_cors(inner, origins), log_level="debug", access_log=False, lifespan="off", log_config=None
                )
                server = uvicorn.Server(config)
                task = asyncio.create_task(server.serve(sockets=[listening]))
                while not server.started:  # noqa: ASYNC110  # it has no event to wait for
                    await asyncio.sleep(0.01)
                async with client:
                    yield service
                server.should_exit = True
                await task

    return serving
