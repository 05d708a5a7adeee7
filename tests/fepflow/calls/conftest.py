"""Servers on real sockets: well-behaved ones of aiohttp, and raw ones that break the protocol."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls import processes
from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.base import Target as AnyTarget
from fepflow.calls.client import OnRetry, RetryPolicy, TargetClient
from fepflow.calls.http import HttpTarget
from fepflow.errors import TargetError
from fepflow.protocol.test_case import Output, TestCase
from fepflow.suite.target import Target

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[..., Awaitable[str]]

CASE = TestCase(id="c1", input="What is 6 * 7?", expected="42")


@pytest.fixture(autouse=True)
def short_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of suites have less time to end by themselves."""
    monkeypatch.setattr(processes, "EOF_SECONDS", 0.3)
    monkeypatch.setattr(processes, "TERM_SECONDS", 0.3)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves a handler on a free port of the loopback and gives its address."""
    runners = []

    async def start(handler: Handler, tls: ssl.SSLContext | None = None) -> str:
        app = web.Application(client_max_size=10**9)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        return f"{'https' if tls else 'http'}://127.0.0.1:{port}/ask"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def serve_raw() -> AsyncIterator[Serve]:
    """Serves whole connections: the handler gets the streams after one request was read."""
    servers = []

    async def start(handler: RawHandler) -> str:
        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await read_request(reader)
                await handler(reader, writer)
                await writer.drain()
            except (OSError, asyncio.IncompleteReadError):
                pass  # the client has gone, as many of these tests want it to
            finally:
                writer.close()

        server = await asyncio.start_server(connection, "127.0.0.1", 0)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ask"

    yield start
    for server in servers:
        server.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def sending(*parts: bytes) -> RawHandler:
    """A raw server that sends this, whatever it is asked, and closes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)

    return handler


async def answer_ok(request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0
    )
    return head + await reader.readexactly(length)


def configured(url: str, *, target: dict[str, Any] | None = None, **http: Any) -> Target:
    return Target.model_validate({"http": {"url": url, **http}, **(target or {})})


async def ask(target: AnyTarget, case: TestCase, policy: RetryPolicy, on_retry: OnRetry) -> Output:
    """The output of one patient call by a run of its own."""
    return (await TargetClient(target, policy, on_retry=on_retry).ask(case)).output()


async def ask_once(
    config: Target,
    case: TestCase = CASE,
    *,
    secrets: frozenset[str] = frozenset(),
    attempts: int = 1,
    addresses: AgentAddresses | None = None,
) -> Output:
    """The output of one patient call, as a run gets it."""
    target = HttpTarget(config, secrets, addresses=addresses)
    try:
        return await ask(target, case, RetryPolicy(attempts, config.timeout), ignore_retries)
    finally:
        await target.aclose()


async def error_of(config: Target, case: TestCase = CASE, *, secrets: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The recorded error of a call that is expected to fail."""
    output = await ask_once(config, case, secrets=secrets)
    assert output.value is None
    assert output.metadata is not None
    return dict(output.metadata["error"])


def ignore_retries(case_id: str, attempt: int, cause: TargetError, wait: float) -> None:
    pass


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "body": (await request.text()),
            "headers": dict(request.headers),
            "query": dict(request.query),
        }
    )
