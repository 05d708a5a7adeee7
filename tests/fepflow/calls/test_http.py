"""What an HTTP target asks, and how it reads a good answer."""

from __future__ import annotations

import asyncio
import base64
import gc
import gzip
import json
import zlib
from typing import Any

import httpx
import pytest
from aiohttp import web
from pydantic import ValidationError

from fepflow.calls.base import output_hash
from fepflow.calls.http import HttpTarget
from fepflow.errors import InputError
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import redact_json

from .conftest import CASE, Serve, ask_once, configured, echo, error_of


async def test_the_default_request_posts_the_input_as_json(serve: Serve) -> None:
    output = await ask_once(configured(await serve(echo)))
    assert output.value["method"] == "POST"
    assert json.loads(output.value["body"]) == {"input": "What is 6 * 7?"}
    assert output.value["headers"]["Content-Type"] == "application/json"


async def test_body_paths_reach_every_part_of_the_case(serve: Serve) -> None:
    case = TestCase(id="c9", input={"q": ["a", "b"]}, metadata={"lang": "de"})
    body = {
        "id": "$.test_case.id",
        "question": "$.test_case.input.q[1]",
        "lang": "$.test_case.metadata.lang",
        "expected": "$.test_case.expected",
        "price": "\\$.5",
    }
    output = await ask_once(configured(await serve(echo), body=body, output="$.body"), case)
    assert json.loads(output.value) == {"id": "c9", "question": "b", "lang": "de", "expected": None, "price": "$.5"}


async def test_a_request_that_cannot_be_rendered_is_an_output_with_its_error(serve: Serve) -> None:
    error = await error_of(configured(await serve(echo), body={"q": "$.test_case.metadata.nothing"}))
    assert error["type"] == "jsonpath_error"
    assert error["kind"] == "request"
    assert error["recoverable"] is False


async def test_a_case_that_is_not_json_is_never_sent(serve: Serve) -> None:
    error = await error_of(configured(await serve(echo)), TestCase(id="c", input=float("nan")))
    assert error["kind"] == "request"
    assert "NaN" in error["message"]


async def test_get_sends_the_query_of_the_address_and_no_body(serve: Serve) -> None:
    output = await ask_once(configured(await serve(echo) + "?q=a%20b", method="GET"))
    assert output.value["body"] == ""
    assert output.value["query"] == {"q": "a b"}
    assert "Content-Type" not in output.value["headers"]


async def test_configured_headers_win_over_the_defaults(serve: Serve) -> None:
    headers = {"accept": "application/x-ndjson", "X-Tenant": "Zoë"}
    output = await ask_once(configured(await serve(echo), headers=headers))
    assert output.value["headers"]["Accept"] == "application/x-ndjson"
    assert output.value["headers"]["X-Tenant"] == "Zoë"


async def test_credentials_of_the_address_become_basic_authorization_and_stay_hidden(serve: Serve) -> None:
    url = (await serve(echo)).replace("http://", "http://ann:pass%20word@")
    output = await ask_once(configured(url, output="$.headers"))
    assert output.value["Authorization"] == "Basic ***"
    assert output.value["Host"].startswith("127.0.0.1")


async def test_a_header_of_the_suite_wins_over_credentials_of_the_address(serve: Serve) -> None:
    url = (await serve(echo)).replace("http://", "http://ann:password@")
    output = await ask_once(configured(url, headers={"authorization": "Bearer abc"}, output="$.headers.Authorization"))
    assert output.value == "Bearer abc"


async def test_output_and_metadata_are_picked_out_of_the_answer(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"answer": {"text": "42"}, "usage": {"tokens": 7}})

    metadata = {"tokens": "$.usage.tokens", "model": "$.model"}
    output = await ask_once(configured(await serve(handler), output="$.answer.text", metadata=metadata))
    assert output.value == "42"
    assert output.metadata is not None
    assert output.metadata["tokens"] == 7
    assert "model" not in output.metadata, "a path that finds nothing is left out"
    assert output.metadata["attempts"] == 1
    assert output.metadata["latency_ms"] > 0
    assert "attempt_log" not in output.metadata


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ({"role": "assistant", "content": "No."}, []),
        ({"role": "assistant", "tool_calls": None}, []),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, [{"id": "1"}]),
        ({"content": "No."}, "left out"),
    ],
)
async def test_an_assistants_message_without_tool_calls_has_none(serve: Serve, message: Any, calls: Any) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": message}]})

    metadata = {"tool_calls": "$.choices[0].message.tool_calls"}
    output = await ask_once(configured(await serve(handler), output="$.choices[0]", metadata=metadata))
    assert output.metadata is not None
    assert output.metadata.get("tool_calls", "left out") == calls


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"forty-two", "text/plain", "forty-two"),
        (b"", "text/plain", ""),
        ("Zoë".encode("latin-1"), "text/plain; charset=iso-8859-1", "Zoë"),
        ("﻿Zoë".encode(), "text/plain", "Zoë"),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b'{"a": 1}', "application/problem+json", {"a": 1}),
        ('{"a": "ë"}'.encode("utf-16"), "application/json", {"a": "ë"}),
        (b'"\\ud800\\u0000"', "application/json", "\ud800\x00"),
        (b"null", "application/json", None),
    ],
)
async def test_an_answer_is_json_where_its_type_says_so_and_text_otherwise(
    serve: Serve, body: bytes, content_type: str, expected: Any
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": content_type})

    output = await ask_once(configured(await serve(handler)))
    assert output.value == expected
    assert "error" not in (output.metadata or {})


async def test_json_is_read_whatever_its_type_when_a_path_needs_it(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text='{"answer": "42"}')

    assert (await ask_once(configured(await serve(handler), output="$.answer"))).value == "42"


def _members(text: bytes) -> bytes:
    return gzip.compress(text[:3], mtime=0) + gzip.compress(text[3:], mtime=0)


def _without_header(text: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(text) + deflate.flush()


def _and_rubbish(text: bytes) -> bytes:
    return zlib.compress(text) + b"x" * 900_000


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", _members),
        ("deflate", zlib.compress),
        ("deflate", _without_header),
        ("deflate", _and_rubbish),
    ],
)
async def test_compressed_answers_are_read(serve: Serve, encoding: str, compress: Any) -> None:
    text = "the answer is 42. " * 5000

    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip, deflate"
        return web.Response(body=compress(text.encode()), headers={"Content-Encoding": encoding})

    assert (await ask_once(configured(await serve(handler)))).value == text


async def test_connections_are_kept_and_never_more_than_the_concurrency(serve: Serve) -> None:
    peers: set[Any] = set()

    async def handler(request: web.Request) -> web.Response:
        peers.add(request.transport.get_extra_info("peername"))
        await asyncio.sleep(0.01)
        return web.Response(text="ok")

    target = HttpTarget(configured(await serve(handler), target={"concurrency": 3}))
    answers = await asyncio.gather(*(target.call(target.render(CASE)) for _ in range(20)))
    await target.aclose()
    assert [answer.value for answer in answers] == ["ok"] * 20
    assert len(peers) == 3


async def test_cookies_of_one_answer_do_not_reach_the_next_call(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        response = web.json_response(dict(request.cookies))
        response.set_cookie("session", "of-somebody-else")
        return response

    target = HttpTarget(configured(await serve(handler)))
    await target.call(target.render(CASE))
    assert (await target.call(target.render(CASE))).value == {}
    await target.aclose()


@pytest.mark.may_stall("it looks through everything that Python has in memory")
@pytest.mark.battery
async def test_a_call_leaves_nothing_to_the_garbage_collector(serve: Serve) -> None:
    def there() -> set[int]:
        return {id(each) for each in gc.get_objects() if type(each) in (httpx.Request, httpx.Response)}

    target = HttpTarget(configured(await serve(echo)))
    await target.call(target.render(CASE))
    gc.collect()
    gc.disable()
    try:
        before = there()
        await target.call(target.render(CASE))
        left = there() - before
    finally:
        gc.enable()
        await target.aclose()
    assert left == set()


@pytest.mark.parametrize("url", ["http://host:99999/x", "http://[::1/x", "https://:80/"])
def test_an_address_that_cannot_be_called_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValidationError, match=r"http\.url"):
        configured(url)


def test_a_header_with_a_line_break_is_refused_without_showing_it() -> None:
    with pytest.raises(InputError, match="line break") as raised:
        HttpTarget(configured("http://host/", headers={"Authorization": "Bearer s3cret\n"}))
    assert "s3cret" not in str(raised.value)


def test_metadata_cannot_use_reserved_names() -> None:
    with pytest.raises(InputError, match="error"):
        HttpTarget(configured("http://host/", metadata={"error": "$.error"}))


def test_an_invalid_path_is_refused_at_once() -> None:
    with pytest.raises(ValidationError, match="not a valid JSONPath"):
        configured("http://host/", output="$[")


class TestAddresses:
    def target(self, url: str = "http://host/ask", secrets: frozenset[str] = frozenset(), **http: Any) -> HttpTarget:
        return HttpTarget(configured(url, **http), secrets)

    def test_the_same_request_has_the_same_hash(self) -> None:
        assert output_hash(self.target(), CASE, 1) == output_hash(self.target(), CASE, 1)

    def test_editing_expected_does_not_change_the_hash(self) -> None:
        other = CASE.model_copy(update={"expected": "forty-two"})
        assert output_hash(self.target(), CASE, 1) == output_hash(self.target(), other, 1)

    def test_repeats_inputs_and_endpoints_differ(self) -> None:
        other = CASE.model_copy(update={"input": "else"})
        hashes = {
            output_hash(self.target(), CASE, 1),
            output_hash(self.target(), CASE, 2),
            output_hash(self.target(), other, 1),
            output_hash(self.target("http://host/v2"), CASE, 1),
            output_hash(self.target("http://host/ask?model=a"), CASE, 1),
            output_hash(self.target(method="PUT"), CASE, 1),
            output_hash(self.target(headers={"X-Model": "a"}), CASE, 1),
            output_hash(self.target(output="$.a"), CASE, 1),
        }
        assert len(hashes) == 8

    def test_secrets_and_time_outs_are_not_part_of_it(self) -> None:
        plain = output_hash(self.target("http://host/ask?api_key=one"), CASE, 1)
        rotated = self.target("http://ann:pw@host/ask?api_key=two")
        assert output_hash(rotated, CASE, 1) == plain
        slow = HttpTarget(configured("http://host/ask?api_key=x", target={"timeout": 99.0, "concurrency": 2}))
        assert output_hash(slow, CASE, 1) == plain

    def test_a_rotated_secret_in_header_query_or_body_changes_nothing(self) -> None:
        def hash_of(secret: str) -> str:
            target = self.target(
                f"http://host/ask?v={secret}",
                frozenset({secret}),
                headers={"Authorization": f"Bearer {secret}", "X-Team": secret},
                body={"key": secret, "q": "$.test_case.input"},
            )
            assert secret not in json.dumps(redact_json(target.render(CASE), target.secrets))
            return output_hash(target, CASE, 1)

        assert hash_of("s3cret-one") == hash_of("s3cret-two")


async def test_an_answer_that_echoes_the_credentials_shows_none_of_them(serve: Serve) -> None:
    secret = 'p4ss"wörd/+=?'
    forms = [secret, json.dumps(secret), base64.b64encode(secret.encode()).decode()]

    async def handler(request: web.Request) -> web.Response:
        answer = {"seen": request.headers["X-Key"], "inner": forms, secret: 1, "tokens": secret}
        return web.json_response(answer)

    config = configured(await serve(handler), headers={"X-Key": secret}, metadata={"said": "$.tokens"})
    output = await ask_once(config, secrets=frozenset({secret}))
    assert output.value == {"seen": "***", "inner": ["***", '"***"', "***"], "***": 1, "tokens": "***"}
    assert output.metadata is not None
    assert output.metadata["said"] == "***"
