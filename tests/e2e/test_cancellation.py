"""Whoever cancels a run, and however: it stops within 5 s, what it has is kept, and everybody says `cancelled`."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ruamel.yaml import YAML

from fepflow.store.store import Store

from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint
from .relay import relayed

pytestmark = pytest.mark.e2e

PROMISED = 5.0
"""Seconds from the wish to the end."""
CASES = [f"question {number}" for number in range(8)]
CANCELLED = ("CANCELLED", "Cancelled")

COMPUTES = """
import time
from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.registry import register

@register("computes", version="1.0.0")
class Computes(BaseCheck):
    text: str | JSONPath

    def __call__(self):
        open("computing", "w").close()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass
        return {"passed": True}
"""


@contextmanager
def within_the_promise(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PROMISED, what


def hang_after(workplace: Workplace, endpoint: Endpoint) -> None:
    """A suite whose last question is never answered."""
    workplace.write_suite([*CASES, "hang 1"], target={"timeout": "120s"}, batch_size=3)


def is_under_way(workplace: Workplace, endpoint: Endpoint) -> bool:
    """All is stored that can be."""
    return "hang 1" in endpoint.questions and kept(workplace) == len(CASES)


def kept(workplace: Workplace) -> int:
    return sum(result.output is not None for result in workplace.results.values())


def test_a_run_whose_output_nobody_reads_any_more_is_not_cancelled(workplace: Workplace) -> None:
    agent = "def answer(question):\n    print('asked', flush=True)\n    return question\n"
    (workplace.folder / "agent.py").write_text(agent, encoding="utf-8")
    target = {"python": "agent.py:answer"}
    workplace.write_suite(CASES)
    document = YAML().load(workplace.suite)
    with workplace.suite.open("w", encoding="utf-8") as file:
        YAML().dump({**document, "target": target}, file)
    with workplace.running("run", workplace.suite, "-v") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        process.stdout.close()
        process.stderr.close()
        assert process.wait(timeout=120) == 0
    assert (workplace.record.status, workplace.record.outcome) == ("completed", "pass")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.battery)])
def test_a_signal_while_the_agent_hangs(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, number: signal.Signals
) -> None:
    hang_after(workplace, endpoint)
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
        with within_the_promise("the process has ended"):
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, workplace.record.status) == (130, "cancelled")
    assert "Traceback" not in err
    assert "fepflow run --resume" in out
    assert stack.api.state_of(str(workplace.record.flow_run_id)) == CANCELLED
    assert kept(workplace) == len(CASES)


@pytest.mark.battery
def test_ctrl_c_while_a_check_computes(workplace: Workplace, endpoint: Endpoint, stack: Stack) -> None:
    (workplace.folder / "computes.py").write_text(COMPUTES, encoding="utf-8")
    check = {"type": "computes", "arguments": {"text": "$.output.value"}}
    workplace.write_suite(CASES, checks=[check], plugins=["computes.py"])
    with workplace.running("run", workplace.suite) as process:
        wait_for((workplace.folder / "computing").exists, "the check")
        with within_the_promise("the process has ended"):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert workplace.record.status == "cancelled"
    assert stack.api.state_of(str(workplace.record.flow_run_id)) == CANCELLED


@pytest.mark.battery
def test_ctrl_c_while_prefect_is_away(workplace: Workplace, endpoint: Endpoint, stack: Stack) -> None:
    hang_after(workplace, endpoint)
    with relayed(stack) as relay, workplace.running("run", workplace.suite, **relay.env) as process:
        wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
        relay.cut()
        time.sleep(1)
        with within_the_promise("the process has ended"):
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert (process.returncode, workplace.record.status) == (130, "cancelled")
    assert "Traceback" not in err
    assert kept(workplace) == len(CASES)


def flow_run_states(workplace: Workplace, stack: Stack) -> list[tuple[str, str]]:
    """Type and name of the state of each flow run of the newest run."""
    flow_runs = stack.api.post("/flow_runs/filter", json={"sort": "EXPECTED_START_TIME_DESC"}).json()
    ours = [flow_run for flow_run in flow_runs if flow_run["parameters"].get("run_id") == workplace.record.id]
    return [(flow_run["state"]["type"], flow_run["state"]["name"]) for flow_run in ours]


@pytest.mark.battery
@pytest.mark.parametrize(
    ("request_with", "exit_code", "status", "state"),
    [
        pytest.param('"flow_id":', 130, "cancelled", CANCELLED, id="creates-the-flow-run"),
        pytest.param('"state":{"type":"RUNNING"', 130, "cancelled", CANCELLED, id="begins-it"),
        pytest.param(' · pass"', 0, "completed", ("COMPLETED", "Completed"), id="shows-the-verdict"),
    ],
)
def test_ctrl_c_while_prefects_engine_waits_for_an_answer(
    workplace: Workplace, stack: Stack, request_with: str, exit_code: int, status: str, state: tuple[str, str]
) -> None:
    """It is not cut off: a flow run that it had created, or begun, would be Pending, Crashed or Running for good."""
    workplace.write_suite(CASES[:1])
    with relayed(stack) as relay:
        relay.hold(request_with.encode())
        with workplace.running("run", workplace.suite, **relay.env) as process:
            wait_for(relay.holds.is_set, "the request")
            process.send_signal(signal.SIGINT)
            time.sleep(1)  # whoever is cut off by it says so to Prefect
            relay.release()
            _, err = process.communicate(timeout=60)
        time.sleep(0.5)  # the server takes what is on its way after all
    assert "Traceback" not in err
    assert (process.returncode, workplace.record.status) == (exit_code, status)
    wait_for(lambda: flow_run_states(workplace, stack) == [state], f"{state}, and of no other flow run", 30)


@pytest.mark.battery
def test_cancel_in_the_ui_of_a_run_that_a_command_executes(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    hang_after(workplace, endpoint)
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
        flow_run_id = str(workplace.record.flow_run_id)
        with within_the_promise("the process has ended"):
            stack.api.set_state(flow_run_id, type="CANCELLING", name="Cancelling")
            _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert (process.returncode, workplace.record.status) == (130, "cancelled")
    assert stack.api.state_of(flow_run_id) == CANCELLED
    assert kept(workplace) == len(CASES)


def test_the_command_cancels_what_another_process_executes(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    hang_after(workplace, endpoint)
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
        done = workplace.fepflow("cancel", "latest")
        _, said = process.communicate(timeout=60)
    record = workplace.record
    assert (done.returncode, process.returncode, record.status) == (0, 130, "cancelled")
    assert done.stdout == f"Run {record.id[:8]} is cancelled. Continue it: fepflow run --resume {record.id[:8]}\n"
    assert record.cancel_requested_at is not None
    assert record.completed_at is not None
    assert (record.completed_at - record.cancel_requested_at).total_seconds() < PROMISED
    wait_for(lambda: stack.api.state_of(record.flow_run_id) == CANCELLED, f"Prefect's word, after: {said}", 30)
    again = workplace.fepflow("cancel", "latest")
    assert (again.returncode, "is over, it is cancelled" in again.stderr) == (2, True)

    workplace.write_suite(CASES)
    asked = endpoint.questions
    with workplace.running("run", "--resume", "latest") as resumed:
        wait_for(lambda: endpoint.questions["hang 1"] > 1, "the question that had no answer")
        resumed.kill()
    assert {case: endpoint.questions[case] - asked[case] for case in CASES} == dict.fromkeys(CASES, 0)


@pytest.mark.battery
def test_prefects_answer_to_the_end_of_a_cancelled_run_is_lost(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    hang_after(workplace, endpoint)
    with relayed(stack) as relay:
        relay.lose_answer(b'"state":{"type":"CANCELLED"')
        with workplace.running("run", workplace.suite, **relay.env) as process:
            wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
            with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
                store.runs.request_cancel(workplace.record.id)
            _, err = process.communicate(timeout=60)
    assert (process.returncode, workplace.record.status) == (130, "cancelled"), err
    assert stack.api.state_of(workplace.record.flow_run_id) == CANCELLED


@pytest.mark.battery
def test_prefect_refuses_to_hear_that_a_run_was_cancelled(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    hang_after(workplace, endpoint)
    with relayed(stack) as relay:
        relay.hold(b'"state":{"type":"CANCELLED"')
        with workplace.running("run", workplace.suite, PREFECT_CLIENT_MAX_RETRIES="0", **relay.env) as process:
            wait_for(lambda: is_under_way(workplace, endpoint), "the question that hangs")
            with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
                store.runs.request_cancel(workplace.record.id)
            wait_for(relay.holds.is_set, "the request")
            relay.cut()
            _, err = process.communicate(timeout=60)
    assert (process.returncode, workplace.record.status) == (130, "cancelled"), err
    assert "but Prefect does not know" in err
    assert stack.api.state_of(workplace.record.flow_run_id) == ("RUNNING", "Running")
