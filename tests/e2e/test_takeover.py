"""A run of a deployment whose process is gone: a worker takes it over, a few times, and all tell the truth."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import psutil
import pytest

from fepflow.store.records import RunRecord
from fepflow.store.store import Store

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint
from .test_process_loss import reap
from .worker import Pool, working

pytestmark = pytest.mark.e2e

CASES = ["first", "second", "third", "fourth"]


@pytest.fixture
def pool(workplace: Workplace, stack: Stack) -> Iterator[Pool]:
    with working(stack, workplace.env) as pool:
        yield pool


def under_way(pool: Pool, workplace: Workplace, endpoint: Endpoint) -> str:
    """The flow run of a run that has stored two of its four answers, and waits for the third."""
    endpoint.kept_waiting = {"third", "fourth"}
    workplace.write_suite(CASES, target={"concurrency": 4, "timeout": "10m"}, batch_size=1)
    flow_run = pool.run(suite=str(workplace.suite))
    wait_for(lambda: {"third", "fourth"} <= endpoint.questions.keys(), "calls that are not answered", 240)
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        wait_for(lambda: store.results.progress(workplace.record.id).checks == 2, "two stored answers")
    return flow_run


def kill_run(pool: Pool) -> None:
    """Kill the processes of the runs, and not the worker."""
    for process in pool.processes():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def record_when(workplace: Workplace, status: str) -> RunRecord:
    wait_for(lambda: workplace.record.status == status, f"a {status} run", 240)
    return workplace.record


@pytest.mark.battery
def test_another_worker_takes_over_the_run_of_a_machine_that_is_gone(
    pool: Pool, workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    flow_run = under_way(pool, workplace, endpoint)
    asked_before = endpoint.questions
    pool.kill()
    endpoint.kept_waiting = set()
    pool.start_worker()
    reap(workplace, stack)
    reap(workplace, stack)  # a second reaper starts it no second time
    assert record_when(workplace, "completed").outcome == "pass"
    assert endpoint.questions - asked_before == {"third": 1, "fourth": 1}, "what was stored is asked no second time"
    wait_for(lambda: stack.api.state_of(flow_run)[0] == "COMPLETED", "the end of the flow run")
    assert stack.api.get(f"/flow_runs/{flow_run}").json()["run_count"] == 2


@pytest.mark.battery
def test_a_worker_that_is_told_to_end_hands_its_run_over(
    pool: Pool, workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    flow_run = under_way(pool, workplace, endpoint)
    asked_before = endpoint.questions
    assert pool.worker is not None
    pool.worker.send_signal(signal.SIGTERM)
    pool.worker.wait(120)
    endpoint.kept_waiting = set()
    assert (workplace.record.status, workplace.record.takeovers) == ("pending", 1)
    assert stack.api.state_of(flow_run)[0] == "CRASHED"
    pool.start_worker()
    assert reap(workplace, stack) == []
    assert record_when(workplace, "completed").outcome == "pass"
    assert endpoint.questions - asked_before == {"third": 1, "fourth": 1}, "what was stored is asked no second time"


def is_asked_after(endpoint: Endpoint, count: int) -> bool:
    return len(endpoint.asked) > count


@pytest.mark.battery
def test_a_run_that_is_killed_each_time_is_given_up(
    pool: Pool, workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    flow_run = under_way(pool, workplace, endpoint)
    for takeovers in (1, 2):
        kill_run(pool)
        wait_for(lambda: not pool.processes(), "the end of its process")
        reap(workplace, stack)
        assert (workplace.record.status, workplace.record.takeovers) == ("pending", takeovers)
        wait_for(partial(is_asked_after, endpoint, len(endpoint.asked)), "another executor", 240)
    kill_run(pool)
    wait_for(lambda: not pool.processes(), "the end of its process")
    reap(workplace, stack)
    run = workplace.record
    assert (run.status, run.takeovers) == ("interrupted", 2)
    assert "after it had been taken over 2 times" in str(run.error)
    assert stack.api.state_of(flow_run) == ("CRASHED", "Crashed")
    reap(workplace, stack)
    states = stack.api.get(f"/flow_run_states/?flow_run_id={flow_run}").raise_for_status().json()
    crashed = [state["message"] for state in states if state["type"] == "CRASHED"]
    assert sum(message.startswith("could not be evaluated") for message in crashed) == 1, "it is told once"


@pytest.mark.battery
def test_a_cancelled_run_is_not_taken_over(pool: Pool, workplace: Workplace, endpoint: Endpoint, stack: Stack) -> None:
    flow_run = under_way(pool, workplace, endpoint)
    kill_run(pool)
    wait_for(lambda: not pool.processes(), "the end of its process")
    assert workplace.fepflow("cancel", workplace.record.id).returncode == 0
    asked = len(endpoint.asked)
    pool.kill()
    reap(workplace, stack)
    pool.start_worker()
    reap(workplace, stack)
    assert workplace.record.status == "cancelled"
    wait_for(lambda: stack.api.state_of(flow_run)[0] == "CANCELLED", "its end in Prefect")
    assert len(endpoint.asked) == asked
