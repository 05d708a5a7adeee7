"""Calls that hang, crash, print and start processes: none keeps the run from its end, and none leaves orphans."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from fepflow.errors import TargetTimeoutError
from fepflow.protocol.test_case import TestCase
from tests.processes import is_running

from .conftest import CASE, Ask, Open, value_of

pytestmark = pytest.mark.may_stall(reason="runs open targets in a thread, which tests do not")


@pytest.mark.parametrize("function", ["def", "async def"])
async def test_a_call_that_hangs_times_out_and_the_next_one_is_answered(open_agent: Open, function: str) -> None:
    code = (
        "import threading\nreleased = threading.Event()\ncalls = []\n"
        f"{function} answer(q):\n"
        "    calls.append(q)\n"
        "    if len(calls) == 1:\n        released.wait(30)\n"
        "    return 'here'\n"
    )
    _, caller = open_agent(code, timeout=2, concurrency=1)
    asked = await caller.ask(CASE)
    assert isinstance(asked.error, TargetTimeoutError)
    assert str(asked.error) == "no complete answer within 2 s (target.timeout)"
    assert value_of(await caller.ask(CASE)) == "here"
    sys.modules["agent"].released.set()


def test_the_process_ends_although_calls_hang(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "import threading, time\n"
        "def answer(q):\n"
        "    threading.Thread(target=time.sleep, args=[1000]).start()\n"
        "    while True:\n        time.sleep(0.01)\n"
    )
    code = (
        "import asyncio\nfrom pathlib import Path\n"
        "from fepflow.protocol.test_case import TestCase\n"
        "from fepflow.suite.target import Target\n"
        "from fepflow.calls.client import TargetClient, RetryPolicy\n"
        "from fepflow.calls.factory import open_target\n"
        "async def main():\n"
        "    config = Target.model_validate({'python': 'agent.py:answer', 'attempts': 1, 'timeout': 0.2})\n"
        "    target = open_target(config, folder=Path.cwd(), case_ids=lambda: [])\n"
        "    caller = TargetClient(target, RetryPolicy.of(config))\n"
        "    cases = [TestCase(id=str(n), input=n) for n in range(4)]\n"
        "    for asked in await asyncio.gather(*map(caller.ask, cases)):\n        print(asked.error)\n"
        "    await target.aclose()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["no complete answer within 0.2 s (target.timeout)"] * 4
    assert done.returncode == 0


async def test_idle_threads_end_with_the_target(open_agent: Open) -> None:
    target, caller = open_agent("def answer(question):\n    return question\n", concurrency=6)
    await asyncio.gather(*(caller.ask(CASE) for _ in range(6)))
    await target.aclose()
    await until(lambda: all(thread.name != "fepflow-agent" for thread in threading.enumerate()))


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if child.is_running()]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # it is about other threads and processes
            await asyncio.sleep(0.02)


async def until_gone(pids: list[int]) -> None:
    await until(lambda: not any(map(is_running, pids)))


SPAWNING = """\
import os, subprocess, time
def answer(q):
    own = [subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["setsid", "sleep", "1001"])]
    with open(os.environ["PIDS"], "w") as file:
        file.write(" ".join(str(pid) for pid in (os.getpid(), *(process.pid for process in own))))
    {}
"""


def pids_of(file: Path) -> list[int]:
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


async def pids_in(file: Path) -> list[int]:
    await until(lambda: len(pids_of(file)) == 3)
    return pids_of(file)


@pytest.mark.parametrize(
    ("outcome", "isolate"),
    [
        ("cancel", "process"),
        ("close", "interpreter"),
        ("crash", "process"),
        pytest.param("time-out", "process", marks=pytest.mark.battery),
        pytest.param("cancel", "interpreter", marks=pytest.mark.battery),
        pytest.param("close", "process", marks=pytest.mark.battery),
    ],
)
async def test_an_isolated_call_is_killed_with_all_that_it_has_started(
    open_agent: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, isolate: str
) -> None:
    file = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(file))
    bodies = {"crash": "os.kill(os.getpid(), 9)", "time-out": "time.sleep(1000)"}
    body = bodies.get(outcome, "while True: pass")
    timeout = 20 if outcome == "time-out" else 120
    target, caller = open_agent(SPAWNING.format(body), isolate=isolate, timeout=timeout)
    call = asyncio.create_task(caller.ask(CASE))
    pids = await pids_in(file)
    if outcome == "cancel":
        call.cancel()
    elif outcome == "close":
        await target.aclose()
    asked: Any = (await asyncio.gather(call, return_exceptions=True))[0]
    if outcome == "time-out":
        assert isinstance(asked.error, TargetTimeoutError)
    elif outcome in ("crash", "close"):
        assert asked.error.kind == "crashed"
        assert ("was killed by SIGKILL" if outcome == "crash" else "was ended with the run") in str(asked.error)
    else:
        assert isinstance(asked, asyncio.CancelledError)
    await until_gone(pids)
    if outcome == "cancel":
        (tmp_path / "pids").unlink()
        again = asyncio.create_task(caller.ask(CASE))
        assert await pids_in(file) != pids, "another process takes over"
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)


async def test_an_isolated_call_that_crashes_is_an_error_and_the_next_one_is_answered(open_agent: Open) -> None:
    code = "import ctypes, os, sys\ndef answer(q):\n    exec(q)\n    return 'fine'\n"
    _, caller = open_agent(code, isolate="process", concurrency=1, timeout=60)
    for body, says in (
        ("print('bye', file=sys.stderr); os._exit(3)", "the process of agent.py:answer ended with exit code 3: bye"),
        ("os.kill(os.getpid(), 11)", "the process of agent.py:answer was killed by SIGSEGV"),
        ("ctypes.string_at(0)", "the process of agent.py:answer was killed by SIGSEGV"),
    ):
        asked = await caller.ask(TestCase(id="c", input=body))
        assert (asked.error.kind, asked.error.retryable) == ("crashed", True)
        assert str(asked.error).startswith(says)
    assert value_of(await caller.ask(TestCase(id="c", input=""))) == "fine"


async def test_an_isolated_agent_may_use_its_standard_streams(ask: Ask) -> None:
    code = (
        "import os, subprocess, sys\n"
        "def answer(q):\n"
        "    print('{\"answer\": 1}')\n"
        "    os.write(1, b'x' * 1_000_000)\n"
        "    os.write(2, b'y' * 1_000_000)\n"
        "    subprocess.run(['echo', 'hello'])\n"
        "    subprocess.Popen(['sleep', '1000'])\n"
        "    return sys.stdin.read()\n"
    )
    assert value_of(await ask(code, isolate="process", timeout=60)) == ""


async def test_processes_serve_one_call_after_the_other_and_no_more_than_concurrency(open_agent: Open) -> None:
    before = children()
    code = "import os, time\ndef answer(q):\n    time.sleep(0.01)\n    return os.getpid()\n"
    target, caller = open_agent(code, isolate="process", concurrency=2, timeout=60)
    pids = {value_of(asked) for asked in await asyncio.gather(*(caller.ask(CASE) for _ in range(30)))}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    await target.aclose()
    await until_gone(list(pids))
    assert set(children()) <= set(before), "no helper of theirs is left either"
