"""The system under test as a Python function, class or generator of the user.

It is called in threads of the run's own process, or in processes that can be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Final

from fepflow.calls.base import (
    RESERVED_METADATA,
    Conversation,
    TargetResponse,
    Turn,
    pass_traceparent,
    refuse_reserved_names,
    sent_fields,
    template_context,
)
from fepflow.calls.policy import seconds_to_wait
from fepflow.calls.processes import KILL_SECONDS, ChildProcess, ProcessRunner, run_program
from fepflow.calls.python import worker
from fepflow.calls.python.source import (
    MODULES,
    Source,
    find_interpreter,
    is_file,
    locate,
    locate_beside,
    open_entry,
    source_hash,
)
from fepflow.calls.python.worker import (
    CASE,
    TRACEPARENT,
    Entry,
    Form,
    answer_text,
    awaited_text,
    failure_of,
    is_pending,
)
from fepflow.calls.responses import describe, metadata_in
from fepflow.calls.thread_pool import AgentLoop, ThreadPool
from fepflow.calls.traces import traced_environment
from fepflow.errors import InputError, JSONPathError, Problem, TargetError, TargetTimeoutError
from fepflow.host import can_fork
from fepflow.json.values import decode, encode
from fepflow.jsonpath.path import Template, compile_path, compile_template
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import excerpt, known_secrets, redact, redact_json
from fepflow.suite import target

_LARGE = 1_000_000


class PythonTarget:
    """A target that calls `config.python`, `config.concurrency` times at once at most, in threads or processes.

    Opening it loads the code, which executes the file. Answers and errors are redacted: `secrets`, and values of
    environment variables with names of secrets. Raises InputError for code that cannot be loaded or called,
    JSONPathError for an invalid path.
    """

    def __init__(
        self, config: target.Target, folder: Path, roots: Sequence[Path], secrets: frozenset[str] = frozenset()
    ) -> None:
        assert config.python is not None  # the factory has looked
        self._python: Final = config.python
        self.secrets = secrets | known_secrets()
        names = None if self._python.arguments is None else sorted(self._python.arguments)
        self._input = compile_template(self._python.input, with_texts=True)
        self._messages = compile_template("$.turn.messages") if "input" not in self._python.model_fields_set else None
        self._arguments = compile_template(self._python.arguments, with_texts=True)
        refuse_reserved_names(self._python.metadata, "target.python.metadata")
        self._output = None if self._python.output is None else compile_path(self._python.output)
        self._metadata = {name: compile_path(path) for name, path in self._python.metadata.items()}
        python = self._python
        self._executor: Processes | Threads
        if python.isolate == "thread" and python.interpreter is None:
            source = locate(python.function, folder, roots)
            entry = open_entry(source, names)
            self._wants_case = entry.arguments.wants_case
            self._executor = Threads(entry, source.folder, python.max_bytes, config.concurrency)
        else:
            agent = find_agent(config, folder, roots, names)
            source, self._wants_case = check(agent)
            self._executor = Processes(agent, config.concurrency)
        asked = [source.name, python.input, python.arguments, python.output, python.metadata]
        if python.interpreter is not None:
            asked.append(python.interpreter)
        self.fingerprint = content_hash("python", source_hash(source), redact_json(asked, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the data for the call, `{input, arguments, test_case}`. Raises JSONPathError."""
        return self._request(case, template_context(case), self._input)

    def _request(self, case: TestCase, context: dict[str, Any], argument: Template) -> dict[str, Any]:
        if self._python.arguments is not None:
            request = {"arguments": self._arguments.render(context)}
        else:
            request = {"input": argument.render(context)}
        return {**request, CASE: sent_fields(case)} if self._wants_case else request

    @property
    def conversation_problem(self) -> str | None:
        """Reason why no conversation is possible (all turns would be the same call), or None."""
        where, template = "input", self._messages or self._input
        if self._python.arguments is not None:
            where, template = "arguments", self._arguments
        if any(path.expression.startswith("$.turn") for _, path in template.paths):
            return None
        return f"each turn would be the same call: put $.turn.messages or $.turn.input into target.python.{where}"

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a conversation; each turn is a call with the messages until then."""

        async def say(turn: Turn) -> TargetResponse:
            return await self.call(self._request(case, template_context(case, turn), self._messages or self._input))

        yield Conversation(say)

    async def call(self, request: Any) -> TargetResponse:
        """Call the function once. Raises TargetError."""
        if (context := pass_traceparent()) is not None:
            request = {**request, TRACEPARENT: context}
        reply = await self._executor.ask(request)
        if isinstance(reply, Failure):
            raise reply.error(self.secrets)
        if len(reply) > _LARGE:  # parsing it would block all other calls
            return await asyncio.to_thread(self._answer, reply)
        return self._answer(reply)

    def _answer(self, text: str) -> TargetResponse:
        returned = decode(text)
        value = redact_json(returned["value"], self.secrets)
        metadata = redact_json({**returned["metadata"], **metadata_in(self._metadata, value)}, self.secrets)
        if self._output is None:
            return TargetResponse(value, metadata)
        try:
            return TargetResponse(self._output.resolve(value), metadata)
        except JSONPathError:
            message = f"there is nothing at {self._python.output} (target.python.output); it returned {describe(value)}"
            raise TargetError(message, kind="missing_output", retryable=False) from None

    async def aclose(self) -> None:
        """End the threads or processes."""
        await self._executor.aclose()


_SHOWN = 500
_SHOWN_TAIL = 300

FORM: Final = Form(encode, TestCase.model_validate, RESERVED_METADATA)
"""This process's functions to write answers and make test cases."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a call in a form that processes can exchange; see TargetError. Not yet redacted.

    `location` is the user's own file and line, `tail` the last output of a process.
    """

    message: str
    kind: str
    retryable: bool
    location: str = ""
    retry_after: str | None = None
    status: int | None = None
    tail: str = ""

    def error(self, secrets: frozenset[str]) -> TargetError:
        """Return the exception without secrets."""
        message = excerpt(self.message, secrets, _SHOWN) + (
            f" ({redact(self.location, secrets)})" if self.location else ""
        )
        if last_words := excerpt(self.tail, secrets, len(self.tail))[-_SHOWN_TAIL:]:
            message = f"{message}: {last_words}"
        if self.kind == "timeout":
            return TargetTimeoutError(message)
        wait = None if self.retry_after is None else seconds_to_wait(self.retry_after)
        return TargetError(message, kind=self.kind, retryable=self.retryable, retry_after=wait, status=self.status)


Reply = str | Failure
"""JSON text of an answer, or the error."""


# --- threads ---------------------------------------------------------------------------------------------------------


given_up = Event()
"""Set once a call was cut off in this process: it may still be running."""


class Threads:
    """Threads that call a function, at most `most` at once.

    An abandoned call continues in its thread, because Python cannot stop it. Another thread takes its place, and the
    process can end without it.
    """

    def __init__(self, entry: Entry, folder: Path, limit: int, most: int) -> None:
        self._entry = entry
        self._folder = folder
        self._limit = limit
        self._workers = ThreadPool("agent", most)
        self._loop = AgentLoop()

    async def ask(self, request: dict[str, Any]) -> Reply:
        """Call the function once; cancelling abandons the call."""
        pending: list[Any] = []
        try:
            reply = await self._workers.run(lambda: self._called(request, pending), abandon=True)
            return reply if reply is not None else await self._loop.run(self._awaited(pending[0]))
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _called(self, request: dict[str, Any], pending: list[Any]) -> Reply | None:
        try:
            MODULES.activate(self._folder)
            returned = self._entry.begin(request, FORM)
            if not is_pending(returned):
                return answer_text(returned, self._limit, FORM)
            pending.append(returned)
        except BaseException as error:  # an agent may raise anything, even SystemExit and CancelledError
            return Failure(**failure_of(error, self._folder))
        return None

    async def _awaited(self, pending: Any) -> Reply:
        try:
            return await awaited_text(pending, self._limit, FORM)
        except BaseException as error:
            return Failure(**failure_of(error, self._folder))

    async def aclose(self) -> None:
        """Let the threads end when they can."""
        self._workers.close()
        self._loop.close()


# --- processes -------------------------------------------------------------------------------------------------------


LOAD_SECONDS = 120.0
"""Longest time in which `validate` waits for an agent's code to load."""
_ROOM = 100_000
"""Bytes that a reply may have beside its answer."""

_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__")
"""Variables for the run's interpreter, which an agent's own interpreter does not get."""


@dataclass(frozen=True)
class Agent:
    """The code of an agent and the settings of its calls.

    Without an `interpreter` it runs in that of this process. `source` is None for a module that only the agent's own
    interpreter can find.
    """

    function: str
    source: Source | None
    folder: Path
    names: list[str] | None
    limit: int
    interpreter: str | None = None
    trace: target.Trace | None = None

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
        """The environment of the worker."""
        left_out = _OURS if self.interpreter else ()
        own = {name: value for name, value in os.environ.items() if name not in left_out}
        return traced_environment(self.trace, own)


def find_agent(config: target.Target, folder: Path, roots: Sequence[Path], names: list[str] | None) -> Agent:
    """Return the agent that a suite names, without loading it. Raises InputError."""
    assert config.python is not None  # the factory has looked
    python = config.python
    if not can_fork():
        setting = "isolate" if python.interpreter is None else "interpreter"
        message = "needs a system with fork, such as Linux or macOS"
        raise InputError(
            Problem(message, path=f"target.python.{setting}", advice="leave it out: a thread calls it then")
        )
    interpreter = None if python.interpreter is None else find_interpreter(python.interpreter, folder)
    if interpreter is not None and not is_file(python.function):
        source = locate_beside(python.function, folder)
    else:
        source = locate(python.function, folder, roots)
    return Agent(python.function, source, folder, names, python.max_bytes, interpreter, config.trace)


_loaded: dict[str, tuple[Source, bool]] = {}


def check(agent: Agent) -> tuple[Source, bool]:
    """Load the code in a separate process, once for the same code. Raises InputError.

    Returns the source, and whether the function takes whole test cases.
    """
    if agent.source is None:
        return _load(agent)
    key = json.dumps([agent.command, source_hash(agent.source)])
    if key not in _loaded:
        _loaded[key] = _load(agent)
    return _loaded[key]


def _load(agent: Agent) -> tuple[Source, bool]:
    reply = run_program(agent.command, agent.environment, LOAD_SECONDS)
    try:
        first = json.loads(reply.partition(b"\n")[0])
    except ValueError:
        first = {}
    if "problems" in first:
        raise InputError([Problem(**problem) for problem in first["problems"]])
    if "wants_case" not in first:
        message = f"the process that was to load {agent.function} ended, or was silent for {LOAD_SECONDS:g} s"
        place, advice = "target.python.function", "run the file by itself"
        if agent.interpreter:
            place = "target.python.interpreter"
            advice = f"{agent.interpreter} must be Python 3.8 or newer; run the file by itself with it"
        raise InputError(Problem(message, path=place, advice=advice))
    module, _, name = agent.function.rpartition(":")
    return agent.source or Source(Path(first["file"]), module, name, agent.folder), first["wants_case"]


class Processes:
    """Up to `most` processes, started on demand, each with one call at a time.

    A process whose call is cut off is killed with everything that it started, and so are all when the run ends.
    """

    def __init__(self, agent: Agent, most: int) -> None:
        self._agent = agent
        self._most = most
        self._started = 0
        self._runner = ProcessRunner()
        self._ready: asyncio.Queue[ChildProcess | Failure] = asyncio.Queue()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._all: set[ChildProcess] = set()

    async def ask(self, request: dict[str, Any]) -> Reply:
        """Call the function once; cancelling kills the process."""
        process = await self._next()
        if isinstance(process, Failure):
            return process
        try:
            process.stdin.write(json.dumps(request).encode("ascii") + b"\n")  # errors show in the reply
            line = await self._line(process)
        except BaseException:
            self._end(process)
            raise
        if isinstance(line, Failure):
            self._end(process)
            return line
        self._ready.put_nowait(process)
        answer = line.removeprefix(b'{"answer":')
        if len(answer) < len(line):
            return answer[:-1].decode("ascii")  # the caller parses it, off the event loop if it is large
        return Failure(**json.loads(line)["failure"])

    async def _next(self) -> ChildProcess | Failure:
        """Return a process that is ready. A process continues to start if its first call is cut off meanwhile."""
        if self._ready.empty() and self._started < self._most:
            self._started += 1
            _begin(self._start(), self._starting)
        return await self._ready.get()

    async def _start(self) -> None:
        agent = self._agent
        try:
            process = await self._runner.start(agent.command, agent.environment, Path.cwd(), agent.limit + _ROOM)
        except OSError as error:
            self._started -= 1
            message = f"the process of {agent.function} could not be started: {error.strerror or type(error).__name__}"
            self._ready.put_nowait(Failure(message, "crashed", retryable=True))
            return
        self._all.add(process)
        line = await self._line(process)
        failure = line if isinstance(line, Failure) else None
        if not isinstance(line, Failure) and (problems := json.loads(line).get("problems")):
            failure = Failure(str(Problem(**problems[0])), "exception", retryable=False)
        if failure is not None:
            self._end(process)
        self._ready.put_nowait(failure or process)

    async def _line(self, process: ChildProcess) -> bytes | Failure:
        """Return the next reply of a process without its line end, or the failure if there will be none."""
        try:
            line = await process.read_line()
        except asyncio.LimitOverrunError:
            message = f"the answer is larger than {self._agent.limit:,} bytes (target.python.max_bytes)"
            return Failure(message, "too_large", retryable=False)
        if line.endswith(b"\n"):
            return line[:-1]
        how = await process.ending(KILL_SECONDS, "ended with exit code") or "closed its connection"
        how = f"{how} with the run" if process.was_killed else how
        message = f"the process of {self._agent.function} {how}"
        return Failure(message, "crashed", retryable=True, tail=process.stderr.text)

    def _end(self, process: ChildProcess) -> None:
        if process in self._all:
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
