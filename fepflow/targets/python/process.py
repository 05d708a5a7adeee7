"""A `python` target in processes of its own, each of which has one call at a time and can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.targets.python import child
from fepflow.targets.python.calls import Failure
from fepflow.targets.python.threads import Reply

LOAD_SECONDS = 120.0
"""How long `validate` waits for an agent's code to be loaded."""
KILL_SECONDS = 5.0
_ROOM = 100_000
"""Bytes that a reply may have beside its answer."""
_TAIL = 4_000


def require_processes() -> None:
    """Raises InputError where a process cannot be parted into a guard and a worker."""
    if not hasattr(os, "fork"):
        message = "needs a system with fork, such as Linux or macOS"
        raise InputError(Problem(message, path="target.python.isolate", advice="leave it out: a thread calls it then"))


_wants_case: dict[str, bool] = {}


def check(config: dict[str, Any], content: str) -> bool:
    """Load the code in a process of its own; whether the function wants whole test cases.

    `config` is that of `child`, without root and socket; `content` is the hash of the code, which is loaded once
    for this. Raises InputError.
    """
    key = json.dumps([config, content])
    if key not in _wants_case:
        _wants_case[key] = _loaded(config)
    return _wants_case[key]


def _loaded(config: dict[str, Any]) -> bool:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(LOAD_SECONDS)
        with subprocess.Popen(  # noqa: S603  # our own script
            _command(config, theirs),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            theirs.close()
            try:
                with ours.makefile("rb") as stream:
                    said = json.loads(stream.readline() or b"{}")
            except TimeoutError:
                said = {}
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(KILL_SECONDS)
    if "problems" in said:
        raise InputError([Problem(**problem) for problem in said["problems"]])
    if "wants_case" not in said:
        message = f"the process ended, or was silent for {LOAD_SECONDS:g} s, when it was to load {config['function']}"
        raise InputError(Problem(message, path="target.python.function", advice="run the file by itself"))
    return bool(said["wants_case"])


def _command(config: dict[str, Any], theirs: socket.socket) -> list[str]:
    root = Path(__file__).parents[3]
    whole = {**config, "root": str(root), "socket": theirs.fileno()}
    return [sys.executable, "-P", str(child.__file__), json.dumps(whole)]


class Processes:
    """Up to `most` processes, started as they are needed. One whose call is cut off is killed, with all that it has
    started; so are all when the run ends, however it ends."""

    def __init__(self, config: dict[str, Any], most: int) -> None:
        self._config = config
        self._most = most
        self._started = 0
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
            process = await _Process.start(self._config)
        except OSError as error:
            self._started -= 1
            why = error.strerror or type(error).__name__
            self._queue.put_nowait(Failure(f"no process can be started: {why}", "crashed", retryable=True))
            return
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


def _begin(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class _Process:
    """One process, with one call at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        function: str,
        limit: int,
    ) -> None:
        self.is_of_no_more_use = False
        self._ended_by_us = False
        self._process = process
        self._reader = reader
        self._writer = writer
        self._function = function
        self._limit = limit
        self._tail = bytearray()
        self._draining = asyncio.ensure_future(self._drain())

    @classmethod
    async def start(cls, config: dict[str, Any]) -> _Process:
        """Start the process; it has loaded nothing yet. Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *_command(config, theirs),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=config["limit"] + _ROOM)
        return cls(process, reader, writer, config["function"], config["limit"])

    async def _drain(self) -> None:
        """Read what the agent prints, so that it never has to wait, and keep the end."""
        stream = self._process.stdout
        assert stream is not None
        while printed := await stream.read(65_536):
            self._tail += printed
            del self._tail[:-_TAIL]

    async def loaded(self) -> Failure | None:
        """Why the code could not be loaded, if it could not."""
        line = await self._line()
        if isinstance(line, Failure):
            return line
        problems = json.loads(line).get("problems")
        return Failure(str(Problem(**problems[0])), "exception", retryable=False) if problems else None

    async def ask(self, request: dict[str, Any]) -> Reply:
        """One call: the JSON text of its answer, or why there is none."""
        with suppress(ConnectionError):  # its state is found when its reply is read
            self._writer.write(json.dumps(request).encode("ascii") + b"\n")
            await self._writer.drain()
        line = await self._line()
        if isinstance(line, Failure):
            return line
        answer = line.removeprefix(b'{"answer":')
        if len(answer) < len(line):
            return answer.rstrip()[:-1].decode("ascii")  # parsed by its reader, not in the event loop if it is large
        return Failure(**json.loads(line)["failure"])

    async def _line(self) -> bytes | Failure:
        try:
            return await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            self.is_of_no_more_use = True
            message = f"the answer is larger than {self._limit:,} bytes (target.python.max_bytes)"
            return Failure(message, "too_large", retryable=False)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_of_no_more_use = True
            how = await self._obituary()
            return Failure(how, "crashed", retryable=True, tail=self._tail.decode("utf-8", "replace"))

    async def _obituary(self) -> str:
        """How the process has ended."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), KILL_SECONDS)
            await asyncio.wait({self._draining}, timeout=1)
        code = self._process.returncode
        if self._ended_by_us:
            how = "was ended with the run"
        elif code is None:
            how = "closed its connection"
        elif code < 0:
            why = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
            how = f"was killed by {signal.Signals(-code).name}{why}"
        else:
            how = f"ended with exit code {code}"
        return f"the process of {self._function} {how}"

    async def kill(self) -> None:
        """Kill the process, and all that it has started; its guard does so when its stdin closes."""
        self._ended_by_us = True
        self._writer.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), KILL_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        finally:
            self._draining.cancel()
