"""Conversations from the command line to a verdict: turns of a script, and of users whom a model plays."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.http_server import serving

from .conftest import Workplace, end, wait_for

pytestmark = pytest.mark.e2e


class RefundBot:
    """An agent that knows a session's order, and one that plays its users, at one address."""

    def __init__(self) -> None:
        self.url = ""
        self.delay = 0.0
        self.holds_from: int | None = None
        """The number of messages from which on none is answered."""
        self.said: dict[str, list[str]] = {}
        self.opened: Counter[str] = Counter()
        self.asked_player = 0

    async def agent(self, request: Request) -> JSONResponse:
        body = await request.json()
        await asyncio.sleep(self.delay)
        session = body.get("session") or f"session-{len(self.said) + 1}"
        said = self.said.setdefault(session, [])
        said.append(body["input"])
        while self.holds_from is not None and sum(map(len, self.said.values())) >= self.holds_from:  # noqa: ASYNC110  # set from another thread
            await asyncio.sleep(0.01)
        if len(said) == 1:
            self.opened[body["input"]] += 1
        if "crash" in body["input"]:
            return JSONResponse({"detail": "out of order"}, status_code=500)
        orders = [text for text in said if "A100" in text]
        text = "Refund of A100 is on its way. <b>Bye</b>" if orders else "Which order?"
        calls = [{"name": "refund", "arguments": {"order": "A100"}}] if orders else []
        return JSONResponse({"answer": text, "session_id": session, "calls": calls, "tokens": 7})

    async def player(self, request: Request) -> JSONResponse:
        self.asked_player += 1
        prompt = (await request.json())["messages"][1]["content"]
        reply = {"reason": "I have not named the order.", "state": "continue", "message": "It is order A100."}
        if "Nothing has been said yet" in prompt:
            reply["message"] = "Hello, I want my money back."
        elif "on its way" in prompt:
            reply = {"reason": "The refund is confirmed.", "state": "reached", "message": ""}
        message = {"role": "assistant", "content": json.dumps(reply)}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        usage = {"prompt_tokens": 30, "completion_tokens": 10, "total_tokens": 40}
        return JSONResponse(
            {"id": "1", "object": "chat.completion", "model": "player", "choices": choices, "usage": usage}
        )


@pytest.fixture
def bot() -> Iterator[RefundBot]:
    running = RefundBot()

    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        routes = [Route("/agent", running.agent, methods=["POST"])]
        yield Starlette(routes=[*routes, Route("/v1/chat/completions", running.player, methods=["POST"])])

    with serving(make) as url:
        running.url = url
        yield running


def contains(*phrases: str) -> dict[str, Any]:
    return {"type": "contains", "arguments": {"text": "$.output.value", "phrases": list(phrases)}}


def write_suite(workplace: Workplace, bot: RefundBot, cases: list[Any], **sections: Any) -> None:
    metadata = {"tool_calls": "$.calls", "tokens": "$.tokens"}
    http = {"url": f"{bot.url}/agent", "session": "$.session_id", "output": "$.answer", "metadata": metadata}
    target = {"http": http, "attempts": 1, "retries": 0, **sections.pop("target", {})}
    provider = {"api_base": f"{bot.url}/v1", "max_retries": 0}
    user = {"model_config": {"model": "openai/player"}, "provider_config": provider}
    document = {"name": "e2e", "target": target, "user": user, "test_cases": cases, **sections}
    workplace.suite.write_text(json.dumps(document), encoding="utf-8")


def test_conversations_are_held_checked_stored_and_shown(workplace: Workplace, bot: RefundBot) -> None:
    refunded = {"type": "tool_usage", "arguments": {"calls": "$.output.metadata.tool_calls", "name": "refund"}}
    ends = {"actual": "$.output.metadata.user.ended", "expected": "reached"}
    reached = {"type": "exact_match", "id": "goal", "arguments": ends}
    asks = {"input": "I want a refund.", "checks": [contains("Which order?")]}
    cases: list[Any] = [
        {"id": "script", "turns": [asks, {"input": "A100", "checks": [contains("on its way"), refunded]}]},
        {"id": "wrong", "turns": [{**asks, "checks": [contains("At once!")]}]},
        {"id": "broken", "turns": [asks, {"input": "crash", "checks": [contains("sorry")]}]},
        {"id": "played", "user": {"goal": "A refund of order A100."}, "checks": [reached]},
    ]
    write_suite(workplace, bot, cases, budget={"tokens": 100_000})

    done = workplace.run("--json", OPENAI_API_KEY="sk-none")

    assert done.returncode == 1, done.stdout + done.stderr
    results = workplace.results
    passed = {
        name: {check.check_id: check.results.get("passed", check.status) for check in result.checks}
        for name, result in results.items()
    }
    script = {"turn-1-contains": True, "turn-2-contains": True, "turn-2-tool_usage": True, "completed": True}
    assert passed == {
        "script": script,
        "wrong": {"turn-1-contains": False, "completed": True},
        "broken": {"turn-1-contains": True, "turn-2-contains": "error", "completed": "error"},
        "played": {"goal": True, "completed": True},
    }
    assert results["broken"].output.metadata["error"]["message"].startswith("turn 2 of 2: HTTP 500")
    user = results["played"].output.metadata["user"]
    assert (user["ended"], user["turns"], user["usage"]["tokens"]) == ("reached", 2, 120)
    assert bot.asked_player == 3
    assert json.loads(done.stdout)["metadata"]["verdict"]["models"]["tokens"] == 120
    text = workplace.fepflow("show", "latest", "--case", "played").stdout
    assert "user:  Hello, I want my money back." in text
    assert "agent: Refund of A100 is on its way." in text
    assert "the user reached the goal: The refund is confirmed." in text

    write_suite(workplace, bot, [cases[0], cases[3]])
    again = workplace.run("-o", workplace.folder / "report.html", OPENAI_API_KEY="sk-none")
    assert again.returncode == 0, again.stdout + again.stderr
    assert bot.asked_player == 3, "what the user said after the same answers is kept"
    page = (workplace.folder / "report.html").read_text(encoding="utf-8")
    assert "It ended because" in page
    assert "<b>Bye</b>" not in page
    calls = sum(map(len, bot.said.values()))
    reused = workplace.run("--reuse-outputs", "--json", OPENAI_API_KEY="sk-none")
    assert reused.returncode == 0, reused.stdout + reused.stderr
    assert (sum(map(len, bot.said.values())), bot.asked_player) == (calls, 3)


def committed(workplace: Workplace) -> set[str]:
    """The conversations that are in the store."""
    return {name for name, result in workplace.results.items() if result.output is not None}


@pytest.mark.battery
def test_no_conversation_that_was_committed_is_held_again_after_a_kill(workplace: Workplace, bot: RefundBot) -> None:
    bot.delay, bot.holds_from = 0.05, 17
    cases = [{"id": f"c{number}", "turns": [f"opening {number}", "A100", "thanks"]} for number in range(12)]
    arguments = {"actual": "$.output.metadata.completed", "expected": 3}
    checks = [{"type": "exact_match", "id": "done", "arguments": arguments}]
    write_suite(workplace, bot, cases, target={"concurrency": 3}, checks=checks)
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: sum(map(len, bot.said.values())) >= 17, "the middle of a conversation")
        wait_for(lambda: committed(workplace), "a conversation in the store")
        end(process, signal.SIGKILL)
    bot.holds_from = None
    kept = committed(workplace)
    assert len(kept) < 12
    done = workplace.fepflow("run", "--resume", "latest")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(bot.opened[f"opening {name[1:]}"] == 1 for name in kept)
    assert set(workplace.results) == {case["id"] for case in cases}
