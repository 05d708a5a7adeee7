"""Agents that are scripts in a folder, opened as targets, and the processes that are left of them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.ecp.conformance import ConformanceReport
from fepflow.calls.factory import open_target
from fepflow.protocol.test_case import Output, TestCase
from fepflow.suite.target import Target

PYTHON = [sys.executable, "-I", "-S"]
"""Starts in half the time."""

AGENT = """\
import json, os, signal, sys, time

def say(message):
    print(json.dumps(message), flush=True)

def answer(request, result):
    say({"jsonrpc": "2.0", "id": request["id"], "result": result})

def refuse(request, code, message):
    say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})

def done(output, **more):
    return {"status": "done", "public_output": output, **more}

def initialize(request):
    answer(request, {"name": "echo", "capabilities": {}})

def step(request):
    answer(request, done("echo: " + request["params"]["input"]))

def reset(request):
    answer(request, True)

%s

METHODS = {"agent/initialize": initialize, "agent/step": step, "agent/reset": reset}
for line in sys.stdin:
    request = json.loads(line)
    METHODS[request["method"]](request)
"""
"""An agent that answers as it should, but for what a test puts in."""

Open = Callable[..., tuple[Any, TargetClient]]


@pytest.fixture
async def open_agent(tmp_path: Path) -> AsyncIterator[Open]:
    """Writes agent.py and opens it as a target. In the end nothing may be left of it."""
    opened = []

    def start(code: str = "", **options: Any) -> tuple[Any, TargetClient]:
        names = ("timeout", "case_timeout", "attempts", "concurrency")
        top = {name: options.pop(name) for name in names if name in options}
        (tmp_path / "agent.py").write_text(AGENT % code, encoding="utf-8")
        ecp = options if "url" in options else {"command": [*PYTHON, "agent.py"], **options}
        config = Target.model_validate({"attempts": 1, "timeout": 60, **top, "ecp": ecp})
        target = open_target(config, folder=tmp_path, case_ids=list)
        opened.append(target)
        return target, TargetClient(target, RetryPolicy.of(config))

    yield start
    for target in opened:
        await target.aclose()
    assert processes_in(tmp_path) == []
    assert [
        child for child in psutil.Process().children(recursive=True) if "keeper.py" in " ".join(child.cmdline())
    ] == []


def processes_in(folder: Path) -> list[psutil.Process]:
    """The processes that work in this folder, as all that an agent starts does."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder.resolve()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # it is about other processes
            await asyncio.sleep(0.02)


def scenario(*steps: Any, case_id: str = "c1") -> TestCase:
    return TestCase(id=case_id, input=list(steps))


async def run(client: TargetClient, *steps: Any) -> Output:
    """The output of one scenario, as a run gets it."""
    return (await client.ask(scenario(*steps))).output()


def said(output: Output) -> list[str]:
    """What the agent said publicly, step by step; nothing if it completed none."""
    return [step["public_output"] for step in (output.value or {"steps": []})["steps"]]


def metadata_of(output: Output) -> dict[str, Any]:
    assert output.metadata is not None
    return output.metadata


def failed(report: ConformanceReport) -> dict[str, str]:
    return {check.name: check.message for check in report.checks if check.status == "fail"}


def status_of(report: ConformanceReport) -> dict[str, str]:
    return {check.name: check.status for check in report.checks}
