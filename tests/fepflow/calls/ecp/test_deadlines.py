"""Agents that hang overrun a deadline, and keep no other scenario waiting."""

from __future__ import annotations

import pytest

from .bad_steps import at_bad
from .conftest import Open, metadata_of, run, said

HANGS = {
    "before reading": "def initialize(request):\n"
    "    answer(request, {'name': 'n', 'capabilities': {}})\n"
    "    request = json.loads(sys.stdin.readline())\n"
    "    answer(request, done('fine'))\n"
    "    time.sleep(1000)\n",
    "after reading": at_bad("time.sleep(1000)"),
    "in a slow drip": at_bad("for _ in range(100_000): print('.', end='', flush=True); time.sleep(0.01)"),
    "in noise": at_bad('while True: print(\'{"level": "info"}\', flush=True); time.sleep(0.01)'),
    "after another id": at_bad("say({'jsonrpc': '2.0', 'id': 99, 'result': done('fine')}); time.sleep(1000)"),
    "after the id as text": at_bad(
        "say({'jsonrpc': '2.0', 'id': str(request['id']), 'result': done('fine')}); time.sleep(1000)"
    ),
    "after an id that is true": at_bad("say({'jsonrpc': '2.0', 'id': True, 'result': done('fine')}); time.sleep(9)"),
}

WRONG_ID = {"after another id": "99", "after the id as text": '"3"', "after an id that is true": "true"}


@pytest.mark.parametrize("name", HANGS)
async def test_an_agent_that_hangs_overruns_the_deadline_of_its_step(open_agent: Open, name: str) -> None:
    _, client = open_agent(HANGS[name], step_timeout=2)
    output = await run(client, "good", "bad")
    error = metadata_of(output)["error"]
    message = "step 2 of 2: no answer within 2 s (target.ecp.step_timeout)"
    if name in WRONG_ID:
        message += f": an answer came with the id {WRONG_ID[name]}, but 3 was asked"
    assert (error["message"], error["type"], error["partial"]) == (message, "timeout_error", True)
    assert said(output) == ["fine"]


async def test_the_start_has_a_deadline_of_its_own_or_that_of_the_scenario(open_agent: Open) -> None:
    for limits, told in (({"start_timeout": 1}, "start_timeout"), ({"timeout": 1}, "no complete answer within 1 s")):
        _, client = open_agent("def initialize(request):\n    time.sleep(1000)\n", **limits)
        error = metadata_of(await run(client, "good"))["error"]
        assert told in error["message"]
        assert error["type"] == "timeout_error"


async def test_the_deadline_of_the_scenario_holds_for_all_steps_together(open_agent: Open) -> None:
    _, client = open_agent(at_bad("say({'jsonrpc': '2.0', 'id': 7, 'result': {}}); time.sleep(1000)"), timeout=5)
    output = await run(client, "good", "bad")
    assert metadata_of(output)["error"]["message"] == (
        "step 2 of 2: no complete answer within 5 s (target.timeout): an answer came with the id 7, but 3 was asked"
    )
    assert said(output) == ["fine"]


async def test_an_agent_that_reads_nothing_of_a_large_input_overruns_its_deadline(open_agent: Open) -> None:
    _, client = open_agent("def initialize(request):\n    answer(request, {})\n    time.sleep(1000)\n", step_timeout=1)
    output = await run(client, "x" * 300_000)
    assert metadata_of(output)["error"]["message"] == ("step 1 of 1: no answer within 1 s (target.ecp.step_timeout)")


async def test_a_stubborn_agent_is_killed_with_its_children_and_keeps_no_scenario_waiting(open_agent: Open) -> None:
    code = """
import subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"])
subprocess.Popen(["setsid", "sleep", "1000"])
import atexit
atexit.register(time.sleep, 1000)
"""
    _, client = open_agent(code, concurrency=1)
    for _ in range(3):
        assert said(await run(client, "hi")) == ["echo: hi"]
