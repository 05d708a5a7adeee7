"""Calls of an MCP server that is built with the SDK, as a process and behind an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fepflow.calls.base import traceparent
from fepflow.calls.client import TargetClient
from tests.fepflow.calls.mcp.conftest import HOSTILE, ORDERS, Open, ask, error_of
from tests.http_server import serving

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
seen: list[dict[str, str]] = []


@asynccontextmanager
async def served() -> AsyncIterator[ASGIApp]:
    from tests.fepflow.calls.mcp import orders  # loads the SDK, which takes a second

    app = orders.app.streamable_http_app()

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen.append(dict(Request(scope).headers))
        await app(scope, receive, send)

    async with orders.app.session_manager.run():
        yield noting


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(served) as url:
        yield f"{url}/mcp"


@pytest.fixture(params=["command", "url"])
def where(request: pytest.FixtureRequest, address: str) -> dict[str, Any]:
    return {"command": ORDERS} if request.param == "command" else {"url": address}


async def test_all_cases_call_tools_in_one_session(
    where: dict[str, Any], open_server: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_TOKEN", "a-token-of-orders")
    monkeypatch.setenv("UNNAMED", "not for the server")
    extra = {"env": ["ORDERS_TOKEN"]} if "command" in where else {"headers": {"Authorization": "Bearer word-of-mine"}}
    client = open_server(**where, **extra, secrets=frozenset({"word-of-mine"}))
    await results_are_outputs(client)
    await requests_carry_the_trace_and_secrets_come_back_masked(client, is_program="command" in where)
    await a_late_call_is_cancelled_at_the_server(client)


async def results_are_outputs(client: TargetClient) -> None:
    structured, text, refused, unexpected, unknown = await asyncio.gather(
        ask(client, "get_order", order_id="A100"),
        ask(client, "greet", name="Ada"),
        ask(client, "get_order", order_id="B7", is_error=True),
        ask(client, "get_order", order_id="B7"),
        ask(client, "get_ordr"),
    )
    assert structured.value == {"id": "A100", "total": 9.5}
    metadata = structured.metadata or {}
    assert {
        name: metadata[name] for name in ("tool", "is_error", "outcome", "expected_outcome", "structuredContent")
    } == {
        "tool": "get_order",
        "is_error": False,
        "outcome": "answer",
        "expected_outcome": "answer",
        "structuredContent": {"id": "A100", "total": 9.5},
    }
    assert metadata["outputSchema"]["required"] == ["id", "total"]
    assert (metadata["server"], metadata["protocol_version"]) == ({"name": "orders", "version": "1.2"}, "2025-11-25")
    assert text.value == "Hello Ada"
    assert (text.metadata or {})["content"] == [{"type": "text", "text": "Hello Ada"}]
    assert {"structuredContent", "outputSchema"}.isdisjoint(text.metadata or {})
    for output, outcome, expected in ((refused, "refusal", "refusal"), (unexpected, "error", "answer")):
        told = output.metadata or {}
        assert "no such order: B7" in output.value
        assert (told["is_error"], told["outcome"], told["expected_outcome"]) == (True, outcome, expected)
    assert error_of(unknown)["message"] == "the server has no tool get_ordr (did you mean get_order?)"
    assert (error_of(unknown)["kind"], unknown.metadata and unknown.metadata["attempts"]) == ("request", 1)


async def a_late_call_is_cancelled_at_the_server(client: TargetClient) -> None:
    before = int((await ask(client, "was_cancelled")).value)
    hurried = TargetClient(client._target, replace(client._policy, timeout=2.0))
    late = error_of(await ask(hurried, "wait", seconds=50))
    assert late["message"] == "at 1 of 3: began: no complete answer within 2 s (target.timeout)"
    assert (late["type"], late["recoverable"]) == ("timeout_error", True)
    assert int((await ask(client, "was_cancelled")).value) == before + 1


async def requests_carry_the_trace_and_secrets_come_back_masked(client: TargetClient, *, is_program: bool) -> None:
    token = traceparent.set(TRACE)
    seen.clear()
    output = await ask(client, "environment")
    traceparent.reset(token)
    texts = [part["text"] for part in (output.metadata or {})["content"]]
    assert TRACE in texts
    assert "a-token-of-orders" not in str(output)
    if is_program:
        assert texts[0] == "***"
        assert "not for the server" not in texts
    else:
        posts = [headers for headers in seen if headers.get("content-type") == "application/json"]
        assert posts[-1]["traceparent"] == TRACE
        assert {headers["authorization"] for headers in seen} == {"Bearer word-of-mine"}


async def test_a_process_that_dies_is_started_anew_and_its_last_words_are_kept(open_server: Open) -> None:
    client = open_server(command=[*HOSTILE, "exits if told to"], attempts=2)
    died = await ask(client, "act", exit=True)
    assert error_of(died)["message"] == "the server exited with code 4; the end of its stderr: database is gone"
    assert (error_of(died)["kind"], error_of(died)["recoverable"]) == ("crashed", True)
    assert (died.metadata or {})["attempts"] == 2
    assert (await ask(client, "act")).value == "done"
