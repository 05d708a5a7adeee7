"""`fepflow ecp`: an agent is looked at and tried, without a suite, a store or Prefect."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fepflow.conftest import Cli

AGENT = Path(__file__).parents[3] / "deployments" / "suites" / "support" / "agent.py"
COMMAND = shlex.join([sys.executable, "-I", "-S", str(AGENT)])

FORGETFUL = """\
import json, os, sys
turns = 0
for line in sys.stdin:
    request = json.loads(line)
    print("noise: \\x1b[31m", flush=True)
    sys.stderr.write("a log of " + os.environ.get("AGENT_NAME", "nobody") + "\\n")
    turns += request["method"] == "agent/step"
    result = {"name": "forgetful", "capabilities": {}, "protocol_version": "1.0"}
    if request["method"] == "agent/step":
        if request["params"]["input"] == "crash":
            sys.exit("out of luck")
        result = {"status": "paused", "public_output": None, "logs": f"turn {turns}"}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.fixture
def forgetful(tmp_path: Path) -> str:
    """An agent with faults."""
    (tmp_path / "agent.py").write_text(FORGETFUL)
    return shlex.join([sys.executable, "-I", "-S", str(tmp_path / "agent.py")])


def test_conformance_is_a_table_of_checks_and_an_exit_code(cli: Cli, forgetful: str) -> None:
    done = cli("ecp", "conformance", "--target", COMMAND, "--input", "Where is A100?")
    assert done.exit_code == 0
    assert done.stdout.count("pass  ") == 19
    assert done.stdout.endswith("\nsupport (version: 1.0): conformant.\n")
    done = cli("ecp", "conformance", "--target", forgetful, "--timeout", "20s")
    assert done.exit_code == 1
    assert "fail  only_answers    this came, too: noise: \\x1b[31m" in done.stdout
    assert done.stdout.endswith(" of 19 checks failed.\n")


def test_conformance_in_json(cli: Cli, forgetful: str) -> None:
    done = cli("ecp", "conformance", "--target", forgetful, "--json", "--timeout", "20s")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert {name: report[name] for name in ("target", "agent", "protocol_version", "capabilities", "conformant")} == {
        "target": forgetful,
        "agent": "forgetful",
        "protocol_version": "1.0",
        "capabilities": [],
        "conformant": False,
    }
    assert len(report["checks"]) == 19
    reset = next(check for check in report["checks"] if check["name"] == "reset")
    assert reset["status"] == "fail"
    assert "forgetful" in reset["message"]


def test_a_step_is_printed_with_all_that_it_tells(cli: Cli) -> None:
    done = cli("ecp", "step", "--target", COMMAND, "I want a refund.", "For A100.")
    assert done.exit_code == 0
    first, second, third = done.stdout.split("\n\n")
    capabilities = "evaluation_context, multi_turn, reset, tool_calls, usage"
    assert first.startswith(f"support: version 1.0, capabilities {capabilities}, ")
    assert second.startswith("step 1: done, ")
    assert "\nWhich order is it about? It has a letter and three digits.\n" in second
    assert '\ntool_calls: {"name": "lookup_order", "arguments": {"order_id": "A100"}}\n' in third
    assert "\nevaluation_context: status=delivered\n" in third
    assert "\nusage: {" in third


def test_what_else_the_agent_says_is_shown_and_a_step_that_fails_is_an_error(
    cli: Cli, forgetful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_NAME", "smith")
    done = cli("ecp", "step", "--target", forgetful, "--env", "AGENT_NAME", "hello", "crash")
    assert "step 1: paused, " in done.stdout
    assert "\nno public output\nlogs: turn 1\n" in done.stdout
    assert "\nthe end of stdout:\nnoise: \\u001b[31m\n" in done.stdout
    assert "a log of smith\n" in done.stdout
    assert done.exit_code == 3
    assert done.stderr.startswith("error: the agent exited with code 1; the end of its stderr: a log of smith")
    assert cli("ecp", "step", "--target", forgetful, "hello").stdout.count("a log of nobody") == 2


def test_a_variable_that_the_agent_gets_may_stand_in_the_env_file(
    cli: Cli, forgetful: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_NAME", "")  # is as before when the test is over
    monkeypatch.delenv("AGENT_NAME")
    (tmp_path / "other.env").write_text("AGENT_NAME=jones\n")
    words = ("--target", forgetful, "--env", "AGENT_NAME", "hello")
    assert "a log of jones\n" in cli("ecp", "step", "--env-file", str(tmp_path / "other.env"), *words).stdout


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no-such-agent", "--target: the program no-such-agent is not found in PATH (install it, or name its path)"),
        ("http://", "--target: "),
        ("", "--target: must not be empty"),
    ],
)
@pytest.mark.parametrize("command", [["conformance"], ["step", "hello"]], ids=["conformance", "step"])
def test_a_target_that_cannot_be_is_an_error_of_the_option(cli: Cli, command: list[str], target: str, why: str) -> None:
    done = cli("ecp", *command, "--target", target)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {why}")


def test_neither_loads_prefect_or_a_database() -> None:
    code = (
        "import sys, fepflow.cli.main as m\n"
        f"assert m.fepflow(['ecp', 'conformance', '--target', {COMMAND!r}], standalone_mode=False) == 0\n"
        "assert not {'prefect', 'sqlmodel', 'sqlalchemy', 'litellm', 'httpx'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("timeout", ["0", "0s", "-1", "soon", "inf", "1e400"])
@pytest.mark.parametrize("command", [["ecp", "step", "--target", COMMAND, "hello"], ["run", "suite.yaml"]])
def test_a_deadline_is_a_duration_or_a_number_of_seconds(cli: Cli, command: list[str], timeout: str) -> None:
    done = cli(*command, "--timeout", timeout)
    assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert "--timeout" in done.output


def test_a_deadline_may_be_given_in_seconds(cli: Cli) -> None:
    assert cli("ecp", "step", "--target", COMMAND, "--timeout", "20.5", "hello").exit_code == 0
