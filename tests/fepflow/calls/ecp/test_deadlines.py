"""Agents that hang overrun a deadline, and keep no other scenario waiting."""

from __future__ import annotations

import asyncio

import pytest

from .bad_steps import at_bad
from .conftest import Open, metadata_of, run, said

HANGS = """
def say_id(name):
    say({'jsonrpc': '2.0', 'id': name, 'result': done('fine')})
    time.sleep(1000)

def drip(request):
    for _ in range(100_000):
        print('.', end='', flush=True)
        time.sleep(0.01)

def make_noise(request):
    while True:
        print('{"level": "info"}', flush=True)
        time.sleep(0.01)

HANGS = {
    "after reading": lambda request: time.sleep(1000),
    "in a slow drip": drip,
    "in noise": make_noise,
    "after another id": lambda request: say_id(99),
    "after the id as text": lambda request: say_id(str(request["id"])),
    "after an id that is true": lambda request: say_id(True),
}
def step(request):
    HANGS.get(request["params"]["input"], lambda request: answer(request, done("fine")))(request)
    if request["params"]["input"] == "before reading":
        time.sleep(1000)
"""

PLACES = {
    "before reading": "",
    "after reading": "",
    "in a slow drip": "",
    "in noise": "",
    "after another id": ": an answer came with the id 99, but 3 was asked",
    "after the id as text": ': an answer came with the id "3", but 3 was asked',
    "after an id that is true": ": an answer came with the id true, but 3 was asked",
}


async def test_an_agent_that_hangs_overruns_the_deadline_of_its_step(
    open_agent: Open, subtests: pytest.Subtests
) -> None:
    _, client = open_agent(HANGS, step_timeout=1.5)
    steps = [("before reading", "any") if name == "before reading" else ("good", name) for name in PLACES]
    outputs = await asyncio.gather(*(run(client, *names) for names in steps))
    for (name, fault), output in zip(PLACES.items(), outputs, strict=True):
        with subtests.test(name):
            error = metadata_of(output)["error"]
            message = f"step 2 of 2: no answer within 1.5 s (target.ecp.step_timeout){fault}"
            assert (error["message"], error["type"], error["partial"]) == (message, "timeout_error", True)
            assert said(output) == ["fine"]


async def test_the_start_has_a_deadline_of_its_own_or_that_of_the_scenario(open_agent: Open) -> None:
    for limits, told in (({"start_timeout": 1}, "start_timeout"), ({"timeout": 1}, "no complete answer within 1 s")):
        _, client = open_agent("def initialize(request):\n    time.sleep(1000)\n", **limits)
        error = metadata_of(await run(client, "good"))["error"]
        assert told in error["message"]
        assert error["type"] == "timeout_error"


async def test_the_deadline_of_the_scenario_holds_for_all_steps_together(open_agent: Open) -> None:
    _, client = open_agent(at_bad("say({'jsonrpc': '2.0', 'id': 7, 'result': {}}); time.sleep(1000)"), timeout=2)
    output = await run(client, "good", "bad")
    assert metadata_of(output)["error"]["message"] == (
        "step 2 of 2: no complete answer within 2 s (target.timeout): an answer came with the id 7, but 3 was asked"
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
