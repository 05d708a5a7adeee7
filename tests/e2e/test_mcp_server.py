"""From `fepflow init --mcp` to a verdict about the tools of a server that is built with the public SDK."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.fepflow.calls.mcp.conftest import ORDERS
from tests.processes import is_running

from .conftest import Workplace, wait_for

pytestmark = pytest.mark.e2e


@pytest.mark.battery
def test_what_init_writes_for_a_server_is_valid_and_runs_once_it_has_real_values(workplace: Workplace) -> None:
    suite = workplace.folder / "orders" / "suite.yaml"
    done = workplace.fepflow("init", suite.parent, "--mcp", " ".join(ORDERS))
    assert done.returncode == 0, done.stderr
    suite.write_text(suite.read_text().replace("order_id: TODO", "order_id: A100").replace("seconds: 1", "seconds: 0"))
    valid = workplace.fepflow("validate", suite)
    assert (valid.returncode, valid.stderr) == (0, "")
    done = workplace.fepflow("run", suite)
    assert done.returncode == 0, done.stdout + done.stderr
    results = workplace.results
    assert set(results) == {"get_order", "greet", "wait", "was_cancelled", "environment"}  # and nothing was deleted
    assert results["get_order"].output.value == {"id": "A100", "total": 9.5}


def test_errors_of_tools_fail_unless_expected_and_results_are_held_against_what_was_declared(
    workplace: Workplace,
) -> None:
    def case(name: str, tool: str, *checks: object, **call: object) -> dict[str, object]:
        return {"id": name, "input": {"tool": tool, **call}, "checks": list(checks)}

    declared = {"type": "declared"}
    says = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["no such order"]}}
    cases = [
        case("found", "get_order", declared, arguments={"order_id": "A100"}),
        case("refused", "get_order", declared, says, arguments={"order_id": "B7"}, is_error=True),
        case("unexpected", "get_order", declared, says, arguments={"order_id": "B7"}),
        case("not refused", "greet", is_error=True),
        case("undeclared", "greet", declared),
        case("unknown", "get_ordr"),
    ]
    document = {"name": "orders", "target": {"mcp": {"command": ORDERS}}, "test_cases": cases}
    workplace.suite.write_text(json.dumps(document), encoding="utf-8")
    junit = workplace.folder / "junit.xml"
    done = workplace.run("-o", junit)
    assert done.returncode == 1, done.stdout + done.stderr
    outcomes = {
        name: {check.metadata["check_id"]: check.passed if check.error is None else "error" for check in result.checks}
        for name, result in workplace.results.items()
    }
    assert outcomes == {
        "found": {"declared": True, "answered": True},
        "refused": {"declared": True, "contains": True, "answered": True},
        "unexpected": {"declared": False, "contains": True, "answered": False},
        "not refused": {"answered": False},
        "undeclared": {"declared": "error", "answered": True},
        "unknown": {"answered": "error"},
    }
    shown = workplace.fepflow("show", "--failed").stdout
    assert 'got "error", wanted "answer"' in shown
    assert "the tool answered with an error" in shown
    assert "the tool declares no outputSchema" in shown
    assert "the server has no tool get_ordr (did you mean get_order?)" in shown
    rows = ElementTree.parse(junit).iter("testcase")  # our own file
    assert {"unexpected", "not refused"} <= {row.get("name") for row in rows if row.find("failure") is not None}


def test_kill_9_of_the_run_leaves_no_process_of_the_server(workplace: Workplace) -> None:
    (workplace.folder / "server.py").write_text(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['setsid', 'sleep', '1000'])\n"
        "with open('pids', 'w') as file:\n    file.write(f'{os.getpid()} {child.pid} ')\n"
        "time.sleep(1000)\n"
    )
    document = {
        "name": "hung",
        "target": {"mcp": {"command": [sys.executable, "server.py"]}, "timeout": "100s"},
        "test_cases": [{"input": {"tool": "a"}}],
        "checks": [{"type": "declared"}],
    }
    workplace.suite.write_text(json.dumps(document), encoding="utf-8")

    def pids() -> list[int]:
        file = Path(workplace.folder) / "pids"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    with workplace.running("run", str(workplace.suite)) as command:
        wait_for(lambda: len(pids()) == 2, "a server with a child")
        command.send_signal(signal.SIGKILL)
        command.wait()
    wait_for(lambda: not any(map(is_running, pids())), "orphans")
