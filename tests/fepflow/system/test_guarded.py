"""Processes under guards: how they end, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from fepflow.system.guarded import Ending, GuardedProcess, GuardServer

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
async def server() -> AsyncIterator[GuardServer]:
    started = GuardServer()
    yield started
    await started.aclose()


async def shell(server: GuardServer, folder: Path, script: str) -> GuardedProcess:
    return await server.start(["/bin/sh", "-c", script], ENV, folder)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -signal.SIGKILL), ("kill $$", -signal.SIGTERM)]
)
async def test_it_is_known_how_a_process_has_ended(server: GuardServer, tmp_path: Path, script: str, code: int) -> None:
    process = await shell(server, tmp_path, script)
    assert await process.wait(30) == Ending(code)
    await process.kill()


async def test_why_a_program_cannot_be_started_is_known(server: GuardServer, tmp_path: Path) -> None:
    process = await server.start([str(tmp_path / "none")], ENV, tmp_path)
    ending = await process.wait(30)
    assert ending is not None
    assert ending.errno == errno.ENOENT
    await process.kill()


async def test_a_program_gets_its_folder_its_variables_and_no_other_descriptors(
    server: GuardServer, tmp_path: Path
) -> None:
    code = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ), sorted(os.listdir('/proc/self/fd'))]))"
    process = await server.start([sys.executable, "-I", "-S", "-c", code], {"A": "ü"}, tmp_path)
    folder, env, descriptors = json.loads(await process.stdout.read())
    assert folder == str(tmp_path)
    assert env.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"  # Python's own doing
    assert env == {"A": "ü"}
    assert len(descriptors) == 4, "those of every process, and that of the folder that is listed"
    await process.kill()


async def test_signals_are_as_every_program_expects_them(server: GuardServer, tmp_path: Path) -> None:
    process = await shell(server, tmp_path, "grep -E '^Sig(Blk|Ign)' /proc/self/status")
    lines = (await process.stdout.read()).decode().split()
    await process.kill()
    for mask in (lines[1], lines[3]):
        # Signals that no program can change, 32 and 33, are the C library's own.
        assert not [number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1]


async def test_sigterm_goes_to_the_whole_process_group(server: GuardServer, tmp_path: Path) -> None:
    process = await shell(server, tmp_path, "trap 'exit 5' TERM; sleep 1000 & echo $!; wait; wait")
    child = int(await process.stdout.readline())
    process.terminate()
    assert await process.wait(30) == Ending(5)
    assert not psutil.pid_exists(child)
    await process.kill()


async def test_the_end_of_a_process_is_that_of_all_that_it_has_started(server: GuardServer, tmp_path: Path) -> None:
    process = await shell(server, tmp_path, "setsid sleep 1000 & echo $!; sleep 1000 & echo $!; exit 0")
    children = [int(await process.stdout.readline()) for _ in range(2)]
    assert await process.wait(30) == Ending(0)
    assert not any(psutil.pid_exists(pid) for pid in children)
    await process.kill()


async def test_kill_leaves_nothing_of_what_ignores_all_signals(server: GuardServer, tmp_path: Path) -> None:
    process = await shell(server, tmp_path, "trap '' TERM HUP INT; (setsid sleep 1000) & echo $$; cat; sleep 1000")
    pid = int(await process.stdout.readline())
    await process.kill()
    assert not psutil.pid_exists(pid)
    assert await process.wait(0) == Ending(None), "it was killed, and did not end by itself"


async def test_a_start_that_is_cancelled_leaves_nothing(server: GuardServer, tmp_path: Path) -> None:
    await (await shell(server, tmp_path, "exit")).kill()  # the server is there
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        start = asyncio.create_task(shell(server, tmp_path, "sleep 1000"))
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before
