"""Agents of each version of the protocol, and what is agreed with them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from .conftest import Open, metadata_of, run, said

WRITES_DOWN = """
def initialize(request):
    with open("requests", "a") as file:
        file.write(json.dumps(request) + "\\n")
    {}
"""


def initializing(body: str) -> str:
    return WRITES_DOWN.format(body)


async def test_an_agent_of_0_2_3_knows_of_no_versions_and_is_warned_of_once(
    open_agent: Open, caplog: pytest.LogCaptureFixture
) -> None:
    code = """
def initialize(request):
    answer(request, {"name": "old", "capabilities": {}})
def step(request):
    answer(request, {"status": "done", "public_output": "Hi", "private_thought": "greet", "tool_calls": None})
"""
    _, client = open_agent(code)
    with caplog.at_level(logging.WARNING):
        outputs = [await run(client, "hello"), await run(client, "hello")]
    assert outputs[0].value == outputs[1].value
    assert outputs[0].value == {
        "steps": [
            {
                "status": "done",
                "public_output": "Hi",
                "evaluation_context": "greet",
                "private_thought": "greet",
                "tool_calls": None,
                "usage": None,
            }
        ]
    }
    assert metadata_of(outputs[0]) | {"latency_ms": 0, "last_attempt_ms": 0} == {
        "steps": 1,
        "completed": 1,
        "agent": "old",
        "protocol_version": None,
        "latency_ms": 0,
        "last_attempt_ms": 0,
        "attempts": 1,
    }
    assert [record.message for record in caplog.records] == [
        "the agent names no protocol_version: it is treated as older than ECP 1.0"
    ]


@pytest.mark.parametrize(("capabilities", "calls"), [({}, None), ({"tool_calls": {}}, [])])
async def test_an_agent_that_declares_tool_calls_made_none_where_it_gives_none(
    open_agent: Open, capabilities: dict[str, Any], calls: Any
) -> None:
    code = f"""
def initialize(request):
    answer(request, {{"name": "a", "protocol_version": "1.0", "capabilities": {capabilities!r}}})
def step(request):
    answer(request, {{"status": "done", "public_output": "Hi"}})
"""
    _, client = open_agent(code)
    output = await run(client, "hello")
    assert output.value["steps"][0]["tool_calls"] == calls


async def test_an_agent_of_0_4_has_evaluation_context_logs_and_pauses(open_agent: Open) -> None:
    code = """
def step(request):
    answer(request, {
        "status": "paused" if request["params"]["input"] == "first" else "done", "public_output": None,
        "evaluation_context": "asked back", "logs": "looked up " + request["params"]["input"],
        "tool_calls": [{"name": "find", "arguments": {"q": 1}}],
    })
"""
    _, client = open_agent(code)
    output = await run(client, "first", {"input": "second"})
    first, second = output.value["steps"]
    assert (first["status"], second["status"]) == ("paused", "done"), "the next step follows a pause"
    assert first["private_thought"] == first["evaluation_context"] == "asked back"
    assert first["tool_calls"] == [{"name": "find", "arguments": {"q": 1}}]
    assert metadata_of(output)["logs"] == ["looked up first", "looked up second"]
    assert "logs" not in first


THOUGHTS = ("evaluation_context", "private_thought")


@pytest.mark.parametrize(("own", "other"), [THOUGHTS, THOUGHTS[::-1]])
async def test_an_empty_text_is_filled_in_from_the_other_field(open_agent: Open, own: str, other: str) -> None:
    code = f"def step(request):\n    answer(request, done('', {own}='', {other}='words'))\n"
    (step,) = (await run(open_agent(code)[1], "a")).value["steps"]
    assert step[own] == step[other] == "words"


async def test_an_agent_of_1_0_agrees_on_a_version_and_says_what_it_used(open_agent: Open, tmp_path: Path) -> None:
    code = initializing(
        "answer(request, {'name': 'new', 'protocol_version': '1.7', 'capabilities': {'usage': {}, 'tool_calls': {}}})"
    )
    code += """
def step(request):
    usage = {
        "1": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cost_usd": 0.5, "model": "m"},
        "2": None,
        "3": {"input_tokens": 2, "output_tokens": 3, "cost_usd": 0.25, "cached": True},
    }[request["params"]["input"]]
    answer(request, done("", usage=usage))
"""
    _, client = open_agent(code, config={"model": "m"}, require_capabilities=["usage"])
    output = await run(client, "1", "2", "3")
    metadata = metadata_of(output)
    assert (metadata["agent"], metadata["protocol_version"]) == ("new", "1.0")
    assert metadata["usage"] == {"input_tokens": 12, "output_tokens": 8, "total_tokens": 15, "cost_usd": 0.75}
    assert (metadata["tokens"], metadata["usd"]) == (20, 0.75)
    assert output.value["steps"][0]["usage"]["model"] == "m"
    (request,) = _requests(tmp_path)
    assert request["params"] == {"protocol_version": "1.0", "config": {"model": "m"}}


def _requests(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "requests").read_text().splitlines()]


async def test_an_agent_that_refuses_protocol_version_is_asked_again_without_it(
    open_agent: Open, tmp_path: Path
) -> None:
    code = initializing(
        "refuse(request, -32602, 'unknown parameter') if 'protocol_version' in request['params']"
        " else answer(request, {'name': 'strict', 'capabilities': {}})"
    )
    _, client = open_agent(code)
    assert said(await run(client, "hi")) == ["echo: hi"]
    assert [request["params"] for request in _requests(tmp_path)] == [
        {"protocol_version": "1.0", "config": {}},
        {"config": {}},
    ]


INCOMPATIBLE = {
    "another major version": (
        "answer(request, {'name': 'n', 'protocol_version': '2.0', 'capabilities': {}})",
        {},
        "the agent speaks protocol version 2.0, fepflow 1.0",
    ),
    "a refusal": (
        "refuse(request, -32001, 'VERSION_UNSUPPORTED')",
        {},
        "the agent answered with the error -32001: VERSION_UNSUPPORTED",
    ),
    "a capability that is missing": (
        "answer(request, {'name': 'n', 'protocol_version': '1.0', 'capabilities': {'reset': {}, 'usage': {}}})",
        {"require_capabilities": ["usage", "tool_calls", "multi_turn"]},
        "the agent does not declare tool_calls, multi_turn (target.ecp.require_capabilities); it declares reset, usage",
    ),
}


@pytest.mark.parametrize(("body", "options", "message"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
async def test_an_agent_that_cannot_be_evaluated_is_asked_no_step_and_started_no_more(
    open_agent: Open, tmp_path: Path, body: str, options: dict[str, Any], message: str
) -> None:
    code = initializing(body) + "def step(request):\n    open('steps', 'w')\n"
    _, client = open_agent(code, concurrency=1, attempts=3, **options)
    outputs = [await run(client, "hi", "ho"), await run(client, "hi", "ho")]
    for output in outputs:
        error = metadata_of(output)["error"]
        assert error["message"] == f"before step 1 of 2: agent/initialize: {message}"
        assert (error["kind"], error["recoverable"], output.value) == ("incompatible", False, None)
        assert metadata_of(output)["attempts"] == 1
    assert len(_requests(tmp_path)) == 1


@pytest.mark.parametrize("version", ["1", "v1.0", 1.0, "1.0.0", ""])
async def test_a_version_that_is_none_is_an_error(open_agent: Open, version: object) -> None:
    _, client = open_agent(
        f"def initialize(request):\n    answer(request, {{'name': 'n', 'protocol_version': {version!r}}})\n"
    )
    error = metadata_of(await run(client, "hi"))["error"]
    message = 'before step 1 of 1: agent/initialize: protocol_version is not a text such as "1.0"'
    assert (error["message"], error["kind"]) == (message, "malformed")
