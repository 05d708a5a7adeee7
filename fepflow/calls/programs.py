"""A suite's program that speaks a protocol on stdin and stdout. It gets a small environment."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fepflow.calls.base import traceparent
from fepflow.calls.processes import ChildProcess, ProcessRunner, Tail, drain
from fepflow.calls.traces import traced_environment
from fepflow.env_file import SUITE_VARIABLES
from fepflow.errors import InputError, Problem, TargetError
from fepflow.security.redaction import excerpt
from fepflow.suite import target

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


def find_command(config: target.ProgramOrAddress, folder: Path) -> Command:
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
    """The program of a suite in `folder`, looked up when it is first needed, and started for each connection."""

    def __init__(self, config: target.ProgramOrAddress, folder: Path, trace: target.Trace | None = None) -> None:
        self._config = config
        self._trace = trace
        self._is_agent = isinstance(config, target.EcpTarget)  # an agent serves one scenario, a server all cases
        self._folder = folder
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
