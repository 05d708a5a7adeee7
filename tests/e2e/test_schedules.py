"""Schedules from a person's side: what somebody has switched stays so when the stack starts again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Workplace
from .served import Served, place, serve

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
    switched = {"0 2 * * *": True, "0 3 * * *": False, "0 9 * * *": True}
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
    file.write_text(FILE.replace("0 3 * * *", "30 3 * * *") + ANOTHER, encoding="utf-8")
    with serve(workplace) as again:
        assert schedules(again, "first") == {"0 2 * * *": True, "30 3 * * *": False, "0 9 * * *": True}
        assert schedules(again, "second") == {"0 4 * * *": False}
        assert schedules(again, "one") == mine == {"0 5 * * *": True}
        fepflow(workplace, "schedule", "one", "--remove")
        found = again.api.get("/deployments/name/evaluate/one")
        assert found.status_code == 404
