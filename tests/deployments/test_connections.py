"""Clients that send half a request, or one that can be read in two ways: they are let go, and others are answered."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from fepflow.access.listening import HEAD_SECONDS, MAX_CONNECTIONS, most_connections
from tests.api_process import api_process
from tests.http_server import serving

HALF_SENT = [b"", b"GET /healthz", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"\r\n", b"POST / HTTP/1.1\r\nA: b"]


ENDED = threading.Event()
"""The endless response has ended."""


async def _body(request: Request) -> Response:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def _endless(request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
                await asyncio.sleep(0)
        finally:
            ENDED.set()

    return StreamingResponse(chunks())


@asynccontextmanager
async def application() -> AsyncIterator[ASGIApp]:
    yield Starlette(routes=[Route("/", _body, methods=["GET", "POST"]), Route("/endless", _endless)])


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of an application whose clients have little time, and of whom there are few."""
    monkeypatch.setattr("fepflow.deployments.http_server.HEAD_SECONDS", 1.0)
    monkeypatch.setattr("fepflow.deployments.http_server.BODY_SECONDS", 1.0)
    monkeypatch.setattr("fepflow.deployments.http_server.most_connections", lambda: 10)
    with serving(application) as address:
        yield int(address.rpartition(":")[2])


def connect(port: int, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 20)
    connection.sendall(sent)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Whatever is answered until the server closes the connection."""
    received = b""
    with connection, suppress(ConnectionError):
        while data := connection.recv(65_536):
            received += data
    return received


@pytest.mark.parametrize("begun", HALF_SENT)
def test_a_head_that_does_not_come_ends_the_connection(port: int, begun: bytes) -> None:
    received = answer(connect(port, begun))
    assert received.startswith(b"HTTP/1.1 408 Request Timeout") or begun in (b"", b"\r\n")


def test_a_head_that_drips_ends_the_connection(port: int) -> None:
    connection = connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    began = time.monotonic()
    with suppress(ConnectionError):
        while time.monotonic() - began < 30:
            connection.sendall(b"x")
            time.sleep(0.1)
    assert time.monotonic() - began < 20
    connection.close()


def test_the_second_head_of_a_connection_has_a_deadline_too(port: int) -> None:
    connection = connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    received = b""
    while b"0 bytes" not in received:
        received += connection.recv(65_536)
    connection.sendall(b"GET / HTTP/1.1\r\n")
    assert answer(connection).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("length", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_ends_the_connection(port: int, length: bytes) -> None:
    connection = connect(port, b"POST / HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n1\r\n")
    assert answer(connection).startswith(b"HTTP/1.1 408")


def test_a_client_that_reads_nothing_is_let_go(port: int) -> None:
    ENDED.clear()
    connection = connect(port, b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert ENDED.wait(60)
    received = 0
    with connection, suppress(ConnectionError):
        while data := connection.recv(1_000_000):
            received += len(data)
            assert received < 100_000_000
    assert received > 0


def test_what_is_slow_but_comes_is_answered(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fepflow.deployments.http_server.HEAD_SECONDS", 30.0)
    monkeypatch.setattr("fepflow.deployments.http_server.BODY_SECONDS", 30.0)
    connection = connect(port, b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n")
    for part in (b"\r\n", b"ab", b"cd"):
        time.sleep(0.3)
        connection.sendall(part)
    assert b"4 bytes" in answer(connection)


def test_a_new_connection_takes_the_place_of_one_on_which_nobody_works(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fepflow.deployments.http_server.HEAD_SECONDS", 60.0)  # the socket waits for 20 s
    idle = [connect(port, b"GET / HTTP/1.1\r\n") for _ in range(40)]
    assert b"0 bytes" in answer(connect(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    for connection in idle:
        connection.close()


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
TWO_WAYS = {
    "CL and TE": b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    "TE and CL": b"Transfer-Encoding: chunked\r\nContent-Length: 5",
    "CL 0 and TE": b"Content-Length: 0\r\nTransfer-Encoding: chunked",
    "TE folded, and CL": b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5",
    "two CL": b"Content-Length: 5\r\nContent-Length: 6",
    "CL list": b"Content-Length: 5, 6",
    "CL signed": b"Content-Length: +5",
    "CL hex": b"Content-Length: 0x5",
    "CL spaced": b"Content-Length : 5",
    "TE spaced": b"Transfer-Encoding : chunked",
    "TE two": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "TE identity": b"Transfer-Encoding: identity",
    "TE list": b"Transfer-Encoding: gzip, chunked",
    "TE odd": b"Transfer-Encoding: xchunked",
    "TE tab": b"Transfer-Encoding: \x0bchunked",
    "NUL": b"X: a\0b\r\nContent-Length: 5",
    "folded first": b" X: y\r\nContent-Length: 5",
}


@pytest.mark.parametrize("headers", TWO_WAYS.values(), ids=TWO_WAYS)
def test_a_request_whose_length_can_be_read_in_two_ways_closes_the_connection(port: int, headers: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n\r\n"
    if headers.startswith(b" "):
        head = b"POST / HTTP/1.1\r\n" + headers + b"\r\nHost: localhost\r\n\r\n"
    received = answer(connect(port, head + b"0\r\n\r\n" + SMUGGLED))
    assert received.startswith(b"HTTP/1.1 400")
    assert received.count(b"HTTP/1.1 ") == 1


def test_transfer_encoding_in_http_1_0_closes_the_connection(port: int) -> None:
    head = b"POST / HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert answer(connect(port, head + SMUGGLED)).startswith(b"HTTP/1.1 400")


def test_what_has_one_length_is_taken(port: int) -> None:
    for headers, body in ((b"Content-Length: 3", b"abc"), (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n")):
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + b"\r\n\r\n"
        assert b"3 bytes" in answer(connect(port, head + body))


def test_how_many_connections_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((256, 51), (1_024, 204), (1, 1), (10**6, MAX_CONNECTIONS), (-1, MAX_CONNECTIONS)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert most_connections() == most


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Processes that are started inside may open 256 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.battery
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_230_half_sent_requests_silence_nobody(tmp_path: Path, secure: bool) -> None:
    env, trust = {}, ssl.create_default_context()
    if secure:
        authority = trustme.CA()
        authority.configure_trust(trust)
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        env = {"FEPFLOW_TLS_CERT": str(tmp_path / "cert.pem"), "FEPFLOW_TLS_KEY": str(tmp_path / "key.pem")}
    with ExitStack() as stack:
        with few_descriptors():
            api = stack.enter_context(api_process(tmp_path / "home", **env))
        held: list[Any] = []
        for port in (int(address.rpartition(":")[2]) for address in (api.rest, api.grpc)):
            held += [connect(port, HALF_SENT[number % 5]) for number in range(230)]
        try:
            for path in ("/v1/health", "/runs", "/v1/reports", "/sign-in"):
                began = time.monotonic()
                assert httpx.get(f"{api.rest}{path}", timeout=30, verify=trust).status_code == 200
                assert time.monotonic() - began < HEAD_SECONDS
        finally:
            for connection in held:
                connection.close()
        assert "Traceback" not in api.log.read_text()
