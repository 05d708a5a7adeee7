"""A run that is topped up while its verdict is open, with a command, a server, and a kill in the middle of it."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.store.store import Store

from .conftest import Workplace, wait_for
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e

CASES = [f"case {number}" for number in range(30)]
SUITE: dict[str, Any] = {
    "metrics": [{"id": "acc", "check": "exact_match"}],
    "gate": {"min": {"acc": 0.9}, "top_up": {"max_repeats": 6}},
}


def task_runs(workplace: Workplace) -> list[tuple[str, str]]:
    """Name and message of each task run of the newest run, in the order of their beginning."""
    flow_run = {"flow_runs": {"id": {"any_": [workplace.record.flow_run_id]}}}
    body = {**flow_run, "sort": "EXPECTED_START_TIME_ASC", "limit": 200}
    found = workplace.stack.api.post("/task_runs/filter", json=body).raise_for_status().json()
    return [(run["name"], (run["state"] or {}).get("message") or "") for run in found]


def looks(workplace: Workplace) -> list[str]:
    """What was said at each look at the verdict, once Prefect has heard of the last one."""

    def said() -> list[str]:
        return [message for name, message in task_runs(workplace) if name == "top up"]

    wait_for(lambda: any(message.startswith("Decided") for message in said()), "the last look")
    return said()


@pytest.mark.battery
def test_rounds_are_added_visibly_and_a_killed_run_goes_on(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(CASES, target={"concurrency": 4}, **SUITE)
    endpoint.delay = 0.03
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) > 35, "the second round")
        process.kill()
        process.wait()
    endpoint.delay = 0
    asked = len(endpoint.asked)
    done = workplace.fepflow("run", "--resume", "latest")
    assert done.returncode == 0, done.stdout + done.stderr
    run = workplace.record
    assert (run.outcome, run.repeats) == ("pass", 2)
    assert "Decided after 2 of at most 6 repeats: 60 of 180 calls; 120 were not needed." in done.stdout
    assert len(endpoint.asked) <= 60 + (asked - 30) + 4, "the first round was committed before the second began"
    assert run.flow_run_id is not None
    assert looks(workplace) == ["Decided after 2 of at most 6 repeats: 60 of 180 calls; 120 were not needed."]


@pytest.mark.battery
def test_groups_of_cases_are_added_in_one_flow_run(workplace: Workplace, endpoint: Endpoint) -> None:
    """Two of 200 cases are wrong, and drawn early: more than the 52 cases that suffice for none."""
    cases: list[Any] = [f"case {number}" for number in range(200)]
    suite = {**SUITE, "gate": {"min": {"acc": 0.9}, "top_up": {"max_cases": 200}}}
    workplace.write_suite(cases, **suite)
    first = workplace.run("--limit", "1")  # which cases come first is the seed's to say
    assert first.returncode == 4, first.stdout
    (drawn,) = workplace.results
    cases[cases.index(drawn)] = {"id": drawn, "input": drawn, "expected": "something else"}
    workplace.write_suite(cases, **suite)
    done = workplace.run()
    run = workplace.record
    assert (done.returncode, run.outcome) == (0, "pass"), done.stdout
    assert 52 < run.n_cases < 200
    assert f"{run.n_cases} of 200 calls; {200 - run.n_cases} were not needed" in done.stdout
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        assert store.results.progress(run.id).outputs == run.n_cases
    open_at_first = "Open; next: test cases 53 to 68. acc: 0.9808 (95 % interval"
    assert looks(workplace)[0].startswith(open_at_first)
    assert sum(name.startswith("call ") for name, _ in task_runs(workplace)) > 11, "52 cases are 11 batches"
