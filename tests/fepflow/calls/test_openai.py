"""A model as the target, over real sockets: what is sent, what becomes the output, and what goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.base import Turn, traceparent
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.conversations import ConversationTarget
from fepflow.calls.models import _litellm
from fepflow.calls.models.client import ModelClient
from fepflow.calls.models.model import Model
from fepflow.calls.openai import OpenAITarget
from fepflow.errors import InputError, TargetError
from fepflow.protocol.test_case import Output, TestCase
from fepflow.protocol.tool_calls import read_calls
from fepflow.suite.target import Target

from .conftest import CASE, Serve, sending

KEY = "sk-canary-4711-0815"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": "A100"}'}}

Json = dict[str, Any]


def chat(content: Any = "Yes.", finish_reason: str = "stop", **message: Any) -> Json:
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
    }


def responses(*output: Json, status: str = "completed", **more: Any) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-4o-mini-2024-07-18",
        "status": status,
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15},
        **more,
    }


def said(*parts: Json) -> Json:
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": list(parts)}


def text(words: str) -> Json:
    return {"type": "output_text", "text": words, "annotations": []}


class Endpoint:
    """Answers with what stands in `replies`, the last one again and again; knows what it was asked."""

    def __init__(self, *replies: Json | Callable[[], web.Response]) -> None:
        self.replies = list(replies)
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.paths.append(request.path)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return web.json_response(reply) if isinstance(reply, dict) else reply()


def configured(base: str, **openai: Any) -> Target:
    section = {"model": "gpt-4o-mini", "base_url": base, "api_key": KEY, **openai}
    return Target.model_validate({"openai": section})


@pytest.fixture
async def models() -> AsyncIterator[ModelClient]:
    _litellm.load_for_calls()  # seconds, which a run spends in a thread
    async with ModelClient() as client:
        yield client


Ask = Callable[..., Any]


@pytest.fixture
def ask(models: ModelClient, serve: Serve, tmp_path: Path) -> Ask:
    """Asks an endpoint about a case, as a run does; gives the output."""

    async def ask(endpoint: Endpoint, case: TestCase = CASE, attempts: int = 1, **openai: Any) -> Output:
        base = (await serve(endpoint.respond)).removesuffix("/ask")
        target = OpenAITarget(configured(base, **openai), tmp_path, (), frozenset({KEY}), models)
        return (await TargetClient(target, RetryPolicy(attempts, 120)).ask(case)).output()

    return ask


async def test_an_input_is_the_users_message_and_the_output_tells_usage_and_model(ask: Ask) -> None:
    endpoint = Endpoint(chat("42"))
    output = await ask(endpoint, system="Be brief.", parameters={"temperature": 0.5, "max_tokens": 9})
    assert output.value == "42"
    known = {name: output.metadata[name] for name in ("model", "finish_reason", "tool_calls", "tokens", "attempts")}
    assert known == {
        "model": "gpt-4o-mini-2024-07-18",
        "finish_reason": "stop",
        "tool_calls": [],
        "tokens": 15,
        "attempts": 1,
    }
    assert output.metadata["usd"] > 0
    assert (output.metadata["prompt_tokens"], output.metadata["completion_tokens"]) == (12, 3)
    assert endpoint.bodies == [
        {
            "model": "gpt-4o-mini",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": CASE.input}],
            "temperature": 0.5,
            "max_tokens": 9,
        }
    ]
    assert endpoint.paths == ["/chat/completions"]
    assert endpoint.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_a_list_of_texts_is_one_text(ask: Ask) -> None:
    output = await ask(Endpoint(chat([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}])))
    assert (output.value, output.metadata["finish_reason"]) == ("42", "stop")


async def test_calls_of_tools_are_an_output_without_a_text(ask: Ask) -> None:
    endpoint = Endpoint(chat(None, "tool_calls", tool_calls=[CALL]))
    output = await ask(endpoint, tools=[TOOL])
    assert (output.value, output.metadata["finish_reason"]) == ("", "tool_calls")
    assert output.metadata["tool_calls"] == [CALL]
    older = await ask(Endpoint(chat("So", "function_call", function_call=CALL["function"])))
    assert (older.value, older.metadata["tool_calls"]) == ("So", [{"type": "function", "function": CALL["function"]}])
    assert endpoint.bodies[0]["tools"] == [TOOL]


@pytest.mark.parametrize(
    ("reply", "value", "reason"),
    [
        (chat("Because", "length"), "Because", "length"),
        (chat(None, refusal="I cannot help with that."), "I cannot help with that.", "refusal"),
        (chat("First, take", refusal="I cannot help with that."), "First, take", "refusal"),
        (chat("", "content_filter"), "", "content_filter"),
    ],
)
async def test_a_truncated_or_refused_answer_is_an_output_that_says_so(
    ask: Ask, reply: Json, value: str, reason: str
) -> None:
    output = await ask(Endpoint(reply))
    assert (output.value, output.metadata["finish_reason"], output.failure) == (value, reason, None)


@pytest.mark.parametrize(
    ("reason", "advice"), [("stop", "empty answer"), ("length", r"raise max_tokens in target.openai.parameters")]
)
async def test_an_empty_answer_is_an_error_that_tells_what_it_cost(ask: Ask, reason: str, advice: str) -> None:
    endpoint = Endpoint(chat(" \n", reason))
    output = await ask(endpoint, attempts=3)
    assert output.failure["kind"] == "missing_output"
    assert advice in output.failure["message"]
    assert (output.value, output.metadata["tokens"], len(endpoint.bodies)) == (None, 15, 1)


async def test_a_price_or_usage_that_is_not_known_is_left_out(ask: Ask) -> None:
    reply = chat()
    del reply["usage"]
    output = await ask(Endpoint(reply), model="Qwen/Qwen3-8B")
    assert not output.metadata.keys() & {"tokens", "usd", "prompt_tokens"}


@pytest.mark.parametrize(
    ("name", "sent"), [("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("openai/gpt-4o", "gpt-4o"), ("mine", "mine")]
)
async def test_a_model_behind_an_address_has_the_name_that_the_endpoint_knows(ask: Ask, name: str, sent: str) -> None:
    endpoint = Endpoint(chat())
    await ask(endpoint, model=name)
    assert endpoint.bodies[0]["model"] == sent


@pytest.mark.parametrize("name", ["mine", "openai/gpt-4o", "anthropic/claude-3-5-haiku-latest", "ollama_chat/qwen3"])
async def test_the_key_of_the_environment_is_not_sent_to_an_address_of_the_suite(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    endpoint = Endpoint(chat())
    await ask(endpoint, api_key=None, model=name)
    assert len(endpoint.headers) == 1
    assert KEY not in str(endpoint.headers)


async def test_a_prompt_is_filled_in_once_and_may_be_a_file(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "v2.md").write_text("Answer briefly:\n{{$.test_case.input}}\n\n", encoding="utf-8")
    endpoint = Endpoint(chat())
    case = TestCase(id="c", input="What is {{$.test_case.id}}?", metadata={"tone": "kind"})
    await ask(endpoint, case, prompt="v2.md", system="Be {{$.test_case.metadata.tone}}.")
    await ask(endpoint, case, prompt="Say: {{ $.test_case.input }}")
    system, user = endpoint.bodies[0]["messages"]
    assert system == {"role": "system", "content": "Be kind."}
    assert user == {"role": "user", "content": "Answer briefly:\nWhat is {{$.test_case.id}}?"}
    assert endpoint.bodies[1]["messages"][0]["content"] == "Say: What is {{$.test_case.id}}?"


async def test_messages_are_sent_as_they_are_and_the_prompt_stands_for_the_first_of_the_user(ask: Ask) -> None:
    endpoint = Endpoint(chat())
    messages = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "2?"},
    ]
    case = TestCase(id="c", input=messages)
    await ask(endpoint, case)
    await ask(endpoint, case, prompt="Briefly: {{$.test_case.input}}", system="S")
    assert endpoint.bodies[0]["messages"] == messages
    first = {"role": "user", "content": "Briefly: 1?"}
    assert endpoint.bodies[1]["messages"] == [{"role": "system", "content": "S"}, first, *messages[1:]]


async def test_messages_of_the_suite_are_a_template_and_values_that_are_no_text_are_json(ask: Ask) -> None:
    endpoint = Endpoint(chat())
    messages = [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": "$.test_case.input"},
    ]
    await ask(endpoint, TestCase(id="c", input={"order": "A100"}), messages=messages)
    assert endpoint.bodies[0]["messages"] == [*messages[:2], {"role": "user", "content": '{"order": "A100"}'}]
    parts = [{"type": "text", "text": "What is it?"}]
    await ask(endpoint, TestCase(id="c", input=parts))
    assert endpoint.bodies[1]["messages"] == [{"role": "user", "content": parts}]


@pytest.mark.parametrize("first_said", ["test_case", "turn"])
async def test_a_conversation_sends_all_messages_with_each_turn(
    models: ModelClient, serve: Serve, tmp_path: Path, first_said: str
) -> None:
    endpoint = Endpoint(chat("one"), chat("two"))
    base = await serve(endpoint.respond)
    config = configured(base.removesuffix("/ask"), system="S", prompt=f"Briefly: {{{{$.{first_said}.input}}}}")
    target = OpenAITarget(config, tmp_path, (), frozenset(), models)
    messages = [
        {"role": "user", "content": "1?"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "2?"},
    ]
    async with target.converse(TestCase(id="c", input="unused")) as conversation:
        first = await conversation.say(Turn(1, "1?", messages[:1]))
        second = await conversation.say(Turn(2, "2?", messages))
    assert [first.value, second.value] == ["one", "two"]
    opening = [{"role": "system", "content": "S"}, {"role": "user", "content": "Briefly: 1?"}]
    assert [body["messages"] for body in endpoint.bodies] == [opening, [*opening, *messages[1:]]]
    endpoint.replies = [chat("one"), chat("two", tool_calls=[CALL])]
    case = TestCase.model_validate({"id": "c", "turns": ["1?", "2?"]})
    output = (await TargetClient(ConversationTarget(target, "openai", 10), RetryPolicy(1, 10)).ask(case)).output()
    assert [body["messages"] for body in endpoint.bodies[2:]] == [opening, [*opening, *messages[1:]]]
    assert output.metadata is not None
    assert (output.metadata["completed"], output.metadata["tokens"]) == (2, 30)
    assert output.metadata["tool_calls"] == output.value["steps"][1]["tool_calls"] == [CALL]


async def test_the_responses_api_gives_the_same_form_of_output(ask: Ask) -> None:
    call = {
        "type": "function_call",
        "id": "f",
        "call_id": "c1",
        "status": "completed",
        "name": "look_up",
        "arguments": '{"order": "A100"}',
    }
    endpoint = Endpoint(
        responses({"type": "reasoning", "id": "r", "summary": []}, said(text("For"), text("ty"))),
        responses(call),
        responses(said(text("Bec")), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        responses(said({"type": "refusal", "refusal": "No."})),
        responses(said(text("First"), {"type": "refusal", "refusal": "No."})),
    )
    history = [
        {"role": "user", "content": "Where is A100?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "on its way"},
    ]
    plain = await ask(endpoint, api="responses", system="S", parameters={"max_output_tokens": 20})
    called = await ask(endpoint, TestCase(id="c", input=history), api="responses", tools=[TOOL])
    cut_off = await ask(endpoint, api="responses")
    refused = await ask(endpoint, api="responses")
    broken_off = await ask(endpoint, api="responses")
    assert endpoint.paths[0] == "/responses"
    assert endpoint.bodies[0]["max_output_tokens"] == 20
    assert endpoint.bodies[0]["input"] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": CASE.input},
    ]
    assert (plain.value, plain.metadata["finish_reason"], plain.metadata["tokens"]) == ("Forty", "stop", 15)
    assert plain.metadata["model"] == "gpt-4o-mini-2024-07-18"
    assert plain.metadata["usd"] > 0
    assert endpoint.bodies[1]["input"][1:] == [
        {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"order": "A100"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "on its way"},
    ]
    assert endpoint.bodies[1]["tools"] == [{"type": "function", **TOOL["function"]}]
    assert (called.value, called.metadata["tool_calls"]) == ("", [CALL])
    assert [cut_off.metadata["finish_reason"], cut_off.value] == ["length", "Bec"]
    assert [refused.metadata["finish_reason"], refused.value] == ["refusal", "No."]
    assert [broken_off.metadata["finish_reason"], broken_off.value] == ["refusal", "First"]


async def test_calls_of_tools_that_the_provider_runs_are_reported_too(ask: Ask) -> None:
    """A check that forbids calls passes only if there were none."""
    search = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "A"}}
    mcp = {"type": "mcp_call", "id": "m", "name": "refund", "arguments": "{}", "server_label": "s", "output": "done"}
    custom = {"type": "custom_tool_call", "id": "t", "call_id": "c2", "name": "sql", "input": "select"}
    endpoint = Endpoint(responses(search, mcp, said(text("Done."))), responses(search), responses(custom))
    done = await ask(endpoint, api="responses")
    empty = await ask(endpoint, api="responses")
    asked = await ask(endpoint, api="responses")
    assert (done.value, done.metadata["finish_reason"]) == ("Done.", "stop")
    assert [call.name for call in read_calls(done.metadata["tool_calls"])] == ["web_search_call", "refund"]
    assert "empty answer (finish_reason stop)" in empty.failure["message"]
    assert (asked.value, asked.metadata["finish_reason"]) == ("", "tool_calls")
    assert [call.name for call in read_calls(asked.metadata["tool_calls"])] == ["sql"]


async def test_the_trace_context_is_sent_along(ask: Ask) -> None:
    endpoint = Endpoint(chat(), responses(said(text("x"))))
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    token = traceparent.set(parent)
    try:
        await ask(endpoint)
        await ask(endpoint, api="responses")
    finally:
        traceparent.reset(token)
    assert [headers["traceparent"] for headers in endpoint.headers] == [parent, parent]


def error(status: int, message: str, **headers: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"error": {"message": message}}, status=status, headers=headers)


async def test_a_rate_limit_is_waited_for_as_the_endpoint_says(ask: Ask) -> None:
    endpoint = Endpoint(error(429, "slow down", **{"Retry-After": "1"}), chat("late"))
    output = await ask(endpoint, attempts=2)
    assert (output.value, output.metadata["attempts"]) == ("late", 2)
    assert output.metadata["latency_ms"] >= 1000
    assert output.metadata["attempt_log"][0]["error"]["status"] == 429


NEVER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def test_providers_and_what_they_need_are_known_without_loading_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, variable in _litellm._NEEDED.items():
        monkeypatch.delenv(variable, raising=False)
        missing = _litellm.problem(Model(f"{provider}/m"))
        assert missing is not None
        assert variable in missing or "say where" in missing
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
        assert _litellm.problem(Model(f"{provider}/m")) is None
        assert _litellm.load().validate_environment(f"{provider}/m")["missing_keys"] == []
    assert _litellm._providers() == {provider.value for provider in _litellm.load().provider_list}
    assert _litellm.full_name("Qwen/Qwen3-8B", "http://127.0.0.1:9/v1") == "openai/Qwen/Qwen3-8B"
    assert _litellm.full_name("mistral/small", "http://127.0.0.1:9/v1") == "mistral/small"


HOSTILE: dict[str, tuple[Any, str, bool, str]] = {
    "a key that is not valid": (error(401, f"bad key {KEY}"), "unauthorized", False, "check its key"),
    "no such model": (error(404, "no model mine"), "http_status", False, "no model mine"),
    "a parameter that is refused": (error(400, "temperature is not supported"), "http_status", False, "temperature"),
    "a prompt that is filtered": (
        error(400, "invalid_request_error: content_policy_violation"),
        "refused",
        False,
        "refused to answer",
    ),
    "a fault": (error(500, "boom"), "http_status", True, "boom"),
    "overload": (error(503, "later"), "http_status", True, "later"),
    "another host": (
        lambda: web.Response(status=307, headers={"Location": "http://example.com/"}),
        "redirect",
        False,
        "redirects to example.com",
    ),
    "HTML": (lambda: web.Response(text="<html>", content_type="text/html"), "malformed", True, "not as a model does"),
    "no JSON": (lambda: web.Response(text="{", content_type="application/json"), "malformed", True, "not as a model"),
    "no choices": ({"id": "x", "object": "chat.completion", "choices": []}, "malformed", True, ""),
    "an error of a status": ({"error": {"message": f"slow {KEY}", "code": 429}}, "http_status", True, "slow"),
    "an error of the key": ({"error": {"message": "who?", "code": 401}}, "unauthorized", False, "check its key): "),
    "an error of a gateway": ({"error": {"message": "overload", "code": 502}}, "http_status", True, "HTTP 502: "),
    "an error without a status": ({"error": {"message": f"no {KEY}"}}, "failed", True, "HTTP 200 with an error: no"),
    "an error in words": ({"error": "overload", "choices": []}, "failed", True, "HTTP 200 with an error: overload"),
    "an answer that broke off": (
        {"choices": [{**chat("Half")["choices"][0], "finish_reason": "error", "error": {"message": f"gone {KEY}"}}]},
        "failed",
        True,
        "broke off: gone",
    ),
    "a content with a picture": (chat([{"type": "text", "text": "A"}, {"type": "image_url"}]), "malformed", True, ""),
    "a list": (lambda: web.json_response([1]), "malformed", True, ""),
    "a content that is no text": (chat({"a": 1}), "malformed", True, ""),
    "too much": (chat("x" * 5_000_000), "too_large", False, "more than 4,000,000 bytes"),
    "half an answer": (sending(NEVER + b'Content-Length: 90\r\n\r\n{"id": '), "connect", True, "or it broke"),
    "half a chunk": (sending(NEVER + b'Transfer-Encoding: chunked\r\n\r\n50\r\n{"id"'), "connect", True, ""),
    "nothing": (sending(), "connect", True, ""),
    "no HTTP": (sending(b"\x00\xff" * 50), "connect", True, ""),
}


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_endpoint_is_a_truthful_error_of_its_case(
    ask: Ask, serve: Serve, serve_raw: Serve, models: ModelClient, tmp_path: Path, name: str, api: str
) -> None:
    reply, kind, retryable, words = HOSTILE[name]
    raw = callable(reply) and name in ("half an answer", "half a chunk", "nothing", "no HTTP")
    base = await (serve_raw(reply) if raw else serve(Endpoint(reply).respond))
    target = OpenAITarget(configured(base.removesuffix("/ask"), api=api), tmp_path, (), frozenset({KEY}), models)
    record = await TargetClient(target, RetryPolicy(1, 20)).ask(CASE)
    assert record.output().value is None
    assert isinstance(record.error, TargetError)
    assert (record.error.kind, record.error.retryable) == (kind, retryable)
    assert words in str(record.error)
    assert KEY not in json.dumps(record.output().metadata)


async def test_an_endpoint_that_is_silent_runs_into_the_targets_deadline(
    models: ModelClient, serve_raw: Serve, tmp_path: Path
) -> None:
    async def silent(reader: Any, writer: Any) -> None:
        await reader.read()

    base = await serve_raw(silent)
    target = OpenAITarget(configured(base.removesuffix("/ask")), tmp_path, (), frozenset(), models)
    output = (await TargetClient(target, RetryPolicy(1, 0.3)).ask(CASE)).output()
    assert (output.failure["kind"], output.failure["type"]) == ("timeout", "timeout_error")


def test_the_fingerprint_has_the_prompt_and_no_key(tmp_path: Path) -> None:
    def fingerprint(**openai: Any) -> str:
        return OpenAITarget(configured("http://h/v1", **openai), tmp_path, (), frozenset()).fingerprint

    (tmp_path / "p.md").write_text("One {{$.test_case.input}}", encoding="utf-8")
    first = fingerprint(prompt="p.md")
    assert fingerprint(prompt="p.md", api_key="another") == first
    (tmp_path / "p.md").write_text("Two {{$.test_case.input}}", encoding="utf-8")
    others = [fingerprint(prompt="p.md"), fingerprint(), fingerprint(model="other"), fingerprint(tools=[TOOL])]
    assert len({first, *others}) == 5


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"Hello\n\n{{$.test_case.input", 3, "not closed"),
        (b"Hello\n{{$.test_case.[}}", 2, "not a valid JSONPath"),
        (b"", None, "is empty"),
        (b"\xff\xfe", None, "UTF-16"),
        (None, None, "cannot be read"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_told_with_its_place(
    tmp_path: Path, content: bytes | None, line: int | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "p.md").write_bytes(content)
    with pytest.raises(InputError, match=words) as failure:
        OpenAITarget(configured("http://h/v1", prompt="p.md"), tmp_path, ())
    assert failure.value.problems[0].line == line


def test_a_prompt_outside_of_the_suites_folder_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leads out of the suite's folder"):
        OpenAITarget(configured("http://h/v1", prompt="../secret.txt"), tmp_path, ())


@pytest.mark.parametrize("reason", [None, ""])
async def test_an_answer_that_does_not_say_why_it_ends_is_not_said_to_be_whole(ask: Ask, reason: Any) -> None:
    output = await ask(Endpoint(chat("42", reason)))
    assert output.value == "42"
    assert "finish_reason" not in output.metadata
    others = [{**choice, "index": 1, "finish_reason": "stop"} for choice in chat("43")["choices"]]
    several = await ask(Endpoint({**chat("42"), "choices": [*chat("42", reason)["choices"], *others]}))
    assert (several.value, several.metadata.get("finish_reason")) == ("42", None), (
        "another choice says it of itself only"
    )
    empty = await ask(Endpoint(chat("", reason)))
    assert "finish_reason unknown" in empty.failure["message"]


async def test_a_providers_own_word_for_the_end_is_not_said_to_be_stop(ask: Ask) -> None:
    for word, shown in [("abort", "abort"), ("model_length", "model_length"), ("eos", "stop"), ("w" * 999, "w" * 200)]:
        assert (await ask(Endpoint(chat("Half", word)))).metadata["finish_reason"] == shown
    empty = await ask(Endpoint(chat("", "insufficient_system_resource")))
    assert "empty answer (finish_reason insufficient_system_resource)" in empty.failure["message"]


async def test_what_litellm_tells_of_anthropic_is_told_as_anthropic_does(
    models: ModelClient, serve: Serve, tmp_path: Path
) -> None:
    """litellm has "stop" for each word that it does not know, and 500 for each status from there on."""
    usage = {"input_tokens": 12, "output_tokens": 3}
    message: Json = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "usage": usage}
    message["content"] = [{"type": "text", "text": "Half"}]
    overload = partial(web.json_response, {"type": "error", "error": {"message": "later"}}, status=529)
    endpoint = Endpoint({**message, "stop_reason": "end_turn"}, {**message, "stop_reason": "pause_turn"}, overload)
    base = (await serve(endpoint.respond)).removesuffix("/ask")
    target = OpenAITarget(configured(base, model="anthropic/claude-sonnet-4-5"), tmp_path, (), frozenset(), models)
    caller = TargetClient(target, RetryPolicy(1, 120))
    whole, paused, refused = [(await caller.ask(CASE)).output() for _ in range(3)]
    assert [whole.metadata["finish_reason"], paused.metadata["finish_reason"]] == ["stop", "pause_turn"]
    assert "answered HTTP 529: " in refused.failure["message"]


@pytest.mark.battery
def test_the_first_call_does_not_wait_for_a_library() -> None:
    code = """
import asyncio, sys
from pathlib import Path
from fepflow.calls.models import _litellm
from fepflow.calls.models.client import ModelClient
from fepflow.calls.models.model import Model
from fepflow.calls.openai import OpenAITarget
from fepflow.suite.target import Target

async def main():
    config = Target.model_validate({"openai": {"model": "m", "base_url": "http://127.0.0.1:9/v1"}})
    async with ModelClient() as models:
        OpenAITarget(config, Path(), (), frozenset(), models)
    print("openai.resources.chat.completions" in sys.modules)

asyncio.run(main())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout == "True\n"
