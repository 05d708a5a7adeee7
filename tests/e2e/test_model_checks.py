"""What Prefect shows of checks that ask a model, and what a budget leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Stack, Workplace
from .endpoint import serving

pytestmark = pytest.mark.e2e

CANARY = "sk-canary-0815"

JUDGE: dict[str, Any] = {
    "type": "llm_judge",
    "arguments": {
        "prompt": "Is this right? {{$.output.value}}",
        "response_format": {"type": "object", "properties": {"passed": {"const": True}}, "required": ["passed"]},
    },
}


def statuses(workplace: Workplace) -> dict[str, str]:
    return {
        name: check.status
        for name, result in workplace.results.items()
        for check in result.checks
        if check.check_type == "llm_judge"
    }


@pytest.fixture
def judged(stack: Stack, tmp_path: Path, model_server: Any) -> Any:
    with serving() as endpoint:
        env = {
            "AGENT_URL": endpoint.url,
            "FEPFLOW_STORE_URL": f"sqlite:///{tmp_path / 'store.db'}",
            "JUDGE_KEY": CANARY,
        }
        workplace = Workplace(stack, tmp_path, env)

        def write(cases: list[str], checks: list[Any], **sections: Any) -> Workplace:
            judge = {
                "model_config": {"model": "openai/gpt-4o-mini"},
                "provider_config": {"api_base": f"{model_server.address}/v1", "api_key": "${JUDGE_KEY}"},
                **sections.pop("judge", {}),
            }
            workplace.write_suite(cases, checks=checks, judge=judge, **sections)
            return workplace

        yield write


def test_model_checks_have_their_own_task_runs_and_are_retried(judged: Any, model_server: Any) -> None:
    arguments = {"model_config": {"model": "openai/any?fault=error&times=4"}, "provider_config": {"max_retries": 0}}
    troubled = {**JUDGE, "id": "troubled", "arguments": {**JUDGE["arguments"], **arguments}}
    same = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
    cases = [{"id": "b", "input": "b", "expected": "b", "checks": [troubled]}, "a"]
    workplace = judged(cases, [same, JUDGE])
    models = {"FEPFLOW_MODELS": "openai/any*"}  # a model that the suite does not name: the operator allows it
    done = workplace.run(**models)
    assert done.returncode == 4, done.stderr
    runs = workplace.stack.api.task_runs(workplace.record.flow_run_id)
    expected = {"plan", "call a", "call b", "check a", "check b", "judge a", "judge b", "judge case b"}
    assert set(runs) == {*expected, "decide", "publish"}
    assert runs["judge b"]["state"]["message"] == "Not judged yet, each gets a task run of its own: b."
    assert (runs["judge case b"]["state_type"], runs["judge case b"]["run_count"]) == ("FAILED", 3)
    assert sum(body["model"].startswith("any") for body in model_server.bodies) == 4, "once, and three tries of Prefect"
    (result,) = [check for check in workplace.results["b"].checks if check.check_id == "troubled"]
    assert result.metadata["spent"]["requests"] == 4
    assert result.metadata["model_error"] == "http_status"
    assert "models: 2 answers:" in done.stdout

    again = workplace.fepflow("run", "--resume", "latest", **models)
    assert again.returncode == 0, again.stderr
    assert len(model_server.bodies) == 2 + 4 + 1

    assert {headers["Authorization"] for _, headers, _ in model_server.seen} == {f"Bearer {CANARY}"}
    for folder in (workplace.folder, workplace.stack.home):  # the store, and what Prefect keeps
        for path in folder.rglob("*"):
            assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
    assert CANARY not in done.stdout + done.stderr + again.stdout + again.stderr


@pytest.mark.battery
def test_checks_left_out_by_a_budget_are_run_on_resume(judged: Any, model_server: Any) -> None:
    cases = [f"q{number}" for number in range(12)]
    workplace = judged(cases, [JUDGE], budget={"usd": 0.00005}, judge={"concurrency": 1})
    spent = workplace.run()
    assert spent.returncode == 4, spent.stderr
    asked = len(model_server.bodies)
    assert 0 < asked < 12
    assert list(statuses(workplace).values()) == ["completed"] * asked
    assert f"{12 - asked} checks by models are missing: the run reached the budget of 5e-05 usd" in spent.stdout
    assert not any(name.startswith("check ") for name in workplace.stack.api.task_runs(workplace.record.flow_run_id)), (
        "there is nothing else to check"
    )

    again = workplace.fepflow("run", "--resume", "latest")
    assert again.returncode == 4
    assert len(model_server.bodies) == asked, "what was spent before is not forgotten"
