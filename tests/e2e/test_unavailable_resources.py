"""What may be in the way of a run: signals, the disk, the database, Prefect. A sentence says it, results are kept."""

from __future__ import annotations

import resource
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from typing import Any

import pytest

from .conftest import Stack, Workplace, end, wait_for
from .endpoint import Endpoint
from .relay import relayed

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(60)]


def flow_state(stack: Stack, workplace: Workplace) -> tuple[str, str]:
    """Type and name of the flow run's state, as Prefect's API has it."""
    state = stack.api.get(f"/flow_runs/{workplace.record.flow_run_id}").json()["state"]
    return state["type"], state["name"]


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for a process; what it printed."""
    out, err = process.communicate(timeout=200)
    assert "Traceback" not in err
    return out, err


@pytest.mark.battery
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_a_run_and_keep_its_results(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, number: signal.Signals
) -> None:
    endpoint.holds_from = 9
    workplace.write_suite(CASES, target={"concurrency": 2, "timeout": "60s"})
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: endpoint.held, "some requests")
        out, err = end(process, number)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "fepflow run --resume" in out
    assert workplace.record.status == "cancelled"
    assert flow_state(stack, workplace) == ("CANCELLED", "Cancelled")
    kept = sum(result.output is not None for result in workplace.results.values())
    assert 0 < kept <= len(endpoint.asked) < len(CASES)


@pytest.mark.battery
def test_a_run_waits_for_a_locked_store(workplace: Workplace, endpoint: Endpoint) -> None:
    endpoint.holds_from = 5
    workplace.write_suite(CASES, target={"concurrency": 2, "timeout": "60s"})
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: endpoint.held, "some requests")
        with closing(sqlite3.connect(workplace.folder / "store.db", isolation_level=None, timeout=60)) as other:
            other.execute("BEGIN EXCLUSIVE")
            endpoint.held = False
            time.sleep(15)
        _, err = finish(process)
    assert process.returncode == 0, err
    assert set(endpoint.questions.values()) == {1}


@pytest.mark.battery
def test_a_store_that_stays_locked_ends_the_run_with_an_error(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    endpoint.holds_from = 5
    workplace.write_suite(CASES, target={"concurrency": 2, "timeout": "60s"})
    with workplace.running("run", workplace.suite) as process:
        wait_for(lambda: endpoint.held, "some requests")
        with closing(sqlite3.connect(workplace.folder / "store.db", isolation_level=None, timeout=60)) as other:
            other.execute("BEGIN EXCLUSIVE")
            endpoint.held = False
            _, err = finish(process)
    assert process.returncode == 3
    assert "is locked by another process" in err
    assert f"fepflow run --resume {workplace.record.id[:8]}" in err
    assert "interrupted" in workplace.fepflow("list").stdout
    assert flow_state(stack, workplace) == ("FAILED", "Failed")


@pytest.mark.battery
def test_a_run_ended_by_a_full_disk_can_be_resumed(workplace: Workplace, endpoint: Endpoint) -> None:
    there = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["x"]}}
    workplace.write_suite([f"long {number}" for number in range(60)], target={"concurrency": 2}, checks=[there])
    with workplace.running_cold("run", workplace.suite) as process:
        # Not the disk's end but as good: no file of this process may grow beyond 2 MB.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        _, err = finish(process)
    assert process.returncode == 3
    assert "store.db cannot be read or written" in err
    assert "free space" in err
    stored = {name for name, result in workplace.results.items() if result.output is not None}
    assert 0 < len(stored) < 60

    asked_before = endpoint.questions
    assert workplace.fepflow("run", "--resume", "latest", "--quiet").returncode == 0
    assert {name for name in stored if endpoint.questions[name] > asked_before[name]} == set()


def test_a_run_gives_its_verdict_when_prefect_becomes_unavailable(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    endpoint.holds_from = 5
    workplace.write_suite(CASES, target={"concurrency": 4, "timeout": "60s"})
    with relayed(stack) as relay:
        imports = "import fepflow.services.local_run as e, fepflow.cli.main as m"
        impatient = f"{imports}; e.ASK_SECONDS, e.GONE_SECONDS = 0.5, 2; m.main()"
        with workplace.running("run", workplace.suite, code=impatient, **relay.env) as process:
            wait_for(lambda: endpoint.held, "some requests")
            relay.cut()
            endpoint.held = False
            out, err = finish(process)
    assert process.returncode == 0
    assert "PASS" in out
    assert err.splitlines()[-1].startswith("warning: Prefect's API stopped answering; the verdict is in the store")
    assert len(err.splitlines()) == 2, "nothing of what Prefect itself has to say about it"
    assert workplace.record.outcome == "pass"


def nowhere(stack: Stack) -> dict[str, str]:
    return {"PREFECT_API_URL": "http://127.0.0.1:1/api"}


def no_prefect(stack: Stack) -> dict[str, str]:
    return {**stack.prefect, "PREFECT_API_URL": stack.api_url.replace("/api", "/no-such-api")}


def below_a_file(stack: Stack) -> dict[str, str]:
    return {"FEPFLOW_HOME": str(stack.home / "fepflow" / "server.json")}


def no_number(stack: Stack) -> dict[str, str]:
    return {"FEPFLOW_PORT": "http"}


@pytest.mark.battery
def test_a_completed_run_that_prefect_does_not_begin_again_is_an_error(
    workplace: Workplace, endpoint: Endpoint, stack: Stack
) -> None:
    workplace.write_suite(["question 1"])
    workplace.run()
    with relayed(stack) as relay:
        relay.hold(b'"flow_id":')
        with workplace.running("run", "--resume", "latest", PREFECT_CLIENT_MAX_RETRIES="0", **relay.env) as process:
            wait_for(relay.holds.is_set, "the request")
            relay.cut()
            _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert f"error: Prefect's API at {relay.env['PREFECT_API_URL']} cannot be used" in err


@pytest.mark.parametrize(
    ("env", "code", "says"),
    [
        (nowhere, 3, "the Prefect API that PREFECT_API_URL names does not answer: start it, or unset"),
        (no_prefect, 3, "/no-such-api cannot be used"),
        pytest.param(below_a_file, 3, "name a writable folder in FEPFLOW_HOME", marks=pytest.mark.battery),
        pytest.param(no_number, 2, "FEPFLOW_PORT: must be a whole number", marks=pytest.mark.battery),
    ],
)
def test_a_run_that_cannot_start_is_an_error_in_one_line(
    workplace: Workplace, endpoint: Endpoint, stack: Stack, env: Any, code: int, says: str
) -> None:
    workplace.write_suite(CASES)
    done = workplace.run(**env(stack))
    assert says in done.stderr
    assert "a fault of fepflow" not in done.stderr
    assert done.returncode == code
    assert not endpoint.asked


@pytest.mark.battery
def test_a_taken_port_is_named_with_two_ways_out(workplace: Workplace, endpoint: Endpoint) -> None:
    workplace.write_suite(CASES)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = workplace.run(FEPFLOW_HOME=str(workplace.folder / "home"), FEPFLOW_PORT=port)
    assert done.returncode == 3
    assert f"port {port} on 127.0.0.1 cannot be used" in done.stderr
    assert "FEPFLOW_PORT=" in done.stderr
    assert "PREFECT_API_URL=" in done.stderr
    assert not endpoint.asked
