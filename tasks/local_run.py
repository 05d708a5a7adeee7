"""A run that this process has begun: its lease, and what is handed to the flow that executes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fepflow.settings import settings
from fepflow.store.store import Store

if TYPE_CHECKING:
    from fepflow.store.records import RunRecord
    from fepflow.suite.reader import LoadedSuite

LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
STORE_WAIT = 30.0
"""Seconds for which a run waits for a store that is locked, or whose server restarts."""

Listener = Callable[[Mapping[str, int]], None]
"""Is notified of progress, by what is counted: the command line's progress bar."""


class Interruption:
    """Ctrl-C, as it reaches a flow's own work, and never Prefect's engine, which is at work before that and after it.

    A request that the engine has sent and is cut off in is answered all the same, maybe after those that follow: a flow
    run that has crashed would then become Running, for good.
    """

    def __init__(self) -> None:
        self._work: asyncio.Task[Any] | None = None
        self._requested = False

    @property
    def requested(self) -> bool:
        """True once the work is to end."""
        return self._requested

    def request(self) -> None:
        """Cancel the work under way, or as soon as it begins; nothing if it is over. In the event loop's thread."""
        self._requested = True
        if self._work is not None:
            self._work.cancel()

    @contextmanager
    def reaches(self) -> Iterator[None]:
        """Let a request cancel the body. Raises CancelledError at once if there was one."""
        if self._requested:
            raise asyncio.CancelledError
        outer, self._work = self._work, asyncio.current_task()
        try:
            yield
        finally:
            self._work = outer


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A run that this process has claimed and executes, with the open store that it is in.

    `loaded` is its suite, if this process has read it.
    """

    run: RunRecord
    store: Store
    loaded: LoadedSuite | None = None
    listener: Listener | None = None
    interruption: Interruption = field(default_factory=Interruption)
    warnings: list[str] = field(default_factory=list)
    """Sentences for whoever started the run, beside those of its verdict."""
    ends_at: datetime | None = None
    """The deadline that it shares with other runs, by the store's clock."""


@dataclass(frozen=True, slots=True)
class LocalVariants:
    """The runs of a suite's variants that this process has claimed and executes, one after the other.

    `name` is the suite's.
    """

    id: str
    name: str
    runs: Sequence[LocalRun]
    store: Store
    interruption: Interruption = field(default_factory=Interruption)
    warnings: list[str] = field(default_factory=list)


reaped_elsewhere: ContextVar[bool] = ContextVar("fepflow_reaped_elsewhere", default=False)
"""Set in a process whose parent reaps every 20 s: its run does not ask Prefect for all runs under way."""

local_run: ContextVar[LocalRun | None] = ContextVar("fepflow_local_run", default=None)
"""The local run of a flow. It is no argument: a flow's parameters are JSON that Prefect's API stores. A flow that a
worker executes has none."""

local_variants: ContextVar[LocalVariants | None] = ContextVar("fepflow_local_variants", default=None)
"""The variants that the parent of such runs executes; while one is executed, `local_run` is set, too."""


@asynccontextmanager
async def run_store() -> AsyncIterator[Store]:
    """Open the store for a run: the one that this process has open, else one that is closed at the end.

    Of a run that this process has begun, the body is what its interruption cancels.
    """
    begun = local_run.get() or local_variants.get()
    if begun is not None:
        with begun.interruption.reaches():
            yield begun.store
        return
    with await asyncio.to_thread(Store.open, settings().store_address, STORE_WAIT) as store:
        yield store
