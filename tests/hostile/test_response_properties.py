"""Whatever an agent or a model answers is a value, or the error that is meant for it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st

from fepflow.calls.base import TargetResponse
from fepflow.calls.http import HttpTarget
from fepflow.calls.models import structured
from fepflow.calls.policy import seconds_to_wait
from fepflow.calls.responses import BodyError, ResponseParser, read_beginning, read_body, status_error
from fepflow.errors import CheckArgumentsError, TargetError
from fepflow.json.values import decode, encode, parse
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target
from tests.properties import holds_for, value_or_error

from .strategies import ANY_TEXT, JSON_PIECES, LATIN_1, json_texts, mutated, pieces

WELL = '{"answer": {"text": "fine", "scores": [1, 2.5e3, null, true, "\\ud83d\\ude00"]}, "usage": {"tokens": 12}}'
ANSWERS = JSON_PIECES | ANY_TEXT | mutated(WELL, ("[", "]", "{", "}", ",", '"', "NaN", "1e400", "\\ud800", "\x00"))
REASONS = (
    "is not a JSON value",
    "is too large for a number",
    "appears twice in one object",
    "nested deeper than 100 levels",
    "too many digits",
)
"""Why JSON that Python reads is refused."""

READINGS = [
    ResponseParser(output, {"tokens": "$.usage.tokens"}, frozenset({"s3cret"})) for output in (None, "$.answer")
]


def is_storable(value: Any) -> None:
    assert repr(decode(encode(value))) == repr(value)


def is_answer_or_error(read: TargetResponse | TargetError, *kinds: str) -> None:
    """What an answer holds can be stored; an error says what was wrong."""
    if isinstance(read, TargetError):
        assert str(read)
        assert not kinds or read.kind in kinds
    else:
        is_storable([read.value, read.metadata])


@holds_for(ANSWERS, examples=200)
def test_a_text_is_the_value_that_the_standard_library_reads_or_refused_in_a_sentence(text: str) -> None:
    expected = value_or_error(lambda: json.loads(text), ValueError)
    value = value_or_error(lambda: parse(text), ValueError)
    if isinstance(value, ValueError):
        assert type(value) is ValueError
        assert len(str(value)) < 300
        assert isinstance(expected, ValueError) or any(reason in str(value) for reason in REASONS)
    else:
        assert repr(value) == repr(expected)
        is_storable(value)


@holds_for(json_texts())
def test_valid_json_is_read_and_stored_as_it_is(written: tuple[str, object]) -> None:
    text, value = written
    assert repr(parse(text)) == repr(value)
    is_storable(value)


BODIES = st.binary(max_size=60) | ANSWERS.map(lambda text: text.encode("utf-8", "surrogatepass"))
TYPES = LATIN_1 | pieces(
    *"/;=\"'*\\ ,%()",
    *("application", "json", "text", "html", "plain", "+json", "charset", "utf-8", "utf-16", "idna", "hex", "zlib"),
    *("charset*0", "utf-8''x", "rot13", "uu", "undefined", "unicode_escape", "\xe9"),
)


@holds_for(BODIES, TYPES, st.sampled_from(READINGS), examples=200)
def test_any_body_of_any_type_is_an_answer_or_an_error_of_the_case(
    body: bytes, kind: str, reading: ResponseParser
) -> None:
    read = value_or_error(lambda: reading.read(body, kind, 200), TargetError)
    is_answer_or_error(read, "malformed", "missing_output", "too_large")


@holds_for(ANSWERS)
def test_any_response_of_a_judge_is_a_value_or_an_error(text: str) -> None:
    for mode in structured.OUTPUT_MODES:
        value = value_or_error(partial(structured._read, text, {"type": "object"}, mode), CheckArgumentsError)
        if isinstance(value, CheckArgumentsError):
            assert str(value)
        else:
            is_storable(value)


ENCODINGS = LATIN_1 | pieces("gzip", "deflate", "br", "identity", ",", " ", "x-gzip", most=4)


@holds_for(st.lists(st.binary(max_size=40), max_size=4), ENCODINGS, st.integers(0, 50))
def test_any_encoding_of_a_body_is_decoded_or_an_error_of_the_case(
    sent: list[bytes], encoding: str, limit: int
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for chunk in sent:
            yield chunk

    body = value_or_error(lambda: asyncio.run(read_body(chunks(), encoding, limit)), BodyError)
    assert body.kind in ("malformed", "too_large") if isinstance(body, BodyError) else len(body) <= limit
    assert len(asyncio.run(read_beginning(chunks(), encoding, limit))) <= limit


WAITS = LATIN_1 | pieces(
    *("Fri, ", "31 Dec ", "9999 ", "99999999999 ", "23:59:59", " GMT", " +2359", " -9999", "1", "-", ".", "e", ":"),
    most=8,
)


@holds_for(WAITS, examples=300)
def test_any_retry_after_is_a_number_of_seconds_or_none(text: str) -> None:
    seconds = seconds_to_wait(text)
    assert seconds is None or (math.isfinite(seconds) and seconds >= 0)


@holds_for(st.integers(300, 999), LATIN_1, ANY_TEXT, st.none() | WAITS)
def test_any_refusal_is_an_error_of_the_case(status: int, reason: str, body: str, wait: str | None) -> None:
    headers = {} if wait is None else {b"Retry-After": wait.encode("utf-8", "replace")}
    response = httpx.Response(status, headers=headers, extensions={"reason_phrase": reason.encode("latin-1")})
    error = status_error(response, body, frozenset({"s3cret"}))
    assert str(error).startswith(f"HTTP {status}")
    assert all(char.isprintable() for char in str(error))


HEADERS = ("Content-Type", "Content-Encoding", "Content-Length", "Retry-After", "Transfer-Encoding", "Location")
LINES = st.lists(
    st.tuples(st.sampled_from(HEADERS), LATIN_1 | st.sampled_from(["chunked", "gzip", "20", "0", "-1", "9" * 30])),
    max_size=4,
)


@holds_for(st.sampled_from([200, 204, 206, 302, 400, 429, 503]), LINES, BODIES)
def test_any_headers_on_the_wire_end_in_an_answer_or_an_error_of_the_case(
    status: int, lines: list[tuple[str, str]], body: bytes
) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    reply = f"HTTP/1.1 {status} Oh\r\n{head}\r\n".encode("latin-1") + body
    is_answer_or_error(value_or_error(lambda: asyncio.run(_answer_of(reply)), TargetError))


async def _answer_of(reply: bytes) -> TargetResponse:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/ask"
        target = HttpTarget(Target.model_validate({"http": {"url": url, "method": "GET"}}))
        try:
            async with asyncio.timeout(10):
                return await target.call(target.render(TestCase(id="a", input="?")))
        finally:
            await target.aclose()


@pytest.mark.parametrize("text", ["\ufeff{}", '{"a":1}\ufeff', "\x00{}"])
def test_text_around_json_is_not_json(text: str) -> None:
    with pytest.raises(ValueError, match="at column"):
        parse(text)
