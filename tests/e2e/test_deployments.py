"""prefect.yaml as it is shipped: deployed to a real server, run by a real worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from ruamel.yaml import YAML

from .conftest import PREFECT_COMMAND, wait_for

ROOT = Path(__file__).parent.parent.parent
PREFECT = [sys.executable, "-m", "prefect"]
DEPLOYMENTS = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]

SUITE = """
name: greeting
tags: [gate]
target: {recorded: {path: outputs.jsonl, id: $.id}}
test_cases: [{id: hello, input: hello}]
checks: [{type: contains, arguments: {text: $.output.value, phrases: [hello]}}]
"""


@pytest.fixture(scope="module")
def deployed(stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    roots = os.pathsep.join(map(str, (ROOT, tmp_path_factory.getbasetemp())))
    env = {**stack.env, **stack.prefect, "FEPFLOW_SUITE_ROOTS": roots}
    for command in (
        ["work-pool", "create", "fepflow", "--type", "process", "--overwrite"],
        ["--no-prompt", "deploy", "--all"],
    ):
        words = stack.warm.command(command, env, PREFECT_COMMAND)
        done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return env


@pytest.fixture
def worker(deployed: dict[str, str]) -> Iterator[None]:
    """A worker of the pool."""
    process = subprocess.Popen(
        [*PREFECT, "worker", "start", "--pool", "fepflow", "--limit", "1"],
        cwd=ROOT,
        env={**deployed, "PREFECT_WORKER_QUERY_SECONDS": "2"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()  # it would wait for what it runs, and nothing runs any more
        process.wait()


@pytest.mark.e2e
@pytest.mark.parametrize("written", DEPLOYMENTS, ids=lambda written: str(written["name"]))
def test_prefect_has_what_the_file_says(stack, deployed: dict[str, str], written: dict[str, Any]) -> None:
    flow = written["entrypoint"].rpartition(".")[2].replace("_", "-")
    found = stack.api.get(f"/deployments/name/{flow}/{written['name']}").raise_for_status().json()
    assert "{{" not in json.dumps(found)
    assert found["description"] == written["description"]
    assert set(found["tags"]) == set(written["tags"])
    assert set(found["parameters"]) == set(written.get("parameters", {}))
    if limit := written.get("concurrency_limit"):
        assert found["global_concurrency_limit"]["limit"] == limit["limit"]
        assert found["concurrency_options"]["collision_strategy"] == limit["collision_strategy"]
    assert found["job_variables"] == written["work_pool"]["job_variables"]
    schedules = {schedule["schedule"]["cron"]: schedule["active"] for schedule in found["schedules"]}
    assert schedules == {schedule["cron"]: False for schedule in written.get("schedules", [])}


@pytest.mark.e2e
def test_an_agent_that_was_deployed_is_evaluated_by_the_gate(stack, deployed: dict[str, str]) -> None:
    gate = stack.api.get("/deployments/name/evaluate/gate").raise_for_status().json()
    owned = stack.api.get(f"/automations/related-to/prefect.deployment.{gate['id']}").raise_for_status()
    (automation,) = owned.json()
    assert (automation["name"], automation["enabled"]) == ("fepflow gate", True)

    query = {"deployments": {"id": {"any_": [gate["id"]]}}}

    def runs() -> list[dict[str, Any]]:
        return stack.api.post("/flow_runs/filter", json=query).raise_for_status().json()

    def emit(event: str, resource: str) -> None:
        happened: dict[str, Any] = {"id": str(uuid4()), "occurred": datetime.now(UTC).isoformat(), "event": event}
        happened["resource"] = {"prefect.resource.id": resource}
        stack.api.post("/events", json=[happened]).raise_for_status()

    emit("agent.removed", "agent.refund-desk")
    emit("agent.deployed", "agent.refund-desk")
    wait_for(runs, "a run of the gate")
    (run,) = runs()
    assert run["created_by"]["type"] == "AUTOMATION"
    assert run["parameters"] == gate["parameters"]
    # The agent of the shipped suite does not run here.
    stack.api.delete(f"/flow_runs/{run['id']}").raise_for_status()


@pytest.mark.e2e
def test_the_form_in_the_ui_explains_each_parameter(stack, deployed: dict[str, str]) -> None:
    found = stack.api.get("/deployments/name/evaluate/suite").raise_for_status().json()
    schema = found["parameter_openapi_schema"]
    assert schema["required"] == ["suite"]
    assert all(field["description"] for field in schema["properties"].values())


@pytest.mark.e2e
@pytest.mark.battery
@pytest.mark.usefixtures("worker")
def test_a_worker_runs_any_suite_on_demand(stack, deployed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")
    command = ["deployment", "run", "evaluate/suite", "--param", f"suite={tmp_path / 'suite.yaml'}", "--watch"]
    done = subprocess.run([*PREFECT, *command], env=deployed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    query = {"sort": "START_TIME_DESC", "limit": 1, "flow_runs": {"name": {"any_": ["greeting · pass"]}}}
    (run,) = stack.api.post("/flow_runs/filter", json=query).raise_for_status().json()
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed")
    assert {"fepflow", "on-demand", "gate", "verdict:pass"} <= set(run["tags"])

    listed = stack.fepflow("list", "--name", "greeting", "--json")
    stored = json.loads(listed.stdout.splitlines()[0])
    assert (stored["outcome"], stored["flow_run_id"]) == ("pass", run["id"])
