"""Agents behind an address: real servers, well-behaved ones and others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from tests.fepflow.calls.conftest import HEAD, Serve, sending

from .conftest import Open, metadata_of, run, said

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[dict[str, Any]], Any]


class Agent:
    """An agent that answers in JSON; `seen` are the requests, as they came."""

    def __init__(self, step: Answer | None = None, **capabilities: Any) -> None:
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.under_way = self.most = 0
        self._step = step or (lambda request: {"status": "done", "public_output": request["params"]["input"]})
        self._info = {"name": "web", "protocol_version": "1.0", "capabilities": capabilities}

    def result(self, request: dict[str, Any]) -> Any:
        method = request["method"]
        return self._info if method == "agent/initialize" else True if method == "agent/reset" else self._step(request)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        message = await request.json()
        self.seen.append(message)
        self.headers.append(dict(request.headers))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        return await self.respond(request, {"jsonrpc": "2.0", "id": message["id"], "result": self.result(message)})

    async def respond(self, request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(answer)

    def methods(self) -> list[str]:
        return [message["method"].removeprefix("agent/") for message in self.seen]


class Streaming(Agent):
    """Answers in a stream of events: this, with the answer in its place, after which the stream stays open."""

    def __init__(self, text: str, *, stays_open: bool = True) -> None:
        super().__init__()
        self._text = text
        self._stays_open = stays_open

    async def respond(self, request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        pretty = json.dumps(answer, ensure_ascii=False, indent=1).split("\n")
        text = self._text.replace("ANSWER", json.dumps(answer, ensure_ascii=False))
        text = text.replace("LINES", "\r\n".join(f"data: {line}" for line in pretty))
        for byte in text.encode():
            await response.write(bytes([byte]))
        if self._stays_open:
            await asyncio.sleep(1000)
        return response


async def test_an_address_is_initialized_once_and_reset_before_each_scenario(open_agent: Open, serve: Serve) -> None:
    agent = Agent()
    _, client = open_agent(url=await serve(agent.handle), config={"a": 1}, headers={"X-Tenant": "t"})
    for _ in range(2):
        output = await run(client, "one", {"input": "two"})
        assert said(output) == ["one", "two"]
        assert metadata_of(output)["agent"] == "web"
    assert agent.methods() == ["initialize", "reset", "step", "step", "reset", "step", "step"]
    assert agent.seen[0]["params"] == {"protocol_version": "1.0", "config": {"a": 1}}
    assert agent.headers[0]["Accept"] == "application/json, text/event-stream"
    assert agent.headers[0]["Content-Type"] == "application/json"
    assert agent.headers[0]["X-Tenant"] == "t"


async def test_one_scenario_at_a_time_and_waiting_for_a_turn_is_no_time_out(open_agent: Open, serve: Serve) -> None:
    agent = Agent()
    _, client = open_agent(url=await serve(agent.handle), timeout=20, concurrency=8)
    outputs = await asyncio.gather(*(run(client, "a", "b") for _ in range(20)))
    assert all(said(output) == ["a", "b"] for output in outputs)
    assert agent.most == 1
    assert agent.methods() == ["initialize", *(["reset", "step", "step"] * 20)]


async def test_an_address_that_serves_in_parallel_is_not_reset(open_agent: Open, serve: Serve) -> None:
    met = asyncio.Event()
    agent = Agent()

    async def handler(request: web.Request) -> web.StreamResponse:
        if len(agent.seen) >= 4:
            met.set()
        response = await agent.handle(request)
        if agent.seen[-1]["method"] == "agent/step":
            await asyncio.wait_for(met.wait(), 30)
        return response

    _, client = open_agent(url=await serve(handler), parallel=True, concurrency=5)
    outputs = await asyncio.gather(*(run(client, "a") for _ in range(5)))
    assert [said(output) for output in outputs] == [["a"]] * 5
    assert sorted(agent.methods()) == ["initialize", *(["step"] * 5)]


async def test_after_a_fault_the_agent_is_initialized_anew(open_agent: Open, serve: Serve) -> None:
    agent = Agent(lambda request: None if request["params"]["input"] == "bad" else {"status": "done"})
    _, client = open_agent(url=await serve(agent.handle))
    output = await run(client, "a", "bad")
    assert metadata_of(output)["error"]["message"].startswith("step 2 of 2: the result is null")
    await run(client, "a")
    assert agent.methods() == ["initialize", "reset", "step", "step", "initialize", "reset", "step"]


@pytest.mark.parametrize(
    "text",
    [
        "data: ANSWER\n\n",
        "data:ANSWER\r\n\r\n",
        ": keep-alive\r\n\r\n: keep-alive\r\n\r\nevent: message\r\nid: 7\r\nretry: 10\r\ndata: ANSWER\r\n\r\n",
        "\ufeffLINES\r\n\r\n",
        'data: {"jsonrpc": "2.0", "method": "log", "params": {}}\n\ndata: thinking\n\ndata: ANSWER\n\n',
    ],
    ids=["plain", "crlf", "comments and fields", "many lines", "other events"],
)
async def test_an_answer_in_a_stream_of_events_is_taken_as_soon_as_it_is_there(
    open_agent: Open, serve: Serve, text: str
) -> None:
    _, client = open_agent(url=await serve(Streaming(text).handle))
    output = await run(client, "one\u2028two\u0085\x0b\x1c", "naïve 🎉")
    assert said(output) == ["one\u2028two\u0085\x0b\x1c", "naïve 🎉"]
    assert ("thinking" in metadata_of(output).get("log_tail", {}).get("events", "")) is ("thinking" in text)


async def test_the_last_event_may_lack_its_empty_line(open_agent: Open, serve: Serve) -> None:
    _, client = open_agent(url=await serve(Streaming("data: ANSWER", stays_open=False).handle))
    assert said(await run(client, "a")) == ["a"]


async def test_keep_alives_do_not_get_round_the_deadline(open_agent: Open, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if message["method"] != "agent/step":
            return web.json_response(
                {"jsonrpc": "2.0", "id": message["id"], "result": True if "reset" in message["method"] else {}}
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b": keep-alive\n\n")
            await asyncio.sleep(0.02)

    _, client = open_agent(url=await serve(handler), step_timeout=1)
    error = metadata_of(await run(client, "a"))["error"]
    assert error["message"] == "step 1 of 1: no answer within 1 s (target.ecp.step_timeout)"


def responding(response: Callable[[int], web.Response]) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return response((await request.json())["id"])

    return handler


def rpc_error(request_id: int | None, code: int, status: int = 200) -> web.Response:
    error = {"code": code, "message": "it cannot"}
    return web.json_response({"jsonrpc": "2.0", "id": request_id, "error": error}, status=status)


RESPONSES: dict[str, tuple[Callable[[int], web.Response], str, str, bool]] = {
    "an error": (
        lambda i: rpc_error(i, -32000),
        "the agent answered with the error -32000: it cannot",
        "agent_error",
        False,
    ),
    "an error with a status": (
        lambda i: rpc_error(None, -32603, 500),
        "the agent answered with the error -32603: it cannot",
        "agent_error",
        False,
    ),
    "202": (
        lambda i: web.Response(status=202),
        "HTTP 202: the agent took the request for a notification, and sends no answer",
        "malformed",
        False,
    ),
    "nothing": (
        lambda i: web.Response(),
        "the response is not a JSON-RPC answer to the request: it is empty",
        "malformed",
        False,
    ),
    "no JSON-RPC": (
        lambda i: web.json_response({"answer": 42}),
        'the response is not a JSON-RPC answer to the request: {"answer": 42}',
        "malformed",
        False,
    ),
    "the id as text": (
        lambda i: web.json_response({"jsonrpc": "2.0", "id": str(i), "result": {}}),
        'the response is not a JSON-RPC answer to the request: an answer came with the id "1", but 1 was asked',
        "malformed",
        False,
    ),
    "no event": (
        lambda i: web.Response(text=": nothing\n\n", content_type="text/event-stream"),
        "the stream of events ended without an answer",
        "connect",
        True,
    ),
    "another id in an event": (
        lambda i: web.Response(text='data: {"id": 9, "result": 1}\n\n', content_type="text/event-stream"),
        "the stream of events ended without an answer: an answer came with the id 9, but 1 was asked",
        "malformed",
        False,
    ),
    "a redirect": (
        lambda i: web.Response(status=307, headers={"Location": "/elsewhere"}),
        "HTTP 307: redirects to 127.0.0.1:PORT; put the final address into the suite",
        "redirect",
        False,
    ),
    "too much": (
        lambda i: web.Response(text="x" * 200_000),
        "the answer is larger than 100,000 bytes (target.ecp.max_bytes)",
        "too_large",
        False,
    ),
    "too much of events": (
        lambda i: web.Response(text=": x\n\n" * 50_000, content_type="text/event-stream"),
        "the answer is larger than 100,000 bytes (target.ecp.max_bytes)",
        "too_large",
        False,
    ),
    "unauthorized": (
        lambda i: web.Response(status=401, text="who are you?"),
        "HTTP 401 Unauthorized: who are you?: check the credentials in target.ecp.headers",
        "http_status",
        False,
    ),
    "overload": (
        lambda i: web.Response(status=503, text="busy"),
        "HTTP 503 Service Unavailable: busy",
        "http_status",
        True,
    ),
}


@pytest.mark.parametrize(("response", "message", "kind", "retryable"), RESPONSES.values(), ids=RESPONSES)
async def test_what_is_no_answer_is_an_error_that_says_what_it_is(
    open_agent: Open,
    serve: Serve,
    response: Callable[[int], web.Response],
    message: str,
    kind: str,
    retryable: bool,
) -> None:
    url = await serve(responding(response))
    _, client = open_agent(url=url, max_bytes=100_000)
    error = metadata_of(await run(client, "a"))["error"]
    expected = message.replace("127.0.0.1:PORT", url.split("/")[2])
    assert error["message"] == f"before step 1 of 1: agent/initialize: {expected}"
    assert (error["kind"], error["recoverable"]) == (kind, retryable)


async def test_a_connection_that_breaks_in_an_answer_is_worth_another_try(open_agent: Open, serve_raw: Serve) -> None:
    url = await serve_raw(sending(HEAD + b'Content-Length: 100\r\n\r\n{"jsonrpc"'))
    _, client = open_agent(url=url)
    error = metadata_of(await run(client, "a"))["error"]
    assert (error["kind"], error["recoverable"]) == ("connect", True)


async def test_nobody_there_is_worth_another_try(open_agent: Open) -> None:
    _, client = open_agent(url="http://127.0.0.1:9/ecp")
    error = metadata_of(await run(client, "a"))["error"]
    assert error["message"] == "before step 1 of 1: agent/initialize: connection refused by 127.0.0.1:9"
    assert (error["kind"], error["recoverable"]) == ("connect", True)


async def test_secrets_of_headers_are_taken_out_and_no_part_of_the_fingerprint(
    open_agent: Open, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "tok-0123456789")
    agent = Agent(lambda request: {"status": "done", "public_output": "I was told tok-0123456789"})
    url = await serve(agent.handle)
    target, client = open_agent(url=url, headers={"Authorization": "Bearer tok-0123456789"})
    assert said(await run(client, "a")) == ["I was told ***"]
    assert agent.headers[0]["Authorization"] == "Bearer tok-0123456789"
    other, _ = open_agent(url=url, headers={"Authorization": "Bearer tok-9876543210"})
    assert target.fingerprint == other.fingerprint


async def test_an_agent_that_knows_no_reset_is_evaluated_all_the_same(
    open_agent: Open, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent()

    async def handler(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        return rpc_error(message["id"], -32601) if "reset" in message["method"] else await agent.handle(request)

    _, client = open_agent(url=await serve(handler))
    assert [said(await run(client, "a")) for _ in range(2)] == [["a"], ["a"]]
    assert [record.message for record in caplog.records if record.name == "fepflow.calls"] == [
        "the agent does not support agent/reset: it may remember earlier scenarios"
    ]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_with_neither_result_nor_error_is_malformed(
    open_agent: Open, serve: Serve, *, is_streamed: bool
) -> None:
    class Mute(Streaming):
        async def respond(self, request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
            if self.seen[-1]["method"] == "agent/step":
                del answer["result"]
            return await (super().respond(request, answer) if is_streamed else Agent.respond(self, request, answer))

    _, client = open_agent(url=await serve(Mute("data: ANSWER\n\n").handle))
    error = metadata_of(await run(client, "a"))["error"]
    assert (error["message"], error["kind"]) == (
        "step 1 of 1: the answer has neither a result nor an error",
        "malformed",
    )


async def test_a_usage_that_is_none_makes_the_result_invalid(open_agent: Open, serve: Serve) -> None:
    agent = Agent(lambda _: {"status": "done", "usage": {"total_tokens": -1}})
    _, client = open_agent(url=await serve(agent.handle))
    metadata = metadata_of(await run(client, "a"))
    assert metadata["error"]["message"] == (
        "step 1 of 1: the result's usage.total_tokens is -1, and not a whole number from 0 on"
    )
    assert "tokens" not in metadata
