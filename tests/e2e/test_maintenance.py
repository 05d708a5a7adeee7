"""The deployment `maintenance`: old runs are gone from the store and from Prefect, and are in the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Stack, Workplace, wait_for
from .worker import Pool

pytestmark = pytest.mark.e2e


def test_old_runs_leave_the_store_and_prefect(workplace: Workplace, stack: Stack) -> None:
    workplace.write_suite(["a"])
    assert workplace.run("--quiet").returncode == 0
    run = workplace.record
    body = {"artifacts": {"flow_run_id": {"any_": [run.flow_run_id]}}}
    assert stack.api.post("/artifacts/filter", json=body).json() != []
    assert workplace.fepflow("delete", "--case", "a", "--yes").stderr == ""
    assert stack.api.post("/artifacts/filter", json=body).json() == [], "they quote the test case"
    workplace.run("--quiet")
    another = workplace.record
    assert workplace.fepflow("delete", another.id, "--yes").stderr == ""
    assert stack.api.get(f"/flow_runs/{another.flow_run_id}").status_code == 404
    pool = Pool(stack, workplace.env)
    stack.api.patch(f"/deployments/{pool.deployment}", json={"tags": ["fepflow"]}).raise_for_status()
    never_began = pool.run(suite="nowhere.yaml")  # no run of the store is of it
    deployment = pool.deploy("maintenance", f"maintenance-{pool.name}", "fepflow.flows.maintenance.maintenance")
    pool.start_worker()
    try:
        wait_for(lambda: stack.api.state_of(never_began)[0] == "FAILED", "the run of no suite")
        parameters = {"keep": "1s", "keep_last": 0, "archive": True}
        done = pool.post(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"]
        wait_for(lambda: stack.api.state_of(done)[0] in ("COMPLETED", "FAILED"), "the end of the maintenance")
    finally:
        pool.kill()
    message = stack.api.get(f"/flow_runs/{done}").json()["state"]["message"]
    assert message.startswith("Deleted 1 run"), message
    assert stack.api.get(f"/flow_runs/{run.flow_run_id}").status_code == 404
    assert stack.api.get(f"/flow_runs/{never_began}").status_code == 404
    assert stack.api.post("/artifacts/filter", json=body).json() == []
    assert "No runs yet" in workplace.fepflow("list").stdout
    assert [
        file.name.endswith(f"{run.id}.parquet") for file in Path(pool.env["FEPFLOW_HOME"], "archive").iterdir()
    ] == [True]
