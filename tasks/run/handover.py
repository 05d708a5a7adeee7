"""What the process that begins a run and executes it hands to the flow, and the store of a flow that gets nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fepflow.settings import settings
from fepflow.store.store import Store
from tasks.run.lease import STORE_WAIT

if TYPE_CHECKING:
    from fepflow.store.records import RunRecord

Listener = Callable[[Mapping[str, int]], None]
"""Is notified of progress, by what is counted: the command line's progress bar."""


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A run that this process has begun and executes, with the open store that it is in."""

    run: RunRecord
    store: Store
    listener: Listener | None = None


local_run: ContextVar[LocalRun | None] = ContextVar("fepflow_local_run", default=None)
"""Not an argument, as between the two is a Prefect flow, whose parameters are JSON that Prefect's API stores. A flow
that a worker executes has none."""


@asynccontextmanager
async def run_store() -> AsyncIterator[Store]:
    """The store for a run: the one that this process has open, else one that is opened, and closed at the end."""
    begun = local_run.get()
    if begun is not None:
        yield begun.store.waiting(STORE_WAIT)
        return
    with await asyncio.to_thread(Store.open, settings().store_address, STORE_WAIT) as store:
        yield store
