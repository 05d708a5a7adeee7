"""From `fepflow init` to a verdict about a Python function, and agents that misbehave, against a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import is_running

from .conftest import Stack, Workplace, wait_for

pytestmark = pytest.mark.e2e


def agent(workplace: Workplace, code: str, cases: int = 4, **target: object) -> None:
    """A suite whose target is `answer` in agent.py, which is to give back its input."""
    (workplace.folder / "agent.py").write_text(code, encoding="utf-8")
    workplace.write_suite([f"case {number}" for number in range(cases)])
    own: dict[str, object] = {name: target.pop(name) for name in ("isolate", "interpreter") if name in target}
    python = {"function": "agent.py:answer", **own}
    document = {
        "name": "e2e",
        "target": {"attempts": 1, "retries": 0, "timeout": "60s", **target, "python": python},
        "test_cases": "cases.jsonl",
        "checks": [
            {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
        ],
    }
    workplace.suite.write_text(json.dumps(document), encoding="utf-8")


def test_what_init_writes_passes_at_once_from_any_folder(workplace: Workplace) -> None:
    folder = workplace.folder / "my-agent"
    assert workplace.fepflow("init", folder).returncode == 0
    valid = workplace.fepflow("validate", folder / "suite.yaml")
    assert (valid.returncode, valid.stderr) == (0, "")
    done = workplace.fepflow("run", folder / "suite.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS  " in done.stdout
    answers = {name: result.output.value for name, result in workplace.results.items()}
    assert len(answers) == 10
    assert (answers["capital-france"], answers["sum"]) == ("The capital of France is Paris.", "It is 42.")


@pytest.mark.battery
def test_prints_of_an_agent_do_not_break_json_on_stdout(workplace: Workplace) -> None:
    agent(
        workplace,
        "import os, threading\n"
        "print('while loading')\n"
        "def answer(q):\n"
        "    print('a print')\n"
        "    os.write(1, b'past Python\\n')\n"
        "    os.system('echo a child')\n"
        "    threading.Thread(target=print, args=['a thread']).start()\n"
        "    return q\n",
    )
    done = workplace.run("--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["metadata"]["outcome"] == "pass"
    for printed in ("while loading", "a print", "past Python", "a child", "a thread"):
        assert printed in done.stderr


@pytest.mark.battery
def test_errors_of_an_agent_have_their_line_and_the_run_can_be_resumed(workplace: Workplace) -> None:
    code = "def answer(q):\n    if q == 'case 2':\n        raise {}('no such order')\n    return q\n"
    agent(workplace, code.format("LookupError"))
    assert workplace.run().returncode == 4
    failed = workplace.results["case 2"].output
    assert failed.metadata["error"]["message"] == "LookupError: no such order (agent.py:3)"
    assert failed.metadata["attempts"] == 1
    (workplace.folder / "agent.py").write_text("def answer(q):\n    return q\n", encoding="utf-8")
    assert workplace.fepflow("run", "--resume", "latest").returncode == 0


@pytest.mark.battery
def test_a_command_ends_although_calls_hang_in_a_pool_of_the_agents_own(workplace: Workplace) -> None:
    agent(
        workplace,
        "import time\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(4)\n"
        "def answer(q):\n    return pool.submit(time.sleep, 100_000).result() if q == 'case 1' else q\n",
        timeout="2s",
    )
    done = workplace.run()
    assert done.returncode == 4, done.stderr
    assert workplace.results["case 1"].output.metadata["error"]["kind"] == "timeout"
    assert workplace.results["case 2"].output.value == "case 2"


@pytest.mark.battery
def test_isolated_agents_that_crash_or_hang_cost_only_their_own_cases(workplace: Workplace) -> None:
    agent(
        workplace,
        "import os, sys\n"
        "def answer(q):\n"
        "    if q == 'case 1':\n        print('giving up', file=sys.stderr)\n        os._exit(7)\n"
        "    while q == 'case 2':\n        pass\n"
        "    if q == 'case 3':\n        return bytearray(10**9).decode()\n"
        "    return q\n",
        isolate="process",
        timeout="20s",
        concurrency=2,
    )
    assert workplace.run().returncode == 4
    errors = {
        name: result.output.metadata["error"]
        for name, result in workplace.results.items()
        if "error" in result.output.metadata
    }
    assert set(errors) == {"case 1", "case 2", "case 3"}
    assert errors["case 1"]["kind"] == "crashed"
    assert errors["case 1"]["message"].endswith("ended with exit code 7: giving up")
    assert errors["case 2"]["kind"] == "timeout"
    assert errors["case 3"]["kind"] in ("too_large", "timeout", "crashed", "exception")


def test_kill_9_of_the_run_leaves_no_orphan_of_an_isolated_agent(workplace: Workplace) -> None:
    agent(
        workplace,
        "import os, subprocess, time\n"
        "def answer(q):\n"
        "    child = subprocess.Popen(['setsid', 'sleep', '1000'])\n"
        "    with open(f'pids-{os.getpid()}', 'w') as file:\n        file.write(f'{os.getpid()} {child.pid} ')\n"
        "    while True:\n        pass\n",
        isolate="process",
        concurrency=2,
    )

    def pids() -> list[int]:
        return [int(pid) for file in Path(workplace.folder).glob("pids-*") for pid in file.read_text().split()]

    with workplace.running("run", str(workplace.suite)) as command:
        wait_for(lambda: len(pids()) == 4, "two agents, each with a child")
        command.send_signal(signal.SIGKILL)
        command.wait()
    wait_for(
        lambda: not any(map(is_running, pids())),
        "orphans",
    )


def test_validate_reports_errors_in_the_code(workplace: Workplace) -> None:
    agent(workplace, "import os\ndef answer():\n    return 1\n")
    done = workplace.fepflow("validate", workplace.suite)
    assert done.returncode == 2
    assert "agent.py:2: answer() cannot be called with the test case's input" in done.stderr
    (workplace.folder / "agent.py").write_text("def answer(q:\n", encoding="utf-8")
    for isolate in ("thread", "process"):
        text = workplace.suite.read_text().replace('"python": {', f'"python": {{"isolate": "{isolate}", ', 1)
        workplace.suite.with_name("other.yaml").write_text(text)
        done = workplace.fepflow("run", workplace.folder / "other.yaml")
        assert done.returncode == 2
        assert "agent.py:1: is not valid Python" in done.stderr


@pytest.mark.battery
def test_a_deployment_started_elsewhere_finds_the_agent(workplace: Workplace, stack: Stack) -> None:
    """As a worker does it: the flow by itself, in another folder than the suite's."""
    agent(workplace, "from helpers import same\ndef answer(q):\n    return same(q)\n")
    (workplace.folder / "helpers.py").write_text("def same(q):\n    return q\n")
    suite = str(workplace.suite)
    code = f"import asyncio; from fepflow.flows.evaluate import evaluate; asyncio.run(evaluate(suite={suite!r}))"
    api = stack.prefect
    elsewhere = workplace.folder / "elsewhere"
    elsewhere.mkdir()
    with workplace.running(code=f"import os; os.chdir({str(elsewhere)!r}); {code}", **api) as command:
        out, err = command.communicate(timeout=120)
    assert command.returncode == 0, out + err
    assert workplace.record.outcome == "pass"


def test_an_agent_of_an_environment_of_its_own_is_called_by_the_command_and_by_a_worker(
    workplace: Workplace, stack: Stack
) -> None:
    environment = workplace.folder.with_name("their-agent") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "pydantic.py").write_text("VERSION = '0.1'\n")
    code = (
        "import pydantic\nfrom importlib.util import find_spec\n"
        "async def answer(q):\n    return q if pydantic.VERSION == '0.1' and not find_spec('fepflow') else 'ours'\n"
    )
    agent(workplace, code, interpreter="../their-agent/.venv/bin/python")
    assert workplace.fepflow("validate", workplace.suite).returncode == 0
    done = workplace.run()
    assert done.returncode == 0, done.stdout + done.stderr
    run = f"asyncio.run(evaluate(suite={str(workplace.suite)!r}))"
    elsewhere = f"import asyncio, os; os.chdir('/'); from fepflow.flows.evaluate import evaluate; {run}"
    with workplace.running(code=elsewhere, **stack.prefect) as command:
        out, err = command.communicate(timeout=120)
    assert command.returncode == 0, out + err
