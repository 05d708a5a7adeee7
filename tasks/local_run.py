"""A run that this process has started: its lease, and its hand-over to the flow that executes it."""

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
    """Ctrl-C, delivered to a flow's own work, and never to Prefect's engine before and after it.

    If the engine is cut off in a request, that request is still answered, perhaps after later ones: a crashed flow run
    would then become Running for good.
    """

    def __init__(self) -> None:
        self._work: asyncio.Task[Any] | None = None
        self._requested = False

    @property
    def requested(self) -> bool:
        """True once the work should end."""
        return self._requested

    def request(self) -> None:
        """Cancel the work now, or as soon as it starts; do nothing after its end. For the event loop's thread."""
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
    """A run that this process has claimed and executes, with its open store.

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
    """Open the store for a run: the one that this process has open, or one that is closed at the end.

    If this process has started the run, its interruption cancels the body.
    """
    begun = local_run.get() or local_variants.get()
    if begun is not None:
        with begun.interruption.reaches():
            yield begun.store
        return
    with await asyncio.to_thread(Store.open, settings().store_address, STORE_WAIT) as store:
        yield store
