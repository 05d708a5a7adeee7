"""Cases that still fail after their attempts: what Prefect shows of them, and how often the agent is asked."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.prefect_api import PrefectAPI

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint, serving

pytestmark = pytest.mark.e2e

ATTEMPTS, RETRIES = 2, 1
TROUBLED = {"fail 2 soon": 3, "fail 3 later": 4, "fail 99 never": 4}
"""Cases that need more than their attempts, and how often each is asked: attempts + 1 + retries at most."""


@dataclass
class Troubled:
    """A run with troubled cases, and what Prefect's API says of it."""

    workplace: Workplace
    done: subprocess.CompletedProcess[str]
    endpoint: Endpoint
    api: PrefectAPI

    def task_runs(self) -> dict[str, dict[str, Any]]:
        return self.workplace.stack.api.task_runs(self.workplace.record.flow_run_id)

    def states(self, name: str) -> list[str]:
        found = self.api.get(f"/task_run_states/?task_run_id={self.task_runs()[name]['id']}").raise_for_status().json()
        return [state["name"] for state in sorted(found, key=lambda state: state["timestamp"])]


@pytest.fixture(scope="module")
def troubled(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troubled]:
    folder: Path = tmp_path_factory.mktemp("troubled")
    with serving() as endpoint:
        store = f"sqlite:///{folder / 'store.db'}"
        workplace = Workplace(stack, folder, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": store})
        cases = [*TROUBLED, "fail 1 in the batch", *(f"quiet {number}" for number in range(30))]
        workplace.write_suite(cases, target={"attempts": ATTEMPTS, "retries": RETRIES})
        yield Troubled(workplace, workplace.run(), endpoint, stack.api)


def test_only_a_case_that_never_answers_is_without_an_output(troubled: Troubled) -> None:
    assert troubled.done.returncode == 4, troubled.done.stderr
    failed = [name for name, result in troubled.workplace.results.items() if result.output.value is None]
    assert failed == ["fail 99 never"]
    assert all(len(result.checks) == 1 for result in troubled.workplace.results.values())


@pytest.mark.parametrize("case", TROUBLED)
def test_attempts_are_not_multiplied_and_every_one_is_on_record(troubled: Troubled, case: str) -> None:
    assert troubled.endpoint.questions[case] == TROUBLED[case]
    metadata = troubled.workplace.results[case].output.metadata
    log = metadata["attempt_log"]
    assert len(log) == metadata["attempts"] == TROUBLED[case]
    answered = [entry["error"] is None for entry in log]
    assert answered == [False] * (len(log) - 1) + [case != "fail 99 never"]
    assert all(entry["error"]["message"].startswith("HTTP 500") for entry in log if entry["error"])
    assert [entry["started_at"] for entry in log] == sorted(entry["started_at"] for entry in log)


def test_prefect_shows_exactly_the_troubled_cases(troubled: Troubled) -> None:
    cases = {name: run for name, run in troubled.task_runs().items() if name.startswith("case ")}
    assert {name.removeprefix("case ") for name in cases} == set(TROUBLED)
    assert cases["case fail 2 soon"]["state_name"] == "Completed"
    assert cases["case fail 99 never"]["state_type"] == "FAILED"
    assert cases["case fail 99 never"]["run_count"] == 1 + RETRIES
    # Prefect stores the states that a task run has had some time after the last one.
    wait_for(lambda: "AwaitingRetry" in troubled.states("case fail 3 later"), "the retry of a case")
    assert "AwaitingRetry" not in troubled.states("case fail 2 soon")


def test_the_state_has_the_error_of_the_last_attempt(troubled: Troubled) -> None:
    run = troubled.task_runs()["case fail 99 never"]
    assert run["state"]["message"] == "fail 99 never: attempt 4: HTTP 500 Internal Server Error: not yet"


def test_the_flow_run_ends_as_the_exit_code_says(troubled: Troubled) -> None:
    run = troubled.api.get(f"/flow_runs/{troubled.workplace.record.flow_run_id}").raise_for_status().json()
    assert (run["state_type"], run["state_name"]) == ("FAILED", "Failed")
    assert run["state"]["message"].startswith("INCONCLUSIVE: ")


def test_an_open_circuit_stops_calls_and_resume_makes_them(workplace: Workplace, endpoint: Endpoint) -> None:
    endpoint.out_of_order = True
    cases = [f"question {number}" for number in range(400)]
    workplace.write_suite(cases, target={"attempts": 3, "retries": 2, "concurrency": 32})
    down = workplace.run()
    assert down.returncode == 4, down.stderr
    record = workplace.record
    assert record.status == "completed"
    assert len(endpoint.asked) < 150, "a call a second finds out whether it is back"
    results = workplace.results
    assert len(results) == 400
    kinds = {result.output.metadata["error"]["kind"] for result in results.values()}
    assert "circuit_open" in kinds
    asked = sum(result.output.metadata["attempts"] for result in results.values())
    assert asked == len(endpoint.asked)
    task_runs = workplace.stack.api.task_runs(record.flow_run_id).values()
    given_up = [run["state"]["message"] for run in task_runs if " given up: " in (run["state"]["message"] or "")]
    assert given_up
    assert {run["state_name"] for run in task_runs} <= {"Completed", "Failed"}, "the UI's lists hide other names"
    assert len(task_runs) < 150

    endpoint.out_of_order = False
    again = workplace.fepflow("run", "--resume", record.id)
    assert again.returncode == 0, again.stderr
    assert all(result.output.value == name for name, result in workplace.results.items())


@pytest.mark.battery
def test_an_agent_that_restarts_loses_no_case(workplace: Workplace, endpoint: Endpoint) -> None:
    endpoint.delay = 0.05
    cases = [f"question {number}" for number in range(300)]
    workplace.write_suite(cases, target={"attempts": 2, "retries": 2, "concurrency": 16})
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) >= 60, "request 60")
        endpoint.out_of_order = True
        down_from = len(endpoint.asked)
        wait_for(lambda: len(endpoint.asked) >= down_from + 22, "a probe")  # 20 failures in a row, then one a second
        endpoint.out_of_order = False
        assert process.wait(200) == 0
    assert workplace.record.outcome == "pass"


@pytest.mark.battery
def test_calls_left_out_by_a_deadline_are_made_on_resume(workplace: Workplace, endpoint: Endpoint) -> None:
    endpoint.delay = 0.4
    workplace.write_suite([f"q{number}" for number in range(60)], target={"concurrency": 1}, deadline="4s")
    late = workplace.run()
    assert late.returncode == 4, late.stderr
    assert "of 60 outputs are missing: the run reached the deadline of 4 s" in late.stdout
    answered = {name for name, result in workplace.results.items() if result.output and result.output.value}
    assert 0 < len(answered) < 30
    record = workplace.record
    assert (record.completed_at - record.started_at).total_seconds() < 20, "all calls would take 24 s"

    endpoint.delay = 0.0
    asked = endpoint.questions
    again = workplace.fepflow("run", "--resume", "latest")
    assert again.returncode == 0, again.stderr
    assert all(endpoint.questions[name] == asked[name] for name in answered)


@pytest.mark.battery
def test_a_budget_stops_calls_and_the_verdict_says_so(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(
        [f"q{number}" for number in range(60)],
        target={"concurrency": 2},
        http={"metadata": {"tokens": "$.tokens"}},
        budget={"tokens": 100},
    )
    spent = workplace.run()
    assert spent.returncode == 4, spent.stderr
    assert "the run reached the budget of 100 tokens" in spent.stdout
    assert 10 <= len(endpoint.asked) <= 12, "those under way end"

    again = workplace.fepflow("run", "--resume", "latest")
    assert again.returncode == 4
    assert 10 <= len(endpoint.asked) <= 12, "what was spent before is not forgotten"
