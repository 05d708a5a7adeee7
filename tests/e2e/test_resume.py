"""A run that is killed goes on where it was: nothing that was committed is asked for again, nothing is lost."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from .conftest import Workplace, end, wait_for
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(120)]


def committed(workplace: Workplace) -> set[str]:
    """The questions whose answer is in the store, read past all of fepflow."""
    store = workplace.folder / "store.db"
    if not store.exists():
        return set()
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT case_id FROM output JOIN run_case USING (run_id, position)").fetchall()
    return {case_id for (case_id,) in rows}


def essence(result: dict[str, Any]) -> dict[str, Any]:
    """What a result says, without when, how long and under which number."""
    answers = [
        (
            row["execution_context"]["test_case"]["id"],
            row["execution_context"]["output"]["value"],
            [(check["metadata"]["check_id"], check["status"], check["results"]) for check in row["check_results"]],
        )
        for row in result["results"]
    ]
    said = {key: result["metadata"][key] for key in ("status", "outcome", "metrics", "verdict")}
    return {"summary": result["summary"], "answers": answers, **said}


def test_a_run_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    workplace: Workplace, endpoint: Endpoint
) -> None:
    workplace.write_suite(CASES, target={"concurrency": 8})
    elsewhere = {"FEPFLOW_STORE_URL": f"sqlite:///{workplace.folder / 'undisturbed.db'}"}
    undisturbed = json.loads(workplace.run("--json", **elsewhere).stdout)
    endpoint.asked.clear()
    endpoint.delay = 0.05

    arguments: list[Any] = ["run", workplace.suite]
    for _ in range(2):
        safe, asked_before = committed(workplace), endpoint.questions
        kill_after = len(endpoint.asked) + random.randint(1, 60)
        with workplace.running(*arguments) as process:
            wait_for(lambda wanted=kill_after: len(endpoint.asked) >= wanted, f"request {kill_after}")
            end(process, signal.SIGKILL)
        again = {question for question in safe if endpoint.questions[question] > asked_before[question]}
        assert again == set(), "asked for what was committed"
        assert "interrupted" in workplace.fepflow("list").stdout
        arguments = ["run", "--resume", "latest"]

    safe, asked_before = committed(workplace), endpoint.questions
    endpoint.delay = 0
    finished = workplace.fepflow("run", "--resume", "latest", "--json")
    assert finished.returncode == 0, finished.stderr
    assert {question for question in safe if endpoint.questions[question] > asked_before[question]} == set()
    assert set(endpoint.questions) == set(CASES)
    assert essence(json.loads(finished.stdout)) == essence(undisturbed)


def test_a_second_executor_makes_no_call_while_the_first_one_is_alive(workplace: Workplace, endpoint: Endpoint) -> None:
    endpoint.held = True
    workplace.write_suite(CASES[:3], target={"concurrency": 1, "timeout": "60s"})
    with workplace.running("run", workplace.suite) as first:
        wait_for(lambda: endpoint.asked, "the first request")
        second = workplace.fepflow("run", "--resume", "latest")
        assert len(endpoint.asked) == 1
        endpoint.held = False
        assert first.wait(60) == 0
    assert second.returncode == 3
    assert "is being executed by" in second.stderr
    assert set(endpoint.questions.values()) == {1}
    assert workplace.record.outcome == "pass"
