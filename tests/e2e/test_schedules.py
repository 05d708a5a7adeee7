"""Schedules from a person's side: they fire, and what somebody has switched stays so when the stack starts again."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deployments.server_log import LOCKED

from .conftest import Workplace, wait_for
from .test_serve import Served, place, serve

pytestmark = pytest.mark.e2e

SUITE = """
name: {name}
target: {{recorded: {{path: outputs.jsonl, id: $.id}}}}
test_cases: [{{id: hello, input: hello}}]
checks: [{{type: contains, arguments: {{text: $.output.value, phrases: [hello]}}}}]
"""
FILE = """
deployments:
  - name: first
    entrypoint: flows.evaluate.evaluate
    parameters: {suite: one.yaml}
    work_pool: {name: fepflow}
    schedules:
      - {cron: "0 2 * * *", active: false}
      - {cron: "0 3 * * *", active: true}
"""
BERLIN_TWICE = ("--timezone", "Europe/Berlin", "--repeats", "2")
ANOTHER = """
  - name: second
    entrypoint: flows.evaluate.evaluate
    parameters: {suite: one.yaml}
    work_pool: {name: fepflow}
    schedules: [{cron: "0 4 * * *", active: false}]
"""


@pytest.fixture(scope="module")
def workplace(stack, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("scheduled")
    (folder / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text(SUITE.format(name=name), encoding="utf-8")
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


def deployment(served: Served, name: str) -> dict[str, Any]:
    return served.api.get(f"/deployments/name/evaluate/{name}").raise_for_status().json()


def schedules(served: Served, name: str) -> dict[str, bool]:
    found = deployment(served, name)["schedules"]
    return {str(one["schedule"].get("cron") or one["schedule"]["interval"]): one["active"] for one in found}


def runs(served: Served, name: str, *types: str) -> list[dict[str, Any]]:
    body = {
        "deployments": {"id": {"any_": [deployment(served, name)["id"]]}},
        "flow_runs": {"state": {"type": {"any_": list(types)}}},
    }
    return served.api.post("/flow_runs/filter", json=body).raise_for_status().json()


def test_a_schedule_fires_and_its_run_ends_with_a_verdict(served: Served, workplace: Workplace) -> None:
    for name in ("one", "two"):
        done = fepflow(workplace, "schedule", workplace.folder / f"{name}.yaml", "--every", "15s")
        assert f"Scheduled evaluate/{name}: every 0:00:15" in done.stdout
        assert re.search(r"^Next run: \w+ \d{4}-\d\d-\d\d", done.stdout, re.MULTILINE)
        assert "A worker is alive" in done.stdout
    for name in ("one", "two"):
        wait_for(partial(runs, served, name, "COMPLETED"), f"a run of {name} that has ended", 300)
        (first, *_) = runs(served, name, "COMPLETED")
        assert first["created_by"]["type"] == "SCHEDULE"
        fepflow(workplace, "schedule", name, "--pause")
    listed = [line.split() for line in fepflow(workplace, "list", "--json").stdout.splitlines()]
    assert listed
    record = workplace.record
    assert (record.name in ("one", "two"), record.outcome) == (True, "pass")
    table = fepflow(workplace, "schedule", "--list").stdout
    assert re.search(r"evaluate/one .* paused", table)
    # One at a time: what was due while it ran was dropped, not queued.
    assert not runs(served, "one", "PENDING")
    log = (Path(workplace.env["FEPFLOW_HOME"]) / "server.log").read_text(encoding="utf-8")
    errors = [part for part in re.split(r"(?m)^(?=\d\d:\d\d:\d\d\.\d+ \| )", log) if "| ERROR " in part[:30]]
    # SQLite refuses Prefect's heartbeat of a worker now and then; the worker sends the next one.
    assert [error for error in errors if LOCKED not in error] == []
    assert fepflow(workplace, "status").stderr == ""


@pytest.mark.battery
def test_what_a_person_switched_stays_when_the_stack_starts_again(served: Served, workplace: Workplace) -> None:
    first = deployment(served, "first")
    by_cron = {one["schedule"]["cron"]: one["id"] for one in first["schedules"]}
    resumed = served.prefect("deployment", "schedule", "resume", "evaluate/first", by_cron["0 2 * * *"])
    assert resumed.returncode == 0, resumed.stderr
    path = f"/deployments/{first['id']}/schedules/{by_cron['0 3 * * *']}"
    served.api.patch(path, json={"active": False}).raise_for_status()
    added = served.prefect("deployment", "schedule", "create", "evaluate/first", "--cron", "0 9 * * *")
    assert added.returncode == 0, added.stderr
    switched = {"0 2 * * *": True, "0 3 * * *": False, "0 9 * * *": True}
    assert schedules(served, "first") == switched
    fepflow(workplace, "schedule", workplace.folder / "one.yaml", "--cron", "0 5 * * *", *BERLIN_TWICE)
    (planned,) = deployment(served, "one")["schedules"]
    assert planned["schedule"]["timezone"] == "Europe/Berlin"
    assert deployment(served, "one")["parameters"]["options"]["repeats"] == 2
    fepflow(workplace, "schedule", "one", "--resume")
    mine = schedules(served, "one")

    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=60) == 0
    file = workplace.folder / "prefect.yaml"
    file.write_text(FILE.replace("0 3 * * *", "30 3 * * *") + ANOTHER, encoding="utf-8")
    with serve(workplace) as again:
        assert schedules(again, "first") == {"0 2 * * *": True, "30 3 * * *": False, "0 9 * * *": True}
        assert schedules(again, "second") == {"0 4 * * *": False}
        assert schedules(again, "one") == mine == {"0 5 * * *": True}
        fepflow(workplace, "schedule", "one", "--remove")
        found = again.api.get("/deployments/name/evaluate/one")
        assert found.status_code == 404
