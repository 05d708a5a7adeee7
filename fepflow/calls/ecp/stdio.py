"""An agent as a process that answers on stdout what it is asked on stdin, a line of JSON each."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fepflow.calls.ecp.protocol import Request
from fepflow.calls.processes import ChildProcess, ProcessRunner, Tail, drain
from fepflow.env_file import SUITE_VARIABLES
from fepflow.errors import InputError, Problem, TargetError
from fepflow.security.redaction import excerpt
from fepflow.suite import target

EOF_SECONDS = 2.0
"""Seconds that an agent has to end by itself when its stdin is closed; then it gets SIGTERM."""
TERM_SECONDS = 2.0
"""Seconds that it has after that; then it is killed."""

_SHOWN_TAIL = 500
_ENDING_SECONDS = 1.0

ALWAYS_PASSED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)  # fmt: skip
"""Variables that every agent gets; the suite names the others."""

_WHY_NOT_STARTED = {
    errno.ENOENT: "the program is not there, or the interpreter that its first line names",
    errno.ENOEXEC: "the file is no program: a script begins with #! and the path of its interpreter",
}
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class Command:
    """The program of an agent: its arguments, the first one its path, its folder, and its environment."""

    arguments: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(repr=False)


def find_command(config: target.EcpTarget, folder: Path) -> Command:
    """Return the command of a suite in `folder`, nothing of which is started. Raises InputError if it cannot be."""
    assert config.command is not None  # its callers have looked
    env = {name: os.environ[name] for name in ALWAYS_PASSED if name in os.environ}
    env |= {name: SUITE_VARIABLES[name] for name in config.env if name in SUITE_VARIABLES}
    # The protocol is in UTF-8, whatever the locale; other languages know only that.
    env.setdefault("PYTHONIOENCODING", "utf-8")
    where = (folder / config.cwd).resolve()
    if not where.is_dir():
        raise InputError(Problem(f"{config.cwd} is no folder", path="target.ecp.cwd"))
    program, *arguments = config.command
    return Command([_program(program, where, folder.resolve(), env), *arguments], where, env)


def _program(name: str, where: Path, folder: Path, env: Mapping[str, str]) -> str:
    if os.sep not in name:
        path_of_name = shutil.which(name, path=env.get("PATH"))
        if path_of_name is None and (assignment := re.match(r"([A-Za-z_]\w*)=", name)):
            advice = "in a manifest, shell: true has a shell run it; a suite names /bin/sh, -c and the command"
            raise _problem(f"{assignment[1]}=… in front of a program is for a shell, and none runs it", advice)
        if path_of_name is None:
            advice = f"install it, or give its path: ./{name}" if (where / name).exists() else "install it"
            raise _problem(f"the program {name} is not found in PATH", advice)
        return os.path.abspath(path_of_name)  # not resolved: a virtual environment is known by a link
    places = [place / Path(name).expanduser() for place in (where, folder)]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise _problem(f"the program {name} does not exist", "a path is one from target.ecp.cwd, or the suite's folder")
    if path.is_dir():
        raise _problem(f"{name} is a folder, and no program", "name the program, then its arguments")
    if not os.access(path, os.X_OK):
        advice = f"make it so (chmod +x {name}), or name its interpreter first, such as python {name}"
        raise _problem(f"the program {name} is not executable", advice)
    return os.path.abspath(path)


def _problem(message: str, advice: str) -> InputError:
    return InputError(Problem(message, path="target.ecp.command", advice=advice))


class Programs:
    """The program of a suite in `folder`, looked for when it is first needed, and started anew for each connection."""

    def __init__(self, ecp: target.EcpTarget, folder: Path, secrets: frozenset[str]) -> None:
        self._ecp = ecp
        self._folder = folder
        self._command: Command | None = None
        self._secrets = secrets
        self._runner = ProcessRunner()
        self.identity: Final = [ecp.command, ecp.cwd, sorted(ecp.env)]

    async def connect(self) -> StdioConnection:
        """Start the program; raises TargetError."""
        return StdioConnection(await self.start(), self._ecp.max_bytes, self._secrets)

    async def start(self) -> ChildProcess:
        """Start the process; the caller reads and writes its pipes. Raises TargetError."""
        try:
            command = self._command = self._command or find_command(self._ecp, self._folder)
        except InputError as error:
            message = f"the agent cannot be started: {'; '.join(problem.message for problem in error.problems)}"
            raise TargetError(message, kind="not_started", retryable=False) from None
        try:
            return await self._runner.start(command.arguments, command.env, command.folder, self._ecp.max_bytes)
        except OSError as error:
            number = error.errno or 0
            if number in _NO_ROOM:
                message = f"no process can be had for the agent: {os.strerror(number)}"
                raise TargetError(message, kind="not_started", retryable=True) from None
            why = _WHY_NOT_STARTED.get(number, os.strerror(number))
            message = f"agent/initialize: the agent cannot be started: {why} (target.ecp.command)"
            raise TargetError(message, kind="not_started", retryable=False) from None

    async def aclose(self) -> None:
        """Kill what is left of the processes."""
        await self._runner.aclose()


class StdioConnection:
    """A process with one request at a time. It reads and writes at the same time, so that neither side ever waits for
    the other to read.

    For one answer it reads at most `limit` bytes of stdout. `secrets` are shown in no error.
    """

    def __init__(self, process: ChildProcess, limit: int, secrets: frozenset[str]) -> None:
        self._process = process
        self._limit = limit
        self._secrets = secrets
        self._stdout = Tail()
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """True while the process may still answer."""
        return self._is_open and not self._process.stdout.at_eof()

    async def ask(self, request: Request) -> dict[str, Any]:
        """Write the request, and read up to its answer."""
        self._process.stdin.write(request.text.encode("ascii") + b"\n")
        left = self._limit
        try:
            while line := await self._process.read_line():
                left -= len(line)
                if left < 0:
                    break
                if (answer := await request.answer_in(line.decode("utf-8", "replace"))) is not None:
                    return answer
                self._stdout.add(line)
            else:
                self._is_open = False
                raise await self._obituary()
        except asyncio.LimitOverrunError:
            pass
        message = f"the agent wrote more than {self._limit:,} bytes without an answer (target.ecp.max_bytes)"
        raise TargetError(message, kind="too_large", retryable=False)

    async def _obituary(self) -> TargetError:
        """Return the error of an agent that will not answer: how it has ended, and its last words."""
        message = f"the agent {await self._process.ending(_ENDING_SECONDS) or 'closed its stdout'}"
        stderr = self._process.stderr.text
        if last_words := excerpt(stderr, self._secrets, len(stderr))[-_SHOWN_TAIL:]:
            message = f"{message}; the end of its stderr: {last_words}"
        return TargetError(message, kind="crashed", retryable=True)

    def log_tail(self) -> dict[str, str]:
        """Return the end of what was no answer on stdout, and of stderr, and forget it."""
        tails = {"stdout": self._stdout, "stderr": self._process.stderr}
        texts = {name: tail.text for name, tail in tails.items() if tail.text}
        for tail in tails.values():
            tail.clear()
        return texts

    async def aclose(self) -> None:
        """Close stdin, then send SIGTERM, then kill all that is left of it."""
        self._is_open = False
        process = self._process
        reading = asyncio.ensure_future(drain(process.stdout, self._stdout))  # so that it can write, and end
        try:
            process.close_stdin()
            if await process.wait(EOF_SECONDS) is None:
                process.terminate()
                await process.wait(TERM_SECONDS)
        finally:
            await process.kill()
            reading.cancel()
