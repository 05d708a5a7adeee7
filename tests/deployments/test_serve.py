"""Children of `fepflow serve`: started again, stopped in order, none left; real processes."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import psutil
import pytest

from fepflow.deployments.serve import MARK, Child, Stack
from tests.processes import is_running

SLEEPER = "import time; print('here', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"
PARENT = f"""
import subprocess, sys, time
grandchild = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
print("grandchild", grandchild.pid, flush=True)
time.sleep(600)
"""


def child(name: str, code: str) -> Child:
    return Child(name, [sys.executable, "-c", code], grace_seconds=0.5)


class Log:
    """What was said, by child."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._more = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self._more.set()

    def of(self, name: str, begins: str) -> list[str]:
        return [line for who, line in self.lines if who == name and line.startswith(begins)]

    async def wait(self, name: str, begins: str, count: int = 1) -> str:
        await self.until(lambda: len(self.of(name, begins)) >= count)
        return self.of(name, begins)[-1]

    async def until(self, said: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not said():
                self._more.clear()
                await self._more.wait()


class LoggingStack(Stack):
    """A stack whose lines can be waited for."""

    def __init__(self, owner: str, log: Log) -> None:
        super().__init__(owner, {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:4200/api"})
        self._log = log

    def say(self, name: str, line: str) -> None:
        super().say(name, line)
        self._log(name, line)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def owner() -> str:
    return f"test-{uuid4().hex}"


@pytest.fixture
def supervise(owner: str, log: Log) -> Callable[[], object]:
    @asynccontextmanager
    async def supervising() -> AsyncIterator[Stack]:
        supervisor = LoggingStack(owner, log)
        try:
            yield supervisor
        finally:
            await supervisor.stop()
            assert marked(owner) == []

    return supervising


def marked(owner: str) -> list[int]:
    """The processes that are the owner's, wherever they have gone."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(owner) and is_running(process.pid):
                found.append(process.pid)
        except psutil.Error:
            pass
    return found


def pid_in(line: str) -> int:
    return int(line.rpartition(" ")[2])


async def test_a_child_that_was_killed_is_started_again(supervise, log: Log) -> None:
    async with supervise() as supervisor:
        ended = await supervisor.supervise(child("parent", PARENT))
        first = pid_in(await log.wait("parent", "started"))
        grandchild = pid_in(await log.wait("parent", "grandchild"))  # as a worker's run, it lives on
        assert not ended.is_set()
        os.kill(first, signal.SIGKILL)
        second = pid_in(await log.wait("parent", "started", count=2))
        assert ended.is_set()
        assert second != first
        assert is_running(grandchild)
        assert log.of("parent", "ended") == ["ended (signal 9); starts again in 1 s"]


async def test_a_log_that_nobody_reads_any_more_holds_up_no_child(
    supervise, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.FileIO(writer, "w")))
    async with supervise() as supervisor:
        await supervisor.supervise(child("sleeper", SLEEPER))
        await log.wait("sleeper", "here")
    assert log.of("sleeper", "stopped")


async def test_the_pauses_grow(supervise, log: Log) -> None:
    async with supervise() as supervisor:
        await supervisor.supervise(child("failing", "raise SystemExit(7)"))
        await log.wait("failing", "ended", count=3)
    said = log.of("failing", "ended")
    assert said[:3] == [f"ended (exit code 7); starts again in {pause} s" for pause in (1, 2, 4)]


async def test_children_stop_in_the_opposite_order(supervise, log: Log) -> None:
    async with supervise() as supervisor:
        for name in ("first", "second", "third"):
            await supervisor.supervise(child(name, SLEEPER))
            await log.wait(name, "here")
    assert [name for name, line in log.lines if line == "stopped"] == ["third", "second", "first"]


async def test_what_a_child_has_started_ends_with_it_also_in_a_session_of_its_own(supervise, log: Log) -> None:
    async with supervise() as supervisor:
        await supervisor.supervise(child("parent", PARENT))
        grandchild = pid_in(await log.wait("parent", "grandchild"))
        await log.wait("parent", "here")
    assert not is_running(grandchild)


async def test_a_child_that_does_not_want_to_stop_is_killed(supervise, log: Log) -> None:
    async with supervise() as supervisor:
        await supervisor.supervise(child("stubborn", STUBBORN))
        pid = pid_in(await log.wait("stubborn", "started"))
        await log.wait("stubborn", "here")
    assert not is_running(pid)


async def test_what_a_killed_serve_left_behind_is_ended_by_the_next(owner: str, supervise) -> None:
    env = {**os.environ, MARK: owner}
    left = await asyncio.create_subprocess_exec(sys.executable, "-c", SLEEPER, env=env, stdout=asyncio.subprocess.PIPE)
    assert left.stdout is not None
    assert await left.stdout.readline() == b"here\n"
    async with supervise() as supervisor:
        assert await supervisor.end_leftovers() == 1
    assert await left.wait() in (-signal.SIGTERM, 255)  # asyncio says 255 if psutil was first to collect it


async def test_a_child_that_runs_once_says_how_it_ended(supervise, log: Log) -> None:
    async with supervise() as supervisor:
        assert await supervisor.run(child("once", "print('did it'); raise SystemExit(3)")) == 3
        await log.wait("once", "did it")


async def test_of_a_line_that_is_too_long_only_the_beginning_is_logged(
    supervise, log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Cut into pieces, a secret could be on both sides of a cut, and neither half would be recognized.
    monkeypatch.setenv("PREFECT_API_KEY", "pnu_one_two_three")
    async with supervise() as supervisor:
        await supervisor.run(child("long", "print('pnu_one_two_three ' * 20_000); print('next')"))
        await log.wait("long", "next")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "***" in line]
    assert line.replace("*** ", "").startswith("long     │")
    assert "pnu" not in line
    assert len(line) < 9_000
