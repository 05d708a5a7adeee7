"""An ECP manifest, from its file to the verdict, and as it is gone on with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fepflow.store.store import Store
from tasks.analysis.metrics import compute_verdict
from tasks.call_target import call_target
from tasks.plan_run import create_run
from tasks.run.batches import Batch
from tasks.run.open_run import open_run
from tasks.run.options import RunOptions
from tasks.run_checks import run_checks_of_batch
from tasks.validation.validate_suite import validate_suite

AGENT = """\
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    text = request["params"].get("input", "")
    result = {"name": "echo", "capabilities": {}}
    if request["method"] == "agent/step":
        calls = [{"tool": "echo", "args": {"text": text}}] if text else None
        result = {"status": "done", "public_output": text, "private_thought": "echo it", "tool_calls": calls}
    answer = {"error": {"code": -32000, "message": "out of luck"}} if text == "fail" else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""

SAYS = {"type": "text_match", "condition": "contains", "value": "hello"}
THINKS = {"type": "text_match", "field": "evaluation_context", "condition": "equals", "value": "echo it"}
CALLS = {"type": "tool_usage", "tool_name": "echo", "arguments": {"text": "hello"}}


@pytest.fixture
def manifest(tmp_path: Path) -> Any:
    """Writes a manifest of these scenarios, each a list of steps, each with its graders."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "rows.jsonl").write_text('{"input": "a", "output": "a"}\n{"input": "b", "output": "c"}\n')

    def write(version: str | None = "v1", **scenarios: Any) -> Path:
        whole = [
            {"name": name, "steps": [{"input": text, "graders": graders} for text, graders in steps]}
            if isinstance(steps, list)
            else {"name": name, "dataset": steps}
            for name, steps in scenarios.items()
        ]
        data = {"name": "m", "target": f"{sys.executable} -I -S agent.py", "scenarios": whole}
        path = tmp_path / "manifest.json"
        path.write_text(json.dumps({**({"manifest_version": version} if version else {}), **data}))
        return path

    return write


async def execute(store: Store, run_id: str, calls: int) -> Any:
    """What became of each check of each scenario, and the verdict."""
    async with open_run(run_id) as context:
        await call_target(context, Batch(0, calls))
        await run_checks_of_batch(context, Batch(0, calls))
        verdict = compute_verdict(context.store, context.run, context.suite)
        await context.finish("completed", outcome=verdict.outcome)
    found = {
        result.case.id: {check.check_id: check.error.type if check.error else check.passed for check in result.checks}
        for result in store.results(run_id)
    }
    return found, verdict.outcome


@pytest.mark.parametrize("version", ["v1", "0.2.3", None])
async def test_a_manifest_is_judged_by_its_graders(manifest: Any, store: Store, version: str | None) -> None:
    path = manifest(
        version, good=[("hello", [SAYS, THINKS, CALLS]), ("", [])], rows={"type": "jsonl", "source": "rows.jsonl"}
    )
    found, outcome = await execute(store, create_run(store, validate_suite(path)), 2)
    assert found == {
        "good": {"completed": True, "step-1-text_match": True, "step-1-text_match-2": True, "step-1-tool_usage": True},
        "rows": {"completed": True, "step-1-text_match": True, "step-2-text_match": False},
    }
    assert outcome == "fail"


async def test_a_scenario_that_breaks_off_is_an_error_of_its_later_steps_and_the_others_go_on(
    manifest: Any, store: Store
) -> None:
    broken = [("hello", [SAYS]), ("fail", [SAYS]), ("hello", [SAYS])]
    path = manifest(
        broken=broken, whole=[("hello", [SAYS])], mute=[("", [{**SAYS, "condition": "does_not_contain"}, CALLS])]
    )
    found, outcome = await execute(store, create_run(store, validate_suite(path), RunOptions()), 3)
    assert found["broken"]["step-1-text_match"] is True
    assert {found["broken"][name] for name in ("completed", "step-2-text_match", "step-3-text_match")} == {
        "unknown_error"
    }
    assert found["whole"] == {"completed": True, "step-1-text_match": True}
    assert found["mute"] == {"completed": True, "step-1-text_match": False, "step-1-tool_usage": False}
    assert outcome == "fail"


async def test_a_run_is_gone_on_with_whatever_has_become_of_the_manifest(manifest: Any, store: Store) -> None:
    path = manifest(a=[("hello", [SAYS])], b=[("hello", [CALLS])])
    run_id = create_run(store, validate_suite(path), RunOptions(limit=1))
    path.unlink()
    (path.parent / "rows.jsonl").unlink()
    found, outcome = await execute(store, run_id, 1)
    assert len(found) == 1
    assert outcome == "pass"


def test_a_pattern_that_is_none_is_an_error_at_its_line(manifest: Any, tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    manifest(a=[("hello", [SAYS])])
    path.write_text(
        f"""\
manifest_version: "v1"
name: m
target: {sys.executable} agent.py
scenarios:
  - name: a
    steps:
      - input: a
        graders:
          - {{type: text_match, condition: contains, value: a}}
          - type: text_match
            condition: regex
            pattern: "("
"""
    )
    (problem,) = validate_suite(path).problems
    assert (problem.line, problem.path) == (10, "a.checks.step-1-text_match-2.arguments")
    assert "the pattern is not a regular expression" in problem.message


async def test_placeholders_in_braces_are_compared_as_they_stand(manifest: Any, store: Store) -> None:
    text = "port: {{ $.a }}"
    graders = [{**SAYS, "value": "{{ $.a }}"}, {**SAYS, "value": "{{ $.b }}"}, {**CALLS, "arguments": {"text": text}}]
    validation = validate_suite(manifest(a=[(text, graders)]))
    assert validation.errors == []
    found, _ = await execute(store, create_run(store, validation, RunOptions()), 1)
    of_graders = {"step-1-text_match": True, "step-1-text_match-2": False, "step-1-tool_usage": True}
    assert found["a"] == {"completed": True, **of_graders}


def test_the_judge_is_the_one_that_ecps_runtime_would_ask(manifest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = manifest(a=[("hello", [{"type": "llm_judge", "prompt": "Is it polite?"}])])
    monkeypatch.setenv("OLLAMA_API_BASE", "http://127.0.0.1:1")
    for variable, model in (("", "openai/gpt-4o-mini"), ("ollama/llama3", "ollama/llama3")):
        monkeypatch.setenv("ECP_LLM_JUDGE_MODEL", variable)
        loaded = validate_suite(path).loaded
        assert loaded.snapshot["judge"] == {"model_config": {"model": model}}
    assert validate_suite(path).errors == []


def test_a_manifest_without_any_grader_is_warned_of(manifest: Any) -> None:
    told = [str(problem) for problem in validate_suite(manifest(a=[("hello", [])])).warnings]
    assert any("there are no checks: all that is judged is that the agent answers each step" in line for line in told)
    told = [str(problem) for problem in validate_suite(manifest(a=[("hello", [SAYS])], b=[("b", [])])).warnings]
    assert not any("there are no checks" in line for line in told)
