"""A suite whose target is an ECP agent, from its file to the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fepflow.analysis.metrics import compute_verdict
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import create_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch

AGENT = """\
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    text = request["params"].get("input", "")
    if text == "crash" and not os.path.exists("mended"):
        sys.exit("out of luck")
    result = {"name": "echo", "capabilities": {}}
    if request["method"] == "agent/step":
        usage = {"input_tokens": 1, "output_tokens": 2, "cost_usd": 0.5}
        result = {"status": "done", "public_output": text, "usage": usage}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def right(check_id: str, step: int) -> dict[str, Any]:
    """A check that a step said what is expected."""
    arguments = {"actual": f"$.output.value.steps[{step}].public_output", "expected": "$.test_case.expected"}
    return {"id": check_id, "type": "exact_match", "arguments": arguments}


FIRST, SECOND = right("first", 0), right("second", 1)


@pytest.fixture
def suite(tmp_path: Path) -> Any:
    """Writes a suite for the agent."""
    (tmp_path / "agent.py").write_text(AGENT)

    def write(cases: list[Any], checks: list[Any], **sections: Any) -> Path:
        ecp = {"command": [sys.executable, "-I", "-S", "agent.py"], **sections.pop("ecp", {})}
        target = {"attempts": 1, "retries": 0, "ecp": ecp}
        path = tmp_path / "suite.json"
        path.write_text(json.dumps({"name": "s", "target": target, "test_cases": cases, "checks": checks, **sections}))
        return path

    return write


async def execute(run_id: str, calls: int) -> Any:
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        verdict = compute_verdict(context.store, context.run, context.suite)
        await context.finish("completed", outcome=verdict.outcome)
        return context.target_client.budget.spent, verdict


def found(store: Store, run_id: str) -> dict[str, dict[str, Any]]:
    return {
        result.case.id: {
            check.check_id: check.error.message if check.error else check.passed for check in result.checks
        }
        for result in store.results.by_case(run_id)
    }


CASES = [
    {"id": "whole", "input": ["a", {"input": "b"}], "expected": "a"},
    {"id": "broken", "input": ["a", "crash", "c"], "expected": "a"},
]
CAUSE = (
    "the target gave only a part of the output: "
    "step 2 of 3: the agent exited with code 1; the end of its stderr: out of luck"
)


async def test_a_scenario_that_breaks_off_passes_for_none_though_all_that_is_read_is_right(
    suite: Any, store: Store
) -> None:
    run_id = create_run(store, validate_suite(suite(CASES, [FIRST]))).run.id
    _, verdict = await execute(run_id, 2)
    assert found(store, run_id) == {
        "whole": {"first": True, "completed": True},
        "broken": {"first": True, "completed": CAUSE},
    }
    assert verdict.outcome == "inconclusive"
    assert store.results.progress(run_id).failed_outputs == 1


async def test_going_on_asks_for_the_scenario_again(suite: Any, store: Store, tmp_path: Path) -> None:
    run_id = create_run(store, validate_suite(suite(CASES, [SECOND]))).run.id
    await execute(run_id, 2)
    assert found(store, run_id)["broken"] == {"second": CAUSE, "completed": CAUSE}
    (tmp_path / "mended").touch()
    store.results.delete_errors(run_id)
    await execute(run_id, 2)
    assert found(store, run_id)["broken"] == {"second": False, "completed": True}


async def test_a_budget_counts_what_the_agent_says_that_it_used(suite: Any, store: Store) -> None:
    run_id = create_run(store, validate_suite(suite(CASES[:1], [FIRST], budget={"usd": 5, "tokens": 1000}))).run.id
    spent, verdict = await execute(run_id, 1)
    assert spent == {"usd": 1.0, "tokens": 6}
    assert verdict.outcome == "pass"


def told(path: Path) -> list[str]:
    return [str(problem).partition("suite.json:")[2] for problem in validate_suite(path).problems]


def test_validate_starts_nothing_and_finds_what_keeps_the_agent_from_starting(
    suite: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AGENT_KEY", raising=False)
    (tmp_path / "agent.sh").write_text("#!/bin/sh\ntouch started\n")
    (tmp_path / "agent.sh").chmod(0o755)
    assert told(suite(CASES, [FIRST], ecp={"command": ["./agent.sh"]})) == []
    assert not (tmp_path / "started").exists()
    (problem,) = told(suite(CASES, [FIRST], ecp={"command": "no-such-agent --now"}))
    assert problem.endswith(
        "target.ecp.command: the program no-such-agent is not found in PATH (install it, or name its path)"
    )
    (problem,) = told(suite(CASES, [FIRST], ecp={"env": ["AGENT_KEY"]}))
    assert problem.endswith(
        "target.ecp.env[0]: AGENT_KEY is not set in the environment, so the agent does not get it (export AGENT_KEY)"
    )
    (problem,) = told(suite([*CASES, {"id": "odd", "input": ["a", 2], "expected": "a"}], [FIRST]))
    assert problem.endswith(
        "test_cases[2].input: step 2 is neither a text nor an object with a text as input "
        "(write a step as text, or as {input: text})"
    )
