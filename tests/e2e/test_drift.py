"""An agent that becomes a little worse each night, until Prefect tells somebody; one that does not is left alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from .conftest import Stack, Workplace, wait_for
from .receiver import receiving

pytestmark = pytest.mark.e2e

SUITE = """
name: {name}
target: {{python: agent.py:answer}}
test_cases: cases.jsonl
checks:
  - {{id: right, type: exact_match, arguments: {{actual: $.output.value, expected: $.test_case.expected}}}}
gate: {{min: {{right: 0.92}}, inconclusive: allow}}
"""
AGENT = """
from pathlib import Path

def answer(question):
    wrong = int(Path(__file__).with_name("wrong").read_text())
    return "I do not know" if int(question.split()[-1]) < wrong else question
"""
NIGHTS = """
import sys
from pathlib import Path
import fepflow

for wrong in sys.argv[2:]:
    Path("wrong").write_text(wrong)
    print(fepflow.run(sys.argv[1]).id)
"""


def suite_of(workplace: Workplace, name: str) -> Path:
    suite = workplace.folder / f"{name[0]}.yaml"
    suite.write_text(SUITE.format(name=json.dumps(name)), encoding="utf-8")
    return suite


def nights(workplace: Workplace, suite: Path, *wrong: int) -> list[str]:
    """Runs of an agent that does not know the first so many of 50 questions, from one script; their ids."""
    with workplace.running(suite, *map(str, wrong), code=NIGHTS) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.split()


def drifts(stack: Stack, run_ids: set[str]) -> list[dict[str, Any]]:
    """What the events of drift in these runs say."""
    body = {"filter": {"event": {"name": ["fepflow.drift"]}}, "limit": 50}
    found = stack.api.post("/events/filter", json=body).raise_for_status().json()["events"]
    return [event["payload"] for event in found if event["payload"]["run_id"] in run_ids]


def page_of(stack: Stack, flow_run_id: str | None) -> str:
    body = {"flow_runs": {"id": {"any_": [flow_run_id]}}}
    found = stack.api.post("/artifacts/filter", json=body).raise_for_status().json()
    return next(str(artifact["data"]) for artifact in found if artifact["key"].startswith("verdict-"))


@pytest.mark.battery
def test_the_run_that_raises_the_alarm_of_drift_is_told_of(workplace: Workplace, stack: Stack) -> None:
    questions = [f"question {number}" for number in range(50)]
    rows = [json.dumps({"id": each, "input": each, "expected": each}) for each in questions]
    (workplace.folder / "cases.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (workplace.folder / "agent.py").write_text(AGENT, encoding="utf-8")
    name = "Worse by night's end"
    suite = suite_of(workplace, name)
    with receiving() as receiver:
        alert = ["alert", "--name", "drifts", "--on", "drift", "--webhook", receiver.url]
        assert workplace.fepflow(*alert).returncode == 0
        steady = nights(workplace, suite_of(workplace, "Steady agent"), 4, 5, 3)
        falling = nights(workplace, suite, 4, 9, 10)
        (workplace.folder / "wrong").write_text("8", encoding="utf-8")
        done = workplace.fepflow("run", suite, "--quiet")
        assert done.returncode in (0, 1), done.stderr
        falling.append(workplace.record.id)
        wait_for(lambda: receiver.got, "the notification of drift", 180)
        last = workplace.record
        wait_for(lambda: drifts(stack, {*steady, *falling}), "the event of drift, which Prefect stores after a while")
        (drift,) = drifts(stack, {*steady, *falling})
        (note,) = receiver.got
        assert workplace.fepflow("alert", "--remove", "drifts").returncode == 0

    assert drift["run_id"] == note["run_id"] == falling[-1]
    assert drift["metrics"] == [{"id": "right", "value": 0.84, "rate": 0.92, "agreed_by": "gate"}]
    assert (note["kind"], note["suite"]) == ("drift", name)
    assert "right has drifted: 0.84 in this run, against the rate of 0.92 by the gate" in note["body"]
    assert f"/runs/flow-run/{last.flow_run_id}" in note["body"]
    assert "**Drift**: right has drifted" in page_of(stack, last.flow_run_id)

    # What the notification says to type shows the drift; of the steady agent there is none.
    (command,) = [line for line in note["body"].splitlines() if line.startswith("fepflow trends")]
    shown = workplace.fepflow(*shlex.split(command)[1:], "--json")
    (series,) = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [run["run_id"] for run in series["runs"]] == falling
    assert series["has_drifted"]
    (series,) = [json.loads(line) for line in workplace.fepflow("trends", "Steady agent", "--json").stdout.splitlines()]
    assert [run["run_id"] for run in series["runs"]] == steady
    assert not series["has_drifted"]
