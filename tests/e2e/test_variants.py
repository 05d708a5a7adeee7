"""A suite with variants, from the command line to Prefect's graph."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest
from ruamel.yaml import YAML

from fepflow.store.store import Store
from fepflow.tasks.reaping import UNCLAIMED

from .conftest import Stack, Workplace, wait_for
from .test_process_loss import reap
from .worker import working

pytestmark = pytest.mark.e2e

CASES = [{"id": f"q{number}", "input": f"q{number}", "expected": f"q{number}"} for number in range(30)]


class Agent(ThreadingHTTPServer):
    """Versions of an agent: `/v1` answers every other question, `/v2` all, and 3 tokens each; none when asked hotly."""

    asked: Counter[tuple[str, float]]
    held: Event
    holds: tuple[str, float] | None = None
    """The version that answers only while the agent is not held; None for all."""


class _Handler(BaseHTTPRequestHandler):
    server: Agent

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        version, question, temperature = self.path.strip("/"), request["question"], request["temperature"]
        self.server.asked[version, temperature] += 1
        if self.server.holds in (None, (version, temperature)):
            self.server.held.wait(60)
        is_down = (version, temperature) == ("v1", 0.7)
        knows = version == "v2" or int(question[1:]) % 2
        body = json.dumps({"answer": question if knows else "?"}).encode()
        self.send_response(500 if is_down else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent(("127.0.0.1", 0), _Handler) as server:
        server.asked, server.held = Counter(), Event()
        server.held.set()
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def write(workplace: Workplace, agent: Agent, **sections: Any) -> None:
    target = {
        "http": {
            "url": "${AGENT}/${variant.version}",
            "body": {"question": "$.test_case.input", "temperature": "${variant.temperature}"},
            "output": "$.answer",
        },
        "attempts": 1,
        "retries": 0,
    }
    same = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
    variants = {"version": ["v1", "v2"], "temperature": [0.1, 0.7]}
    suite = {"name": "answers", "tags": ["gate"], "variants": variants, "target": target, "test_cases": CASES}
    with workplace.suite.open("w", encoding="utf-8") as file:
        YAML().dump({**suite, "checks": [same], "gate": {"min": {"exact_match": 0.8}}, **sections}, file)
    workplace.env["AGENT"] = f"http://127.0.0.1:{agent.server_port}"


def test_two_by_two_variants_are_one_graph_with_one_table(workplace: Workplace, agent: Agent) -> None:
    write(workplace, agent)
    done = workplace.run("--json", "-o", workplace.folder / "junit.xml")
    assert done.returncode == 1, done.stderr
    assert agent.asked == {("v1", 0.1): 30, ("v1", 0.7): 30, ("v2", 0.1): 30, ("v2", 0.7): 30}

    table = json.loads(done.stdout)
    assert [(run["variant"]["version"], run["variant"]["temperature"]) for run in table["runs"]] == [
        ("v1", 0.1),
        ("v1", 0.7),
        ("v2", 0.1),
        ("v2", 0.7),
    ]
    shown = {(found["variant"]["version"], found["variant"]["temperature"]): found for found in table["differences"]}
    assert {variant: found["shown"] for variant, found in shown.items()} == {
        ("v1", 0.7): None,
        ("v2", 0.1): "better",
        ("v2", 0.7): "better",
    }
    assert shown["v2", 0.1]["p_adjusted"] == pytest.approx(2 * shown["v2", 0.1]["p"]), "of two that can be compared"
    assert 0 < shown["v2", 0.1]["low"] < 0.5 < shown["v2", 0.1]["high"]
    assert "No call of version=v1, temperature=0.7 was answered." in table["sentences"]
    assert sorted(path.name for path in workplace.folder.glob("junit*")) == [f"junit-{n}.xml" for n in range(1, 5)]

    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        runs = store.runs.of_variants(table["variants"])
    assert [run.outcome for run in runs] == ["fail", "inconclusive", "pass", "pass"]
    assert runs[3].name == "answers [version=v2, temperature=0.7]"
    assert runs[3].tags == ["gate", "variant:version=v2", "variant:temperature=0.7"]

    # In Prefect, each run is a child of one flow run, by the task run that stands for it in the graph.
    api = workplace.stack.api
    children = [api.get(f"/flow_runs/{run.flow_run_id}").raise_for_status().json() for run in runs]
    graph = api.post("/task_runs/filter", json={"task_runs": {"id": {"any_": [
        child["parent_task_run_id"] for child in children]}}}).raise_for_status().json()  # fmt: skip
    assert len(graph) == 4
    (parent_id,) = {task["flow_run_id"] for task in graph}
    parent = api.get(f"/flow_runs/{parent_id}").raise_for_status().json()
    assert (parent["state"]["type"], parent["name"]) == ("FAILED", "answers · fail")
    assert parent["state"]["message"].startswith("FAIL: Of 4 variants: 1 failed (version=v1, temperature=0.1), 1 inc")
    assert {"gate", "verdict:fail"} <= set(parent["tags"])
    assert not any(tag.startswith("variant:") for tag in parent["tags"])
    (artifact,) = api.post("/artifacts/filter", json={"artifacts": {
        "flow_run_id": {"any_": [parent_id]}}}).raise_for_status().json()  # fmt: skip
    assert artifact["key"] == "variants-answers"
    assert "better" in artifact["data"]

    again = workplace.fepflow("show", table["variants"][:8])
    assert again.returncode == 0, again.stderr
    assert "is better than the first by" in again.stdout


@pytest.mark.battery
def test_some_variants_are_chosen_and_the_rest_is_resumed(workplace: Workplace, agent: Agent) -> None:
    write(workplace, agent)
    done = workplace.run("--variant", "version=v2", "--json")
    assert done.returncode == 0, done.stderr
    assert set(agent.asked) == {("v2", 0.1), ("v2", 0.7)}
    table = json.loads(done.stdout)

    # As if its process had been killed before the second one began.
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        second = store.runs.of_variants(table["variants"])[1]
        store.leases.acquire(second.id, "gone", 1)
        store.leases.finish(second.id, "gone", "interrupted")
    again = workplace.fepflow("run", "--resume", table["variants"][:8], "--json")
    assert again.returncode == 0, again.stderr
    assert [run["outcome"] for run in json.loads(again.stdout)["runs"]] == ["pass", "pass"]
    assert agent.asked["v2", 0.1] == agent.asked["v2", 0.7] == 30, "no answer is asked for again"


def _parent(workplace: Workplace) -> dict[str, Any]:
    """The flow run of which those of the variants are subflows."""
    api = workplace.stack.api
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        flow_run_id = next(run.flow_run_id for run in store.runs.newest() if run.flow_run_id is not None)
    child = api.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()
    task = api.get(f"/task_runs/{child['parent_task_run_id']}").raise_for_status().json()
    return dict(api.get(f"/flow_runs/{task['flow_run_id']}").raise_for_status().json())


def _statuses(workplace: Workplace) -> list[str]:
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        return sorted(run.status for run in store.runs.newest())


@pytest.mark.battery
def test_a_worker_runs_the_same_parent_and_retry_goes_on(workplace: Workplace, agent: Agent, stack: Stack) -> None:
    write(workplace, agent)
    with working(stack, workplace.env) as pool:
        flow_run_id = pool.run(suite=str(workplace.suite))
        wait_for(lambda: stack.api.state_of(flow_run_id)[0] == "FAILED", "the end of all variants")
    assert _parent(workplace)["id"] == flow_run_id
    assert _statuses(workplace) == ["completed"] * 4
    assert set(agent.asked.values()) == {30}
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        assert len(store.runs.of_variants(flow_run_id.replace("-", ""))) == 4
        assert {run.cause for run in store.runs.newest()} == {"api"}


@pytest.mark.battery
def test_cancel_of_the_parent_stops_the_variant_under_way(workplace: Workplace, agent: Agent, stack: Stack) -> None:
    agent.held.clear()
    write(workplace, agent)
    with working(stack, workplace.env) as pool:
        flow_run_id = pool.run(suite=str(workplace.suite))
        wait_for(lambda: agent.asked, "the first call")
        stack.api.set_state(flow_run_id, type="CANCELLING", name="Cancelling")
        wait_for(lambda: stack.api.state_of(flow_run_id)[0] == "CANCELLED", "the end of the parent")
        wait_for(lambda: "running" not in _statuses(workplace), "the end of the run")
    agent.held.set()
    assert "completed" not in _statuses(workplace)


@pytest.mark.battery
def test_a_worker_takes_over_the_variants_of_a_machine_that_is_gone(
    workplace: Workplace, agent: Agent, stack: Stack
) -> None:
    agent.holds = ("v2", 0.1)
    agent.held.clear()
    write(workplace, agent)
    with working(stack, workplace.env) as pool:
        flow_run_id = pool.run(suite=str(workplace.suite))
        wait_for(lambda: agent.asked["v2", 0.1], "the third variant")
        pool.kill()
        agent.held.set()
        pool.start_worker()
        reap(workplace, stack)
        assert _statuses(workplace) == ["completed", "completed", "pending", "pending"]
        wait_for(lambda: stack.api.state_of(flow_run_id)[0] == "FAILED", "the end of all variants", 240)
    assert _statuses(workplace) == ["completed"] * 4
    assert agent.asked["v1", 0.1] == 30, "no variant with a verdict is asked again"
    shown = json.loads(workplace.fepflow("show", flow_run_id.replace("-", ""), "--json").stdout)
    assert [run["outcome"] for run in shown["runs"]] == ["fail", "inconclusive", "pass", "pass"]
    assert stack.api.get(f"/flow_runs/{flow_run_id}").json()["run_count"] == 2


@pytest.mark.battery
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_was_stopped_is_gone_on_with(workplace: Workplace, agent: Agent, stack: Stack, number: int) -> None:
    agent.holds = ("v2", 0.1)
    agent.held.clear()
    write(workplace, agent)
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: agent.asked["v2", 0.1], "the third variant")
        parent_id = _parent(workplace)["id"]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    agent.held.set()
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        variants_id = str(store.runs.newest()[0].variants_id)
    if number == signal.SIGINT:
        assert process.returncode == 130, err
        assert f"fepflow run --resume {variants_id[:8]}" in out
        assert stack.api.state_of(parent_id)[0] == "CANCELLED"
        assert _statuses(workplace) == ["cancelled", "cancelled", "completed", "completed"]
    done = workplace.fepflow("run", "--resume", variants_id[:8], "--json")
    assert done.returncode == 1, done.stderr
    assert [run["outcome"] for run in json.loads(done.stdout)["runs"]] == ["fail", "inconclusive", "pass", "pass"]
    assert agent.asked["v1", 0.1] == 30, "no variant with a verdict is asked again"
    if number == signal.SIGKILL:  # Prefect would say Running for good
        assert stack.api.state_of(parent_id)[0] == "RUNNING"
        time.sleep(UNCLAIMED.total_seconds())
        workplace.run("--variant", "version=v2")
        assert stack.api.state_of(parent_id)[0] == "CRASHED"
