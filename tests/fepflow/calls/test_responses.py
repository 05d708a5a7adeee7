"""An answer that is none: wrong status, wrong content, nothing where the output should be."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.policy import seconds_to_wait
from tests.fepflow.calls.conftest import Serve, ask_once, configured, error_of, sending


@pytest.mark.parametrize(
    ("status", "recoverable"),
    [
        *[(400, False), (401, False), (404, False), (422, False), (304, False)],
        *[(408, True), (425, True), (429, True), (500, True), (503, True), (599, True)],
    ],
)
async def test_a_status_that_is_no_success(serve: Serve, status: int, recoverable: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, reason="Because", text="" if status == 304 else "no\n\tluck today")

    error = await error_of(configured(await serve(handler)))
    assert (error["kind"], error["status"], error["recoverable"]) == ("http_status", status, recoverable)
    assert error["message"].startswith(f"HTTP {status} Because")
    assert status == 304 or "no luck today" in error["message"]


@pytest.mark.parametrize("output", [None, "$", "$.answer"])
@pytest.mark.parametrize("status", [204, 205])
async def test_a_status_without_content_is_no_output(serve: Serve, status: int, output: str | None) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status)

    error = await error_of(configured(await serve(handler), output=output))
    assert (error["kind"], error["status"], error["recoverable"]) == ("missing_output", status, False)
    assert error["message"] == f"HTTP {status}: an answer without content, so there is no output"


async def test_a_change_of_the_protocol_is_no_empty_answer(serve_raw: Serve) -> None:
    async def upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        await reader.read()

    error = await error_of(configured(await serve_raw(upgrade)))
    assert (error["message"], error["recoverable"]) == ("HTTP 101 Switching Protocols", False)


async def test_an_error_page_is_shown_short_on_one_line_and_without_secrets(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        text = "x" * 190 + "s3cret-token" + "\x1b[31m" + "y" * 1_000_000
        return web.Response(status=500, text=text)

    error = await error_of(configured(await serve(handler)), secrets=frozenset({"s3cret-token"}))
    assert "s3c" not in error["message"]
    assert "***" in error["message"]
    assert "\x1b" not in error["message"]
    assert len(error["message"]) < 300


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"NaN", "NaN is not a JSON value"),
        (b'{"a": 1e400}', "1e400 is too large for a number"),
        (b"[" * 101 + b"]" * 101, "nested deeper than 100 levels"),
        (b"[" * 100_000, "nested deeper than 100 levels"),
        (b"1" * 5000, "too many digits"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b'{"answer": "fort', "Unterminated string"),
        (b'"\xed\xa0\x80"', "is not utf-8"),
        (b"<!doctype html><title>Sign in</title>", "the answer is HTML, but JSON is needed"),
        (b" ", "it is empty"),
        (b"", "it is empty"),
    ],
)
async def test_invalid_json_is_malformed_and_shown(serve: Serve, body: bytes, message: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    error = await error_of(configured(await serve(handler)))
    assert (error["kind"], error["recoverable"]) == ("malformed", True)
    assert message in error["message"]
    assert len(error["message"]) < 500


async def test_a_stream_of_events_instead_of_json_is_named_in_the_error(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text='data: {"answer": "for"}\n\n', content_type="text/event-stream")

    error = await error_of(configured(await serve(handler), output="$.answer"))
    assert "the answer is a stream of events, but JSON is needed: ask the agent for" in error["message"]


async def test_a_hundred_levels_are_not_too_deep(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b"[" * 100 + b"]" * 100, content_type="application/json")

    assert isinstance((await ask_once(configured(await serve(handler)))).value, list)


@pytest.mark.parametrize("charset", ["klingon", "rot13", "zip", "idna", "utf-8\x00"])
async def test_an_unknown_charset_is_malformed(serve_raw: Serve, charset: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={charset}\r\nContent-Length: 2\r\n\r\nhi"
    error = await error_of(configured(await serve_raw(sending(head.encode()))))
    assert error["kind"] == "malformed"


async def test_html_instead_of_json_is_named_in_the_error(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html><body>Please log in</body></html>", content_type="text/html")

    error = await error_of(configured(await serve(handler), output="$.answer"))
    assert "login page" in error["message"]
    assert "Please log in" in error["message"]


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ({"response": 1, "usage": 2}, "an object with the keys response, usage"),
        ({}, "an empty object"),
        ([1, 2], "a list of 2"),
        ("x", "a text"),
        (None, "null"),
        (7, "a number"),
    ],
)
async def test_an_answer_without_the_output_says_what_it_has(serve: Serve, answer: Any, what: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(answer)

    error = await error_of(configured(await serve(handler), output="$.answer"))
    assert (error["kind"], error["recoverable"]) == ("missing_output", False)
    assert error["message"] == f"the answer has nothing at $.answer (target.http.output); it is {what}"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("0", 0), (" 12 ", 12), ("-1", None), ("1.5", None), ("soon", None), ("٣", None), ("9" * 400, 999_999_999)],
)
def test_retry_after_in_seconds(header: str, seconds: float | None) -> None:
    assert seconds_to_wait(header) == seconds


def test_retry_after_as_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert seconds_to_wait(later) == pytest.approx(30, abs=2)
    assert seconds_to_wait("Wed, 21 Oct 2015 07:28:00 GMT") == 0
