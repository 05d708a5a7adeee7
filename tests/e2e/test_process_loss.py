"""Prefect's server, its API, a worker or a process goes away: the run goes on, and all tell the truth in the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from fepflow.access.caller import SCOPES, Caller
from fepflow.api.evaluations.fep import request_run
from fepflow.errors import NotFoundError
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

from .comparison import comparable
from .conftest import Stack, Workplace, end, wait_for
from .endpoint import Endpoint
from .relay import relayed
from .worker import Pool, working

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(60)]
SERVER = [sys.executable, "-P", "-m", "fepflow.deployments.server"]

REAP = """
import asyncio, json
from datetime import timedelta
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks import reaping as requested_runs
from fepflow.tasks import reaping as zombie_runs

requested_runs.HEARTBEAT = timedelta(0)
zombie_runs.OWN_TIME = zombie_runs.EVENTS_TIME = zombie_runs.UNCLAIMED = timedelta(0)
with Store.open(settings().store_address) as store:
    print(json.dumps(asyncio.run(zombie_runs.reap(store))))
"""


def reap(workplace: Workplace, stack: Stack) -> list[str]:
    """What the reaper says that it has marked."""
    marked: list[str] = json.loads(stack.python(REAP, workplace.env))
    return marked


def quiet_run(workplace: Workplace) -> str:
    """The result of the suite when nothing is in the way."""
    elsewhere = {"FEPFLOW_STORE_URL": f"sqlite:///{workplace.folder / 'undisturbed.db'}"}
    return workplace.run("--json", **elsewhere).stdout


def shown(workplace: Workplace) -> str:
    """The result of the newest run."""
    return workplace.fepflow("show", "--json").stdout


def flow_run_id(workplace: Workplace) -> str:
    return str(workplace.record.flow_run_id)


def kill_server(stack: Stack) -> None:
    server = json.loads((Path(stack.env["FEPFLOW_HOME"]) / "server.json").read_text(encoding="utf-8"))
    process = psutil.Process(server["pid"])
    for member in [*process.children(recursive=True), process]:
        member.kill()


def start_server(workplace: Workplace, stack: Stack) -> None:
    subprocess.run([*SERVER, "up"], env=workplace.env, cwd=stack.home, capture_output=True, timeout=180, check=True)


LONG = pytest.mark.battery


@pytest.mark.parametrize(
    ("seconds", "over_the_end"),
    [pytest.param(away, over, marks=LONG) for away in (0, 30, 60, 120) for over in (False, True)],
)
def test_prefects_server_is_killed_and_started_again(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, seconds: int, over_the_end: bool
) -> None:
    limit = f"chaos-{seconds}-{over_the_end}"
    workplace.fepflow("limits", "set", limit, "--concurrency", "2")
    workplace.write_suite(CASES, target={"concurrency": 2, "limits": [limit], "timeout": "20s"})
    undisturbed = quiet_run(workplace)
    endpoint.asked.clear()
    endpoint.delay = (10 if over_the_end else seconds + 20) * 2 / len(CASES)
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: len(endpoint.asked) > 8, "some requests")
        kill_server(stack)
        asked = len(endpoint.asked)
        time.sleep(seconds)
        start_server(workplace, stack)
        assert len(endpoint.asked) > asked, "calls went on meanwhile"
        _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert comparable(shown(workplace)) == comparable(undisturbed)
    assert set(endpoint.questions.values()) == {1}
    if seconds:  # what the server's end has cut off from its holder ends with its lease
        wait_for(lambda: free_slots(stack, limit) == 2, "the slots of the shared limit are given back", seconds=120)
    reap(workplace, stack)
    assert stack.api.state_of(flow_run_id(workplace)) == ("COMPLETED", "Completed")


def free_slots(stack: Stack, limit: str) -> int:
    found = stack.api.get(f"/v2/concurrency_limits/{limit}").raise_for_status().json()
    return int(found["limit"] - found["active_slots"])


@pytest.mark.parametrize("seconds", [pytest.param(20, marks=LONG), pytest.param(60, marks=LONG)])
def test_prefects_api_cannot_be_reached_for_a_while_in_the_middle_of_a_run(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, seconds: int
) -> None:
    workplace.write_suite(CASES, target={"concurrency": 2, "timeout": "20s"})
    undisturbed = quiet_run(workplace)
    endpoint.asked.clear()
    endpoint.delay = (seconds + 15) * 2 / len(CASES)
    with relayed(stack) as relay, workplace.running("run", workplace.suite, "--json", **relay.env) as process:
        wait_for(lambda: len(endpoint.asked) > 4, "some requests")
        relay.cut()
        time.sleep(seconds)
        assert process.poll() is None
        relay.mend()
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert comparable(out) == comparable(undisturbed)
    assert set(endpoint.questions.values()) == {1}
    assert stack.api.state_of(flow_run_id(workplace)) == ("COMPLETED", "Completed")


@pytest.mark.battery
def test_prefect_learns_how_a_run_ended_while_its_api_was_away(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    workplace.write_suite(CASES, target={"concurrency": 4, "timeout": "60s"})
    undisturbed = quiet_run(workplace)
    endpoint.asked.clear()
    endpoint.holds_from = 5
    impatient = "import fepflow.services.local_run as e; e.ASK_SECONDS, e.GONE_SECONDS = 0.5, 2\n"
    with relayed(stack) as relay:
        code = impatient + "import fepflow.cli.main as m; m.main()"
        with workplace.running("run", workplace.suite, code=code, **relay.env) as process:
            wait_for(lambda: endpoint.held, "some requests")
            relay.cut()
            endpoint.holds_from, endpoint.held = None, False
            process.communicate(timeout=200)
    assert process.returncode == 0
    assert comparable(shown(workplace)) == comparable(undisturbed)
    assert stack.api.state_of(flow_run_id(workplace)) == ("RUNNING", "Running")

    assert reap(workplace, stack) == []

    assert stack.api.state_of(flow_run_id(workplace)) == ("COMPLETED", "Completed")


def task_states(stack: Stack, workplace: Workplace) -> dict[str, str]:
    """The types of state of the newest run's task runs, by their names."""
    body = {"flow_runs": {"id": {"any_": [flow_run_id(workplace)]}}}
    found = stack.api.post("/task_runs/filter", json=body).raise_for_status().json()
    return {run["name"]: run["state_type"] for run in found}


def is_calling(stack: Stack, workplace: Workplace) -> bool:
    """Return whether Prefect knows that the plan is made and a call is under way."""
    states = task_states(stack, workplace)
    return states.get("plan") == "COMPLETED" and "RUNNING" in states.values()


def wait_for_request(endpoint: Endpoint, after: int) -> None:
    wait_for(lambda: len(endpoint.asked) > after, "a request")


@pytest.mark.battery
def test_prefect_learns_that_a_process_was_killed(workplace: Workplace, endpoint: Endpoint, stack: Stack) -> None:
    endpoint.held = True
    workplace.write_suite(CASES[:3], target={"timeout": "60s"})
    for wish, status, state in [
        (None, "interrupted", ("CRASHED", "Crashed")),
        ("cancel", "cancelled", ("CANCELLED", "Cancelled")),
    ]:
        asked = len(endpoint.asked)
        with workplace.running_cold("run", workplace.suite) as process:
            wait_for_request(endpoint, asked)
            wait_for(partial(is_calling, stack, workplace), "Prefect's word of the call")
            if wish:
                process.send_signal(signal.SIGSTOP)  # it cannot see that somebody wants it to stop
                stack.api.set_state(flow_run_id(workplace), type="CANCELLING", name="Cancelling")
            end(process, signal.SIGKILL)
        assert reap(workplace, stack) == [workplace.record.id]
        assert workplace.record.status == status
        assert stack.api.state_of(flow_run_id(workplace)) == state
        states = task_states(stack, workplace)
        assert states.pop("plan") == "COMPLETED"
        assert states
        assert set(states.values()) == {"CRASHED"}, "none is left running"
        assert reap(workplace, stack) == []


def test_prefect_learns_of_a_flow_run_whose_process_ended_before_it_began(workplace: Workplace, stack: Stack) -> None:
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        for run_id in ("killed", "stopped"):
            store.runs.create(
                RunRecord(id=run_id, name="refunds", suite={"name": "refunds"}, repeats=1),
                [TestCase(id="a", input="a")],
            )
        store.runs.request_cancel("stopped")
    began = [
        begun_flow_run(stack, "killed", "RUNNING"),
        begun_flow_run(stack, "stopped", "RUNNING"),
        begun_flow_run(stack, "stopped", "PENDING"),
        begun_flow_run(stack, "of-another-store", "RUNNING"),
    ]

    assert reap(workplace, stack) == []

    states = [stack.api.state_of(flow_run_id)[0] for flow_run_id in began]
    assert states == ["CRASHED", "CANCELLED", "CANCELLED", "RUNNING"]


HANGS = """
import asyncio, importlib, fepflow.cli.main, fepflow.services.run_service as service

async def hang(*_, **__):
    await asyncio.sleep(600)

def execute(*arguments, execute=service.execute, **named):
    setattr(importlib.import_module({module!r}), {name!r}, hang)
    return execute(*arguments, **named)

service.execute = execute
fepflow.cli.main.main()
"""


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("prefect.flow_engine.propose_state", marks=LONG),
        "fepflow.tasks.plan_run.reap",
        pytest.param("fepflow.tasks.plan_run.describe", marks=LONG),
    ],
)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=LONG)])
@pytest.mark.battery
def test_a_command_that_is_killed_before_it_has_the_lease_ends_truthfully(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, stage: str, database: str, request: pytest.FixtureRequest
) -> None:
    if database == "postgresql":
        workplace.env["FEPFLOW_STORE_URL"] = request.getfixturevalue("postgresql").url
    workplace.write_suite(CASES[:1])
    module, _, name = stage.rpartition(".")
    code = HANGS.format(module=module, name=name)
    for arguments in (["run", workplace.suite], ["run", "--resume", "latest"]):
        before = set(flow_runs_of(stack, workplace))
        with workplace.running(*arguments, code=code) as process:
            wait_for(partial(has_another_flow_run, stack, workplace, before), "a flow run")
            assert reap(workplace, stack) == [], "its process lives"
            end(process, signal.SIGKILL)
        reap(workplace, stack)
        assert workplace.record.status == "interrupted"
        assert set(flow_runs_of(stack, workplace).values()) == {"CRASHED"}
    assert not endpoint.asked
    assert workplace.fepflow("run", "--resume", "latest").returncode == 0


def has_another_flow_run(stack: Stack, workplace: Workplace, known: set[str]) -> bool:
    return bool(set(flow_runs_of(stack, workplace)) - known)


def flow_runs_of(stack: Stack, workplace: Workplace) -> dict[str, str]:
    """The flow runs of the newest run, with their types of state."""
    try:
        run_id = workplace.record.id
    except NotFoundError:
        return {}
    body = {"flows": {"name": {"any_": ["evaluate"]}}, "limit": 200}
    found = stack.api.post("/flow_runs/filter", json=body).raise_for_status().json()
    return {run["id"]: run["state_type"] for run in found if run["parameters"].get("run_id") == run_id}


def requested_run(workplace: Workplace) -> str:
    """A run that only checks an output; who requested it has been told that it is accepted."""
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        return request_run(
            store, {"name": "wanted", "checks": []}, [TestCase(id="a", input=1)], kind="operation",
            caller=Caller(None, frozenset(SCOPES)), idempotency_key=None, request={}, outputs=[Output(value=1)],
        ).id  # fmt: skip


@pytest.mark.battery
def test_an_accepted_evaluation_is_dispatched_again_until_it_has_begun(workplace: Workplace, stack: Stack) -> None:
    run_id = requested_run(workplace)
    pool = Pool(stack, workplace.env)

    def dispatched() -> str:
        flow_run = pool.run(suite="", run_id=run_id)
        with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
            store.requests.mark_dispatched(run_id, flow_run)
        return flow_run

    deleted = dispatched()
    stack.api.delete(f"/flow_runs/{deleted}").raise_for_status()
    reap(workplace, stack)
    assert (workplace.record.status, workplace.record.flow_run_id) == ("pending", None)

    again = dispatched()
    for state in ("FAILED", "CRASHED"):
        stack.api.set_state(again, type=state, message="Prefect was away")
        reap(workplace, stack)
        assert stack.api.state_of(again) == ("SCHEDULED", "AwaitingRetry")
        assert workplace.record.status == "pending"
    message = stack.api.get(f"/flow_runs/{again}").json()["state"]["message"]
    assert message.startswith("Dispatched again (number 3), as it had not begun. Before: Crashed: Prefect was away")

    # It was taken by a worker that is gone with all its processes.
    stack.api.set_state(again, type="PENDING")
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        assert store.leases.reap() == [], "a run that waits in a queue is not interrupted"
    for state in ("CRASHED", "SCHEDULED"):
        reap(workplace, stack)
        assert stack.api.state_of(again)[0] == state

    late = pool.run(suite="", run_id=run_id)  # of a dispatch that was withdrawn
    pool.start_worker()
    try:
        wait_for(lambda: workplace.record.status == "completed", "the verdict")
        wait_for(lambda: stack.api.state_of(late)[0] == "FAILED", "the other one's end")
        assert "belongs to the flow run" in stack.api.get(f"/flow_runs/{late}").json()["state"]["message"]
    finally:
        pool.kill()
    assert workplace.record.flow_run_id == again


def begun_flow_run(stack: Stack, run_id: str, state: str) -> str:
    """What Prefect has of a command that is to execute this run."""
    flow = stack.api.post("/flows/", json={"name": "evaluate"}).json()["id"]
    body = {"flow_id": flow, "parameters": {"suite": "", "run_id": run_id}, "state": {"type": state}}
    return str(stack.api.post("/flow_runs/", json=body).raise_for_status().json()["id"])


def with_output(workplace: Workplace) -> set[str]:
    """The cases of the newest run whose outputs are in the store."""
    return {case for case, result in workplace.results.items() if result.output is not None}


@pytest.mark.battery
def test_a_lost_worker_and_retry_in_the_ui_resume_the_same_run(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    workplace.env["FEPFLOW_TAKEOVERS"] = "0"
    workplace.write_suite(CASES, target={"concurrency": 2})
    undisturbed = quiet_run(workplace)
    endpoint.asked.clear()
    endpoint.delay = 0.1
    with working(stack, workplace.env) as pool:
        ordered = pool.run(suite=str(workplace.suite))
        wait_for(lambda: len(endpoint.asked) > 10 and with_output(workplace), "some requests, and outputs of them")
        pool.kill()
        run = workplace.record
        kept = with_output(workplace)
        asked_before = endpoint.questions
        assert stack.api.state_of(ordered) == ("RUNNING", "Running"), "nobody has told Prefect"
        assert "interrupted" in workplace.fepflow("list").stdout
        reap(workplace, stack)
        assert stack.api.state_of(ordered) == ("CRASHED", "Crashed")

        stack.api.set_state(ordered, type="SCHEDULED", name="AwaitingRetry")
        pool.start_worker()
        wait_for(lambda: workplace.record.outcome is not None, "the verdict")
        wait_for(lambda: stack.api.state_of(ordered) == ("COMPLETED", "Completed"), "Prefect's word")
    assert (workplace.record.id, workplace.record.flow_run_id) == (run.id, ordered)
    assert {case for case in kept if endpoint.questions[case] > asked_before[case]} == set()
    assert comparable(shown(workplace)) == comparable(undisturbed)


@pytest.mark.battery
def test_a_worker_that_gets_sigterm_leaves_a_run_that_can_be_resumed(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    workplace.env["FEPFLOW_TAKEOVERS"] = "0"
    endpoint.held = True
    workplace.write_suite(CASES[:3], target={"timeout": "60s"})
    with working(stack, workplace.env) as pool:
        ordered = pool.run(suite=str(workplace.suite))
        wait_for(lambda: endpoint.asked, "a request")
        (process,) = (
            child for child in pool.processes() if child.pid == int(workplace.record.lease_owner.split("/")[1])
        )
        process.terminate()
        wait_for(lambda: workplace.record.status == "interrupted", "the store's word")
        wait_for(lambda: stack.api.state_of(ordered)[0] == "FAILED", "Prefect's word")
        state = stack.api.get(f"/flow_runs/{ordered}").json()["state"]
    assert "told to end (SIGTERM)" in state["message"]
