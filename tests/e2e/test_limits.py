"""Limits that runs share through Prefect."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint
from .served import place, serve

pytestmark = pytest.mark.e2e

logger = logging.getLogger("load")

CASES = [f"question {number}" for number in range(40)]


@pytest.fixture
def limit(workplace: Workplace) -> Iterator[str]:
    """A global limit of a name of its own."""
    name = f"bot-{time.time_ns()}"
    yield name
    workplace.fepflow("limits", "remove", name)


@pytest.mark.battery
def test_two_runs_together_keep_to_a_limit(workplace: Workplace, endpoint: Endpoint, limit: str) -> None:
    assert limit in workplace.fepflow("limits", "set", limit, "--concurrency", "3").stdout
    endpoint.delay = 0.02
    workplace.write_suite(CASES, target={"limits": [limit], "concurrency": 8}, batch_size=20)
    with workplace.running("run", workplace.suite) as first, workplace.running("run", workplace.suite) as second:
        assert (first.wait(100), second.wait(100)) == (0, 0)
    assert len(endpoint.asked) == 80
    assert 1 < endpoint.most_at_once <= 3
    (row,) = [line for line in workplace.fepflow("limits").stdout.splitlines() if line.startswith(limit)]
    assert row.split()[-1] == "0", "all places are given back"


@pytest.mark.battery
def test_ten_runs_that_a_worker_executes_at_once_share_a_limit(
    stack: Stack, tmp_path: Path, endpoint: Endpoint
) -> None:
    workplace = place(stack, tmp_path, AGENT_URL=endpoint.url, FEPFLOW_SUITE_RUNS="10")
    endpoint.delay = 0.5
    workplace.write_suite(
        [f"question {number}" for number in range(30)],
        target={"limits": ["shared"], "concurrency": 8, "timeout": "60s"},
    )
    with serve(workplace) as served:
        assert workplace.fepflow("limits", "set", "shared", "--concurrency", "8").returncode == 0
        order = f"/deployments/{served.deployment('suite')['id']}/create_flow_run"
        for _ in range(10):
            served.api.post(order, json={"parameters": {"suite": str(workplace.suite)}}).raise_for_status()
        wait_for(lambda: endpoint.asked, "the first call")
        began = time.monotonic()
        wait_for(lambda: len(endpoint.asked) == 300 and not endpoint.under_way, "the last answer", 400)
        seconds = time.monotonic() - began
        wait_for(lambda: len(served.runs("suite", "COMPLETED")) == 10, "the end of all runs")
        assert "database is locked" not in (Path(workplace.env["FEPFLOW_HOME"]) / "server.log").read_text()
    logger.info("%.0f %% of the limit was used, in %.1f s", 100 * 300 * endpoint.delay / 8 / seconds, seconds)
    assert endpoint.most_at_once == 8
    assert set(endpoint.questions.values()) == {10}


@pytest.mark.battery
def test_places_of_a_killed_run_come_free(workplace: Workplace, endpoint: Endpoint, limit: str, stack: Stack) -> None:
    workplace.fepflow("limits", "set", limit, "--concurrency", "3")
    workplace.write_suite(CASES, target={"limits": [limit], "timeout": "60s"})
    endpoint.held = True
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) == 3, "as many calls as may be under way")
        process.kill()
    endpoint.held = False
    path = f"/v2/concurrency_limits/{limit}"
    assert stack.api.get(path).json()["active_slots"] == 3
    wait_for(lambda: stack.api.get(path).json()["active_slots"] == 0, "the end of the leases", 120)


@pytest.mark.battery
def test_a_limit_that_is_lowered_or_removed_while_a_run_is_under_it(
    workplace: Workplace, endpoint: Endpoint, limit: str
) -> None:
    endpoint.delay = 0.3
    workplace.fepflow("limits", "set", limit, "--concurrency", "32")
    workplace.write_suite(
        [f"question {number}" for number in range(400)], target={"limits": [limit], "concurrency": 32}
    )
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) > 20, "some calls")
        workplace.fepflow("limits", "set", limit, "--concurrency", "2")
        endpoint.delay = 0.01
        assert process.wait(120) == 0
    endpoint.delay = 0.3
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) > 402, "some calls")
        workplace.fepflow("limits", "remove", limit)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"fepflow limits set {limit} --concurrency" in err
    workplace.fepflow("limits", "set", limit, "--concurrency", "2")


@pytest.mark.battery
def test_a_rate_limit_is_kept(workplace: Workplace, endpoint: Endpoint, limit: str) -> None:
    workplace.fepflow("limits", "set", limit, "--per-minute", "600")
    workplace.write_suite(CASES, target={"limits": [limit]}, batch_size=40)
    assert workplace.run().returncode == 0
    record = workplace.record
    # A second's worth may go at once: 40 calls at 10 a second take 3 s at least.
    assert (record.completed_at - record.started_at).total_seconds() >= 2.5


@pytest.mark.battery
def test_a_limit_that_is_not_there_is_named(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(CASES, target={"limits": ["no-such"]})
    done = workplace.run()
    assert done.returncode == 2
    assert "fepflow limits set no-such --concurrency" in done.stderr
    assert not endpoint.asked
