"""Text around paths in HTTP requests: what a test case says fills its place, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from fepflow.calls.base import output_hash
from fepflow.calls.http import HttpTarget
from fepflow.calls.python.target import PythonTarget
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target

from .conftest import Serve, ask_once, configured

NASTY = 'a"b\\c\n{{$.test_case.id}} & ü=1/../#?'


def case(value: Any = NASTY, **more: Any) -> TestCase:
    return TestCase(id="c1", input=value, **more)


async def raw_echo(request: web.Request) -> web.Response:
    query = dict(request.query)
    headers = {name: value for name, value in request.headers.items() if name.startswith("X-")}
    body = await request.json() if request.can_read_body else None
    path = request.raw_path.partition("?")[0]
    return web.json_response({"path": path, "query": query, "headers": headers, "body": body})


async def test_a_text_in_a_body_is_filled_in_once_and_needs_no_escape(serve: Serve) -> None:
    body = {"q": "Say {{$.test_case.input}}!", "meta": ["{{ $.test_case.metadata }}"], "id": "$.test_case.id"}
    output = await ask_once(configured(await serve(raw_echo), body=body), case(metadata={"n": 1}))
    assert output.value["body"] == {"q": f"Say {NASTY}!", "meta": ['{"n": 1}'], "id": "c1"}


async def test_a_body_that_is_the_text_of_json_is_json(serve: Serve) -> None:
    body = '{"q": "Say {{$.test_case.input}}!", "whole": {{ $.test_case.metadata }}, "n": [1, {{$.test_case.id}}]}'
    output = await ask_once(configured(await serve(raw_echo), body=body), case(metadata={"n": 1}))
    assert output.value["body"] == {"q": f"Say {NASTY}!", "whole": {"n": 1}, "n": [1, "c1"]}


async def test_a_body_that_is_another_text_is_a_text(serve: Serve) -> None:
    output = await ask_once(configured(await serve(raw_echo), body="[INST] {{$.test_case.input}}"), case())
    assert output.value["body"] == f"[INST] {NASTY}"


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_path_in_an_address_is_one_segment_or_one_value_of_a_query(serve: Serve, method: str) -> None:
    base = (await serve(raw_echo)).removesuffix("/ask")
    url = f"{base}/users/{{{{$.test_case.input}}}}/orders?q={{{{$.test_case.input}}}}&n=1"
    value = NASTY.replace("\n", " ")  # the server's routes know no line break
    output = await ask_once(configured(url, method=method), case(value))
    assert output.value["query"] == {"q": value, "n": "1"}
    assert output.value["path"].split("/")[1::2] == ["users", "orders"]


@pytest.mark.parametrize("value", ["", ".", ".."])
async def test_a_case_cannot_lead_to_another_path(serve: Serve, value: str) -> None:
    base = (await serve(raw_echo)).removesuffix("/ask")
    output = await ask_once(configured(f"{base}/users/{{{{$.test_case.input}}}}/orders"), case(value))
    assert output.failure["kind"] == "request"
    assert "cannot be a segment" in output.failure["message"]


async def test_headers_take_a_line_of_ascii_from_a_case(serve: Serve) -> None:
    config = configured(await serve(raw_echo), headers={"X-Case": "case {{$.test_case.input}}", "X-Fixed": "1"})
    output = await ask_once(config, case("A100"))
    assert output.value["headers"] == {"X-Case": "case A100", "X-Fixed": "1"}
    for value in ("a\r\nX-Evil: 1", "a\nb", "ü", "a\0"):
        output = await ask_once(config, case(value))
        assert "a header holds ASCII" in output.failure["message"]


async def test_what_a_path_does_not_find_is_an_error_of_the_case(serve: Serve) -> None:
    output = await ask_once(configured(f"{await serve(raw_echo)}?q={{{{$.test_case.metadata.x}}}}"), case())
    assert (output.failure["kind"], output.failure["type"]) == ("request", "jsonpath_error")


def test_an_address_and_a_header_of_the_case_are_part_of_the_request_that_is_known_again() -> None:
    by_address = HttpTarget(configured("http://h/{{$.test_case.metadata.a}}", body={}))
    by_header = HttpTarget(configured("http://h/", body={}, headers={"X-A": "{{$.test_case.metadata.a}}"}))
    for target in (by_address, by_header):
        hashes = {output_hash(target, case(metadata={"a": text}), 0) for text in ("1", "2")}
        assert len(hashes) == 2
    assert by_address.fingerprint != HttpTarget(configured("http://h/x", body={})).fingerprint


async def test_the_argument_of_a_function_may_be_a_text_around_a_path(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("def answer(text):\n    return text\n", encoding="utf-8")
    config = Target.model_validate({"python": {"function": "agent.py:answer", "input": "Say {{$.test_case.input}}!"}})
    target = PythonTarget(config, tmp_path, ())
    try:
        assert (await target.call(target.render(case()))).value == f"Say {NASTY}!"
    finally:
        await target.aclose()


@pytest.mark.parametrize(
    ("http", "message"),
    [
        ({"url": "http://{{$.test_case.id}}/x"}, "cannot choose the host"),
        ({"url": "http://h:{{$.test_case.id}}/x"}, "cannot choose the host"),
        ({"url": "http://{{$.test_case.id}}@h/x"}, "cannot choose the host"),
        ({"url": "{{$.test_case.id}}://h/x"}, "cannot choose the host"),
        ({"url": "{{$.test_case.input}}"}, "cannot choose the host"),
        ({"url": "http://h{{$.test_case.id}}"}, "cannot choose the host"),
        ({"url": "http://h/{{$.test_case.id"}, "is not closed"),
        ({"url": "http://h/$.test_case.id"}, "stands in two braces"),
        ({"url": "http://h/{{id}}"}, "stands in two braces"),
        ({"headers": {"Authorization": "Bearer {{$.test_case.id}}"}}, "secret header"),
        ({"headers": {"X-Api-Key": "{{$.test_case.id}}"}}, "secret header"),
        ({"headers": {"Host": "{{$.test_case.id}}"}}, "about the connection"),
        ({"headers": {"X-A": "{{$.test_case.id"}}, "is not closed"),
        ({"body": '{"q": "{{$.test_case.input}}", }'}, "reads like JSON, but is not valid"),
        ({"body": {"q": "{{$.test_case.input"}}, "is not closed"),
    ],
)
def test_a_path_where_none_may_stand_is_refused(http: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        configured(**{"url": "http://h/x", **http})
