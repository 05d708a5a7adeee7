"""An ECP manifest, from its file to the verdict, and as it is gone on with."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fepflow.analysis.metrics import compute_verdict
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InputError
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import RunOptions, create_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch, run_model_checks

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
        work = await context.begin(Batch(0, calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        verdict = compute_verdict(context.store, context.run, context.suite)
        await context.finish("completed", outcome=verdict.outcome)
    found = {
        result.case.id: {check.check_id: check.error.type if check.error else check.passed for check in result.checks}
        for result in store.results.by_case(run_id)
    }
    return found, verdict.outcome


async def test_a_manifest_is_judged_by_its_graders(manifest: Any, store: Store) -> None:
    scenarios = {
        "good": [("hello", [SAYS, THINKS, CALLS]), ("", [])],
        "rows": {"type": "jsonl", "source": "rows.jsonl"},
    }
    validations = [validate_suite(manifest(version, **scenarios)) for version in ("0.2.3", None, "v1")]
    suites = [validation.require() for validation in validations]
    assert suites[0] == suites[1] == suites[2]
    found, outcome = await execute(store, create_run(store, validations[-1]).run.id, 2)
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
    found, outcome = await execute(store, create_run(store, validate_suite(path), RunOptions()).run.id, 3)
    assert found["broken"]["step-1-text_match"] is True
    assert {found["broken"][name] for name in ("completed", "step-2-text_match", "step-3-text_match")} == {
        "unknown_error"
    }
    assert found["whole"] == {"completed": True, "step-1-text_match": True}
    assert found["mute"] == {"completed": True, "step-1-text_match": False, "step-1-tool_usage": False}
    assert outcome == "fail"


async def test_a_run_is_gone_on_with_whatever_has_become_of_the_manifest(manifest: Any, store: Store) -> None:
    path = manifest(a=[("hello", [SAYS])], b=[("hello", [CALLS])])
    run_id = create_run(store, validate_suite(path), RunOptions(limit=1)).run.id
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
    assert problem.severity == "error"


BAD_GRADERS: dict[str, Any] = {
    "pattern": {"type": "text_match", "condition": "regex", "pattern": "("},
    "no pattern": {"type": "text_match", "condition": "regex"},
    "no value": {"type": "text_match", "condition": "does_not_contain"},
    "no condition": {"type": "text_match", "value": "hello"},
    "condition": {"type": "text_match", "condition": "like", "value": "hello"},
    "field": {"type": "text_match", "condition": "does_not_contain", "value": "x", "field": "status"},
    "value": {"type": "text_match", "condition": "does_not_contain", "value": 5},
    "unused": {"type": "text_match", "condition": "contains", "value": "hello", "arguments": ["a"]},
    "no prompt": {"type": "llm_judge"},
    "arguments": {"type": "tool_usage", "tool_name": "echo", "arguments": ["text"]},
    "tool name": {"type": "tool_usage", "tool_name": 5},
    "type": {"type": "rouge"},
    "a check's type": {"type": "contains"},
    "no type": {"condition": "contains", "value": "hello"},
    "no mapping": "text_match",
}


def test_a_bad_grader_is_told_once(manifest: Any) -> None:
    told = {name: len(validate_suite(manifest(a=[("a", [bad])])).errors) for name, bad in BAD_GRADERS.items()}
    assert told == dict.fromkeys(BAD_GRADERS, 1)


async def test_bad_graders_are_errors_of_their_own_and_the_rest_is_run(manifest: Any, store: Store) -> None:
    graders = [SAYS, *BAD_GRADERS.values(), CALLS]
    validation = validate_suite(manifest(a=[("hello", graders)], b=[("hello", [SAYS])]))
    assert len(validation.errors) == len(BAD_GRADERS)
    found, outcome = await execute(store, create_run(store, validation, RunOptions()).run.id, 2)
    assert found["b"] == {"step-1-text_match": True, "completed": True}
    errors = [error for error in found["a"].values() if error is not True]
    assert errors == ["validation_error"] * len(BAD_GRADERS)
    assert len(found["a"]) == len(graders) + 1
    assert outcome == "inconclusive"


async def test_a_judge_without_a_key_is_an_error_of_its_graders(
    manifest: Any, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ECP_LLM_JUDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    path = manifest(a=[("hello", [SAYS, {"type": "llm_judge", "prompt": "Polite?"}])])
    validation = await asyncio.to_thread(validate_suite, path)  # loads litellm, which takes seconds
    (problem,) = validation.errors
    assert "OPENAI_API_KEY" in problem.message
    run_id = create_run(store, validation, RunOptions()).run.id
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        await run_model_checks(context, work)
        verdict = compute_verdict(context.store, context.run, context.suite)
        await context.finish("completed", outcome=verdict.outcome)
    checks = {check.check_id: check for check in next(store.results.by_case(run_id)).checks}
    assert checks["step-1-text_match"].passed is True
    assert "OPENAI_API_KEY" in checks["step-1-llm_judge"].error.message
    assert verdict.outcome == "inconclusive"


async def test_a_missing_program_is_an_error_of_each_step_and_is_told_before(manifest: Any, store: Store) -> None:
    path = manifest(a=[("hello", [SAYS, CALLS])])
    path.write_text(path.read_text().replace(sys.executable, "no-such-program"))
    validation = validate_suite(path)
    assert [problem.message for problem in validation.errors] == ["the program no-such-program is not found in PATH"]
    run_id = create_run(store, validation, RunOptions()).run.id
    found, outcome = await execute(store, run_id, 1)
    assert found["a"] == dict.fromkeys(("step-1-text_match", "step-1-tool_usage", "completed"), "unknown_error")
    (result,) = store.results.by_case(run_id)
    assert "the program no-such-program is not found in PATH" in result.output.failure["message"]
    assert outcome == "inconclusive"


def test_a_command_that_is_for_a_shell_is_told_what_to_write(manifest: Any) -> None:
    path = manifest(a=[("hello", [SAYS])])
    path.write_text(path.read_text().replace(sys.executable, f"GREETING=hi {sys.executable}"))
    (problem,) = validate_suite(path).errors
    assert problem.message == "the program GREETING=hi is not found in PATH"
    assert "shell: true" in (problem.advice or "")


def test_a_key_that_v1_does_not_know_may_be_misspelt_and_refuses_the_manifest(manifest: Any) -> None:
    graders = [SAYS, {**SAYS, "valeu": "hi"}]
    with pytest.raises(InputError, match="valeu is not known here"):
        validate_suite(manifest("v1", a=[("hello", graders)])).require()
    validate_suite(manifest("0.2.3", a=[("hello", graders)])).require()


async def test_a_crash_and_a_time_out_are_tried_once(manifest: Any, store: Store, tmp_path: Path) -> None:
    faults = 'if text: open("asked", "a").write(text + "\\n")\n    if text == "crash": sys.exit(3)\n'
    faults += '    if text == "hang": import time; time.sleep(1000)\n    result = {"name"'
    path = manifest(a=[("crash", [SAYS])], b=[("hang", [SAYS])], c=[("hello", [SAYS])])
    (tmp_path / "agent.py").write_text(AGENT.replace('result = {"name"', faults))
    found, _ = await execute(store, create_run(store, validate_suite(path), RunOptions(timeout=3.0)).run.id, 3)
    steps = {name: checks["step-1-text_match"] for name, checks in found.items()}
    assert steps == {"a": "unknown_error", "b": "timeout_error", "c": True}
    assert sorted((tmp_path / "asked").read_text().split()) == ["crash", "hang", "hello"]
    suite = store.runs.get("latest").suite["target"]
    assert (suite["timeout"], suite["ecp"]["step_timeout"], suite["ecp"]["start_timeout"]) == (9.0, 3.0, 3.0)


async def test_placeholders_in_braces_are_compared_as_they_stand(manifest: Any, store: Store) -> None:
    text = "port: {{ $.a }}"
    graders = [{**SAYS, "value": "{{ $.a }}"}, {**SAYS, "value": "{{ $.b }}"}, {**CALLS, "arguments": {"text": text}}]
    validation = validate_suite(manifest(a=[(text, graders)]))
    assert validation.errors == []
    found, _ = await execute(store, create_run(store, validation, RunOptions()).run.id, 1)
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
