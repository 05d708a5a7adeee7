"""Runs of deployments that a worker executes, one worker for all: verdict, Cancel, a killed process, maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from fepflow.store.store import Store
from fepflow.text import plural

from .conftest import PREFECT_COMMAND, Stack, Workplace, wait_for
from .endpoint import Endpoint, serving
from .receiver import receiving
from .test_cancellation import CANCELLED, CASES, hang_after, is_under_way, kept, within_the_promise
from .test_process_loss import reap
from .test_states import ended, flow_run, task_states
from .test_takeover import kill_run, record_when, under_way
from .worker import Pool, working

pytestmark = pytest.mark.e2e

BLOCK = """
from prefect.blocks.notifications import CustomWebhookNotificationBlock
texts = {{"subject": "{{{{subject}}}}", "body": "{{{{body}}}}"}}
block = CustomWebhookNotificationBlock(name="failed", url={url!r}, json_data=texts)
print(block.save({name!r}))
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def workplace(
    stack: Stack, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[str], str]
) -> Workplace:
    """A folder and a store for all runs of the worker."""
    folder = tmp_path_factory.mktemp("worker")
    store = new_store(f"sqlite:///{folder / 'store.db'}")
    return Workplace(stack, folder, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": store})


@pytest.fixture(scope="module")
def pool(stack: Stack, workplace: Workplace) -> Iterator[Pool]:
    with working(stack, workplace.env) as pool:
        yield pool


def watched(pool: Pool, workplace: Workplace, suite: str) -> int:
    """The exit code of `prefect deployment run --watch`."""
    command = ["deployment", "run", f"evaluate/{pool.name}", "--param", f"suite={suite}", "--watch"]
    with workplace.running(*command, code=PREFECT_COMMAND, **workplace.stack.prefect) as process:
        _, errors = process.communicate(timeout=180)
    assert "Traceback" not in errors
    return process.returncode


def automation_on_failed(stack: Stack, pool: Pool, url: str) -> None:
    """As the UI makes one: whenever a flow run of the deployment enters Failed, send a notification."""
    block = stack.python(BLOCK.format(url=url, name=f"failed-{uuid4().hex[:8]}"), stack.env)
    trigger = {
        "type": "event",
        "posture": "Reactive",
        "threshold": 1,
        "expect": ["prefect.flow-run.Failed"],
        "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "match_related": {
            "prefect.resource.role": "deployment",
            "prefect.resource.id": f"prefect.deployment.{pool.deployment}",
        },
        "for_each": ["prefect.resource.id"],
    }
    action = {
        "type": "send-notification",
        "block_document_id": block.strip().splitlines()[-1],
        "subject": "{{ flow_run.name }}",
        "body": "{{ flow_run.state.message }}",
    }
    pool.post("/automations/", {"name": pool.name, "trigger": trigger, "actions": [action]})


def test_a_deployments_run_ends_as_its_verdict_says(workplace: Workplace, pool: Pool, stack: Stack) -> None:
    with receiving() as receiver:
        automation_on_failed(stack, pool, receiver.url)
        workplace.write_suite(["one", "two"], tags=["nightly"])
        assert watched(pool, workplace, str(workplace.suite)) == 0
        run = flow_run(stack, str(workplace.record.flow_run_id))
        assert (run["name"], run["state_type"], run["state_name"]) == ("e2e · pass", "COMPLETED", "Completed")
        assert run["state"]["message"].startswith("PASS: ")
        assert set(run["tags"]) == {"nightly", "verdict:pass"}

        workplace.write_suite(["one", {"id": "wrong", "input": "two", "expected": "three"}])
        assert watched(pool, workplace, str(workplace.suite)) == 1
        run = flow_run(stack, str(workplace.record.flow_run_id))
        assert (run["name"], run["state_type"], run["state_name"]) == ("e2e · fail", "FAILED", "Failed")
        assert run["state"]["message"] == "FAIL: exact_match: 1 of 2 results failed."
        assert run["tags"] == ["verdict:fail"]
        wait_for(lambda: receiver.got, "the automation's notification")
        assert [(note["subject"], note["body"]) for note in receiver.got] == [(run["name"], run["state"]["message"])]
        states = task_states(stack, run["id"])
        assert states["check one"] == ("COMPLETED", "Completed", "")
        assert states["check wrong"] == ("FAILED", "Failed", "1 of 1 case failed: wrong (exact_match).")
        assert states["decide"] == ("FAILED", "Failed", "FAIL: exact_match: 1 of 2 results failed.")

        nowhere = ended(stack, pool.run(suite=str(workplace.folder / "nowhere.yaml")))
        assert (nowhere["name"], nowhere["state_name"]) == ("nowhere · could not be evaluated", "Failed")
        assert nowhere["state"]["message"].startswith(f"could not be evaluated: {workplace.folder / 'nowhere.yaml'}: ")
        assert not [tag for tag in nowhere["tags"] if tag.startswith("verdict:")]


def test_cancel_in_the_ui_of_a_run_that_a_worker_executes(
    workplace: Workplace, endpoint: Endpoint, pool: Pool, stack: Stack
) -> None:
    hang_after(workplace, endpoint)
    flow_run_id = pool.run(suite=str(workplace.suite))
    wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
    processes = pool.processes()
    assert processes
    with within_the_promise("store and Prefect say so, and the process is gone"):
        stack.api.set_state(flow_run_id, type="CANCELLING", name="Cancelling")
        wait_for(lambda: workplace.record.status == "cancelled", "the store's word")
        wait_for(lambda: stack.api.state_of(flow_run_id) == CANCELLED, "Prefect's word")
        _, alive = psutil.wait_procs(processes, timeout=20)
    assert not alive
    assert workplace.record.flow_run_id == flow_run_id
    assert kept(workplace) == len(CASES)


def test_a_worker_resumes_a_run_whose_process_was_killed_and_asks_only_for_what_is_missing(
    pool: Pool, workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    flow_run = under_way(pool, workplace, endpoint)
    asked_before = endpoint.questions
    kill_run(pool)
    wait_for(lambda: not pool.processes(), "the end of its process")
    assert stack.api.state_of(flow_run) == ("RUNNING", "Running"), "no alert tells of it"
    endpoint.kept_waiting = set()
    assert reap(workplace, stack) == [workplace.record.id]
    waiting = workplace.record
    assert (waiting.status, waiting.takeovers) == ("pending", 1)
    assert "a worker takes it over" in str(waiting.error)

    run = record_when(workplace, "completed")

    assert run.outcome == "pass"
    assert endpoint.questions - asked_before == {"third": 1, "fourth": 1}, "what was stored is asked no second time"
    wait_for(lambda: stack.api.state_of(flow_run)[0] == "COMPLETED", "the end of the flow run")
    states = stack.api.get(f"/flow_run_states/?flow_run_id={flow_run}").raise_for_status().json()
    assert [state["message"][:11] for state in states if state["type"] == "CRASHED"] == ["HANDED OVER"]
    assert any("Taken over (time 1 of 2)" in (state["message"] or "") for state in states)
    assert "taken over 1 time" in workplace.fepflow("show").stdout


def test_old_runs_leave_the_store_and_prefect(workplace: Workplace, pool: Pool, stack: Stack) -> None:
    workplace.write_suite(["a"])
    assert workplace.run("--quiet").returncode == 0
    run = workplace.record
    body = {"artifacts": {"flow_run_id": {"any_": [run.flow_run_id]}}}
    assert stack.api.post("/artifacts/filter", json=body).json() != []
    assert workplace.fepflow("delete", "--case", "a", "--yes").stderr == ""
    assert stack.api.post("/artifacts/filter", json=body).json() == [], "they quote the test case"
    workplace.run("--quiet")
    another = workplace.record
    assert workplace.fepflow("delete", another.id, "--yes").stderr == ""
    assert stack.api.get(f"/flow_runs/{another.flow_run_id}").status_code == 404
    stack.api.patch(f"/deployments/{pool.deployment}", json={"tags": ["fepflow"]}).raise_for_status()
    never_began = pool.run(suite="nowhere.yaml")  # no run of the store is of it
    deployment = pool.deploy("maintenance", f"maintenance-{pool.name}", "fepflow.flows.maintenance.maintenance")
    wait_for(lambda: stack.api.state_of(never_began)[0] == "FAILED", "the run of no suite")
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        runs = len(store.runs.newest(100))
    parameters = {"keep": "1s", "keep_last": 0, "archive": True}
    done = pool.post(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})["id"]
    wait_for(lambda: stack.api.state_of(done)[0] in ("COMPLETED", "FAILED"), "the end of the maintenance")
    message = stack.api.get(f"/flow_runs/{done}").json()["state"]["message"]
    assert message.startswith(f"Deleted {plural(runs, 'run')}"), message
    assert stack.api.get(f"/flow_runs/{run.flow_run_id}").status_code == 404
    assert stack.api.get(f"/flow_runs/{never_began}").status_code == 404
    assert stack.api.post("/artifacts/filter", json=body).json() == []
    assert "No runs yet" in workplace.fepflow("list").stdout
    archived = {file.name for file in Path(pool.env["FEPFLOW_HOME"], "archive").iterdir()}
    assert any(name.endswith(f"{run.id}.parquet") for name in archived)
