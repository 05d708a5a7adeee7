"""A supervisor of processes: restarted when they die, stopped in order, none left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from fepflow.asyncio_helpers import cancel_and_wait
from fepflow.deployments.server import end_processes

MARK = "FEPFLOW_SERVED_BY"
"""A variable that a child and whatever it starts inherit, also what has left its session or outlives it."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
HEALTHY_SECONDS = 60.0
"""A child that has lived so long is started again after the first, short pause."""

KILL_SECONDS = 1.5
LONGEST_LINE = 65_536

Say = Callable[[str, str], None]
"""Gets the name of a child and a line about it, or of its output."""


@dataclass(frozen=True)
class Child:
    """A command, under the name that the log has for it, and the seconds that it may take to stop by itself."""

    name: str
    command: Sequence[str]
    grace_seconds: float


class Supervisor:
    """The children of one owner, whose name they carry; a later supervisor of the same owner knows them by it."""

    def __init__(self, owner: str, env: Mapping[str, str], say: Say) -> None:
        self._owner = owner
        self._env = env
        self._say = say
        self._children: list[tuple[Child, asyncio.Task[None]]] = []
        self._processes: dict[str, Process] = {}
        self._relays: set[asyncio.Task[None]] = set()

    async def supervise(self, child: Child) -> asyncio.Event:
        """Start a child, and start it again whenever it ends; the event says that it has ended once."""
        ended = asyncio.Event()
        process = await self._start(child)
        supervision = asyncio.create_task(self._supervise(child, process, ended), name=f"keep {child.name}")
        self._children.append((child, supervision))
        return ended

    async def run(self, child: Child) -> int:
        """Run a child to its end, once; its exit code."""
        process = await self._start(child)
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await self._end(child)
            raise

    async def stop(self) -> None:
        """End the children, the last one first, each with everything that it has started."""
        while self._children:
            child, supervision = self._children.pop()
            await cancel_and_wait(supervision)
            await self._end(child)
        for relay in self._relays:
            relay.cancel()

    async def end_leftovers(self, names: Sequence[str]) -> None:
        """End what an earlier supervisor of this owner left behind when it was killed."""
        for name in names:
            if await asyncio.to_thread(self._end_family, name):
                self._say(name, "ended what was left of an earlier one")

    async def _supervise(self, child: Child, process: Process, ended: asyncio.Event) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            self._say(child.name, f"started, process {process.pid}")
            code = await process.wait()
            ended.set()
            if time.monotonic() - began > HEALTHY_SECONDS:
                pause = FIRST_PAUSE
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            self._say(child.name, f"ended ({how}); starts again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            process = await self._start(child)

    async def _start(self, child: Child) -> Process:
        process = await asyncio.create_subprocess_exec(
            *child.command,
            env={**self._env, MARK: self._mark(child.name)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, which ends them in order
        )
        self._processes[child.name] = process
        # A relay ends when the last process that holds the pipe does, which may be a grandchild.
        relay = asyncio.create_task(self._relay(child.name, process))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
        return process

    async def _relay(self, name: str, process: Process) -> None:
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(LONGEST_LINE):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._say(name, line.decode(errors="replace").rstrip())
        if rest:
            self._say(name, rest.decode(errors="replace").rstrip())

    async def _end(self, child: Child) -> None:
        process = self._processes.get(child.name)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), child.grace_seconds)
        await asyncio.to_thread(self._end_family, child.name)
        if process is not None:
            await process.wait()
            self._say(child.name, "stopped")

    def _end_family(self, name: str) -> bool:
        """End all processes that carry the child's mark; whether there were any."""
        family = [process for process in psutil.process_iter() if self._is_marked(process, name)]
        end_processes(family, KILL_SECONDS)
        return bool(family)

    def _is_marked(self, process: psutil.Process, name: str) -> bool:
        try:
            return process.environ().get(MARK) == self._mark(name)
        except (psutil.Error, OSError):  # gone, or of another user
            return False

    def _mark(self, name: str) -> str:
        return f"{self._owner}:{name}"
