"""Which session a scenario gets: a new one, or one that has served others and was reset."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from time import monotonic
from typing import Protocol

from fepflow.calls.ecp.protocol import AgentInfo
from fepflow.calls.ecp.session import Session
from fepflow.errors import TargetError

PROCESSORS = os.cpu_count() or 1
START_SECONDS = 2.0
"""How long a scenario waits for a process that another one starts, or has used, before it starts one, too."""

Connect = Callable[[], Awaitable[Session]]
"""Makes a session that is not initialized yet; raises TargetError."""

Initialize = Callable[[Session], Awaitable[None]]


class Sessions(Protocol):
    """Gives each scenario its session."""

    def session(self) -> AbstractAsyncContextManager[Session]:
        """A session that is ready, for one scenario; what is raised inside is a fault. Raises TargetError."""

    async def aclose(self) -> None:
        """End all that is left."""


class ProcessSessions:
    """Each scenario has a process of its own, or one that has served others without a fault, and was reset.

    `reuse` says which; None leaves it to the agent, by whether it declares `reset`. Processes end in the background;
    together with those that do so, at most twice `most` are there at once.
    """

    def __init__(self, connect: Connect, initialize: Initialize, reuse: bool | None, most: int) -> None:
        self._connect = connect
        self._initialize = initialize
        self._reuse = reuse
        self._room = asyncio.Semaphore(2 * most)
        self._starting = 0
        self._waits = reuse is not False
        self._changed = asyncio.Event()
        self._idle: list[Session] = []
        self._all: set[Session] = set()
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session in a process that no other scenario has meanwhile."""
        session = await self._used() or await self._started()
        try:
            yield session
        except BaseException:
            self._end(session)
            raise
        if self._is_reusable(session):
            self._idle.append(session)
            self._tell()
        else:
            self._end(session)

    def _is_reusable(self, session: Session) -> bool:
        return "reset" in session.agent.capabilities if self._reuse is None else self._reuse

    async def _used(self) -> Session | None:
        """A session that has served others; None if there is none. One that cannot be reset is no fault of this one."""
        while self._idle:
            session = self._idle.pop()
            try:
                if session.connection.is_open:
                    await session.reset()
                    session.connection.log_tail()  # of the scenario before
                    return session
            except TargetError:
                pass
            except BaseException:
                self._end(session)
                raise
            self._end(session)
        return None

    async def _started(self) -> Session:
        """A new session, or one that comes free while others are started.

        Quick scenarios are over with the first processes: to start them all at once would only keep those from it.
        """
        latest = monotonic() + START_SECONDS
        while self._waits and self._starting >= PROCESSORS and (left := latest - monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
            if (session := await self._used()) is not None:
                return session
        self._starting += 1
        try:
            session = await self._new()
            self._waits = self._is_reusable(session)
            return session
        finally:
            self._starting -= 1
            self._tell()

    def _tell(self) -> None:
        """Have scenarios that wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()

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
        """End all processes, and wait for that."""
        for session in list(self._all):
            self._end(session)
        await asyncio.gather(*self._ending)


class EndpointSessions:
    """All scenarios have the one agent behind an address, which is initialized once, and anew after a fault.

    One scenario at a time, each after a reset; or all that come, without, if it serves them in `parallel`.
    """

    def __init__(self, connect: Connect, initialize: Initialize, *, parallel: bool) -> None:
        self._connect = connect
        self._initialize = initialize
        self._parallel = parallel
        self._agent: AgentInfo | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session of the one agent."""
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
        """The endpoint has its own end."""
