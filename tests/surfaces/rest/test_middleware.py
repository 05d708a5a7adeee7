"""What each request passes, over a real socket: a small application behind the middleware, served by uvicorn."""

from __future__ import annotations

import asyncio
import json
import logging
import os
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

from fepflow.errors import FepflowError
from fepflow.settings import Settings
from fepflow.store.store import Store
from surfaces.access.access import Access
from surfaces.access.keys import create_key
from surfaces.access.listening import allowed_origins
from surfaces.access.rates import FAILURES_PER_MINUTE
from surfaces.rest.middleware import AccessMiddleware, with_cors

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
            for entry in self.store.audit_entries(1000)[::-1]
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
            client = httpx.AsyncClient(base_url=address, trust_env=False)
            service = Service(address, store, tmp_path / "home", client)
            async with Access(wrap_store(store) if wrap_store else store, settings, may_be_open=may_be_open) as access:
                inner = AccessMiddleware(
                    application(service.seen), access, render, max_body=settings.max_body, origins=origins
                )
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


async def test_open_on_this_machine_with_a_record(serve: Serve) -> None:
    async with serve() as service:
        got = await service.send("GET", "/v1/runs/cafe?token=secret")
        put = await service.send("POST", "/api/evaluations", content=b"{}")
        assert (got.status_code, got.json()) == (201, {"caller": None, "bytes": 0})
        assert put.json() == {"caller": None, "bytes": 2}
        assert service.entries() == [
            (None, "GET /v1/runs/{id}", "cafe", "201"),
            (None, "POST /api/evaluations", None, "begun"),
            (None, "POST /api/evaluations", None, "201"),
        ]
        assert {entry.source for entry in service.store.audit_entries(9)} == {"127.0.0.1"}


async def test_without_a_valid_key_nothing_reaches_the_application(serve: Serve) -> None:
    async with serve() as service:
        good = service.key()
        wrong = {"X-API-Key": good["X-API-Key"][:-1] + ("a" if good["X-API-Key"][-1] != "a" else "b")}
        for headers in ({}, wrong, {"X-API-Key": ""}, {"Authorization": "Basic x"}, [*good.items(), *wrong.items()]):
            for method, path in (("GET", "/v1/runs"), ("POST", "/api/evaluations"), ("OPTIONS", "/v1/runs")):
                answer = await service.send(method, path, headers)
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"] == 'ApiKey realm="fepflow"'
                assert answer.json()["path"] == path
        assert service.seen == []
        assert {(caller, outcome) for caller, _, _, outcome in service.entries()} == {(None, "401")}
        assert (await service.send("GET", "/v1/runs", good)).status_code == 201


OPEN = ["/v1/health", "/healthz", "/openapi.json"]
CLOSED = ["/v1/health/x", "/v1//health", "//v1/health", "/V1/health", "/v1/runs/../health", "/v1/%2e%2e/v1/health"]
CLOSED += ["/v1/health%00", "/v1/health%20", "/v1/health;x", "/x/v1/health", "/v1/runs?/v1/health", "/", "*"]


async def test_health_and_documents_are_open_and_not_recorded_and_nothing_else_is(serve: Serve) -> None:
    async with serve() as service:
        service.key()
        for path in OPEN:
            assert (await service.send("GET", path)).status_code in (200, 404)
            assert (await service.send("POST", path)).status_code == 401
        assert len(service.entries()) == len(OPEN)
        for path in CLOSED:
            answer = await service.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert answer.startswith(b"HTTP/1.1 40"), path
            assert b"well" not in answer
        assert service.seen == []


async def test_scopes_by_method_and_path(serve: Serve) -> None:
    async with serve() as service:
        reader, writer, admin = service.key("read"), service.key("evaluate"), service.key("admin")
        reads = [("GET", "/v1/runs"), ("HEAD", "/v1/runs"), ("POST", "/v1/reports")]
        writes = [("POST", "/api/evaluations"), ("PUT", "/v1/a/b"), ("DELETE", "/v1/a/b"), ("PATCH", "/v1/a")]
        writes += [("POST", "/v1/reports/x"), ("PUT", "/v1/reports"), ("POST", "/v1/Reports")]
        for rights, allowed, forbidden in ((reader, reads, writes), (writer, writes, reads)):
            for method, path in forbidden:
                assert (await service.send(method, path, rights)).status_code == 403, (method, path)
            service.seen.clear()
            for method, path in allowed:
                assert (await service.send(method, path, rights)).status_code in (201, 405), (method, path)
            assert len(service.seen) >= len(allowed) - 1
        for method, path in [*reads, *writes]:
            assert (await service.send(method, path, admin)).status_code in (201, 405)
        key_id = reader["X-API-Key"][4:16]
        assert (f"key:{key_id}", "DELETE /v1/a/{id}", "b", "403") in service.entries()


async def test_a_revoked_key_is_refused_at_the_next_request(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        assert (await service.send("GET", "/v1/runs", mine)).status_code == 201
        service.store.revoke_api_key(mine["X-API-Key"][4:16])
        assert (await service.send("GET", "/v1/runs", mine)).status_code == 401


async def test_over_a_limit_says_when_to_come_back(serve: Serve) -> None:
    async with serve(starts_per_minute=1, requests_per_minute=2) as service:
        mine = service.key()
        starts = [await service.send("POST", path, mine) for path in ("/api/evaluations", "/api/evaluations/")]
        others = [await service.send("GET", "/v1/runs", mine) for _ in range(3)]
        assert [answer.status_code for answer in (*starts, *others)] == [201, 429, 201, 201, 429]
        assert 1 <= int(others[-1].headers["Retry-After"]) <= 60
        assert len(service.seen) == 3


@pytest.mark.parametrize("path", ["/v1/a/b", "/v1/swallows"])
async def test_a_body_over_the_limit_is_413_by_its_length_and_by_its_chunks(path: str, serve: Serve) -> None:
    async def chunks(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 100):
            yield b"x" * 100

    async with serve() as service:
        for body, status in ((b"x" * (MAX_BODY + 1), 413), (chunks(MAX_BODY + 100), 413), (chunks(MAX_BODY), None)):
            answer = await service.send("PUT", path, content=body)
            assert status in (None, answer.status_code)
            assert answer.status_code in (413, 200, 201)
            assert status == 413 or answer.status_code != 413
            assert "10,000 bytes (FEPFLOW_MAX_BODY)" in answer.text or answer.status_code != 413
        assert [outcome for _, _, _, outcome in service.entries()].count("413") == 2


async def test_a_large_body_of_a_stranger_is_not_read(serve: Serve) -> None:
    async with serve() as service:
        service.key()
        head = b"PUT /v1/a/b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9999\r\n\r\n"
        assert (await service.raw(head)).startswith(b"HTTP/1.1 401")


async def test_pages_of_others_are_refused_where_it_is_open(serve: Serve) -> None:
    async with serve() as service:
        own = {"Host": f"localhost:{service.port}"}
        refused = [
            {"Host": "evil.example.org"},
            {**own, "Origin": "http://evil.example.org"},
            {**own, "Origin": "null"},
            {**own, "X-Forwarded-For": "127.0.0.1"},
        ]
        for headers in refused:
            for method, path in (("POST", "/api/evaluations"), ("GET", "/v1/runs")):
                assert (await service.send(method, path, headers)).status_code == 403, headers
        assert service.seen == []
        assert {outcome for *_, outcome in service.entries()} == {"403"}
        same = {**own, "Origin": f"http://localhost:{service.port}"}
        assert (await service.send("POST", "/api/evaluations", same)).status_code == 201
        answer = await service.send("OPTIONS", "/v1/a", {**same, "Access-Control-Request-Method": "POST"})
        assert not any(name.startswith("access-control") for name in answer.headers)


async def test_a_page_cannot_fill_the_log_nor_shut_others_out(serve: Serve) -> None:
    async with serve() as service:
        answers = [await service.send("POST", "/api/evaluations", {"Origin": "null"}) for _ in range(40)]
        assert {answer.status_code for answer in answers} == {403, 429}
        assert len(service.entries()) == FAILURES_PER_MINUTE + 1
        assert (await service.send("GET", "/v1/runs")).status_code == 201


async def test_with_a_key_another_host_and_origin_will_do(serve: Serve) -> None:
    async with serve() as service:
        headers = {**service.key(), "Host": "fepflow.example.org", "Origin": "https://app.example.org", "Via": "1.1 x"}
        answer = await service.send("GET", "/v1/runs", headers)
        assert answer.status_code == 201
        assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_the_origins_that_are_named_may_call(serve: Serve) -> None:
    async with serve(cors_origins="https://app.example.org") as service:
        asked = {"Origin": "https://app.example.org", "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "x-api-key, content-type"
        answer = await service.send("OPTIONS", "/api/evaluations", asked)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, asked["Origin"])
        assert "access-control-allow-credentials" not in answer.headers
        answer = await service.send("POST", "/api/evaluations", {"Origin": asked["Origin"]})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, asked["Origin"])
        answer = await service.send("POST", "/api/evaluations", {"Origin": "https://evil.example.org"})
        assert (answer.status_code, "access-control-allow-origin" in answer.headers) == (403, False)


async def test_a_fault_is_recorded_and_stays_a_fault(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as service:
        assert (await service.send("GET", "/v1/broken")).status_code == 500
        assert (await service.send("GET", "/nowhere")).status_code == 404
        assert [outcome for *_, outcome in service.entries()] == ["500", "404"]


class FailingLog:
    """A store whose audit log takes so many groups of entries."""

    def __init__(self, store: Store, groups: int) -> None:
        self._store = store
        self._groups = groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add_audit_entries(self, entries: Any) -> None:
        self._groups -= 1
        if self._groups < 0:
            raise OSError(28, "No space left on device")
        self._store.add_audit_entries(entries)


async def test_without_a_record_nothing_is_done(serve: Serve) -> None:
    async with serve(wrap_store=lambda store: FailingLog(store, 0)) as service:
        for method, path in (("POST", "/api/evaluations"), ("GET", "/v1/runs"), ("DELETE", "/v1/a/b")):
            answer = await service.send(method, path)
            assert (answer.status_code, "audit log" in answer.text) == (503, True)
            assert "No space" not in answer.text, "what is wrong here is not for callers"
        assert [line for line in service.seen if not line.startswith("GET")] == []
        service.key()
        assert (await service.send("GET", "/v1/runs")).status_code == 503
        assert (await service.send("GET", "/v1/health")).status_code == 200


async def test_an_outcome_that_cannot_be_recorded_takes_the_response_away(serve: Serve) -> None:
    async with serve(wrap_store=lambda store: FailingLog(store, 1)) as service:
        answer = await service.send("PUT", "/v1/a/b")
        assert (answer.status_code, "caller" in answer.json()) == (503, False)
        answer = await service.send("GET", "/v1/endless")
        assert answer.status_code == 503
        assert len(service.seen) < 5, "the stream was given up"
        assert [outcome for *_, outcome in service.entries()] == ["begun"]


async def test_without_the_keys_table_nobody_is_admitted(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        service.store._database.write_once(lambda connection: connection.exec_driver_sql("DROP TABLE api_key"))
        for headers in (mine, {}):
            assert (await service.send("GET", "/v1/runs", headers)).status_code == 503
        assert service.seen == []


async def test_websockets_are_closed(serve: Serve) -> None:
    async with serve() as service:
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        head = f"GET /v1/socket HTTP/1.1\r\nHost: localhost:{service.port}\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(head + upgrade + b"AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
        assert b" 101 " not in await reader.readline()
        writer.close()
        assert "websocket" not in service.seen


HOSTILE = [
    b"\xff\xfe",
    b"\xc3\xa9" * 100,
    b"fep_" + b"a" * 60_000,
    b"\xed\xa0\xbd",
    b"Bearer " + b"." * 5_000,
    b"Bearer",
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_headers_are_no_fault_of_ours(value: bytes, serve: Serve) -> None:
    async with serve() as service:
        service.key()
        for name in (b"X-API-Key", b"Authorization", b"X-API-Key: a\r\nX-API-Key"):
            head = b"GET /v1/runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + name + b": " + value + b"\r\n\r\n"
            assert (await service.raw(head)).startswith((b"HTTP/1.1 401", b"HTTP/1.1 400", b"HTTP/1.1 431"))
        assert service.seen == []


async def test_concurrent_requests_are_each_admitted_and_recorded(serve: Serve) -> None:
    async with serve() as service:
        mine = service.key()
        answers = await asyncio.gather(
            *(service.send("GET", f"/v1/runs/{number}", mine if number % 2 else None) for number in range(20))
        )
        assert [answer.status_code for answer in answers] == [401, 201] * 10
        assert {(resource, outcome) for _, _, resource, outcome in service.entries()} == {
            (str(number), "201" if number % 2 else "401") for number in range(20)
        }


async def test_a_secret_is_in_no_log_no_table_and_no_file(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve() as service:
        mine = service.key("read")
        key = mine["X-API-Key"]
        secret = key[17:]
        for headers in (mine, {"Authorization": f"Bearer {key}"}, {"X-API-Key": key + "x"}, [*mine.items()] * 2):
            for method in ("GET", "POST"):
                await service.send(method, f"/v1/runs/{key}/x", headers)
        await service.send("GET", f"/v1/{key}", {"Host": key})
        assert len(service.entries()) == 9
        service.store._database.write_once(lambda connection: connection.exec_driver_sql("DROP TABLE api_key"))
        assert (await service.send("GET", "/v1/runs", mine)).status_code == 503
        written = [Path(folder) / name for folder, _, names in os.walk(service.home) for name in names]
        assert len(written) >= 2
        for path in written:
            assert secret.encode() not in path.read_bytes(), path
        lines = [
            json.loads(line) for path in written if path.suffix == ".jsonl" for line in path.read_text().splitlines()
        ]
        assert len(lines) == 10
    # Paths are in the records of the client alone, for the server's access log is off.
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not any(secret in record.getMessage() for record in ours)
