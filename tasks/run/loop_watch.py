"""Detects a blocked event loop: then no response is read, no lease renewed, no cancellation seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

from tasks.run.asyncio_helpers import cancel_and_wait

MAX_STALL = 0.25
"""Seconds that the loop may be held up without a word."""

logger = logging.getLogger("fepflow.run")


@asynccontextmanager
async def loop_watched(at_work: Callable[[], str]) -> AsyncIterator[None]:
    """Log each stall of the loop, with the case that `at_work` names; it is looked at four times a second."""
    watching = asyncio.create_task(_watch(at_work), name="fepflow-loop-watch")
    try:
        yield
    finally:
        await cancel_and_wait(watching)


async def _watch(at_work: Callable[[], str]) -> None:
    while True:
        expected = monotonic() + MAX_STALL
        await asyncio.sleep(MAX_STALL)
        late = monotonic() - expected
        if late > MAX_STALL:
            logger.warning("the event loop was held up for %.1f s, at or before the case %s", late, at_work())
