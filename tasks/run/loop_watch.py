"""Detects a blocked event loop: then no response is read, no lease renewed, no cancellation seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from time import monotonic

from fepflow.tasks.run.asyncio_helpers import in_background

MAX_STALL = 0.25
"""Seconds that the loop may be held up without a word."""

logger = logging.getLogger("fepflow.run")


def loop_watched(at_work: Callable[[], str]) -> AbstractAsyncContextManager[None]:
    """Log each stall of the loop, with the case that `at_work` names; it is looked at four times a second."""
    return in_background(_watch(at_work), "fepflow-loop-watch")


async def _watch(at_work: Callable[[], str]) -> None:
    while True:
        expected = monotonic() + MAX_STALL
        await asyncio.sleep(MAX_STALL)
        late = monotonic() - expected
        if late > MAX_STALL:
            logger.warning("the event loop was held up for %.1f s, at or before the case %s", late, at_work())
