"""Holding a lease: it is renewed while the work lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fepflow.asyncio_helpers import in_background
from fepflow.errors import FepflowError, RunBusyError

LEASE_SECONDS = 30.0
RENEW_SECONDS = 10.0
STORE_WAIT = 30.0
"""Seconds for which a run waits for a store that is locked, or whose server restarts."""

logger = logging.getLogger("fepflow.run")


@asynccontextmanager
async def hold_lease(renew: Callable[[], bool], what: str) -> AsyncIterator[None]:
    """Renew the lease of `what` while the body runs; `renew` blocks, and gives False when the lease is lost.

    Then the body is stopped, and RunBusyError raised: another executor has it.
    """
    body = asyncio.current_task()
    lost = False

    async def renew_repeatedly() -> None:
        nonlocal lost
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                renewed = await asyncio.to_thread(renew)
            except FepflowError as error:
                logger.warning("the lease of %s could not be renewed: %s", what, error)
                continue
            if not renewed and body is not None:
                lost = True
                body.cancel()
                return

    async with in_background(renew_repeatedly(), "fepflow-lease"):
        try:
            yield
        except asyncio.CancelledError:
            if lost:
                raise RunBusyError(f"Another executor has taken over {what}; this one has stopped.") from None
            raise
