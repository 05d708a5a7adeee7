"""The system under test as an agent that speaks the Evaluation Context Protocol, as a process or at an address.

A process gets requests on its stdin and writes answers to its stdout, one JSON object on each line.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pydantic import ValidationError

from fepflow.calls.base import (
    Conversation,
    Progress,
    Step,
    StepResponse,
    TargetResponse,
    Turn,
    pass_traceparent,
    progress_of_call,
)
from fepflow.calls.ecp.protocol import (
    VERSION,
    VERSION_UNSUPPORTED,
    AgentInfo,
    Connection,
    Request,
    agent_info,
    scenario_response,
    step_result,
    steps_of,
)
from fepflow.calls.policy import time_limit
from fepflow.calls.processes import ChildProcess, Programs, Tail, end_process, find_command, obituary
from fepflow.calls.responses import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, incompatible, malformed, result_of
from fepflow.calls.thread_pool import READERS
from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, Problem, TargetError, TargetTimeoutError
from fepflow.json.values import is_large
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import known_secrets, redact_json, remember, secrets_in_address
from fepflow.suite.target import EcpTarget as EcpSection
from fepflow.suite.target import Target

if TYPE_CHECKING:
    from fepflow.calls.ecp.http import Endpoint


class EcpTarget:
    """An ECP agent as a target: each test case is a scenario of one or several steps.

    Opening it starts nothing. The value of an output is `{steps: [...]}`, see `fepflow.calls.base.Step`; after a
    failed step it has the steps before. Answers are redacted: `secrets`, and values of environment variables with names
    of secrets. A program that cannot be started is an error of each call. Raises InputError for an address or a header
    that cannot be used.
    """

    def __init__(self, config: Target, folder: Path, secrets: frozenset[str] = frozenset()) -> None:
        assert config.ecp is not None  # the factory has looked
        self._ecp: Final = config.ecp
        secrets |= secrets_in_address(self._ecp.url or "")
        remember(secrets)
        self.secrets = secrets | known_secrets()
        self._warnings = Warnings()
        self._incompatible: str | None = None
        self._agents: Final = open_agents(config, folder, self.secrets)
        self._sessions: Sessions
        if self._ecp.command is not None:
            reuse = self._ecp.reuse if config.trace is None else False  # a process has one trace, from its start on
            self._sessions = ProcessSessions(self._connect, self._initialize, reuse, config.concurrency)
        else:
            self._sessions = EndpointSessions(self._connect, self._initialize, parallel=self._ecp.parallel)
        asked = [*self._agents.identity, self._ecp.config]
        self.fingerprint = content_hash("ecp", redact_json(asked, self.secrets))

    def render(self, case: TestCase) -> Any:
        """Return the input of each step. Raises TargetError for an invalid scenario."""
        return steps_of(case.input)

    async def call(self, request: Any) -> TargetResponse:
        """Run the scenario. Raises TargetError, which names the step; `progress_of_call` has the steps before."""
        inputs: list[str] = request
        progress = progress_of_call.get(None) or Progress()
        progress.response = scenario_response(None, len(inputs), [], {})
        progress.place = f"before step 1 of {len(inputs)}"
        try:
            if self._incompatible is not None:
                raise incompatible(self._incompatible)
            async with self._sessions.session() as session:
                return await self._run(session, inputs, progress)
        except TargetError as error:
            error.args = (f"{progress.place}: {error}",)
            raise

    @asynccontextmanager
    async def converse(self, case: TestCase) -> AsyncIterator[Conversation]:
        """Open a session with an agent; each turn is a step."""
        if self._incompatible is not None:
            raise incompatible(self._incompatible)
        async with self._sessions.session() as session:

            async def say(turn: Turn) -> StepResponse:
                if not isinstance(turn.input, str):
                    raise TargetError("an ECP agent takes only text as input", kind="request", retryable=False)
                step = await self._step(session, turn.input)
                return StepResponse(step["public_output"], step=step)

            def facts() -> dict[str, Any]:
                agent, log_tail = session.agent, session.connection.log_tail()
                facts = {"agent": agent.name, "protocol_version": agent.version}
                return redact_json({**facts, **({"log_tail": log_tail} if log_tail else {})}, self.secrets)

            yield Conversation(say, facts)

    async def _run(self, session: Session, inputs: list[str], progress: Progress) -> TargetResponse:
        steps: list[Step] = []
        try:
            for number, text in enumerate(inputs, 1):
                progress.place = f"step {number} of {len(inputs)}"
                steps.append(await self._step(session, text))
        finally:
            progress.response = self._response(session, len(inputs), steps)
        return progress.response

    async def _step(self, session: Session, text: str) -> Step:
        """Return the result of a step, without secrets."""
        step = await session.step(text)
        redacted = partial(redact_json, step, self.secrets)
        return await READERS.run(redacted) if is_large(step) else redacted()

    def _response(self, session: Session, count: int, steps: list[Step]) -> TargetResponse:
        response = scenario_response(session.agent, count, steps, session.connection.log_tail())
        return TargetResponse(response.value, redact_json(response.metadata, self.secrets))

    async def _initialize(self, session: Session) -> None:
        try:
            await session.initialize()
        except BaseException as error:
            if isinstance(error, TargetError) and error.kind == "incompatible":
                self._incompatible = str(error)
            if (progress := progress_of_call.get(None)) is not None:
                progress.response = self._response(session, progress.response.metadata["steps"], [])
            raise

    async def _connect(self) -> Session:
        return Session(await self._agents.connect(), self._warnings, self.secrets, self._ecp)

    async def aclose(self) -> None:
        """End the agents that fepflow started, and the connections to others."""
        await self._sessions.aclose()
        await self._agents.aclose()


def open_agents(target: Target, folder: Path, secrets: frozenset[str]) -> Agents | Endpoint:
    """Return the agents of an `ecp` target. Nothing is started yet; no message shows `secrets`.

    Raises InputError for an address or a header that cannot be used.
    """
    assert target.ecp is not None  # the caller has looked
    if target.ecp.command is not None:
        return Agents(target, folder, secrets)
    from fepflow.calls.ecp.http import Endpoint  # loads httpx, which processes need not wait for

    return Endpoint(target, secrets)


def target_of(text: str, variables: Sequence[str] = (), seconds: float | None = None) -> Target:
    """Return the target for an agent named on the command line: a command, or an address.

    `variables` are names of environment variables for it, `seconds` is the time limit of each request. Raises
    InputError.
    """
    where = {"url": text} if re.match("https?://", text, re.IGNORECASE) else {"command": text}
    ecp = {**where, "step_timeout": seconds, "start_timeout": seconds}
    data = {"ecp": {**ecp, "env": list(variables)} if variables else ecp}
    try:
        return Target.model_validate(data)
    except ValidationError as error:
        raise InputError(
            [Problem(item.message, advice=item.advice) for item in validation_messages(data, error)]
        ) from None


@asynccontextmanager
async def open_session(target: Target, folder: Path) -> AsyncIterator[Session]:
    """Open an initialized session with the agent of an `ecp` target, started from `folder` or at its address.

    Raises InputError for a command or an address that cannot be used, TargetError.
    """
    assert target.ecp is not None  # the caller has made it
    remember(secrets_in_address(target.ecp.url or ""))
    if target.ecp.command is not None:
        find_command(target.ecp, folder)
    secrets = known_secrets()
    async with aclosing(open_agents(target, folder, secrets)) as agents, aclosing(await agents.connect()) as connection:
        session = Session(connection, Warnings(), secrets, target.ecp)
        await session.initialize()
        yield session


# --- agents as processes ---------------------------------------------------------------------------------------------


class Agents(Programs):
    """The program of an agent, started for each connection."""

    async def connect(self) -> StdioConnection:
        """Start the program. Raises TargetError."""
        return StdioConnection(await self.start(), self._config.max_bytes, self._secrets)


class StdioConnection:
    """A process with one request at a time; at most `limit` bytes of stdout are read for one answer.

    Reading does not wait for the end of writing, so neither side blocks the other. No error shows `secrets`.
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
                raise await obituary(self._process, self._secrets)
        except asyncio.LimitOverrunError:
            pass
        message = f"the agent wrote more than {self._limit:,} bytes without an answer (target.ecp.max_bytes)"
        raise TargetError(message, kind="too_large", retryable=False)

    def log_tail(self) -> dict[str, str]:
        """Return the end of stderr, and of stdout without answers, and forget them."""
        tails = {"stdout": self._stdout, "stderr": self._process.stderr}
        texts = {name: tail.text for name, tail in tails.items() if tail.text}
        for tail in tails.values():
            tail.clear()
        return texts

    async def aclose(self) -> None:
        """Close stdin, then send SIGTERM, then kill the rest."""
        self._is_open = False
        await end_process(self._process, self._stdout)


# --- sessions with the agent, and the session that each scenario gets ------------------------------------------------


logger = logging.getLogger("fepflow.calls")


class Warnings:
    """Warnings that are logged once a run."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, message: str) -> None:
        """Log a message, unless it was logged before."""
        if message not in self._logged:
            self._logged.add(message)
            logger.warning(message)


class Session:
    """An agent behind a connection. After a failed request its state is unknown."""

    def __init__(self, connection: Connection, warnings: Warnings, secrets: frozenset[str], ecp: EcpSection) -> None:
        self.connection: Final = connection
        self.agent = AgentInfo("", None, frozenset())
        self._ecp = ecp
        self._secrets = secrets
        self._warnings = warnings
        self._ids = count(1)

    async def initialize(self) -> None:
        """Set the agent up, and agree on a version.

        Raises TargetError, `incompatible` for another version or a missing capability that the suite requires.
        """
        with _naming("agent/initialize"):
            self.agent = agent_info(await self._initialized())
            if self.agent.version is None:
                self._warnings.log("the agent names no protocol_version: it is treated as older than ECP 1.0")
            if missing := [name for name in self._ecp.require_capabilities if name not in self.agent.capabilities]:
                declared = ", ".join(sorted(self.agent.capabilities)[:20]) or "none"
                lacking = f"{', '.join(missing)} (target.ecp.require_capabilities)"
                raise incompatible(f"the agent does not declare {lacking}; it declares {declared}")

    async def _initialized(self) -> Any:
        config = self._ecp.config
        try:
            return await self._ask("agent/initialize", {"protocol_version": VERSION, "config": config})
        except RpcError as error:
            if error.code == VERSION_UNSUPPORTED:
                raise incompatible(str(error)) from None
            if error.code != INVALID_PARAMS:
                raise
        return await self._ask("agent/initialize", {"config": config})  # for an older agent

    async def step(self, text: str) -> Step:
        """Return the result of one step. Raises TargetError."""
        tells_calls = "tool_calls" in self.agent.capabilities
        if self._ecp.url is not None:
            pass_traceparent()  # in a process, all steps may be one span
        return step_result(await self._ask("agent/step", {"input": text}), tells_calls=tells_calls)

    async def reset(self) -> None:
        """Have the agent forget earlier scenarios, or warn once that it cannot. Raises TargetError."""
        with _naming("agent/reset"):
            try:
                result = await self._ask("agent/reset", {})
            except RpcError as error:
                if error.code != METHOD_NOT_FOUND:
                    raise
                self._warnings.log("the agent does not support agent/reset: it may remember earlier scenarios")
                return
            if result is False:
                raise malformed("the agent answered with false, so it was not reset")
            if result is not True:
                self._warnings.log("the agent does not answer agent/reset with true; it counts as reset all the same")

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        progress = progress_of_call.get(None) or Progress()
        progress.fault = ""
        request = Request(next(self._ids), method, params, progress)
        name = "start_timeout" if method == "agent/initialize" else "step_timeout"
        seconds: float | None = getattr(self._ecp, name)

        def late() -> TargetTimeoutError:
            message = f"no answer within {seconds:g} s (target.ecp.{name})"
            fault = progress.fault
            return TargetTimeoutError(f"{message}: {fault}" if fault else message, retryable=not fault)

        try:
            async with time_limit(seconds, late):
                message = await self.connection.ask(request)
        except TargetError as error:
            if progress.fault and progress.fault not in str(error):
                error.args = (f"{error}; {progress.fault}",)
            raise
        return result_of(message, self._secrets)


@contextmanager
def _naming(method: str) -> Iterator[None]:
    """Put the name of a request before its errors."""
    try:
        yield
    except TargetError as error:
        error.args = (f"{method}: {error}",)
        raise


Connect = Callable[[], Awaitable[Session]]
"""Makes a session that is not initialized yet. Raises TargetError."""

Initialize = Callable[[Session], Awaitable[None]]


class Sessions(Protocol):
    """Source of a session for each scenario."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Open an initialized session for one scenario; an exception inside is a fault of it. Raises TargetError."""

    async def aclose(self) -> None:
        """End all sessions."""


class ProcessSessions:
    """Sessions in processes: each scenario has a new one, or, with `reuse`, one that served others without a fault.

    If `reuse` is None, processes are reused if the agent declares `reset`. Processes end in the background; with those,
    there are at most twice `most` at once.
    """

    def __init__(self, connect: Connect, initialize: Initialize, reuse: bool | None, most: int) -> None:
        self._connect = connect
        self._initialize = initialize
        self._reuse = reuse
        self._room = asyncio.Semaphore(2 * most)
        self._idle: list[Session] = []
        self._all: set[Session] = set()
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Open a session in a process that no other scenario uses meanwhile."""
        session = await self._used() or await self._new()
        try:
            yield session
        except BaseException:
            self._end(session)
            raise
        if self._is_reusable(session):
            self._idle.append(session)
        else:
            self._end(session)

    def _is_reusable(self, session: Session) -> bool:
        return "reset" in session.agent.capabilities if self._reuse is None else self._reuse

    async def _used(self) -> Session | None:
        """Return a used session after a reset, or None."""
        while self._idle:
            session = self._idle.pop()
            try:
                if session.connection.is_open:
                    await session.reset()
                    session.connection.log_tail()  # drops the one of the scenario before
                    return session
            except TargetError:
                pass  # a failed reset is not a fault of this scenario
            except BaseException:
                self._end(session)
                raise
            self._end(session)
        return None

    async def _new(self) -> Session:
        await self._room.acquire()
        try:
            session = await self._connect()
        except BaseException:
            self._room.release()
            raise
        self._all.add(session)
        try:
            await self._initialize(session)
        except BaseException:
            self._end(session)
            raise
        return session

    def _end(self, session: Session) -> None:
        if session not in self._all:
            return
        self._all.discard(session)
        ending = asyncio.ensure_future(session.connection.aclose())
        self._ending.add(ending)
        ending.add_done_callback(self._ended)

    def _ended(self, ending: asyncio.Task[None]) -> None:
        self._ending.discard(ending)
        self._room.release()

    async def aclose(self) -> None:
        """End all processes, and wait for their end."""
        for session in list(self._all):
            self._end(session)
        await asyncio.gather(*self._ending)


class EndpointSessions:
    """Sessions of the one agent at an address, which is initialized once, and again after a fault.

    Scenarios run one at a time, each after a reset; if the agent serves them in `parallel`, all at once without resets.
    """

    def __init__(self, connect: Connect, initialize: Initialize, *, parallel: bool) -> None:
        self._connect = connect
        self._initialize = initialize
        self._parallel = parallel
        self._agent: AgentInfo | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Open a session of the one agent."""
        try:
            async with self._turn:
                session = await self._ready()
                if not self._parallel:
                    await session.reset()
                    yield session
            if self._parallel:
                yield session
        except BaseException:
            self._agent = None
            raise

    async def _ready(self) -> Session:
        session = await self._connect()
        if self._agent is None:
            await self._initialize(session)
            self._agent = session.agent
        session.agent = self._agent
        return session

    async def aclose(self) -> None:
        """Do nothing: the endpoint closes its connections itself."""
