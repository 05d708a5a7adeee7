"""Who is admitted to the application, how often, and with what body and headers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import product

import pytest

from fepflow.access.access import FAILURES_PER_MINUTE
from tests.fepflow.api.rest.middleware.conftest import MAX_BODY, Serve


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
        assert {entry.source for entry in service.store.access.audit_entries(9)} == {"127.0.0.1"}


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


async def test_what_is_refused_without_a_key_is_recorded_so_often_and_no_more(serve: Serve) -> None:
    async with serve() as service:
        good = service.key()
        headers = [*good.items(), ("X-API-Key", "fep_other")]
        statuses = Counter(
            [(await service.send("GET", "/v1/runs", headers)).status_code for _ in range(FAILURES_PER_MINUTE + 8)]
        )
        assert statuses == {401: FAILURES_PER_MINUTE, 429: 8}
        assert len(service.entries()) == FAILURES_PER_MINUTE + 1
        assert (await service.send("GET", "/v1/runs", good)).status_code == 201


async def test_two_idempotency_keys_are_refused(serve: Serve) -> None:
    async with serve() as service:
        for path in ("/api/evaluations", "/v1/evaluate"):
            answer = await service.send("POST", path, [("Idempotency-Key", "a"), ("Idempotency-Key", "a")])
            assert answer.status_code == 400
            assert "Idempotency-Key" in answer.text
        assert service.seen == []
        assert (await service.send("POST", "/api/evaluations", {"Idempotency-Key": "a"})).status_code == 201


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
        service.store.access.revoke_key(mine["X-API-Key"][4:16])
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


async def test_hostile_headers_are_no_fault_of_ours(serve: Serve) -> None:
    async with serve() as service:
        service.key()
        for name, value in product((b"X-API-Key", b"Authorization", b"X-API-Key: a\r\nX-API-Key"), HOSTILE):
            head = b"GET /v1/runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + name + b": " + value + b"\r\n\r\n"
            assert (await service.raw(head)).startswith((b"HTTP/1.1 401", b"HTTP/1.1 400", b"HTTP/1.1 431"))
        assert service.seen == []
