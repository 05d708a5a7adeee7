"""A run that is under way: what the command line and Prefect show of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(40)]


def progress(stack: Stack, workplace: Workplace) -> list[dict[str, Any]]:
    """The progress artifacts of the newest run."""
    by = {"id": {"any_": [workplace.record.flow_run_id]}}
    body = {"flow_runs": by, "artifacts": {"type": {"any_": ["progress"]}}}
    found: list[dict[str, Any]] = stack.api.post("/artifacts/filter", json=body).raise_for_status().json()
    return found


def test_a_run_can_be_read_while_it_is_under_way(workplace: Workplace, endpoint: Endpoint, stack: Stack) -> None:
    endpoint.holds_from = 11
    metrics = [{"id": "acc", "check": "exact_match"}]
    workplace.write_suite(CASES, name="watched", target={"concurrency": 2, "timeout": "60s"}, metrics=metrics)
    with workplace.running("run", workplace.suite, "--quiet") as process:
        wait_for(lambda: endpoint.held, "some requests")
        wait_for(lambda: sum(bool(result.checks) for result in workplace.results.values()) > 4, "some checks")
        shown = workplace.fepflow("show").stdout
        result = json.loads(workplace.fepflow("show", "--json").stdout)
        wait_for(lambda: [0 < one["data"] < 100 for one in progress(stack, workplace)] == [True], "progress in Prefect")
        (under_way,) = progress(stack, workplace)
        endpoint.holds_from, endpoint.held = None, False
        assert process.wait(100) == 0
    assert "watched" in shown
    assert " s so far" in shown
    assert "RUNNING  no verdict yet, the numbers are of what is there" in shown
    assert "acc" in shown
    assert " of 40 calls" in shown
    metadata = result["metadata"]
    assert (metadata["status"], metadata["outcome"]) == ("running", None)
    (metric,) = metadata["metrics"]
    assert 0 < metric["n_completed"] < metric["n_expected"] == 40
    assert metric["low"] < metric["value"] == metric["high"] == 1

    assert under_way["key"] == "progress-watched"
    assert " of 40 calls, 0 without an answer; checks: " in under_way["description"]
    (over,) = progress(stack, workplace)
    assert over["id"] == under_way["id"], "updated in place: no history of it grows"
    assert over["data"] == 100
    assert "40 of 40 calls, 0 without an answer; checks: 40 passed, 0 failed, 0 in error." in over["description"]
