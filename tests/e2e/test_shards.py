"""A run that is split over the workers of a pool, which share a store on PostgreSQL."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fepflow.store.store import Store

from .conftest import Stack, Workplace, end, wait_for
from .endpoint import Endpoint
from .essence import essence
from .worker import Pool, state_of

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(90)]


@pytest.fixture
def spread(stack: Stack, tmp_path: Path, endpoint: Endpoint, postgresql: Any) -> Workplace:
    """A workplace whose store many machines could share."""
    return Workplace(stack, tmp_path, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": postgresql.url})


@pytest.fixture
def workers(spread: Workplace) -> Iterator[list[Pool]]:
    """Two workers of one pool, with the deployment that executes shards."""
    first = Pool(spread.stack.api_url, spread.env)
    first.deploy("evaluate-shard", "evaluate-shard", "flows.evaluate_shard.evaluate_shard")
    second = Pool(spread.stack.api_url, spread.env, name=first.name)
    started = [first, second]
    try:
        for pool in started:
            pool.start_worker()
        yield started
    finally:
        for pool in started:
            pool.kill()


def shard_runs(workplace: Workplace, run_id: str | None = None) -> list[dict[str, Any]]:
    """The flow runs of the shards of a run, the newest one's if none is named."""
    body = {"flows": {"name": {"any_": ["evaluate-shard"]}}, "limit": 200}
    found = httpx.post(f"{workplace.stack.api_url}/flow_runs/filter", json=body).raise_for_status().json()
    return [run for run in found if run["parameters"]["run_id"] == (run_id or workplace.record.id)]


def at_work(endpoint: Endpoint, calls: int) -> bool:
    """Whether so many calls have been made, and each of two shards has begun."""
    asked = [CASES.index(question) for question in endpoint.questions]
    return len(endpoint.asked) >= calls and min(asked) < len(CASES) // 2 <= max(asked)


def test_shards_give_what_one_executor_gives(spread: Workplace, endpoint: Endpoint, workers: list[Pool]) -> None:
    spread.write_suite([*CASES, "html 1", "fail 2 soon"], repeats=2, target={"retries": 1})
    whole = spread.run("--json").stdout
    asked = dict(endpoint.questions)
    endpoint.asked.clear()
    spread.write_suite([*CASES, "html 1", "fail 2 soon"], repeats=2, target={"retries": 1}, shards=3)
    done = spread.run("--json")
    assert essence(done.stdout) == essence(whole), done.stderr
    assert dict(endpoint.questions) == asked, "every case is called by one shard"

    runs = shard_runs(spread)
    assert [run["state_name"] for run in runs] == ["Completed"] * 3
    assert {run["name"] for run in runs} == {f"e2e shard {number} of 3" for number in (1, 2, 3)}
    assert all(run["parent_task_run_id"] for run in runs)


@pytest.mark.battery
def test_a_shard_that_is_lost_is_executed_again(spread: Workplace, endpoint: Endpoint, workers: list[Pool]) -> None:
    endpoint.delay = 0.2
    spread.write_suite(CASES, target={"concurrency": 4}, shards=2)
    with spread.running("run", spread.suite, "--json") as process:
        wait_for(lambda: at_work(endpoint, 12), "both shards at work")
        with Store.open(spread.env["FEPFLOW_STORE_URL"]) as store:
            committed = {store.cases(run_id, position, position + 1)[0].id for run_id in [store.run("latest").id]
                         for position, _ in store.outputs(run_id)}  # fmt: skip
        before = dict(endpoint.questions)
        workers[0].kill()
        stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert [row["execution_context"]["test_case"]["id"] for row in json.loads(stdout)["results"]] == CASES
    assert all(endpoint.questions[name] == before[name] for name in committed), "asked for what was committed"
    states = sorted(state_of(spread.stack.api_url, run["id"])[0] for run in shard_runs(spread))
    assert states.count("COMPLETED") == 2
    assert set(states) <= {"COMPLETED", "CRASHED"}


@pytest.mark.battery
def test_ctrl_c_stops_all_shards(spread: Workplace, endpoint: Endpoint, workers: list[Pool]) -> None:
    endpoint.delay = 0.3
    spread.write_suite(CASES, target={"concurrency": 2}, shards=2)
    with spread.running("run", spread.suite) as process:
        wait_for(lambda: at_work(endpoint, 4), "both shards at work")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert spread.record.status == "cancelled"
    wait_for(lambda: not any(pool.processes() for pool in workers), "the end of the shards", 20)
    asked = len(endpoint.asked)
    assert asked < len(CASES)
    assert {run["state_type"] for run in shard_runs(spread)} <= {"CANCELLED", "COMPLETED"}

    endpoint.delay = 0.0
    assert spread.fepflow("run", "--resume", "latest").returncode == 0
    assert len(endpoint.asked) <= len(CASES) + 4, "only what was under way is asked again"


@pytest.mark.battery
def test_prefect_is_told_of_the_shards_of_a_dead_run(
    spread: Workplace, endpoint: Endpoint, workers: list[Pool]
) -> None:
    endpoint.delay = 0.3
    spread.write_suite(CASES, target={"concurrency": 2}, shards=2)
    with spread.running("run", spread.suite) as process:
        wait_for(lambda: at_work(endpoint, 4), "both shards at work")
        dead = spread.record.id
        end(process, signal.SIGKILL)
    for pool in workers:
        pool.kill()
    endpoint.delay = 0.0
    spread.write_suite(CASES[:2])
    assert spread.run().returncode == 0, "whatever runs next looks after the dead"
    with Store.open(spread.env["FEPFLOW_STORE_URL"]) as store:
        assert store.run(dead).status == "interrupted"
    assert [run["state_type"] for run in shard_runs(spread, dead)] == ["CRASHED"] * 2


def test_without_the_deployment_a_sentence_says_what_to_do(workplace: Workplace, endpoint: Endpoint) -> None:
    by_name = f"{workplace.stack.api_url}/deployments/name/evaluate-shard/evaluate-shard"

    def is_gone() -> bool:
        found = httpx.get(by_name, timeout=30)
        if found.status_code == 200:
            httpx.delete(f"{workplace.stack.api_url}/deployments/{found.json()['id']}", timeout=30)
        return found.status_code == 404

    wait_for(is_gone, "the end of the deployment")
    workplace.write_suite(CASES, shards=2)
    done = workplace.run()
    assert done.returncode == 2
    assert "no deployment evaluate-shard/evaluate-shard" in done.stderr
    assert not endpoint.asked
