"""The states of flow runs and task runs, and what hangs on them: exit codes, automations, Retry, Prefect's retries."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint
from .worker import working

pytestmark = pytest.mark.e2e


def flow_run(stack: Stack, flow_run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = stack.api.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()
    return found


def ended(stack: Stack, flow_run_id: str) -> dict[str, Any]:
    wait_for(lambda: flow_run(stack, flow_run_id)["state_type"] in ("COMPLETED", "FAILED", "CRASHED"), "its end")
    return flow_run(stack, flow_run_id)


def task_states(stack: Stack, flow_run_id: str) -> dict[str, tuple[str, str, str]]:
    """Type, name and message of each task run's state."""
    found = stack.api.task_runs(flow_run_id)
    return {
        name: (run["state_type"], run["state_name"], run["state"]["message"] or "")
        for name, run in found.items()
    }  # fmt: skip


@pytest.mark.battery
def test_a_deployment_evaluates_no_suite_outside_of_the_operators_folders(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    """Whoever may create runs in Prefect names a suite, and a suite has plugins."""
    workplace.write_suite(["one"], plugins=["plugin.py"])
    (workplace.folder / "plugin.py").write_text(f"open({str(workplace.folder / 'ran')!r}, 'w')")
    other = workplace.folder / "other"
    other.mkdir()
    (other / "link.yaml").symlink_to(workplace.suite)
    with working(stack, workplace.env) as pool:
        pool.kill()
        pool.env["FEPFLOW_SUITE_ROOTS"] = str(other)
        pool.start_worker()
        run = ended(stack, pool.run(suite=str(other / "link.yaml")))
        assert run["state_name"] == "Failed"
        assert "list its folder in FEPFLOW_SUITE_ROOTS" in run["state"]["message"]
        assert not (workplace.folder / "ran").exists()
        planned = workplace.fepflow("schedule", workplace.suite, "--every", "1h")  # names its folder
        assert planned.returncode == 0, planned.stderr
        run = ended(stack, pool.run(suite=str(other / "link.yaml")))
        assert run["name"] == "e2e · pass"
    assert workplace.fepflow("schedule", "e2e", "--remove").returncode == 0


@pytest.mark.battery
def test_retry_repeats_only_errors_and_computes_the_verdict_again(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    workplace.write_suite(["good", "fail 1 once"], target={"attempts": 1})
    with working(stack, workplace.env) as pool:
        ordered = pool.run(suite=str(workplace.suite))
        before = ended(stack, ordered)
        assert (before["name"], before["state_name"]) == ("e2e · inconclusive", "Failed")
        assert before["tags"] == ["verdict:inconclusive"]
        run_id = workplace.record.id
        stack.api.set_state(ordered, type="SCHEDULED", name="AwaitingRetry")
        wait_for(lambda: flow_run(stack, ordered)["state_type"] == "COMPLETED", "the verdict of the retry")
    after = flow_run(stack, ordered)
    assert (after["name"], after["tags"]) == ("e2e · pass", ["verdict:pass"])
    assert (workplace.record.id, workplace.record.outcome) == (run_id, "pass")
    assert endpoint.questions == {"good": 1, "fail 1 once": 2}
    again = "Asked again: 1 call without an answer and 1 check in error. Kept: 1 output and 1 check result."
    assert f"Tried again after the verdict inconclusive. {again}" in after["state"]["message"]
    wait_for(lambda: again in logs_of(stack, ordered), "the line in the log")
    wait_for(lambda: verdict_events(stack, run_id) == ["inconclusive", "pass"], "the event of each verdict")


def logs_of(stack: Stack, flow_run_id: str) -> str:
    """The messages in a flow run's log."""
    body = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": 200}
    return "\n".join(line["message"] for line in stack.api.post("/logs/filter", json=body).raise_for_status().json())


def verdict_events(stack: Stack, run_id: str) -> list[str]:
    """The outcomes that events tell of a run, the oldest first; the server hears of them a moment after its end."""
    body = {"filter": {"event": {"prefix": ["fepflow.verdict."]}}, "limit": 50}
    found = stack.api.post("/events/filter", json=body).raise_for_status().json()["events"]
    return [event["payload"]["outcome"] for event in reversed(found) if event["payload"]["run_id"] == run_id]


@pytest.mark.battery
def test_a_check_that_the_gate_does_not_judge_leaves_no_failed_task_run(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    checks = [
        {"type": "contains", "arguments": {"text": "$.output.value", "phrases": phrases}, "id": check_id}
        for check_id, phrases in (("style", ["please"]), ("answer", ["two"]))
    ]
    workplace.write_suite(["two"], checks=checks, gate={"min": {"answer": 1.0}, "verdict": "point"})
    assert workplace.run("--quiet").returncode == 0
    states = task_states(stack, str(workplace.record.flow_run_id))
    message = "1 of 1 case failed: two (style). The gate does not judge style."
    assert states["check two"] == ("COMPLETED", "Completed", message)
    assert {kind for kind, _, _ in states.values()} == {"COMPLETED"}


@pytest.mark.battery
def test_retrying_a_failed_check_makes_no_call_and_fails_again(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    workplace.write_suite([{"id": "wrong", "input": "two", "expected": "three"}])
    with working(stack, workplace.env) as pool:
        ordered = pool.run(suite=str(workplace.suite))
        ended(stack, ordered)
        stack.api.set_state(ordered, type="SCHEDULED", name="AwaitingRetry")
        wait_for(lambda: flow_run(stack, ordered)["run_count"] == 2, "the retry")
        after = ended(stack, ordered)
    assert (after["name"], after["state_name"], after["tags"]) == ("e2e · fail", "Failed", ["verdict:fail"])
    assert endpoint.questions == {"two": 1}
    assert task_states(stack, ordered)["check wrong"][1] == "Failed", "also where the result is from before"
    again = "Asked again: nothing, as nothing was in error. Kept: 1 output and 1 check result, 1 of which failed."
    assert again in after["state"]["message"]
    wait_for(lambda: again in logs_of(stack, ordered), "the line in the log")
    wait_for(lambda: verdict_events(stack, workplace.record.id), "the event of the verdict")
    time.sleep(5)  # a second one would come
    assert verdict_events(stack, workplace.record.id) == ["fail"], "the same verdict is told once"


@pytest.mark.battery
@pytest.mark.parametrize("flow", ["settings", "wrapped"])
def test_prefects_retries_do_not_fire_on_a_verdict(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, flow: str
) -> None:
    workplace.write_suite([{"id": "wrong", "input": "two", "expected": "three"}])
    if flow == "settings":
        env = {"PREFECT_FLOWS_DEFAULT_RETRIES": "2", "PREFECT_TASKS_DEFAULT_RETRIES": "2"}
        assert workplace.run("--quiet", **env).returncode == 1
    else:
        code = (
            "import asyncio, sys\nfrom fepflow.flows.evaluate import evaluate\n"
            "evaluate = evaluate.with_options(retries=2)\n"
            "state = asyncio.run(evaluate(suite=sys.argv[1], return_state=True))\n"
            "assert state.name == 'Failed', state"
        )
        with workplace.running(workplace.suite, code=code, **stack.prefect) as process:
            _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    run = flow_run(stack, str(workplace.record.flow_run_id))
    assert (run["state_name"], run["run_count"], run["name"]) == ("Failed", 1, "e2e · fail")
    assert endpoint.questions == {"two": 1}
