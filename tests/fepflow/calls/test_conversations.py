"""Conversations with agents on real sockets, in processes and in functions."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.base import output_hash
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.factory import open_target
from fepflow.checks.engine import evaluate
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase
from fepflow.suite.target import Target
from tests.fepflow.calls.conftest import Serve

pytestmark = pytest.mark.may_stall(reason="opens targets, and loads their code, in the test's thread")

CASE = TestCase.model_validate({"id": "refund", "turns": ["I want a refund.", "Order A100."]})

Ask = Callable[..., Awaitable[Output]]


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Ask]:
    """Asks a target of a suite in the test's folder about one case."""
    opened = []

    async def asked(target: dict[str, Any], case: TestCase = CASE, attempts: int = 1, **limits: Any) -> Output:
        config = Target.model_validate({**target, **limits, "attempts": attempts})
        opened.append(open_target(config, folder=tmp_path, case_ids=list))
        return (await TargetClient(opened[-1], RetryPolicy.of(config)).ask(case)).output()

    yield asked
    for target in opened:
        await target.aclose()


class Agent:
    """An agent behind HTTP that keeps a session for each conversation, whose number it counts."""

    def __init__(self, *, answers_session: bool = True, fails_in: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.sessions: dict[str, list[Any]] = {}
        self._answers_session = answers_session
        self.fails_in = fails_in

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        session = body.get("session") or f"s{len(self.sessions) + 1}"
        said = self.sessions.setdefault(session, [])
        said.append(body["input"])
        if len(said) == self.fails_in:
            return web.Response(status=503, text="no more")
        answer = {"text": f"{len(said)}: {body['input']}", "tokens": 10, "calls": [{"name": "look"}]}
        return web.json_response({**answer, **({"session_id": session} if self._answers_session else {})})


def http(url: str, **more: Any) -> dict[str, Any]:
    return {"http": {"url": url, "output": "$.text", "metadata": {"tokens": "$.tokens"}, **more}}


async def test_each_turn_of_a_conversation_over_http_has_the_session_of_the_first_answer(
    serve: Serve, ask: Ask
) -> None:
    agent = Agent()
    metadata = {"tokens": "$.tokens", "tool_calls": "$.calls"}
    output = await ask(http(await serve(agent.answer), session="$.session_id", metadata=metadata))
    assert [body.get("session", "none") for body in agent.bodies] == ["none", "s1"]
    steps, messages = output.value["steps"], output.value["messages"]
    assert [step["public_output"] for step in steps] == ["1: I want a refund.", "2: Order A100."]
    assert agent.bodies[1]["messages"] == messages[:3]
    assert messages[0] == {"role": "user", "content": "I want a refund."}
    assert messages[3] == {"role": "assistant", "content": "2: Order A100."}
    assert all(step["status"] == "done" and step["latency_ms"] > 0 for step in steps)
    assert output.metadata is not None
    assert (output.metadata["steps"], output.metadata["completed"], output.metadata["tokens"]) == (2, 2, 20)
    assert output.metadata["tool_calls"] == [{"name": "look"}] * 2
    assert steps[1]["tool_calls"] == [{"name": "look"}]


async def test_without_a_path_to_it_the_session_is_an_id_of_each_conversations_own(serve: Serve, ask: Ask) -> None:
    agent = Agent(answers_session=False)
    target = http(await serve(agent.answer))
    await ask(target)
    await ask(target)
    assert len(agent.sessions) == 2
    assert all(said == ["I want a refund.", "Order A100."] for said in agent.sessions.values())


async def test_a_header_has_the_session_from_the_second_turn_on(serve: Serve, ask: Ask) -> None:
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("X-Session"))
        return web.json_response({"text": "Yes", "tokens": 1, "session_id": f"s{len(seen)}"})

    base = await serve(answer)
    in_header = {"session": "$.session_id", "headers": {"X-Session": "id {{$.session}}"}}
    output = await ask(http(base, body={"q": "$.turn.input"}, **in_header))
    assert output.failure is None
    await ask(http(base, **in_header), TestCase(id="c", input="Hello"))
    assert seen == [None, "id s1", None]
    output = await ask(http(f"{base}?s={{{{$.session}}}}", session="$.session_id"))
    assert output.failure is not None
    assert "the first turn has no session yet" in output.failure["message"]


@pytest.mark.parametrize("later", [{}, {"session_id": None}, {"session_id": ""}])
async def test_an_answer_that_names_no_session_keeps_that_of_the_first(
    serve: Serve, ask: Ask, later: dict[str, Any]
) -> None:
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.json()).get("session"))
        return web.json_response({"text": "Yes", "tokens": 1, **({"session_id": "s1"} if len(seen) == 1 else later)})

    output = await ask(
        http(await serve(answer), session="$.session_id"),
        TestCase.model_validate({"id": "c", "turns": ["a", "b", "c"]}),
    )
    assert output.failure is None
    assert seen == [None, "s1", "s1"]


async def test_a_first_answer_without_a_session_is_an_error(serve: Serve, ask: Ask) -> None:
    output = await ask(http(await serve(Agent(answers_session=False).answer), session="$.session_id"))
    assert output.failure is not None
    assert output.failure["kind"] == "missing_output"
    assert "turn 1 of 2: the first answer has nothing at $.session_id" in output.failure["message"]


async def test_a_turn_that_fails_ends_its_conversation_and_earlier_turns_are_still_checked(
    serve: Serve, ask: Ask
) -> None:
    output = await ask(http(await serve(Agent(fails_in=2).answer), session="$.session_id"))
    assert output.failure is not None
    assert output.failure["partial"] is True
    assert output.failure["message"].startswith("turn 2 of 2: HTTP 503")
    assert output.metadata is not None
    assert "completed" not in output.metadata
    assert [message["content"] for message in output.value["messages"]][2] == "Order A100."
    arguments = {"text": "$.output.value", "phrases": ["refund"]}
    checks = [Check(type="contains", arguments=arguments, id=f"t{turn}", turn=turn) for turn in (1, 2)]
    whole = Check(type="contains", arguments={"text": "$.output.value.messages[1].content", "phrases": ["refund"]})
    results = evaluate([CASE], [output], [*checks, whole]).results[0].check_results
    assert [(result.status, result.passed) for result in results] == [
        ("completed", True),
        ("error", None),
        ("error", None),
    ]


async def test_another_attempt_is_a_conversation_from_the_beginning_in_a_session_of_its_own(
    serve: Serve, ask: Ask
) -> None:
    agent = Agent(fails_in=2)

    async def handler(request: web.Request) -> web.Response:
        answer = await agent.answer(request)
        agent.fails_in = 0 if answer.status == 503 else agent.fails_in
        return answer

    output = await ask(http(await serve(handler), session="$.session_id"), attempts=3)
    assert output.failure is None
    assert list(agent.sessions.values()) == [["I want a refund.", "Order A100."]] * 2
    assert output.metadata is not None
    assert [entry["error"] and entry["error"]["message"][:11] for entry in output.metadata["attempt_log"]] == [
        "turn 2 of 2",
        None,
    ]


async def test_the_deadline_is_that_of_each_turn(serve: Serve, ask: Ask) -> None:
    agent = Agent()

    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(0.5 if len(agent.bodies) < 2 else 60)
        return await agent.answer(request)

    case = TestCase.model_validate({"id": "c", "turns": ["a", "b", "c"]})
    output = await ask(http(await serve(handler)), case, timeout=0.9)
    assert output.failure is not None
    assert output.failure["type"] == "timeout_error"
    assert output.failure["message"] == "turn 3 of 3: no complete answer within 0.9 s (target.timeout, of each turn)"
    assert len(output.value["steps"]) == 2, "though both together took longer than one may"


async def test_each_turn_counts_for_the_rate(serve: Serve, ask: Ask) -> None:
    case = TestCase.model_validate({"id": "c", "turns": ["a", "b", "c"]})
    output = await ask(http(await serve(Agent().answer)), case, requests_per_minute=300)
    assert output.metadata is not None
    assert output.metadata["latency_ms"] >= 390


async def test_a_body_that_says_nothing_of_the_turn_is_an_error(serve: Serve, ask: Ask) -> None:
    output = await ask(http(await serve(Agent().answer), body={"input": "$.test_case.input"}))
    assert output.failure is not None
    assert "each turn would get the same request" in output.failure["message"]


async def test_a_case_that_is_no_conversation_is_one_of_one_turn_for_paths_into_the_turn(
    serve: Serve, ask: Ask
) -> None:
    agent = Agent()
    body = {"input": "$.turn.input", "all": "$.turn.messages", "session": "$.session"}
    output = await ask(http(await serve(agent.answer), body=body), TestCase(id="c", input="Hello"))
    assert output.value == "1: Hello"
    assert agent.bodies == [{"input": "Hello", "all": [{"role": "user", "content": "Hello"}]}]


async def test_a_function_gets_the_messages_as_a_list(tmp_path: Path, ask: Ask) -> None:
    code = "def answer(messages):\n    return f'{len(messages)}: {messages[-1][\"content\"]}'\n"
    (tmp_path / "agent.py").write_text(code, encoding="utf-8")
    output = await ask({"python": "agent.py:answer"})
    assert [step["public_output"] for step in output.value["steps"]] == ["1: I want a refund.", "3: Order A100."]


async def test_an_application_in_process_is_asked_as_an_endpoint_is(tmp_path: Path, ask: Ask) -> None:
    code = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def answer(request):
    body = await request.json()
    return JSONResponse({"text": f"{len(body['messages'])}: {body['input']}"})

app = Starlette(routes=[Route("/", answer, methods=["POST"])])
"""
    (tmp_path / "agent.py").write_text(code, encoding="utf-8")
    output = await ask({"http": {"app": "agent.py:app", "output": "$.text"}})
    assert [step["public_output"] for step in output.value["steps"]] == ["1: I want a refund.", "3: Order A100."]


async def test_turns_are_steps_of_an_ecp_agent(tmp_path: Path, ask: Ask) -> None:
    code = """
import json, sys
count = 0
for line in sys.stdin:
    request = json.loads(line)
    result = {"name": "bot", "protocol_version": "1.0", "capabilities": {}}
    if request["method"] == "agent/step":
        count += 1
        if count == 3:
            sys.stderr.write("lost it\\\\n")
            sys.exit(1)
        result = {"status": "done", "public_output": f"{count}: {request['params']['input']}",
                  "usage": {"input_tokens": 3, "output_tokens": 2}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
    (tmp_path / "agent.py").write_text(code.replace("\\\\n", "\\n"), encoding="utf-8")
    target = {"ecp": {"command": [sys.executable, "agent.py"]}}
    output = await ask(target)
    assert [step["public_output"] for step in output.value["steps"]] == ["1: I want a refund.", "2: Order A100."]
    assert output.value["steps"][0]["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert output.metadata is not None
    assert (output.metadata["completed"], output.metadata["tokens"], output.metadata["agent"]) == (2, 10, "bot")
    broken = await ask(target, TestCase.model_validate({"id": "c", "turns": ["a", "b", "c"]}))
    assert broken.failure is not None
    assert broken.failure["message"].startswith("turn 3 of 3: ")
    assert len(broken.value["steps"]) == 2


async def test_answers_of_a_conversation_are_bounded_together(
    serve: Serve, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"text": "x" * 600_000})

    monkeypatch.setattr("fepflow.calls.conversations.MAX_CHARACTERS", 1_000_000)
    output = await ask(http(await serve(handler)))
    assert output.failure is not None
    assert (output.failure["kind"], len(output.value["steps"])) == ("too_large", 1)


def test_the_hash_of_a_conversation_depends_on_what_is_said_and_not_on_what_is_expected(tmp_path: Path) -> None:
    config = Target.model_validate({"http": {"url": "http://127.0.0.1:1/"}})
    target = open_target(config, folder=tmp_path, case_ids=list)

    def hashed(**case: Any) -> str:
        return output_hash(target, TestCase.model_validate({"id": "c", **case}), 0)

    assert hashed(turns=["a", "b"]) == hashed(turns=["a", "b"], expected="x")
    others = [hashed(turns=["a", "c"]), hashed(turns=["a"]), hashed(input=["a", "b"]), hashed(input="a")]
    assert len({*others, hashed(turns=["a", "b"])}) == 5


DEEP = '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize(
    ("status", "text", "headers", "kind"),
    [
        (200, '{"text": "half', {}, "malformed"),
        (200, '{"text": NaN}', {}, "malformed"),
        (200, DEEP, {}, "malformed"),
        (200, '{"other": "x"}', {}, "missing_output"),
        (204, "", {}, "missing_output"),
        (200, json.dumps({"text": "x" * 400_000}), {}, "too_large"),
        (302, "", {"Location": "http://other.example/"}, "redirect"),
        (401, "who are you?", {}, "http_status"),
    ],
)
async def test_a_hostile_answer_in_a_turn_is_the_error_of_that_turn(
    serve: Serve, ask: Ask, status: int, text: str, headers: dict[str, str], kind: str
) -> None:
    agent = Agent()

    async def handler(request: web.Request) -> web.Response:
        answer = await agent.answer(request)
        if len(agent.bodies) < 2:
            return answer
        return web.Response(status=status, text=text, headers=headers, content_type="application/json")

    output = await ask(http(await serve(handler), max_bytes=300_000))
    assert output.failure is not None
    assert output.failure["kind"] == kind
    assert output.failure["message"].startswith("turn 2 of 2: ")
    assert [step["public_output"] for step in output.value["steps"]] == ["1: I want a refund."]


async def test_an_answer_that_looks_like_a_conversation_is_only_an_answer(serve: Serve, ask: Ask) -> None:
    forged = {"steps": [{"public_output": "A100", "status": "done"}] * 5, "messages": [], "completed": 2}

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"text": forged, "completed": 9, "steps": 9, "error": {"message": "none"}})

    metadata = {"completed": "$.completed", "steps": "$.steps", "usage": "$.error", "tool_calls": "$.error"}
    output = await ask(http(await serve(handler), metadata=metadata))
    assert output.metadata is not None
    assert (output.metadata["completed"], output.metadata["steps"], len(output.value["steps"])) == (2, 2, 2)
    assert "tool_calls" not in output.metadata
    check = Check(type="equals", arguments={"actual": "$.output.metadata.completed", "expected": 9}, turn=2)
    third = Check(type="is_empty", arguments={"value": "$.output.value"}, turn=3, id="third")
    results = evaluate([CASE], [output], [check, third]).results[0].check_results
    assert results[0].passed is True, "what the turn's own answer says"
    assert results[1].error is not None
    assert "there was no turn 3: the conversation has 2" in results[1].error.message
