"""From the command line to a verdict about an A2A agent that was built with the public SDK."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp

from fepflow.deployments.http_server import bind
from tests.fepflow.calls.a2a.agents import Scripted, app_of, card_of
from tests.http_server import serving

from .conftest import Workplace, end, wait_for

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


SAME = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}


def write_suite(workplace: Workplace, card: str, cases: list[dict[str, Any]], timeout: str, checks: list[Any]) -> None:
    a2a = {"card": card, "headers": {"X-Api-Key": "${AGENT_KEY}"}}
    target = {"a2a": a2a, "timeout": timeout, "attempts": 1, "retries": 0}
    document = {"name": "e2e", "target": target, "test_cases": cases, "checks": checks}
    workplace.suite.write_text(json.dumps(document), encoding="utf-8")


def test_an_agent_is_called_judged_and_stored(workplace: Workplace, agent: tuple[Scripted, str]) -> None:
    executor, card = agent
    arguments = {"actual": "$.output.metadata.state", "expected": "$.test_case.metadata.state"}
    state = {"type": "exact_match", "id": "state", "arguments": arguments}
    cases: list[dict[str, Any]] = [
        {"id": "paid", "input": "work", "expected": "Paid back.", "metadata": {"state": "completed"}},
        {"id": "wrong", "input": "words", "expected": "Third.", "metadata": {"state": "completed"}},
        {"id": "asked", "input": "refund", "expected": "Which order?", "metadata": {"state": "input-required"}},
        {"id": "failed", "input": "fail", "expected": "", "metadata": {"state": "completed"}},
        {"id": "hung", "input": "hang", "expected": "", "metadata": {"state": "completed"}},
    ]
    cases = [{**case, "checks": [SAME, state]} for case in cases]
    refunded = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": "Refunded A100."}}
    talk = {"id": "talk", "turns": ["refund", {"input": "order A100", "checks": [refunded]}]}
    write_suite(workplace, card, [*cases, talk], "4s", [])

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
        "talk": [True, True],  # of its second turn, and that each was answered
    }
    steps = results["talk"].output.value["steps"]
    assert [step["metadata"]["state"] for step in steps] == ["input-required", "completed"]
    assert len({step["metadata"]["task_id"] for step in steps}) == 1, "the second turn goes on with the task that waits"
    errors = {name: results[name].output.metadata["error"] for name in ("failed", "hung")}
    assert errors["failed"]["message"] == "the agent's task failed: The warehouse is closed."
    assert errors["hung"]["type"] == "timeout_error"
    assert executor.cancelled == [results["hung"].output.metadata["task_id"]], "nothing goes on after the run"
    assert results["paid"].output.metadata["steps"][0]["public_output"] == "Looking it up."
    stored = "".join(result.output.model_dump_json() for result in results.values())
    assert KEY not in done.stdout + done.stderr + stored
    assert "The warehouse is closed." in workplace.fepflow("show", "latest").stdout


@pytest.mark.battery
def test_the_tasks_of_a_run_that_is_stopped_are_cancelled(workplace: Workplace, agent: tuple[Scripted, str]) -> None:
    executor, card = agent
    write_suite(workplace, card, [{"id": "hung", "input": "hang", "expected": ""}], "60s", [SAME])
    with workplace.running("run", workplace.suite, AGENT_KEY=KEY) as process:
        wait_for(lambda: executor.seen, "the agent has its message")
        time.sleep(5)  # its task is told
        end(process, signal.SIGINT)
    assert process.returncode == 130
    assert len(executor.cancelled) == 1
