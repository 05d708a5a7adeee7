"""Sessions with an ECP agent: initialize, steps, reset; and the session that each scenario gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from itertools import count
from typing import Any, Final, Protocol

from fepflow.calls.base import Progress, Step, pass_traceparent, progress_of_call
from fepflow.calls.ecp.protocol import (
    VERSION,
    VERSION_UNSUPPORTED,
    AgentInfo,
    Connection,
    Request,
    agent_info,
    step_result,
)
from fepflow.calls.policy import time_limit
from fepflow.calls.responses import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, incompatible, malformed, result_of
from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.suite import target

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

    def __init__(
        self, connection: Connection, warnings: Warnings, secrets: frozenset[str], ecp: target.EcpTarget
    ) -> None:
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
