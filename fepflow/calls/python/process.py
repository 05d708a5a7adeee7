"""A `python` target in processes of its own, each of which has one call at a time and can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.calls.base import RESERVED_METADATA
from fepflow.calls.processes import KILL_SECONDS, ChildProcess, ProcessRunner, run_program
from fepflow.calls.python import worker
from fepflow.calls.python.calls import Failure
from fepflow.calls.python.interpreter import find_interpreter
from fepflow.calls.python.source import Source, is_file, locate, locate_beside, source_hash
from fepflow.calls.python.threads import Reply
from fepflow.errors import InputError, Problem
from fepflow.host import can_fork
from fepflow.suite.target import PythonTarget

LOAD_SECONDS = 120.0
"""How long `validate` waits for an agent's code to be loaded."""
_ROOM = 100_000
"""Bytes that a reply may have beside its answer."""

_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__")
"""Variables that are about the interpreter of the run, and not about the agent's."""


@dataclass(frozen=True)
class Agent:
    """The code of an agent and how it is called, as the suite has it.

    Without an `interpreter` it runs in that of this process. There is no `source` for a module that only the agent's
    own interpreter knows.
    """

    function: str
    source: Source | None
    folder: Path
    names: list[str] | None
    limit: int
    interpreter: str | None = None

    @property
    def command(self) -> list[str]:
        """The command that starts the worker."""
        module, _, name = self.function.rpartition(":")
        config = {
            "file": self.source and str(self.source.file),
            "module": self.source.module if self.source else module,
            "name": name,
            "folder": str(self.source.folder if self.source else self.folder),
            "names": self.names,
            "limit": self.limit,
            "reserved": RESERVED_METADATA,
            "root": None if self.interpreter else str(Path(__file__).parents[3]),
            "interpreter": self.interpreter,
        }
        return [self.interpreter or sys.executable, str(worker.__file__), json.dumps(config)]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the worker gets."""
        left_out = _OURS if self.interpreter else ()
        return {name: value for name, value in os.environ.items() if name not in left_out}


@dataclass(frozen=True)
class Loaded:
    """The code of an agent, once it has been loaded, and whether its function wants whole test cases."""

    source: Source
    wants_case: bool


def find_agent(config: PythonTarget, folder: Path, roots: Sequence[Path], names: list[str] | None) -> Agent:
    """Return the agent that a suite names, of which nothing is loaded yet. Raises InputError."""
    if not can_fork():
        setting = "isolate" if config.interpreter is None else "interpreter"
        message = "needs a system with fork, such as Linux or macOS"
        raise InputError(
            Problem(message, path=f"target.python.{setting}", advice="leave it out: a thread calls it then")
        )
    interpreter = None if config.interpreter is None else find_interpreter(config.interpreter, folder)
    if interpreter is not None and not is_file(config.function):
        source = locate_beside(config.function, folder)
    else:
        source = locate(config.function, folder, roots)
    return Agent(config.function, source, folder, names, config.max_bytes, interpreter)


_loaded: dict[str, Loaded] = {}


def check(agent: Agent) -> Loaded:
    """Load the code in a process of its own, once for the same code. Raises InputError."""
    if agent.source is None:
        return _load(agent)
    key = json.dumps([agent.command, source_hash(agent.source)])
    if key not in _loaded:
        _loaded[key] = _load(agent)
    return _loaded[key]


def _load(agent: Agent) -> Loaded:
    reply = run_program(agent.command, agent.environment, LOAD_SECONDS)
    first = json.loads(reply.partition(b"\n")[0] or b"{}")
    if "problems" in first:
        raise InputError([Problem(**problem) for problem in first["problems"]])
    if "wants_case" not in first:
        message = f"the process ended, or was silent for {LOAD_SECONDS:g} s, when it was to load {agent.function}"
        raise InputError(Problem(message, path="target.python.function", advice="run the file by itself"))
    module, _, name = agent.function.rpartition(":")
    source = agent.source or Source(Path(first["file"]), module, name, agent.folder)
    return Loaded(source, first["wants_case"])


class Processes:
    """Up to `most` processes, started as they are needed. One whose call is cut off is killed, with all that it has
    started; so are all when the run ends, however it ends."""

    def __init__(self, agent: Agent, most: int) -> None:
        self._agent = agent
        self._most = most
        self._started = 0
        self._runner = ProcessRunner()
        self._ready: asyncio.Queue[_Process | Failure] | None = None
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._all: set[_Process] = set()

    async def ask(self, request: dict[str, Any]) -> Reply:
        """Call the function once; cancelling kills the process."""
        process = await self._next()
        if isinstance(process, Failure):
            return process
        try:
            reply = await process.ask(request)
        except BaseException:
            self._end(process)
            raise
        if isinstance(reply, Failure) and reply.kind in ("crashed", "too_large") and process.is_of_no_more_use:
            self._end(process)
        else:
            self._queue.put_nowait(process)
        return reply

    @property
    def _queue(self) -> asyncio.Queue[_Process | Failure]:
        if self._ready is None:
            self._ready = asyncio.Queue()
        return self._ready

    async def _next(self) -> _Process | Failure:
        """A process that is ready. One that starts goes on doing so when its first call is cut off meanwhile."""
        if self._queue.empty() and self._started < self._most:
            self._started += 1
            _begin(self._start(), self._starting)
        return await self._queue.get()

    async def _start(self) -> None:
        try:
            agent, limit = self._agent, self._agent.limit + _ROOM
            started = await self._runner.start(agent.command, agent.environment, Path.cwd(), limit)
        except OSError as error:
            self._started -= 1
            why = error.strerror or type(error).__name__
            message = f"the process of {agent.function} could not be started: {why}"
            self._queue.put_nowait(Failure(message, "crashed", retryable=True))
            return
        process = _Process(started, self._agent)
        self._all.add(process)
        failure = await process.loaded()
        if failure is not None:
            self._end(process)
        self._queue.put_nowait(failure or process)

    def _end(self, process: _Process) -> None:
        if process not in self._all:
            return
        self._all.discard(process)
        self._started -= 1
        _begin(process.kill(), self._ending)

    async def aclose(self) -> None:
        """Kill all processes, and wait for their end."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        for process in list(self._all):
            self._end(process)
        await asyncio.gather(*self._ending)
        await self._runner.aclose()


def _begin(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class _Process:
    """One process, with one call at a time. It has loaded nothing yet."""

    def __init__(self, process: ChildProcess, agent: Agent) -> None:
        self.is_of_no_more_use = False
        self._process = process
        self._agent = agent
        self.kill = process.kill

    async def loaded(self) -> Failure | None:
        """Return why the code could not be loaded, if it could not."""
        line = await self._line()
        if isinstance(line, Failure):
            return line
        problems = json.loads(line).get("problems")
        return Failure(str(Problem(**problems[0])), "exception", retryable=False) if problems else None

    async def ask(self, request: dict[str, Any]) -> Reply:
        """Return the JSON text of one call's answer, or why there is none."""
        self._process.stdin.write(json.dumps(request).encode("ascii") + b"\n")  # its state is found by its reply
        line = await self._line()
        if isinstance(line, Failure):
            return line
        answer = line.removeprefix(b'{"answer":')
        if len(answer) < len(line):
            return answer[:-1].decode("ascii")  # parsed by its reader, not in the event loop if it is large
        return Failure(**json.loads(line)["failure"])

    async def _line(self) -> bytes | Failure:
        """Return the next reply, without its end."""
        try:
            line = await self._process.read_line()
        except asyncio.LimitOverrunError:
            self.is_of_no_more_use = True
            message = f"the answer is larger than {self._agent.limit:,} bytes (target.python.max_bytes)"
            return Failure(message, "too_large", retryable=False)
        if line.endswith(b"\n"):
            return line[:-1]
        self.is_of_no_more_use = True
        how = await self._process.ending(KILL_SECONDS, "ended with exit code") or "closed its connection"
        how = f"{how} with the run" if self._process.was_killed else how
        message = f"the process of {self._agent.function} {how}"
        return Failure(message, "crashed", retryable=True, tail=self._process.stderr.text)
