"""What a trace tells of tools and models, by each convention; and what it does not tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fepflow.traces.conventions import NO_SIGNS, TOOLS_UNTOLD, Span, read_trace, why_unknown

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(number: int, parent: int | None = None, name: str = "a", **attributes: Any) -> Span:
    parent_id = None if parent is None else f"{parent:016x}"
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    start = number * 10**6
    return Span(TRACE, f"{number:016x}", parent_id, name, "internal", start, start + 5, "ok", "", named)


def read(*spans: Span) -> dict[str, Any]:
    return read_trace(list(spans), TRACE, None, None)


CHAT = {"gen_ai__operation__name": "chat"}


@pytest.mark.parametrize(
    ("attributes", "name", "arguments", "result"),
    [
        (
            {
                "gen_ai__operation__name": "execute_tool",
                "gen_ai__tool__name": "find",
                "gen_ai__tool__call__arguments": {"id": 1},
                "gen_ai__tool__call__result": "there",
            },
            "find",
            {"id": 1},
            "there",
        ),
        (
            {
                "openinference__span__kind": "TOOL",
                "tool__name": "find",
                "input__value": '{"id": 1}',
                "output__value": '{"ok": true}',
            },
            "find",
            {"id": 1},
            {"ok": True},
        ),
        ({"mcp__method__name": "tools/call", "gen_ai__tool__name": "find"}, "find", None, None),
        ({"gen_ai__tool__name": "find", "tool_arguments": '"x"'}, "find", {"input": "x"}, None),
        ({"traceloop__span__kind": "tool", "traceloop__entity__name": "find"}, "find", None, None),
    ],
)
def test_a_tool_is_known_by_each_convention(attributes: dict[str, Any], name: str, arguments: Any, result: Any) -> None:
    (call,) = read(span(1, **attributes))["tool_calls"]
    assert (call["name"], call["arguments"], call["result"]) == (name, arguments, result)


def test_tokens_of_nested_models_and_agents_are_counted_once() -> None:
    trace = read(
        span(1, None, gen_ai__operation__name="invoke_agent", gen_ai__usage__input_tokens=100),
        span(2, 1, **CHAT, gen_ai__usage__prompt_tokens=30, gen_ai__usage__completion_tokens=5),
        span(3, 2, openinference__span__kind="LLM", llm__token_count__prompt=30, llm__token_count__completion=5),
        span(4, 1, openinference__span__kind="LLM", llm__token_count__total=15, llm__cost__total=0.5),
    )
    assert trace["tokens"] == 50
    assert [call["tokens"] for call in trace["model_calls"]] == [35, 15]
    assert trace["unknown"] == {"usd": "1 of 2 calls of models do not report their usd"}


@pytest.mark.parametrize("count", [-5, "many", True])
def test_a_count_of_tokens_that_is_none_leaves_the_sum_unknown(count: Any) -> None:
    usage: dict[str, Any] = {"gen_ai__usage__input_tokens": count, "gen_ai__usage__output_tokens": 5}
    trace = read(span(1, None, **CHAT, **usage))
    assert "tokens" not in trace
    assert trace["unknown"]["tokens"] == "1 of 1 calls of models do not report their tokens"
    assert read(span(1, None, **CHAT, **usage, gen_ai__usage__total_tokens=90))["tokens"] == 90


def test_tokens_of_agents_and_models_that_a_tool_runs_are_added() -> None:
    usage: dict[str, Any] = {"gen_ai__usage__input_tokens": 100, "gen_ai__usage__output_tokens": 50}
    trace = read(
        span(1, gen_ai__operation__name="invoke_agent", gen_ai__usage__input_tokens=7),
        span(2, 1, **CHAT, gen_ai__usage__input_tokens=10, gen_ai__usage__output_tokens=5),
        span(3, 2, gen_ai__operation__name="execute_tool", gen_ai__tool__name="ask_expert"),
        span(4, 3, "within the tool"),
        span(5, 4, **CHAT, **usage),
        span(6, 5, "the client", gen_ai__request__model="m", **usage),
    )
    assert [call["tokens"] for call in trace["model_calls"]] == [15, 150]
    assert trace["tokens"] == 165


def test_calls_that_only_the_models_answer_tells_are_calls_and_stand_once() -> None:
    asked = [{"role": "assistant", "parts": [{"type": "tool_call", "id": n, "name": n, "arguments": {}} for n in "ab"]}]
    trace = read(
        span(1, None, **CHAT, gen_ai__output__messages=json.dumps(asked)),
        span(2, 1, **CHAT, gen_ai__output__messages=json.dumps(asked)),
        span(3, None, gen_ai__operation__name="execute_tool", gen_ai__tool__name="a", gen_ai__tool__call__id="a"),
    )
    assert [call["name"] for call in trace["tool_calls"]] == ["a", "b"]
    flat = "llm.output_messages.0.message.tool_calls.0.tool_call.function."
    flat_span = span(1, None, openinference__span__kind="LLM")
    flat_span.attributes |= {f"{flat}name": "find", f"{flat}arguments": '{"id": 2}'}
    (call,) = read(flat_span)["tool_calls"]
    assert (call["name"], call["arguments"]) == ("find", {"id": 2})


MESSAGE = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "find", "arguments": '{"id": 2}'}}]}
CHOICE = {"finish_reason": "tool_calls", "message": MESSAGE}


@pytest.mark.parametrize(
    ("attributes", "event"),
    [
        ({}, {"gen_ai.event.content": json.dumps(CHOICE)}),
        ({}, {"finish_reason": "tool_calls", "message": json.dumps(MESSAGE)}),
        ({"events": json.dumps([{"event.name": "gen_ai.choice", **CHOICE}])}, None),
    ],
)
def test_answers_of_models_in_events_tell_of_calls_or_that_there_are_some(
    attributes: dict[str, Any], event: dict[str, Any] | None
) -> None:
    model = span(1, None, **CHAT, **attributes)
    model.events = [] if event is None else [{"name": "gen_ai.choice", "time": 0, "attributes": event}]
    (call,) = read(model)["tool_calls"]
    assert (call["name"], call["arguments"]) == ("find", {"id": 2})
    model.attributes.pop("events", None)
    model.events = [{"name": "gen_ai.choice", "time": 0, "attributes": {"finish_reason": "tool_calls"}}]
    assert why_unknown(read(model), "tool_calls") == TOOLS_UNTOLD


def test_doubt_is_no_absence() -> None:
    plain = read(span(1, None, "GET /"))
    assert "tool_calls" not in plain
    assert why_unknown(plain, "tool_calls") == why_unknown(plain, "") == NO_SIGNS
    assert why_unknown(plain, "spans") is None
    told: list[dict[str, Any]] = [
        {"gen_ai__response__finish_reasons": ["tool_calls"]},
        {"gen_ai__response__finish_reasons": '["tool-calls"]'},
        {"gen_ai__completion__0__finish_reason": "tool_calls"},
    ]
    for reason in told:
        assert why_unknown(read(span(1, None, **CHAT, **reason)), "tool_calls") == TOOLS_UNTOLD
    assert read(span(1, None, **CHAT, gen_ai__response__finish_reasons=["stop"]))["tool_calls"] == []


def test_fewer_calls_of_tools_than_answers_that_ask_for_some_are_not_all_calls() -> None:
    asks: dict[str, Any] = {**CHAT, "gen_ai__response__finish_reasons": ["tool_calls"]}
    tool: dict[str, Any] = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "find"}
    model, client, call = span(1, **asks), span(2, 1, **asks), span(3, **tool)
    assert [call["name"] for call in read(model, client, call)["tool_calls"]] == ["find"]
    trace = read(model, client, call, span(4, **asks))
    assert "tool_calls" not in trace
    assert why_unknown(trace, "tool_calls") == TOOLS_UNTOLD
    assert len(read(model, client, call, span(4, **asks), span(5, **tool))["tool_calls"]) == 2


def test_the_request_of_an_mcp_client_is_not_a_second_call() -> None:
    tool = {"gen_ai__tool__name": "find"}
    outer = span(1, None, gen_ai__operation__name="execute_tool", **tool)
    inner = span(2, 1, gen_ai__operation__name="execute_tool", mcp__method__name="tools/call", **tool)
    assert len(read(outer, inner)["tool_calls"]) == 1
