"""prefect.yaml as it is shipped: deployed to a real server, run by a real worker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent.parent
PREFECT = [sys.executable, "-m", "prefect"]
DEPLOYMENTS = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]

SUITE = """
name: greeting
tags: [gate]
target: {scripted: {path: outputs.jsonl, id: $.id}}
test_cases: [{id: hello, input: hello}]
checks: [{type: contains, arguments: {text: $.output.value, phrases: [hello]}}]
"""


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda deployment: str(deployment["name"]))
def test_every_entrypoint_is_a_flow(deployment: dict[str, str]) -> None:
    module, _, name = deployment["entrypoint"].rpartition(".")
    flow = getattr(import_module(module), name)
    assert flow.name == "evaluate"
    assert set(deployment["parameters"]) <= set(flow.parameters.properties)
    suite = ROOT / deployment["parameters"]["suite"]
    assert suite.is_file()


@pytest.fixture(scope="module")
def deployed(stack) -> Iterator[dict[str, str]]:
    env = {**stack.env, "PREFECT_API_URL": stack.api_url}
    for command in (["work-pool", "create", "fepflow", "--type", "process"], ["--no-prompt", "deploy", "--all"]):
        done = subprocess.run([*PREFECT, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    worker = subprocess.Popen(
        [*PREFECT, "worker", "start", "--pool", "fepflow", "--limit", "1"],
        cwd=ROOT,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield env
    finally:
        worker.kill()  # it would wait for what it runs, and nothing runs any more
        worker.wait()


@pytest.mark.e2e
def test_the_nightly_schedule_is_shipped_paused(stack, deployed: dict[str, str]) -> None:
    found = httpx.get(f"{stack.api_url}/deployments/name/evaluate/nightly").raise_for_status().json()
    (schedule,) = found["schedules"]
    assert schedule["active"] is False
    assert schedule["schedule"]["cron"] == "0 2 * * *"


@pytest.mark.e2e
def test_the_form_in_the_ui_explains_each_parameter(stack, deployed: dict[str, str]) -> None:
    found = httpx.get(f"{stack.api_url}/deployments/name/evaluate/suite").raise_for_status().json()
    schema = found["parameter_openapi_schema"]
    assert schema["required"] == ["suite"]
    assert all(field["description"] for field in schema["properties"].values())


@pytest.mark.e2e
def test_a_worker_runs_any_suite_on_demand(stack, deployed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")
    command = ["deployment", "run", "evaluate/suite", "--param", f"suite={tmp_path / 'suite.yaml'}", "--watch"]
    done = subprocess.run([*PREFECT, *command], env=deployed, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    query = {"sort": "START_TIME_DESC", "limit": 1, "flow_runs": {"name": {"any_": ["greeting"]}}}
    (run,) = httpx.post(f"{stack.api_url}/flow_runs/filter", json=query).raise_for_status().json()
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Pass")
    assert {"fepflow", "on-demand", "gate"} <= set(run["tags"])

    listed = stack.fepflow("list", "--name", "greeting", "--json")
    stored = json.loads(listed.stdout.splitlines()[0])
    assert (stored["outcome"], stored["flow_run_id"]) == ("pass", run["id"])
