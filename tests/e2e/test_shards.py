"""A run that is split over the workers of a pool, which share a store on PostgreSQL."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fepflow.store.store import Store

from .comparison import comparable
from .conftest import MAIN, Stack, Workplace, end, wait_for
from .endpoint import Endpoint
from .worker import Pool

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(90)]


@pytest.fixture
def spread(stack: Stack, tmp_path: Path, endpoint: Endpoint, postgresql: Any) -> Workplace:
    """A workplace whose store many machines could share."""
    return Workplace(stack, tmp_path, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": postgresql.url})


@pytest.fixture
def pools(spread: Workplace) -> Iterator[list[Pool]]:
    """Two workers of one pool, with the deployment that executes shards; none is at work yet."""
    first = Pool(spread.stack, spread.env)
    first.deploy("evaluate-shard", "evaluate-shard", "fepflow.flows.evaluate_shard.evaluate_shard")
    both = [first, Pool(spread.stack, spread.env, name=first.name)]
    try:
        yield both
    finally:
        for pool in both:
            pool.kill()


@pytest.fixture
def workers(pools: list[Pool]) -> list[Pool]:
    """Both of them, at work."""
    for pool in pools:
        pool.start_worker()
    return pools


def shard_runs(workplace: Workplace, run_id: str | None = None) -> list[dict[str, Any]]:
    """The flow runs of the shards of a run, the newest one's if none is named."""
    body = {"flows": {"name": {"any_": ["evaluate-shard"]}}, "limit": 200}
    found = workplace.stack.api.post("/flow_runs/filter", json=body).raise_for_status().json()
    return [run for run in found if run["parameters"]["run_id"] == (run_id or workplace.record.id)]


def at_work(endpoint: Endpoint, calls: int) -> bool:
    """Whether so many calls have been made, and each of two shards has begun."""
    asked = [CASES.index(question) for question in endpoint.questions]
    return len(endpoint.asked) >= calls and min(asked) < len(CASES) // 2 <= max(asked)


@pytest.mark.battery
def test_shards_give_what_one_executor_gives(spread: Workplace, endpoint: Endpoint, pools: list[Pool]) -> None:
    pools[0].start_worker()
    # Of another name, as a second run of the same suite says that it is one.
    spread.write_suite([*CASES, "html 1", "fail 2 soon"], name="whole", repeats=2, target={"retries": 1})
    whole = spread.run("--json").stdout
    asked = dict(endpoint.questions)
    endpoint.asked.clear()
    spread.write_suite([*CASES, "html 1", "fail 2 soon"], repeats=2, target={"retries": 1}, shards=2)
    done = spread.run("--json")
    assert comparable(done.stdout) == comparable(whole), done.stderr
    assert dict(endpoint.questions) == asked, "every case is called by one shard"

    runs = shard_runs(spread)
    assert [run["state_name"] for run in runs] == ["Completed"] * 2
    assert {run["name"] for run in runs} == {"e2e shard 1 of 2", "e2e shard 2 of 2"}
    assert all(run["parent_task_run_id"] for run in runs)


@pytest.mark.battery
def test_a_shard_that_is_lost_is_executed_again(spread: Workplace, endpoint: Endpoint, workers: list[Pool]) -> None:
    endpoint.delay = 0.2
    spread.write_suite(CASES, target={"concurrency": 4}, shards=2)
    with spread.running("run", spread.suite, "--json") as process:
        wait_for(lambda: at_work(endpoint, 12), "both shards at work")
        with Store.open(spread.env["FEPFLOW_STORE_URL"]) as store:
            run_id = store.runs.get("latest").id
            indices = {case_index for case_index, _ in store.results.outputs(run_id)}
            committed = {store.runs.cases(run_id, index, index + 1)[0].id for index in indices}
        before = dict(endpoint.questions)
        workers[0].kill()
        stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert [row["execution_context"]["test_case"]["id"] for row in json.loads(stdout)["results"]] == CASES
    assert all(endpoint.questions[name] == before[name] for name in committed), "asked for what was committed"
    states = sorted(spread.stack.api.state_of(run["id"])[0] for run in shard_runs(spread))
    assert states.count("COMPLETED") == 2
    assert set(states) <= {"COMPLETED", "CRASHED"}


SOON = "import fepflow.tasks.run_shard as r; r.BEGIN_SECONDS = dict.fromkeys(r.BEGIN_SECONDS, 40.0)\n"


@pytest.mark.battery
def test_a_shard_waits_for_a_worker_and_a_lost_worker_is_detected(
    spread: Workplace, endpoint: Endpoint, pools: list[Pool]
) -> None:
    spread.write_suite(CASES, name="waiting", shards=2)
    at_once = spread.stack.prefect  # the code imports Prefect, which looks at it only then
    with spread.running("run", spread.suite, "--json", code=SOON + MAIN, **at_once) as process:
        wait_for(lambda: spread.record.name == "waiting" and len(shard_runs(spread)) == 2, "the order of both shards")
        taken, other = shard_runs(spread)
        spread.stack.api.set_state(taken["id"], type="PENDING", name="Pending")  # as a worker says, and no more
        wait_for(lambda: spread.stack.api.state_of(taken["id"])[0] == "CRASHED", "the loss is noticed", 120)
        wait_for(lambda: len(shard_runs(spread)) == 3, "another order")
        assert spread.stack.api.state_of(other["id"])[0] == "SCHEDULED", "nobody has it, so nobody is gone"
        pools[0].start_worker()
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert sorted(run["state_type"] for run in shard_runs(spread)) == ["COMPLETED", "COMPLETED", "CRASHED"]
    assert set(endpoint.questions.values()) == {1}


@pytest.mark.battery
def test_a_restart_of_the_store_is_survived(
    spread: Workplace, endpoint: Endpoint, workers: list[Pool], postgresql: Any
) -> None:
    endpoint.delay = 0.3
    spread.write_suite(CASES, target={"concurrency": 4}, shards=2)
    with spread.running("run", spread.suite, "--json") as process:
        wait_for(lambda: at_work(endpoint, 12), "both shards at work")
        postgresql.server.stop()
        time.sleep(5)
        postgresql.server.start()
        stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert [row["execution_context"]["test_case"]["id"] for row in json.loads(stdout)["results"]] == CASES


@pytest.mark.battery
def test_ctrl_c_stops_all_shards(spread: Workplace, endpoint: Endpoint, workers: list[Pool]) -> None:
    endpoint.delay = 0.3
    spread.write_suite(CASES, target={"concurrency": 2}, shards=2)
    with spread.running("run", spread.suite) as process:
        wait_for(lambda: at_work(endpoint, 4), "both shards at work")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert spread.record.status == "cancelled"
    wait_for(lambda: not any(pool.processes() for pool in workers), "the end of the shards", 60)
    asked = len(endpoint.asked)
    assert asked < len(CASES)
    assert {run["state_type"] for run in shard_runs(spread)} <= {"CANCELLED", "COMPLETED"}

    endpoint.delay = 0.0
    assert spread.fepflow("run", "--resume", "latest").returncode == 0
    assert len(endpoint.asked) <= len(CASES) + 4, "only what was under way is asked again"


@pytest.mark.battery
def test_shards_of_a_dead_run_are_marked_in_prefect(spread: Workplace, endpoint: Endpoint, workers: list[Pool]) -> None:
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
        assert store.runs.get(dead).status == "interrupted"
    assert [run["state_type"] for run in shard_runs(spread, dead)] == ["CRASHED"] * 2


@pytest.mark.battery
def test_without_the_deployment_the_error_says_what_to_do(workplace: Workplace, endpoint: Endpoint) -> None:
    by_name = "/deployments/name/evaluate-shard/evaluate-shard"

    def is_gone() -> bool:
        found = workplace.stack.api.get(by_name)
        if found.status_code == 200:
            workplace.stack.api.delete(f"/deployments/{found.json()['id']}")
        return found.status_code == 404

    wait_for(is_gone, "the end of the deployment")
    workplace.write_suite(CASES, shards=2)
    done = workplace.run()
    assert done.returncode == 2
    assert "no deployment evaluate-shard/evaluate-shard" in done.stderr
    assert not endpoint.asked
