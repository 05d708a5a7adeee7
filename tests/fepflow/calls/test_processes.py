"""Child processes: how they end, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fepflow.calls.processes import ChildProcess, ProcessRunner
from tests.processes import is_running

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture
async def runner() -> AsyncIterator[ProcessRunner]:
    started = ProcessRunner()
    yield started
    await started.aclose()


async def shell(runner: ProcessRunner, folder: Path, script: str) -> ChildProcess:
    return await runner.start(["/bin/sh", "-c", script], ENV, folder, 100_000)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -signal.SIGKILL), ("kill $$", -signal.SIGTERM)]
)
async def test_it_is_known_how_a_process_has_ended(
    runner: ProcessRunner, tmp_path: Path, script: str, code: int
) -> None:
    process = await shell(runner, tmp_path, script)
    assert await process.wait(30) == code
    await process.kill()


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(30):
        while any(map(is_running, pids)):  # noqa: ASYNC110  # it is about other processes
            await asyncio.sleep(0.01)


async def test_why_a_program_cannot_be_started_is_known(runner: ProcessRunner, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await runner.start([str(tmp_path / "none")], ENV, tmp_path, 100_000)


async def test_a_program_gets_its_folder_its_variables_and_no_other_descriptors(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    code = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ), sorted(os.listdir('/proc/self/fd'))]))"
    process = await runner.start([sys.executable, "-I", "-S", "-c", code], {"A": "ü"}, tmp_path, 100_000)
    folder, env, descriptors = json.loads(await process.stdout.read())
    assert folder == str(tmp_path)
    assert env.pop("LC_CTYPE", "C.UTF-8") == "C.UTF-8"  # Python's own doing
    assert env.pop("FEPFLOW_CHILD")
    assert env == {"A": "ü"}
    assert len(descriptors) == 4, "those of every process, and that of the folder that is listed"
    await process.kill()


async def test_signals_are_as_every_program_expects_them(runner: ProcessRunner, tmp_path: Path) -> None:
    process = await shell(runner, tmp_path, "grep -E '^Sig(Blk|Ign)' /proc/self/status")
    lines = (await process.stdout.read()).decode().split()
    await process.kill()
    for mask in (lines[1], lines[3]):
        # Signals that no program can change, 32 and 33, are the C library's own.
        assert not [number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1]


async def test_sigterm_goes_to_the_whole_process_group(runner: ProcessRunner, tmp_path: Path) -> None:
    process = await shell(runner, tmp_path, "trap 'exit 5' TERM; sleep 1000 & echo $!; wait; wait")
    child = int(await process.stdout.readline())
    process.terminate()
    assert await process.wait(30) == 5
    await process.kill()
    await until_gone(child)


async def test_the_end_of_a_process_is_that_of_all_that_it_has_started(runner: ProcessRunner, tmp_path: Path) -> None:
    process = await shell(runner, tmp_path, "setsid sleep 1000 & echo $!; sleep 1000 & echo $!; exit 0")
    children = [int(await process.stdout.readline()) for _ in range(2)]
    assert await process.wait(30) == 0
    await process.kill()
    await until_gone(*children)


async def test_kill_leaves_nothing_of_what_ignores_all_signals(runner: ProcessRunner, tmp_path: Path) -> None:
    process = await shell(runner, tmp_path, "trap '' TERM HUP INT; (setsid sleep 1000) & echo $$; cat; sleep 1000")
    pid = int(await process.stdout.readline())
    await process.kill()
    assert not is_running(pid)
    assert await process.ending(0) == "was ended", "it was killed, and did not end by itself"


async def test_a_start_that_is_cancelled_leaves_nothing(runner: ProcessRunner, tmp_path: Path) -> None:
    await (await shell(runner, tmp_path, "exit")).kill()  # the server is there
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        start = asyncio.create_task(shell(runner, tmp_path, "sleep 1000"))
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
    async with asyncio.timeout(30):
        while len(os.listdir("/proc/self/fd")) > before:  # noqa: ASYNC110  # it is about what others close
            await asyncio.sleep(0.01)


async def test_a_daemon_that_has_left_its_group_and_its_parent_is_killed_too(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    daemon = (
        "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "print(os.getpid(), flush=True)\ntime.sleep(1000)"
    )
    process = await shell(runner, tmp_path, f"{sys.executable} -c '{daemon}'; exit 0")
    pid = int(await process.read_line())
    assert await process.wait(30) == 0
    assert is_running(pid)
    await process.kill()
    await until_gone(pid)


async def test_a_line_that_is_too_long_is_told(runner: ProcessRunner, tmp_path: Path) -> None:
    process = await shell(runner, tmp_path, "echo short; head -c 1000000 /dev/zero")
    assert await process.read_line() == b"short\n"
    with pytest.raises(asyncio.LimitOverrunError):
        await process.read_line()
    await process.kill()


async def test_what_an_ended_process_leaves_behind_does_not_hold_its_pipes_open(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    process = await shell(runner, tmp_path, "setsid sleep 1000 & sleep 1000 & exit 3")
    async with asyncio.timeout(20):
        assert await process.read_line() == b""
    assert await process.ending(30) == "exited with code 3"
    await process.kill()


async def test_a_flood_of_short_lines_lets_others_have_their_turn(runner: ProcessRunner, tmp_path: Path) -> None:
    code = "import os\nwhile True: os.write(1, b'noise\\n' * 10_000)"
    process = await runner.start([sys.executable, "-I", "-S", "-c", code], ENV, tmp_path, 20_000_000)

    async def read() -> None:
        while await process.read_line():
            pass

    reading, turns = asyncio.create_task(read()), 0
    async with asyncio.timeout(30):
        while turns < 200:
            await asyncio.sleep(0)
            turns += 1
    reading.cancel()
    await process.kill()
