"""An agent as a process that answers on stdout what it is asked on stdin, a line of JSON each."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

from fepflow.calls.ecp.command import Command, find_command
from fepflow.calls.ecp.connection import Tail
from fepflow.calls.ecp.rpc import Request
from fepflow.errors import InputError, TargetError
from fepflow.security.redaction import excerpt
from fepflow.suite import target
from fepflow.system.guarded import Ending, GuardedProcess, GuardServer

EOF_SECONDS = 2.0
"""How long an agent has to end by itself when its stdin is closed; then it gets SIGTERM."""
TERM_SECONDS = 2.0
"""How long it has after that; then it is killed."""

_TAIL = 4_000
_SHOWN_TAIL = 500
_CHUNK = 65_536

_OBITUARY_SECONDS = 1.0

_WHY_NOT_STARTED = {
    errno.ENOENT: "the program is not there, or the interpreter that its first line names",
    errno.ENOEXEC: "the file is no program: a script begins with #! and the path of its interpreter",
}


class Programs:
    """The program of a suite in `folder`, looked for when it is first needed, and started anew for each connection."""

    def __init__(self, ecp: target.EcpTarget, folder: Path, secrets: frozenset[str]) -> None:
        self._find = partial(find_command, ecp, folder)
        self._command: Command | None = None
        self._limit = ecp.max_bytes
        self._secrets = secrets
        self._server = GuardServer()
        self.identity: Final = [ecp.command, ecp.cwd, sorted(ecp.env)]

    async def connect(self) -> StdioConnection:
        """Start it."""
        return StdioConnection(await self.start(), self._limit, self._secrets)

    async def start(self) -> GuardedProcess:
        """Start the process; the caller reads and writes its pipes. Raises TargetError."""
        command = self._command = self._command or self._found()
        try:
            return await self._server.start(command.arguments, command.env, command.folder)
        except OSError as error:
            message = f"no process can be had for the agent: {error.strerror or type(error).__name__}"
            raise TargetError(message, kind="not_started", retryable=True) from None

    def _found(self) -> Command:
        try:
            return self._find()
        except InputError as error:
            message = f"the agent cannot be started: {'; '.join(problem.message for problem in error.problems)}"
            raise TargetError(message, kind="not_started", retryable=False) from None

    async def aclose(self) -> None:
        """End what starts the processes."""
        await self._server.aclose()


class StdioConnection:
    """A process with one request at a time. It reads and writes at the same time, and what the agent writes to stderr
    is read all the while, so that neither side ever waits for the other to read.

    For one answer it reads at most `limit` bytes of stdout. `secrets` are shown in no error.
    """

    def __init__(self, process: GuardedProcess, limit: int, secrets: frozenset[str]) -> None:
        self._process = process
        self._limit = limit
        self._secrets = secrets
        self._buffer = bytearray()
        self._searched = 0
        self._stdout, self._stderr = Tail(_TAIL), Tail(_TAIL)
        self._is_open = True
        self._draining = asyncio.ensure_future(_drain(process.stderr, self._stderr))

    @property
    def is_open(self) -> bool:
        """Whether the process may still answer."""
        return self._is_open and not self._process.stdout.at_eof()

    async def ask(self, request: Request) -> dict[str, Any]:
        """Write the request, and read up to its answer."""
        self._process.stdin.write(request.text.encode("ascii") + b"\n")
        received = 0
        while True:
            while line := self._line():
                if (answer := await self._answer(request, line)) is not None:
                    return answer
            chunk = await self._process.stdout.read(_CHUNK)
            received += len(chunk)
            if not chunk:
                return await self._last_answer(request)
            if received > self._limit:
                message = f"the agent wrote more than {self._limit:,} bytes without an answer (target.ecp.max_bytes)"
                raise TargetError(message, kind="too_large", retryable=False)
            self._buffer += chunk

    def _line(self) -> bytes:
        """The next line that is complete; empty if none is."""
        end = self._buffer.find(b"\n", self._searched) + 1
        line = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._searched = 0 if line else len(self._buffer)
        return line

    async def _answer(self, request: Request, line: bytes) -> dict[str, Any] | None:
        answer = await request.answer_in(line.decode("utf-8", "replace"))
        if answer is None:
            self._stdout.add(line)
        return answer

    async def _last_answer(self, request: Request) -> dict[str, Any]:
        """The answer of an agent that has closed its stdout, if its last line, which has no end, is one."""
        self._is_open = False
        line = bytes(self._buffer)
        self._buffer.clear()
        if line and (answer := await self._answer(request, line)) is not None:
            return answer
        raise await self._obituary()

    async def _obituary(self) -> TargetError:
        """Why there will be no answer: how the agent has ended, and what it said last."""
        ending = await self._process.wait(_OBITUARY_SECONDS)
        await asyncio.wait({self._draining}, timeout=_OBITUARY_SECONDS)
        if ending is not None and ending.errno is not None:
            return not_started(ending.errno)
        message = f"the agent {describe_ending(ending)}"
        stderr = self._stderr.text
        if last_words := excerpt(stderr, self._secrets, len(stderr))[-_SHOWN_TAIL:]:
            message = f"{message}; the end of its stderr: {last_words}"
        return TargetError(message, kind="crashed", retryable=True)

    def log_tail(self) -> dict[str, str]:
        """The end of what was no answer on stdout, and of stderr."""
        tails = {"stdout": self._stdout, "stderr": self._stderr}
        found = {name: tail.text for name, tail in tails.items() if tail.text}
        for tail in tails.values():
            tail.clear()
        return found

    async def aclose(self) -> None:
        """Close stdin, then send SIGTERM, then kill all that is left of it."""
        self._is_open = False
        process = self._process
        reading = asyncio.ensure_future(_drain(process.stdout, self._stdout))  # so that it can write, and end
        try:
            process.close_stdin()
            if await process.wait(EOF_SECONDS) is None:
                process.terminate()
                await process.wait(TERM_SECONDS)
        finally:
            await process.kill()
            reading.cancel()
            self._draining.cancel()


async def _drain(stream: asyncio.StreamReader, tail: Tail) -> None:
    while chunk := await stream.read(_CHUNK):
        tail.add(chunk)


def describe_ending(ending: Ending | None) -> str:
    """How an agent has ended, as a predicate; None for one that has only closed its stdout."""
    if ending is None:
        return "closed its stdout"
    if ending.code is None:
        return "was ended"
    if ending.code >= 0:
        return f"exited with code {ending.code}"
    why = ", perhaps for want of memory" if -ending.code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-ending.code).name}{why}"


def not_started(number: int) -> TargetError:
    """The error of a program that the system refuses to start."""
    why = _WHY_NOT_STARTED.get(number, os.strerror(number))
    message = f"the agent cannot be started: {why} (target.ecp.command)"
    return TargetError(message, kind="not_started", retryable=False)
