"""Schedules from a person's side: what somebody has switched stays so when the stack starts again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from .conftest import Workplace, wait_for
from .endpoint import serving
from .served import Served, place, serve
from .worker import Pool

pytestmark = pytest.mark.e2e

SUITE = """
name: one
target: {recorded: {path: outputs.jsonl, id: $.id}}
test_cases: [{id: hello, input: hello}]
checks: [{type: contains, arguments: {text: $.output.value, phrases: [hello]}}]
"""
FILE = """
deployments:
  - name: first
    entrypoint: fepflow.flows.evaluate.evaluate
    parameters: {suite: one.yaml}
    work_pool: {name: fepflow}
    schedules:
      - {cron: "0 2 * * *", active: false}
      - {cron: "0 3 * * *", active: true}
      - {cron: "0 1 * * *", active: false}
"""
DELETE_REMOVED = """
from fepflow.services.prefect_api import ask_prefect
from fepflow.deployments.schedule import delete_removed
ask_prefect(delete_removed)
"""
BERLIN_TWICE = ("--timezone", "Europe/Berlin", "--repeats", "2")
ANOTHER = """
  - name: second
    entrypoint: fepflow.flows.evaluate.evaluate
    parameters: {suite: one.yaml}
    work_pool: {name: fepflow}
    schedules: [{cron: "0 4 * * *", active: false}]
"""


@pytest.fixture(scope="module")
def workplace(stack, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("scheduled")
    (folder / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")
    (folder / "one.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "prefect.yaml").write_text(FILE, encoding="utf-8")
    return place(stack, folder)


@pytest.fixture(scope="module")
def served(workplace: Workplace) -> Iterator[Served]:
    with serve(workplace) as running:
        yield running


def fepflow(workplace: Workplace, *arguments: str | Path) -> Any:
    done = workplace.stack.fepflow(*arguments, env=workplace.env, timeout=240)
    assert done.returncode == 0, done.stderr
    return done


def schedules(served: Served, name: str) -> dict[str, bool]:
    found = served.deployment(name)["schedules"]
    return {str(one["schedule"].get("cron") or one["schedule"]["interval"]): one["active"] for one in found}


@pytest.mark.battery
def test_what_a_person_switched_stays_when_the_stack_starts_again(served: Served, workplace: Workplace) -> None:
    first = served.deployment("first")
    by_cron = {one["schedule"]["cron"]: one["id"] for one in first["schedules"]}
    resumed = served.prefect("deployment", "schedule", "resume", "evaluate/first", by_cron["0 2 * * *"])
    assert resumed.returncode == 0, resumed.stderr
    path = f"/deployments/{first['id']}/schedules/{by_cron['0 3 * * *']}"
    served.api.patch(path, json={"active": False}).raise_for_status()
    added = served.prefect("deployment", "schedule", "create", "evaluate/first", "--cron", "0 9 * * *")
    assert added.returncode == 0, added.stderr
    switched = {"0 2 * * *": True, "0 3 * * *": False, "0 1 * * *": False, "0 9 * * *": True}
    assert schedules(served, "first") == switched
    fepflow(workplace, "schedule", workplace.folder / "one.yaml", "--cron", "0 5 * * *", *BERLIN_TWICE)
    (planned,) = served.deployment("one")["schedules"]
    assert planned["schedule"]["timezone"] == "Europe/Berlin"
    assert served.deployment("one")["parameters"]["repeats"] == 2
    fepflow(workplace, "schedule", "one", "--resume")
    mine = schedules(served, "one")

    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=60) == 0
    file = workplace.folder / "prefect.yaml"
    changed = FILE.replace("0 3 * * *", "30 3 * * *").replace('"0 1 * * *", active: false', '"0 1 * * *", active: true')
    file.write_text(changed + ANOTHER, encoding="utf-8")
    with serve(workplace) as again:
        switched = {"0 2 * * *": True, "30 3 * * *": False, "0 1 * * *": True, "0 9 * * *": True}
        assert schedules(again, "first") == switched
        assert schedules(again, "second") == {"0 4 * * *": False}
        assert schedules(again, "one") == mine == {"0 5 * * *": True}
        fepflow(workplace, "schedule", "one", "--remove")
        found = again.api.get("/deployments/name/evaluate/one")
        assert found.status_code == 404


@pytest.mark.battery
def test_removing_a_schedule_lets_the_run_under_way_end_and_drops_what_waits(stack, tmp_path: Path) -> None:
    workplace = Workplace(stack, tmp_path, {"FEPFLOW_STORE_URL": f"sqlite:///{tmp_path / 'store.db'}"})
    with serving() as endpoint:
        workplace.env["AGENT_URL"] = endpoint.url
        endpoint.held = True
        workplace.write_suite(["one"], name="removed", target={"timeout": "60s"})
        fepflow(workplace, "schedule", workplace.suite, "--every", "1h")
        deployment = stack.api.get("/deployments/name/evaluate/removed").raise_for_status().json()["id"]
        pool = Pool(stack, workplace.env, "fepflow")
        pool.start_worker("--with-reaper")
        try:
            pool.deployment = deployment
            running = pool.run(suite=str(workplace.suite))
            wait_for(lambda: endpoint.asked, "a call")
            late = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
            state = {"type": "SCHEDULED", "name": "Late", "state_details": {"scheduled_time": late}}
            path = f"/deployments/{deployment}/create_flow_run"
            stack.api.patch(f"/work_pools/{pool.name}", json={"is_paused": True}).raise_for_status()
            waiting = stack.api.post(path, json={"state": state}).raise_for_status().json()["id"]
            taken_over = stack.api.post(path, json={}).raise_for_status().json()["id"]
            for now in ({"type": "RUNNING"}, {**state, "name": "AwaitingRetry"}):
                change = {"state": now, "force": True}
                stack.api.post(f"/flow_runs/{taken_over}/set_state", json=change).raise_for_status()
            removed = fepflow(workplace, "schedule", "removed", "--remove").stdout
            assert "The run removed is under way and continues to its end" in removed
            assert re.search(r"Dropped \d+ runs? that had not begun", removed)
            assert stack.api.get(f"/flow_runs/{waiting}").status_code == 404
            assert removed.count("is under way and continues to its end") == 2
            stack.python(DELETE_REMOVED, workplace.env)
            assert stack.api.get(f"/deployments/{deployment}").status_code == 200
            assert "removed" not in fepflow(workplace, "schedule", "--list").stdout
            endpoint.held = False
            wait_for(lambda: stack.api.state_of(running)[0] == "COMPLETED", "its end")
            assert stack.api.state_of(taken_over)[0] == "SCHEDULED"
            stack.api.delete(f"/flow_runs/{taken_over}").raise_for_status()
            wait_for(lambda: stack.api.get(f"/deployments/{deployment}").status_code == 404, "the reaper's look")
        finally:
            stack.api.patch(f"/work_pools/{pool.name}", json={"is_paused": False})
            pool.kill()
    assert workplace.record.outcome == "pass"
