"""What a suite says of an ECP agent, and what it has besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from fepflow.documents.loader import Document
from fepflow.suite.models import COMPLETED
from fepflow.suite.reader import LoadedSuite, read_suite

CHECK = {"type": "contains", "arguments": {"text": "$.output.value.steps[0].public_output", "phrases": "a"}}


def read(**sections: object) -> LoadedSuite:
    data = {"name": "s", "target": {"ecp": {"command": "agent"}}, "test_cases": [{"input": "a"}], **sections}
    return read_suite(Document(data, "suite.yaml", ""), Path("."), {})


@pytest.mark.parametrize("checks", [{}, {"checks": []}, {"checks": [CHECK, CHECK]}])
def test_a_suite_has_the_check_that_all_steps_were_answered_after_its_own(checks: dict[str, list[object]]) -> None:
    loaded = read(**checks)
    assert loaded.problems == []
    assert loaded.suite is not None
    assert [check.id for check in loaded.suite.checks] == [None] * len(checks.get("checks", [])) + ["completed"]
    assert loaded.suite.checks[-1] == COMPLETED
    assert "checks" not in loaded.snapshot or COMPLETED not in loaded.snapshot["checks"]


def test_other_targets_have_no_such_check() -> None:
    loaded = read(target={"python": "agent.py:answer"}, checks=[CHECK])
    assert loaded.suite is not None
    assert len(loaded.suite.checks) == 1


@pytest.mark.parametrize(
    ("target", "tries"),
    [
        ({"ecp": {"command": "agent"}}, (1, 0)),
        ({"ecp": {"url": "http://127.0.0.1:1/ecp"}}, (1, 0)),
        ({"ecp": {"command": "agent"}, "attempts": 3, "retries": 1}, (3, 1)),
        ({"python": "agent.py:answer"}, (3, 2)),
    ],
)
def test_an_agent_is_asked_once_unless_the_suite_says_more(target: dict[str, object], tries: tuple[int, int]) -> None:
    suite = read(target=target, checks=[CHECK]).suite
    assert suite is not None
    assert (suite.target.attempts, suite.target.retries) == tries


def test_a_check_of_that_name_is_a_mistake() -> None:
    (problem,) = read(checks=[CHECK, {**CHECK, "id": "completed"}]).problems
    assert str(problem).endswith(
        "checks[1].id: fepflow has its own check completed: that all steps were answered (choose another id)"
    )


def test_only_one_scenario_at_a_time_goes_to_an_address_unless_it_serves_more() -> None:
    def at_once(**ecp: object) -> int:
        suite = read(target={"ecp": ecp, "concurrency": 8}).suite
        assert suite is not None
        return suite.target.calls_at_once

    assert at_once(command="agent") == 8
    assert at_once(url="http://127.0.0.1:1/ecp") == 1
    assert at_once(url="http://127.0.0.1:1/ecp", parallel=True) == 8
