"""From the command line to a verdict about an A2A agent that was built with the public SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp

from fepflow.deployments.http_server import bind
from tests.fepflow.calls.a2a.agents import Scripted, app_of, card_of
from tests.http_server import serving

from .conftest import Workplace

pytestmark = pytest.mark.e2e

KEY = "sesame-key-of-the-agent"


@pytest.fixture
def agent() -> Iterator[tuple[Scripted, str]]:
    """An agent that wants a key, and the address of its card."""
    listener = bind("127.0.0.1", 0, "--port")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    executors: list[Scripted] = []

    @asynccontextmanager
    async def make() -> AsyncIterator[ASGIApp]:
        executors.append(Scripted())
        yield app_of(executors[0], card_of(url, "JSONRPC", streaming=True), KEY)

    with serving(make, listener):
        yield executors[0], f"{url}/.well-known/agent-card.json"


def test_an_agent_is_called_judged_and_stored(workplace: Workplace, agent: tuple[Scripted, str]) -> None:
    executor, card = agent
    state = {"type": "exact_match", "id": "state", "arguments": {"actual": "$.output.metadata.state"}}
    cases: list[dict[str, Any]] = [
        {"id": "paid", "input": "work", "expected": "Paid back.", "metadata": {"state": "completed"}},
        {"id": "wrong", "input": "words", "expected": "Third.", "metadata": {"state": "completed"}},
        {"id": "asked", "input": "refund", "expected": "Which order?", "metadata": {"state": "input-required"}},
        {"id": "failed", "input": "fail", "expected": "", "metadata": {"state": "completed"}},
        {"id": "hung", "input": "hang", "expected": "", "metadata": {"state": "completed"}},
    ]
    state["arguments"] |= {"expected": "$.test_case.metadata.state"}  # type: ignore[operator]
    workplace.write_suite(cases)
    document: dict[str, Any] = {
        "name": "e2e",
        "target": {
            "a2a": {"card": card, "headers": {"X-Api-Key": "${AGENT_KEY}"}},
            "timeout": "2s",
            "attempts": 1,
            "retries": 0,
        },
        "test_cases": "cases.jsonl",
        "checks": [
            {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}},
            state,
        ],
    }
    workplace.suite.write_text(json.dumps(document), encoding="utf-8")

    done = workplace.run("--json", AGENT_KEY=KEY)

    assert done.returncode == 1, done.stdout + done.stderr
    results = workplace.results
    passed = {
        name: [check.results.get("passed", check.status) for check in result.checks] for name, result in results.items()
    }
    assert passed == {
        "paid": [True, True],
        "wrong": [False, True],
        "asked": [True, True],
        "failed": ["error", "error"],
        "hung": ["error", "error"],
    }
    errors = {name: results[name].output.metadata["error"] for name in ("failed", "hung")}
    assert errors["failed"]["message"] == "the agent's task failed: The warehouse is closed."
    assert errors["hung"]["type"] == "timeout_error"
    assert executor.cancelled == [results["hung"].output.metadata["task_id"]], "nothing goes on after the run"
    assert results["paid"].output.metadata["steps"][0]["public_output"] == "Looking it up."
    stored = "".join(result.output.model_dump_json() for result in results.values())
    assert KEY not in done.stdout + done.stderr + stored
    assert "The warehouse is closed." in workplace.fepflow("show", "latest").stdout
