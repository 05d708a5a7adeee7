"""Agents that break the protocol, the network or the trust: each is a truthful error of its case."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.conversations import ConversationTarget
from fepflow.errors import TargetError
from fepflow.protocol.test_case import TestCase

CASE = TestCase(id="c", input="Where is it?")
SEEN: list[Any] = []


def card(url: str, *, streaming: bool = False, binding: str = "JSONRPC", **more: Any) -> dict[str, Any]:
    interface = {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}
    described = {"name": "A", "description": "A", "version": "1", "skills": []}
    return {**described, "capabilities": {"streaming": streaming}, "supportedInterfaces": [interface], **more}


def task(state: str = "TASK_STATE_COMPLETED", **more: Any) -> dict[str, Any]:
    return {"id": "t1", "contextId": "c1", "status": {"state": state}, **more}


def rpc(result: Any, **more: Any) -> Callable[[Any], str]:
    return lambda asked: json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result, **more})


def raw(text: str) -> Callable[[Any], str]:
    return lambda asked: text


PARTS = [{"text": "Here."}]
DONE = task(artifacts=[{"artifactId": "a", "parts": PARTS}])
DEEP = "[" * 200 + "]" * 200


@pytest.fixture
async def ask(serve, open_target):
    """Asks an agent whose endpoint answers like this, and gives the error of the case."""

    async def asked(reply: Any, target: dict[str, Any] | None = None, seconds: float = 5, **described: Any) -> Any:
        SEEN.clear()

        async def handler(request: web.Request) -> web.StreamResponse:
            if request.method == "GET":
                return web.json_response(card(f"http://{request.host}/rpc", **described))
            SEEN.append(json.loads(await request.read()))
            answer = reply(SEEN[-1])
            if isinstance(answer, str):
                return web.Response(text=answer, content_type="application/json")
            return await answer(request) if callable(answer) else answer

        opened = open_target(await serve(handler), **(target or {}))
        record = await TargetClient(opened, RetryPolicy(attempts=1, timeout=seconds)).ask(CASE)
        return record.error

    return asked


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (raw("<html>Welcome"), "malformed", "is not valid JSON"),
        (raw(""), "malformed", "it is empty"),
        (raw("[]"), "malformed", "the answer is not a JSON object"),
        (raw('{"result": 1}'), "malformed", "the answer is not JSON-RPC 2.0"),
        (rpc(None), "malformed", "cannot be read"),
        (rpc("yes"), "malformed", "cannot be read"),
        (rpc({}), "malformed", "neither task nor message"),
        (rpc({"task": {"status": {"state": "TASK_STATE_COMPLETED"}}}), "malformed", "a task without an id"),
        (rpc({"task": task("TASK_STATE_DREAMING")}), "malformed", ""),
        (rpc({"task": task(history=DEEP)}), "malformed", "cannot be read"),
        (rpc({"task": DONE}, error={"code": 1, "message": "x"}), "malformed", "both a result and an error"),
        (rpc(None, error={"code": -32603, "message": "My disk is full."}), "agent_error", "My disk is full."),
        (rpc(None, error="no"), "malformed", "an error without code and message"),
        (raw('{"jsonrpc": "2.0", "id": "7", "result": {}}'), "malformed", 'the id "7", which is that of another'),
        (raw('{"jsonrpc": "2.0", "result": {}}'), "malformed", "the id null, which is that of another"),
        (raw('{"jsonrpc": "2.0", "id": 1, "id": 1}'), "malformed", "appears twice"),
        (raw(f'{{"jsonrpc": "2.0", "id": 1, "result": {DEEP}}}'), "malformed", "nested deeper than 100 levels"),
        (raw(f"[{'0,' * 300_000}0]"), "too_large", "more than 200,000 JSON values"),
        (rpc({"task": {**DONE, "x": "y" * 20_000}}), "too_large", "larger than 10,000 bytes (target.a2a.max_bytes)"),
        (rpc({"message": {"messageId": "m", "role": "ROLE_AGENT"}}), "missing_output", "message is empty"),
        (lambda _: web.Response(status=503, headers={"Retry-After": "3"}), "http_status", "HTTP 503"),
        (lambda _: web.Response(status=204), "malformed", "it is empty"),
        (lambda _: web.Response(status=307, headers={"Location": "http://evil.example/"}), "redirect", "evil.example"),
        (lambda _: web.Response(status=307, headers={"Location": "/rpc"}), "redirect", "more than 5 redirects"),
    ],
)
async def test_an_answer_that_breaks_the_protocol_is_an_error_of_its_case(ask, reply, kind, words) -> None:
    error = await ask(reply, {"max_bytes": 10_000} if "bytes" in words else None)
    assert (error.kind, words in str(error)) == (kind, True), error
    assert error.retryable == (error.status == 503)
    assert error.retry_after == (3 if error.status == 503 else None)


def events(*answers: Any, end: str = "\n\n", wait: float = 0) -> Callable[[Any], Any]:
    """A stream of these results, or texts as they are, that waits before it ends, and may end badly."""

    def reply(asked: Any) -> Any:
        async def stream(request: web.Request) -> web.StreamResponse:
            if asked["method"] != "SendStreamingMessage":
                return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": task("TASK_STATE_WORKING")})
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for answer in answers:
                text = answer if isinstance(answer, str) else rpc(answer)(asked)
                await response.write(f"data: {text}{end}".encode())
            await asyncio.sleep(wait)
            if end != "\n\n":
                request.transport.abort()
            return response

        return stream

    return reply


WORKING = {"task": task("TASK_STATE_WORKING")}
OTHER = {"statusUpdate": {"taskId": "t2", "contextId": "c1", "status": {"state": "TASK_STATE_COMPLETED"}}}
MORE = {"artifactUpdate": {"taskId": "t1", "append": True, "artifact": {"artifactId": "b", "parts": PARTS}}}


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (events(), "connect", "the stream of events ended without an answer"),
        (events("{"), "malformed", "is not valid JSON"),
        (events({}), "malformed", "neither a message, nor a task"),
        (events('{"jsonrpc": "2.0", "id": 7, "result": {}}'), "malformed", "that of another request"),
        (events(WORKING, OTHER), "malformed", "about another task"),
        (events(WORKING, MORE), "malformed", "an artifact that was never started"),
        (events(WORKING, end="\n"), "connect", "broke in the middle of the answer"),
        (events(WORKING, WORKING, wait=9), "timeout", "the agent's task is working: no complete answer"),
        (events(WORKING), "timeout", "the agent's task is working: no complete answer"),
        (events(*[WORKING] * 200), "too_large", "larger than 10,000 bytes (target.a2a.max_bytes)"),
    ],
)
async def test_a_stream_that_is_not_one_answer_is_an_error_and_its_task_is_cancelled(
    ask, open_target, reply, kind, words
) -> None:
    target = {"max_bytes": 10_000} if "bytes" in words else None
    error = await ask(reply, target, seconds=0.5 if kind == "timeout" else 5, streaming=True)
    assert (error.kind, words in str(error)) == (kind, True), error
    if "WORKING" in str(reply):
        assert SEEN[-1]["method"] == "CancelTask"


async def test_text_of_an_event_may_hold_line_ends_of_unicode(serve, open_target) -> None:
    text = "one\u2028two\x85three"

    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(card(f"http://{request.host}/rpc", streaming=True))
        asked = await request.json()
        message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"message": message}}
        body = f"data: {json.dumps(answer, ensure_ascii=False)}\r\n\r\n"
        return web.Response(body=body.encode(), headers={"Content-Type": "text/event-stream; charset=utf-8"})

    target = open_target(await serve(handler))
    assert (await target.call(target.render(CASE))).value == text


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (lambda _: web.json_response([]), "malformed", "the answer is not a JSON object"),
        (lambda _: web.Response(text="<html>"), "malformed", "is not valid JSON"),
        (lambda _: web.json_response({"skills": 7}), "malformed", "the agent's card is not valid"),
        (lambda _: web.json_response({"name": ["A"]}), "malformed", "the agent's card is not valid"),
        (lambda _: web.json_response({"name": "A"}), "incompatible", "names no supported interface"),
        (
            lambda _: web.json_response(card("/rpc", binding="CORBA")),
            "incompatible",
            "names no supported interface",
        ),
        (lambda _: web.Response(text=" " * 1_100_000), "too_large", "larger than 1,000,000 bytes"),
        (lambda _: web.Response(text=f'{{"x": {DEEP}}}'), "malformed", "nested deeper"),
        (lambda _: web.Response(status=404), "http_status", "check target.a2a.card"),
        (lambda _: web.Response(status=302, headers={"Location": "http://evil.example/"}), "redirect", "evil.example"),
        # Interfaces of other hosts, and of this machine's own services, are not what the suite names.
        (lambda _: web.json_response(card("http://evil.example/rpc")), "connect", "a host that the suite"),
        (lambda _: web.json_response(card("https://10.0.0.1/rpc")), "connect", "10.0.0.1 is not a public address"),
        (lambda _: web.json_response(card("https://169.254.169.254/")), "connect", "is not a public address"),
        (lambda _: web.json_response(card("http://localhost:4200/api")), "connect", "fepflow's or Prefect's own"),
        (lambda _: web.json_response(card("https://u:p@evil.example/rpc")), "connect", "it holds a user"),
        (lambda _: web.json_response(card("file:///etc/passwd")), "connect", "not called"),
        (
            lambda _: web.json_response(card("evil.example:443", binding="GRPC")),
            "connect",
            "a host that the suite",
        ),
        (lambda _: web.json_response(card("not a host", binding="GRPC")), "connect", "not called"),
        (lambda _: web.json_response(card("/rpc")), "connect", "the address has no host"),
        (lambda _: web.json_response(card("http://[::1")), "malformed", "names an address that cannot be read"),
        (lambda _: web.json_response(card("ipv4:127.0.0.1:1", binding="GRPC")), "malformed", "that cannot be read"),
        (lambda _: web.json_response(card("unix:/tmp/x", binding="GRPC")), "connect", "a host that the suite"),
    ],
)
async def test_a_card_that_cannot_be_trusted_is_an_error_of_every_case(serve, open_target, reply, kind, words) -> None:
    requests = []

    async def handler(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        return reply(request)

    target = open_target(await serve(handler), headers={"X-Api-Key": "sesame-key"})
    client = TargetClient(target, RetryPolicy(attempts=1, timeout=5))
    for _ in range(2):
        error = (await client.ask(CASE)).error
        assert isinstance(error, TargetError)
        assert (error.kind, words in str(error), error.retryable) == (kind, True, False), error
    assert len(requests) == 1


async def test_each_conversation_tells_once_where_an_unreadable_card_ended_it(serve, open_target) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response([])

    target = ConversationTarget(open_target(await serve(handler)), "a2a", 10)
    client = TargetClient(target, RetryPolicy(attempts=1, timeout=5))
    conversation = TestCase.model_validate({"id": "c", "turns": ["I want a refund."]})
    first, second = [str((await client.ask(conversation)).error) for _ in range(2)]
    assert first.startswith("turn 1 of 1: the agent's card")
    assert second == first


async def test_only_the_cards_own_address_and_listed_hosts_get_the_headers(serve, open_target) -> None:
    got = []

    async def endpoint(request: web.Request) -> web.StreamResponse:
        got.append(request.headers.get("X-Api-Key"))
        if got[-1] is None:
            return web.Response(status=401)
        return web.Response(text=rpc({"task": DONE})(await request.json()), content_type="application/json")

    url = await serve(endpoint)

    async def described(request: web.Request) -> web.StreamResponse:
        return web.json_response(card(url))

    address = await serve(described)
    place = url.removeprefix("http://").removesuffix("/ask")
    target = open_target(address, headers={"X-Api-Key": "sesame-key"})
    error = (await TargetClient(target, RetryPolicy(attempts=1, timeout=5)).ask(CASE)).error
    assert str(error).endswith(
        f"{place} does not get target.a2a.headers, for it is not the card's own: list it in target.a2a.hosts"
    )
    target = open_target(address, headers={"X-Api-Key": "sesame-key"}, hosts=[place])
    assert (await target.call(target.render(CASE))).value == "Here."
    assert got == [None, "sesame-key"]


async def test_what_an_agent_says_of_a_secret_is_taken_out(serve, open_target) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(card(f"http://{request.host}/rpc", name="sesame-key"))
        status = {"state": "TASK_STATE_FAILED", "message": {"messageId": "m", "parts": [{"text": "Key: sesame-key"}]}}
        answer = rpc({"task": {**task(), "status": status}})(await request.json())
        return web.Response(text=answer, content_type="application/json")

    target = open_target(await serve(handler), headers={"X-Api-Key": "sesame-key"})
    record = await TargetClient(target, RetryPolicy(attempts=1, timeout=5)).ask(CASE)
    assert str(record.error) == "the agent's task failed: Key: ***"
    assert "sesame" not in record.output().model_dump_json()


async def test_a_card_of_protocol_0_3_is_read_as_its_agents_write_it(serve, open_target) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            old = {"name": "A", "description": "A", "version": "1", "skills": [], "capabilities": {"streaming": False}}
            return web.json_response({**old, "url": f"http://{request.host}/", "protocolVersion": "0.3.0"})
        asked = await request.json()
        assert asked["method"] == "message/send"
        parts = [{"kind": "text", "text": "Old."}]
        if asked["params"]["message"]["parts"][0]["text"] == "odd":
            parts.append({"kind": "video"})
        message = {"kind": "message", "messageId": "m", "role": "agent", "parts": parts}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": message})

    target = open_target(await serve(handler))
    assert (await target.call(target.render(CASE))).value == "Old."
    with pytest.raises(TargetError, match=r"^the answer does not fit the protocol: parts\.1\.\S+: [^\n]{9,60}$"):
        await target.call(target.render(CASE.model_copy(update={"input": "odd"})))
