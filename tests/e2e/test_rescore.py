"""`fepflow rescore` from a person's side: no call of the agent, a new run, a verdict of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from .conftest import Workplace
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e


def edit(workplace: Workplace, **sections: object) -> None:
    document = YAML(typ="safe").load(workplace.suite.read_text(encoding="utf-8"))
    with workplace.suite.open("w", encoding="utf-8") as file:
        YAML().dump({**document, **sections}, file)


def test_a_run_is_judged_anew_without_its_agent(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(["a", {"id": "b", "input": "b", "expected": "B"}])
    assert workplace.run("--quiet").returncode == 1
    first = workplace.record
    asked = dict(endpoint.questions)
    rows = [{"id": "a", "input": "a", "expected": "a"}, {"id": "b", "input": "b", "expected": "b"}]
    (workplace.folder / "cases.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    done = workplace.fepflow("rescore", first.id[:8], AGENT_URL="")
    assert done.returncode == 0, done.stderr
    assert f"run {first.id[:8]} is judged by {workplace.suite} as it is now; the agent is not asked" in done.stderr
    assert "PASS" in done.stdout
    assert f"rescored from run {first.id[:8]}" in done.stdout
    assert endpoint.questions == asked
    second = workplace.record
    assert (second.rescored_from, second.cause, second.outcome) == (first.id, "rescore", "pass")
    assert second.flow_run_id is not None
    assert workplace.stack.api.state_of(second.flow_run_id) == ("COMPLETED", "Completed")
    flow_run = workplace.stack.api.get(f"/flow_runs/{second.flow_run_id}").raise_for_status().json()
    assert flow_run["name"] == f"{second.name} (rescored) · pass", "it does not look like a measurement"
    assert {"plan", "decide", "publish", "take a"} <= set(workplace.stack.api.task_runs(second.flow_run_id))

    compared = workplace.fepflow("compare", first.id, second.id)
    assert "the output is the same; what the case expects" in compared.stdout, compared.stdout + compared.stderr

    edit(workplace, gate={"min": {"exact_match": 0.99}})
    gate = workplace.fepflow("rescore", "--gate", "--json", "--failed-exit-code", "7", second.id, workplace.suite)
    assert gate.returncode == 4
    document = json.loads(gate.stdout)
    assert document["metadata"]["rescored_from"] == second.id
    again = workplace.fepflow("run", "--resume", workplace.record.id[:8], "--quiet")
    assert again.returncode == 4
    assert endpoint.questions == asked

    refused = workplace.fepflow("rescore", "nothing")
    assert refused.returncode == 2
    trend = workplace.fepflow("show", second.id, "--trend", "exact_match")
    assert "ask for the trend of that run" in trend.stderr
    report = workplace.folder / "report.xml"
    report.write_text("an older one", encoding="utf-8")
    variables = workplace.folder / "variables"
    variables.write_text("", encoding="utf-8")
    options: list[str | Path] = [
        "--output",
        report,
        "--overwrite",
        "--junit-failures",
        "checks",
        "--env-file",
        variables,
    ]
    quiet = workplace.fepflow("rescore", "--quiet", first.id, *options, "--verbose")
    assert quiet.returncode == 4
    assert report.is_file()
