"""`fepflow serve` from a person's side: one stack, which heals itself, tells the truth and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from fepflow.deployments.server import LOCKED
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

from ..agent import agent_served
from ..browser import Browser, browsing
from ..conftest import wait_for
from ..endpoint import Endpoint
from ..served import Served, is_healthy, place, serve, serve_in_vain

pytestmark = pytest.mark.e2e

RECORDED = """
name: greeting
target: {recorded: {path: outputs.jsonl, id: $.id}}
test_cases: [{id: hello, input: hello}]
checks: [{type: contains, arguments: {text: $.output.value, phrases: [hello]}}]
"""

RECURRING = """
name: recurring
target: {recorded: {path: recurring.jsonl, id: $.id}}
test_cases: [{id: right, input: a, expected: a}, {id: wrong <b>1</b>, input: b, expected: c}]
checks: [{type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}]
"""

OWN_DEPLOYMENT = """
deployments:
  - name: mine
    entrypoint: fepflow.flows.evaluate.evaluate
    parameters: {suite: suite.yaml}
    work_pool: {name: fepflow}
"""


@pytest.fixture
def held(agent: Endpoint) -> Iterator[Endpoint]:
    """An agent that answers nobody."""
    agent.held = True
    yield agent
    agent.held = False


@contextmanager
def run_under_way(served: Served, agent: Endpoint) -> Iterator[subprocess.Popen[str]]:
    asked = len(agent.asked)
    with served.workplace.running("run", served.workplace.suite, **served.login) as process:
        wait_for(lambda: len(agent.asked) > asked, "a call")
        yield process


def record_when(served: Served, condition: Callable[[RunRecord], bool], what: str, seconds: float) -> RunRecord:
    """The newest run, read without reaping, once it is so."""
    with Store.open(served.workplace.env["FEPFLOW_STORE_URL"]) as store:
        wait_for(lambda: condition(store.runs.get("latest")), what, seconds)
        return store.runs.get("latest")


def test_a_deployment_runs_on_its_worker(served: Served) -> None:
    done = served.run_suite()
    assert done.returncode == 0, done.stdout + done.stderr
    record = served.workplace.record
    assert record.outcome == "pass"
    assert served.flow_run(record.flow_run_id)["state_name"] == "Completed"
    assert "worker   │ " in served.log


def test_a_posted_evaluation_runs_in_a_process_that_is_forked_for_it(served: Served, key: str) -> None:
    headers = {"X-API-Key": key}
    with (
        agent_served() as agent,
        httpx.Client(base_url=served.rest, headers=headers, timeout=60, trust_env=False) as client,
    ):
        for name in ("warm-1", "warm-2"):
            case = {"id": name, "input": "Paris", "expected": "Paris"}
            assert client.post("/api/test-cases", json=case).status_code == 201
        body = {"test_case_ids": ["warm-1", "warm-2"], "agent_endpoint_url": agent, "grader_ids": ["string-match"]}
        data = client.post("/api/evaluations", json=body).raise_for_status().json()["data"]
        address = f"/api/evaluations/{data['id']}"
        wait_for(lambda: client.get(address).json()["data"]["status"] == "completed", "its end")
    record = served.workplace.record
    assert record.outcome == "pass"
    wait_for(lambda: served.flow_run(record.flow_run_id)["name"].endswith(" · pass"), "the verdict in its name")
    assert served.flow_run(record.flow_run_id)["work_queue_name"] == "requested"

    def events() -> list[dict[str, Any]]:
        wanted = {"filter": {"event": {"name": ["fepflow.verdict.pass"]}, "related": {"id": [related["flow-run"]]}}}
        return served.api.post("/events/filter", json=wanted).raise_for_status().json()["events"]

    deployment = served.deployment("requested")
    related = {
        "flow-run": f"prefect.flow-run.{record.flow_run_id}",
        "flow": f"prefect.flow.{deployment['flow_id']}",
        "deployment": f"prefect.deployment.{deployment['id']}",
        "work-queue": f"prefect.work-queue.{deployment['work_queue_id']}",
    }
    wait_for(events, "the event of the verdict")
    (event,) = events()
    resources = {one["prefect.resource.role"]: one["prefect.resource.id"] for one in event["related"]}
    assert related.items() <= resources.items()
    assert {"task-run", "work-pool"} <= resources.keys()
    assert event["payload"]["deployment"] == "evaluate/requested"
    worker = psutil.Process(served.pids("worker")[-1])
    (fork_server,) = [one for one in worker.children() if "multiprocessing.forkserver" in " ".join(one.cmdline())]
    assert fork_server.num_threads() == 1


def test_it_listens_on_the_loopback_only(served: Served) -> None:
    listening = []
    for pid in served.family():
        with suppress(psutil.NoSuchProcess):  # a run's process may end in between
            sockets = psutil.Process(pid).net_connections()
            listening += [socket for socket in sockets if socket.status == psutil.CONN_LISTEN]
    # gRPC's socket is one for both families, and names the loopback as IPv6 does.
    assert {socket.laddr.ip.removeprefix("::ffff:") for socket in listening} == {"127.0.0.1"}


def schedule(served: Served, *arguments: str | Path) -> str:
    done = served.workplace.fepflow("schedule", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Recurring:
    """A suite with a schedule: what was said when it got it, and the flow run of the first time."""

    suite: Path
    said: str
    first: dict[str, Any]


@pytest.fixture(scope="module")
def recurring(served: Served) -> Recurring:
    """One whose schedule has fired, and that is paused since."""
    folder = served.workplace.folder
    rows = ('{"id": "right", "value": "a"}', '{"id": "wrong <b>1</b>", "value": "b"}')
    (folder / "recurring.jsonl").write_text("\n".join(rows), encoding="utf-8")
    suite = folder / "recurring.yaml"
    suite.write_text(RECURRING, encoding="utf-8")
    said = schedule(served, suite, "--every", "15s")
    wait_for(partial(served.runs, "recurring", "FAILED"), "a run that has ended", 300)
    (first, *_) = served.runs("recurring", "FAILED")
    schedule(served, "recurring", "--pause")
    return Recurring(suite, said, first)


def test_a_schedule_fires_and_its_run_ends_with_a_verdict(served: Served, recurring: Recurring) -> None:
    assert "Scheduled evaluate/recurring: every 0:00:15" in recurring.said
    assert re.search(r"^Next run: \w+ \d{4}-\d\d-\d\d", recurring.said, re.MULTILINE)
    assert "A worker is alive" in recurring.said
    assert recurring.first["created_by"]["type"] == "SCHEDULE"
    assert recurring.first["state"]["message"] == "FAIL: exact_match: 1 of 2 results failed."
    listed = [json.loads(line) for line in served.workplace.fepflow("list", "--json").stdout.splitlines()]
    assert ("recurring", "fail") in {(run["name"], run["outcome"]) for run in listed}
    assert re.search(r"evaluate/recurring .* paused", schedule(served, "--list"))
    # One at a time: what was due while it ran was dropped, not queued. The last one may be under way.
    assert len(served.runs("recurring", "PENDING", "RUNNING")) <= 1
    assert "AwaitingConcurrencySlot" not in {run["state_name"] for run in served.runs("recurring", "SCHEDULED")}
    log = (Path(served.workplace.env["FEPFLOW_HOME"]) / "server.log").read_text(encoding="utf-8")
    errors = [part for part in re.split(r"(?m)^(?=\d\d:\d\d:\d\d\.\d+ \| )", log) if "| ERROR " in part[:30]]
    # SQLite refuses Prefect's heartbeat of a worker now and then; the worker sends the next one.
    assert [error for error in errors if LOCKED not in error] == []
    assert served.workplace.fepflow("status").stderr == ""


def test_a_scheduled_run_is_on_the_pages_for_who_has_a_key(
    served: Served, recurring: Recurring, key: str, tmp_path: Path
) -> None:
    schedule(served, recurring.suite, "--every", "1h")
    schedule(served, "recurring", "--resume")
    with browsing(served.rest, tmp_path / "profile") as browser:
        browser.open("/runs?outcome=fail")
        browser.shows("Sign in", "API key")
        (field,) = browser.all("input[type=password]")
        field.send_keys(key + "\n")
        browser.shows("recurring", "Sign out")
        assert "/runs?outcome=fail" in browser.url
        browser.all("table.runs tbody a")[0].click()
        browser.shows("Fail", "exact_match", "1 of 2", "wrong <b>1</b>")
        browser.follow("wrong <b>1</b>")
        browser.shows("failed", "Expected", "Output")
        wait_for(lambda: has_next_run(browser), "a page for which Prefect answered in time")
        browser.shows("recurring", "Fail", "Next run", "UTC")
        assert "Prefect does not answer" not in browser.text
        browser.all("header form button")[0].click()
        browser.shows("Sign in")
        assert "Traceback" not in served.log


def has_next_run(browser: Browser) -> bool:
    browser.open("/")
    return "Next run" in browser.shows("recurring")


@pytest.mark.battery
def test_a_second_serve_of_the_same_home_names_the_first(served: Served) -> None:
    done = serve_in_vain(served.workplace)
    assert done.returncode == 3
    assert f"process {served.process.pid}" in done.stderr
    assert "FEPFLOW_HOME" in done.stderr


@pytest.mark.battery
def test_a_worker_that_was_killed_is_started_again(served: Served) -> None:
    os.kill(served.pids("worker")[-1], signal.SIGKILL)
    wait_for(lambda: len(served.pids("worker")) == 2, "another worker")
    done = served.run_suite()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.battery
def test_a_server_that_was_killed_is_started_again_at_the_same_place(served: Served) -> None:
    state = served.workplace.fepflow("status").stdout
    (pid,) = map(int, re.findall(r"local server, process (\d+)", state))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(served.pids("server")) == 2, "another server")
    wait_for(lambda: is_healthy(served.api_url), "its answer", 120)
    assert served.workplace.fepflow("status").stdout != state


@pytest.mark.battery
def test_a_run_whose_process_was_killed_is_interrupted_within_a_minute(served: Served, held: Endpoint) -> None:
    with run_under_way(served, held) as process:
        process.kill()
        killed = time.monotonic()
        record = record_when(served, lambda run: run.status == "interrupted", "an interrupted run", 60)
        left = 60 - (time.monotonic() - killed)
        wait_for(lambda: served.flow_run(record.flow_run_id)["state_name"] == "Crashed", "a crashed flow run", left)
    assert record.id in served.flow_run(record.flow_run_id)["state"]["message"]


def test_ctrl_c_ends_everything_also_a_run_that_is_under_way(served: Served, held: Endpoint) -> None:
    asked = len(held.asked)
    ordered = f"/deployments/{served.deployment('suite')['id']}/create_flow_run"
    served.api.post(ordered, json={"parameters": {"suite": str(served.workplace.suite)}}).raise_for_status()
    wait_for(lambda: len(held.asked) > asked, "a call", 120)
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=60) == 0
    wait_for(lambda: served.family() == [], "the end of all processes", 20)
    assert served.log.index("worker   │ stopped") < served.log.index("server   │ stopped")
    assert not is_healthy(served.api_url)
    record = record_when(served, lambda _: True, "a run", 1)
    assert record.status in ("pending", "cancelled"), "the next worker takes it over"


@pytest.mark.battery
def test_an_api_that_is_configured_is_used_and_stays(stack, tmp_path: Path) -> None:
    workplace = place(stack, tmp_path, **stack.prefect)
    (tmp_path / "prefect.yaml").write_text(OWN_DEPLOYMENT, encoding="utf-8")
    workplace.suite.write_text(RECORDED, encoding="utf-8")
    (tmp_path / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")
    with serve(workplace) as served:
        assert served.pids("server") == []
        done = served.prefect("deployment", "run", "evaluate/mine", "--watch")
        assert done.returncode == 0, done.stdout + done.stderr
        assert workplace.record.outcome == "pass"
        under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        served.process.send_signal(signal.SIGTERM if under_nohup else signal.SIGHUP)
        assert served.process.wait(timeout=60) == 0
        wait_for(lambda: served.family() == [], "the end of all processes", 20)
    assert is_healthy(stack.api_url)


@pytest.mark.battery
def test_deployments_that_cannot_be_registered_are_reported(stack, tmp_path: Path) -> None:
    workplace = place(stack, tmp_path, **stack.prefect)
    broken = OWN_DEPLOYMENT.replace("fepflow.flows.evaluate.evaluate", "fepflow.flows.evaluate.nobody")
    (tmp_path / "prefect.yaml").write_text(broken, encoding="utf-8")
    done = serve_in_vain(workplace)
    assert done.returncode == 3
    assert "nobody" in done.stdout
    assert str(tmp_path / "prefect.yaml") in done.stdout
    assert "not registered" in done.stderr


@pytest.mark.battery
def test_a_port_in_use_is_an_error(stack, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        workplace = place(stack, tmp_path, FEPFLOW_PORT=str(taken.getsockname()[1]))
        done = serve_in_vain(workplace)
    assert done.returncode == 3
    assert "FEPFLOW_PORT" in done.stdout
    assert "did not start" in done.stderr
