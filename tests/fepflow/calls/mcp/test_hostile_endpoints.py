"""Addresses that answer tools/call as no MCP server should, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from tests.fepflow.calls.conftest import Serve
from tests.fepflow.calls.mcp.conftest import Open, ask, error_of
from tests.fepflow.calls.mcp.hostile import NUL, TOOL, text

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
EVENTS = {"Content-Type": "text/event-stream"}
LIMIT = 200_000


def result_of(message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def handler(call: Answer, seen: list[str] | None = None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """A server that does all as it should, but for tools/call."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if seen is not None:
            seen.append(message["method"])
        if message["method"] == "initialize":
            version = message["params"]["protocolVersion"]
            answer = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": NUL}
            return web.json_response(result_of(message, answer), headers={"mcp-session-id": "s1"})
        if message["method"] == "tools/list":
            return web.json_response(result_of(message, {"tools": [TOOL]}))
        if message["method"] == "tools/call":
            return await call(request, message)
        return web.Response(status=202)

    return handle


def answering(*arguments: Any, **options: Any) -> Answer:
    async def call(request: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(*arguments, **options)

    return call


async def half_a_body(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
    await response.prepare(request)
    await response.write(b'{"jsonrpc": "2.0"')
    assert request.transport is not None
    request.transport.close()
    return response


async def events_without_an_answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers=EVENTS)
    await response.prepare(request)
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "looking"}}
    await response.write(f"data: {json.dumps(note)}\n\n".encode())
    return response


async def endless_events(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers=EVENTS)
    await response.prepare(request)
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 10_000}}
    while True:
        await response.write(f"data: {json.dumps(note)}\n\n".encode())


async def wrong_id(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(result_of({"id": 99}, text("done")))


async def error_in_json(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    error = {"code": -32602, "message": "order_id must be a text"}
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)


async def large(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(result_of(message, text("x" * LIMIT)))


async def bomb(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
    body = gzip.compress(json.dumps(result_of(message, text("x" * 5_000_000))).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return web.Response(body=body, headers=headers)


JSON = {"content_type": "application/json"}


@pytest.mark.parametrize(
    ("call", "kind", "recoverable", "words"),
    [
        (answering(status=503, text="busy"), "http_status", True, "HTTP 503 Service Unavailable: busy"),
        (answering(status=429, text="{}", **JSON), "http_status", True, "HTTP 429 Too Many Requests"),
        (
            answering(status=401),
            "http_status",
            False,
            "HTTP 401 Unauthorized: check the credentials in target.mcp.headers",
        ),
        (answering(status=404), "http_status", True, "HTTP 404: the server has forgotten the session"),
        (
            answering(status=307, headers={"Location": "http://elsewhere.example/mcp?token=abc"}),
            "redirect",
            False,
            "HTTP 307: redirects to elsewhere.example:80; put the final address into the suite",
        ),
        (answering(status=302, headers={"Location": "/other"}), "redirect", False, "HTTP 302: redirects to 127.0.0.1"),
        (answering(status=202), "malformed", False, "HTTP 202: the server took the request for a notification"),
        (
            answering(text="<html>", content_type="text/html"),
            "malformed",
            False,
            "the answer's Content-Type is text/html, not JSON or a stream of events: check target.mcp.url",
        ),
        (answering(text="{", **JSON), "malformed", False, "the answer is not a JSON-RPC 2.0 message"),
        (answering(text="", **JSON), "malformed", False, "the answer is not a JSON-RPC 2.0 message"),
        (half_a_body, "connect", True, "the connection to 127.0.0.1"),
        (events_without_an_answer, "connect", True, "the stream of events ended without an answer"),
        (endless_events, "too_large", False, "the answer is larger than 200,000 bytes (target.mcp.max_bytes)"),
        (large, "too_large", False, "the answer is larger than 200,000 bytes (target.mcp.max_bytes)"),
        (bomb, "too_large", False, "the answer is larger than 200,000 bytes (target.mcp.max_bytes)"),
        (wrong_id, "malformed", False, "an answer came with the id 99, which no request has"),
        (error_in_json, "agent_error", False, "the server answered with the error -32602: order_id must be a text"),
    ],
)
async def test_what_is_no_answer_is_an_error_of_its_case(
    call: Answer,
    kind: str,
    recoverable: bool,
    words: str,
    serve: Serve,
    open_server: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    client = open_server(url=await serve(handler(call)), max_bytes=LIMIT, timeout=20)
    error = error_of(await ask(client, "act"))
    assert (error["kind"], error["recoverable"]) == (kind, recoverable), error
    assert error["message"].startswith(words)
    assert "token" not in error["message"]
    assert [record for record in caplog.records if not record.name.startswith("fepflow")] == []


async def test_after_a_forgotten_session_the_next_attempt_begins_another_one(serve: Serve, open_server: Open) -> None:
    seen: list[str] = []
    calls = 0

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return web.Response(status=404) if calls == 1 else web.json_response(result_of(message, text("done")))

    client = open_server(url=await serve(handler(call, seen)), attempts=2)
    assert (await ask(client, "act")).value == "done"
    assert seen.count("initialize") == 2


async def test_one_broken_call_leaves_the_session_to_the_others(serve: Serve, open_server: Open) -> None:
    seen: list[str] = []
    calls = 0

    async def call(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        return await (half_a_body(request, message) if calls == 1 else _done(message))

    client = open_server(url=await serve(handler(call, seen)))
    assert error_of(await ask(client, "act"))["kind"] == "connect"
    assert (await ask(client, "act")).value == "done"
    assert seen.count("initialize") == 1


async def _done(message: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(result_of(message, text("done")))


async def test_an_address_that_did_not_answer_initialize_is_asked_anew(serve: Serve, open_server: Open) -> None:
    seen: list[str] = []
    answers = handler(lambda _, message: _done(message))

    async def hanging_at_first(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        if len(seen) == 1:
            await asyncio.sleep(5)
        return await answers(request)

    client = open_server(url=f"{await serve(hanging_at_first)}/mcp", timeout=2, attempts=2)
    assert (await ask(client, "act")).value == "done"
