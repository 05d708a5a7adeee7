"""Processes that run foreign programs: isolated Python functions, ECP agents and MCP servers on stdin and stdout.

Each has its own session, is killed with everything that it started, and does not outlive this process, however that
ends; see `fepflow.calls.keeper`. Its stderr is read all the time. No shell is involved.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO, Final

from fepflow.calls import keeper
from fepflow.calls.base import traceparent
from fepflow.calls.traces import traced_environment
from fepflow.errors import InputError, Problem, TargetError
from fepflow.security.redaction import excerpt
from fepflow.settings import SUITE_VARIABLES
from fepflow.suite.target import ProgramOrAddress, Target

KILL_SECONDS = 5.0
"""Longest wait for the end of a killed process: it takes longer only if the system holds it."""

WATCH_SECONDS = 0.2
"""Pause between looks whether a process has ended."""

_TAIL = 4_000
_CHUNK = 65_536


class Tail:
    """The end of a text of unlimited length."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, more: bytes) -> None:
        """Append more of the text, and forget its beginning."""
        self._bytes += more[-_TAIL:]
        del self._bytes[:-_TAIL]

    @property
    def text(self) -> str:
        """The end as UTF-8, as far as it is valid."""
        return self._bytes.decode("utf-8", "replace")

    def clear(self) -> None:
        """Forget all of it."""
        self._bytes.clear()


class ChildProcess:
    """A process with pipes: lines of at most `limit` bytes can be read from its stdout, and `stderr` has the end of its
    stderr.

    Always call `kill` in the end, even if it has ended by itself, because something that it started may be left.
    """

    def __init__(self, process: subprocess.Popen[bytes], limit: int, end: Callable[[], None]) -> None:
        self.was_killed = False
        self.stdout: Final = asyncio.StreamReader(limit)
        self.stderr: Final = Tail()
        self._process = process
        self._end = end
        self._pipes: list[asyncio.BaseTransport] = []
        self._unpaused = 0

    async def connect(self) -> None:
        """Connect the pipes with the event loop; stderr is read from now on."""
        loop, errors = asyncio.get_running_loop(), asyncio.StreamReader()
        self.stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._process.stdin)
        for stream, pipe in ((self.stdout, self._process.stdout), (errors, self._process.stderr)):
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, stream), pipe)
            self._pipes.append(transport)
        self._draining = asyncio.ensure_future(drain(errors, self.stderr))
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """Kill the process's leftovers when it ends, because they may keep the pipes open."""
        while self._process.poll() is None:  # noqa: ASYNC110  # the system has no event for it everywhere
            await asyncio.sleep(WATCH_SECONDS)
        self._signal(signal.SIGKILL)
        self._end()

    async def read_line(self) -> bytes:
        """Return the next line with its end; at the end of stdout, the text after the last line, or nothing.

        Raises asyncio.LimitOverrunError for a line that is too long.
        """
        if self._unpaused > _CHUNK:
            self._unpaused = 0
            await asyncio.sleep(0)  # lines that are there already would never let others have their turn
        try:
            line = await self.stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        self._unpaused += len(line)
        return line

    async def wait(self, seconds: float) -> int | None:
        """Return its exit code, negative for a signal; None if it has not ended by then."""
        pause, deadline = 0.001, monotonic() + seconds
        while self._process.poll() is None and monotonic() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        return self._process.returncode

    async def ending(self, seconds: float, exited: str = "exited with code") -> str:
        """Return how it ended, as a predicate, once all of stderr was read; empty if it has not ended by then."""
        code = await self.wait(seconds)
        await asyncio.wait({self._draining}, timeout=1)
        if self.was_killed or code is None:
            return "was ended" if self.was_killed else ""
        if code >= 0:
            return f"{exited} {code}"
        why = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{why}"

    def close_stdin(self) -> None:
        """Close its stdin. Unread input is lost, because the process may never read it."""
        if not self.stdin.is_closing():
            self.stdin.abort()

    def terminate(self) -> None:
        """Send SIGTERM to its process group."""
        self._signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it and everything that it started, wait for its end, and close its pipes."""
        self.was_killed = self.was_killed or self._process.poll() is None
        self._signal(signal.SIGKILL)
        self._end()
        try:
            await self.wait(KILL_SECONDS)
        finally:
            self._watching.cancel()
            self._draining.cancel()
            self.close_stdin()
            for pipe in self._pipes:
                pipe.close()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


async def drain(stream: asyncio.StreamReader, tail: Tail) -> None:
    """Read a stream to its end, and keep that."""
    while chunk := await stream.read(_CHUNK):
        tail.add(chunk)


class ProcessRunner:
    """A starter of processes. It belongs to one event loop; close it there."""

    def __init__(self) -> None:
        self._keeper: subprocess.Popen[bytes] | None = None
        self._token = uuid.uuid4().hex
        self._number = 0

    async def start(self, arguments: Sequence[str], env: Mapping[str, str], folder: Path, limit: int) -> ChildProcess:
        """Start a program in `folder`, with only the variables in `env`; its path is the first of the arguments.

        Raises OSError if it cannot be started.
        """
        self._number += 1
        number = self._number
        kept = self._kept()  # before there is a process
        process = subprocess.Popen(  # noqa: S603, ASYNC220  # the suite's own program; it takes a millisecond
            arguments,
            env={**env, keeper.VARIABLE: f"{self._token}.{number}."},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        kept.write(f"{number} {process.pid}\n".encode())
        child = ChildProcess(process, limit, lambda: self._end(number))
        connecting = asyncio.ensure_future(child.connect())
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            await connecting
            await child.kill()
            raise
        return child

    def _kept(self) -> IO[bytes]:
        """Return the pipe to the keeper, which is started for the first process, and again after it was killed."""
        if self._keeper is not None and self._keeper.poll() is not None:
            self._forget_keeper()
        if self._keeper is None:
            env = {name: value for name, value in os.environ.items() if name != keeper.VARIABLE}
            self._keeper = subprocess.Popen(  # noqa: S603  # our own script
                [sys.executable, "-I", "-S", str(keeper.__file__), self._token],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        assert self._keeper.stdin is not None  # it was asked for
        return self._keeper.stdin

    def _end(self, number: int) -> None:
        if self._number:  # else it is closed
            self._kept().write(f"{number}\n".encode())

    def _forget_keeper(self) -> subprocess.Popen[bytes] | None:
        running, self._keeper = self._keeper, None
        if running is not None and running.stdin is not None:
            running.stdin.close()
        return running

    async def aclose(self) -> None:
        """Kill the rest of the processes, and end the keeper."""
        if self._number:
            self._number = 0
            self._kept()
        if (running := self._forget_keeper()) is not None:
            await asyncio.to_thread(running.wait, 2 * KILL_SECONDS)


def run_program(arguments: Sequence[str], env: Mapping[str, str], seconds: float) -> bytes:
    """Return a program's output on stdout until its end, then kill its group; empty if it takes too long."""
    with subprocess.Popen(  # noqa: S603  # the suite's own program
        arguments,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            return b""
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # with what the code has started


# --- programs that a suite names -------------------------------------------------------------------------------------


EOF_SECONDS = 2.0
"""Seconds that a program has to end by itself when its stdin is closed; then it gets SIGTERM."""
TERM_SECONDS = 2.0
"""Seconds that it has after that; then it is killed."""

_SHOWN_TAIL = 500
_ENDING_SECONDS = 1.0

ALWAYS_PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)  # fmt: skip
"""Variables that every program gets; the suite names the others."""

_WHY_NOT_STARTED = {
    errno.ENOENT: "the program, or the interpreter in its first line, does not exist",
    errno.ENOEXEC: "the file is not a program: begin a script with #! and the path of its interpreter",
}
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class Command:
    """A program: its arguments, the first one its path, its folder, and its environment."""

    arguments: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(repr=False)


def find_command(config: ProgramOrAddress, folder: Path) -> Command:
    """Return the command of a suite in `folder`, without starting it. Raises InputError if it does not exist."""
    assert config.command is not None  # its callers have looked
    env = {name: os.environ[name] for name in ALWAYS_PASSED if name in os.environ}
    env |= {name: SUITE_VARIABLES[name] for name in config.env if name in SUITE_VARIABLES}
    # The protocol is in UTF-8, whatever the locale; other languages know only that.
    env.setdefault("PYTHONIOENCODING", "utf-8")
    where, section = (folder / config.cwd).resolve(), f"target.{config.KIND}"
    if not where.is_dir():
        raise InputError(Problem(f"{config.cwd} is not a folder", path=f"{section}.cwd"))
    program, *arguments = config.command
    path = _program(program, where, folder.resolve(), env, section)
    return Command([path, *arguments], where, env)


def _program(name: str, where: Path, folder: Path, env: Mapping[str, str], section: str) -> str:
    places = [name] if os.sep not in name else [str(place / Path(name).expanduser()) for place in (where, folder)]
    path = next(filter(None, (shutil.which(place, path=env.get("PATH")) for place in places)), None)
    if path is None:
        problem, advice = f"the program {name} is not found in PATH", "install it, or name its path"
        if "=" in name:
            advice = "a shell's syntax needs shell: true in a manifest; in a suite, name /bin/sh, -c and the command"
        if os.sep in name:
            problem = f"the program {name} does not exist, or is not executable"
            advice = f"a path starts at {section}.cwd or the suite's folder; chmod +x makes a file executable"
        raise InputError(Problem(problem, path=f"{section}.command", advice=advice))
    return os.path.abspath(path)  # not resolved: a virtual environment is known by a link


class Programs:
    """The program of an `ecp` or `mcp` target of a suite in `folder`: an agent, or a server.

    It is looked up when it is first needed, and started for each connection. No error shows `secrets`.
    """

    def __init__(self, target: Target, folder: Path, secrets: frozenset[str]) -> None:
        config = target.ecp or target.mcp
        assert config is not None  # its callers have looked
        self._config = config
        self._trace = target.trace
        self._is_agent = target.ecp is not None  # an agent serves one scenario, a server all cases
        self._folder = folder
        self._secrets = secrets
        self._command: Command | None = None
        self._runner = ProcessRunner()
        self.identity: Final = [config.command, config.cwd, sorted(config.env)]

    async def start(self) -> ChildProcess:
        """Start the process; the caller reads and writes its pipes. Raises TargetError."""
        try:
            command = self._command = self._command or find_command(self._config, self._folder)
        except InputError as error:
            reasons = "; ".join(problem.message for problem in error.problems)
            message = f"the {self._config.CALLED} cannot be started: {reasons}"
            raise TargetError(message, kind="not_started", retryable=False) from None
        try:
            env = traced_environment(self._trace, command.env, traceparent.get() if self._is_agent else None)
            return await self._runner.start(command.arguments, env, command.folder, self._config.max_bytes)
        except OSError as error:
            number, called = error.errno or 0, self._config.CALLED
            if number in _NO_ROOM:
                message = f"no process can be started for the {called}: {os.strerror(number)}"
                raise TargetError(message, kind="not_started", retryable=True) from None
            why = _WHY_NOT_STARTED.get(number, os.strerror(number))
            request = "agent/initialize" if self._is_agent else "initialize"
            message = f"{request}: the {called} cannot be started: {why} (target.{self._config.KIND}.command)"
            raise TargetError(message, kind="not_started", retryable=False) from None

    async def aclose(self) -> None:
        """Kill the rest of the processes."""
        await self._runner.aclose()


async def obituary(process: ChildProcess, secrets: frozenset[str], name: str = "agent") -> TargetError:
    """Return the error of a process that will not answer: how it ended, and its last lines on stderr."""
    message = f"the {name} {await process.ending(_ENDING_SECONDS) or 'closed its stdout'}"
    stderr = process.stderr.text
    if last_words := excerpt(stderr, secrets, len(stderr))[-_SHOWN_TAIL:]:
        message = f"{message}; the end of its stderr: {last_words}"
    return TargetError(message, kind="crashed", retryable=True)


async def end_process(process: ChildProcess, rest: Tail) -> None:
    """Close stdin, then send SIGTERM, then kill the rest; `rest` gets the end of its stdout."""
    reading = asyncio.ensure_future(drain(process.stdout, rest))  # so that it can write, and end
    try:
        process.close_stdin()
        if await process.wait(EOF_SECONDS) is None:
            process.terminate()
            await process.wait(TERM_SECONDS)
    finally:
        await process.kill()
        reading.cancel()
