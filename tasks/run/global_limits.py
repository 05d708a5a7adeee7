"""Limits that runs and machines share: Prefect's global concurrency and rate limits, asked for by the batch."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from prefect import get_client
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.concurrency.asyncio import (
    AcquireConcurrencySlotTimeoutError,
    ConcurrencySlotAcquisitionError,
    concurrency,
    rate_limit,
)
from prefect.exceptions import ObjectNotFound

from fepflow.errors import InfrastructureError, RunLimitExceededError, UserError
from fepflow.suite.values import LIMIT_NAME

LEASE_SECONDS = 60
"""A batch whose process is gone gives its slots back after so long; one that lives renews its lease."""

Limit = GlobalConcurrencyLimitResponse
Slot = Callable[[], AbstractAsyncContextManager[Any]]
"""Entered for each call: waits until it may be made, and is left when it is over."""


@asynccontextmanager
async def acquire_slots(names: Sequence[str], calls: int, at_once: int, seconds: float) -> AsyncIterator[Slot]:
    """Slots for a batch of `calls`, of which `at_once` may be under way, under the limits of these names.

    A concurrency limit gives the batch all its slots if it has fewer than wanted, and gets them back at the end. A rate
    limit lets calls go as its slots come free; a retry of a call is not counted again. Raises UserError for a limit
    that does not exist, RunLimitExceededError when no slot came free within `seconds`.
    """
    if not names:
        yield nullcontext
        return
    limits = [limit for limit in [await _read(name) for name in names] if limit.active]
    rates = [limit for limit in limits if limit.slot_decay_per_second > 0]
    concurrency_limits = [limit for limit in limits if limit.slot_decay_per_second == 0]
    slots = min([calls, at_once, *(limit.limit for limit in concurrency_limits)])
    timeout = None if math.isinf(seconds) else max(seconds, 0.1)
    try:
        async with (
            concurrency([limit.name for limit in concurrency_limits], slots, timeout, lease_duration=LEASE_SECONDS,
                        strict=True, raise_on_lease_renewal_failure=False),
            _granted(rates, calls) as grant,
        ):  # fmt: skip
            under_way = asyncio.Semaphore(slots)

            @asynccontextmanager
            async def slot() -> AsyncIterator[None]:
                async with under_way:
                    await grant()
                    yield

            yield slot
    except AcquireConcurrencySlotTimeoutError:
        raise RunLimitExceededError(f"no slot came free under the limits {', '.join(names)}") from None
    except ConcurrencySlotAcquisitionError as error:
        raise InfrastructureError(f"Prefect's API could not be asked for slots ({', '.join(names)}): {error}") from None


@asynccontextmanager
async def _granted(rates: Sequence[Limit], calls: int) -> AsyncIterator[Callable[[], Any]]:
    """What each call waits for: that the rate limits let it go."""
    if not rates:
        yield _at_once
        return
    granted = asyncio.Semaphore(0)
    requesting = asyncio.create_task(_request_slots(rates, calls, granted), name="fepflow-rate")

    async def grant() -> None:
        acquiring = asyncio.ensure_future(granted.acquire())
        await asyncio.wait({acquiring, requesting}, return_when=asyncio.FIRST_COMPLETED)
        if not acquiring.done():
            acquiring.cancel()
            requesting.result()  # it has failed: there will be no more

    try:
        yield grant
    finally:
        requesting.cancel()
        await asyncio.wait({requesting})


async def _at_once() -> None:
    return


async def _request_slots(rates: Sequence[Limit], calls: int, granted: asyncio.Semaphore) -> None:
    most = min(limit.limit for limit in rates)
    for start in range(0, calls, most):
        slots = min(most, calls - start)
        await rate_limit([limit.name for limit in rates], slots, strict=True)
        for _ in range(slots):
            granted.release()


async def _read(name: str) -> Limit:
    async with get_client() as client:
        try:
            return await client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            advice = f"`fepflow limits set {name} --concurrency 8` makes it, or --per-minute 600"
            raise UserError(f"Prefect has no global limit {name!r} (target.limits): {advice}.") from None


async def read_limits() -> list[Limit]:
    """All global limits of Prefect's API, by name."""
    found: list[Limit] = []
    async with get_client() as client:
        while page := await client.read_global_concurrency_limits(limit=200, offset=len(found)):
            found += page
    # Prefect keeps the concurrency limits of deployments among them; they are the deployments' own.
    return sorted((limit for limit in found if not limit.name.startswith("deployment:")), key=lambda limit: limit.name)


async def set_limit(name: str, concurrency: int | None, per_minute: float | None) -> None:
    """Create the limit, or change it. Calls a minute are slots that come free evenly, a second's worth at once."""
    if not re.fullmatch(LIMIT_NAME, name):
        raise UserError(f"A limit cannot be named {name!r}: its name has a character at least, and none of / % & < >.")
    per_second = (per_minute or 0.0) / 60
    limit = max(1, round(per_second)) if concurrency is None else concurrency
    async with get_client() as client:
        await client.upsert_global_concurrency_limit_by_name(name, limit, per_second)


async def remove_limit(name: str) -> None:
    """Delete the limit. Raises UserError if there is none."""
    async with get_client() as client:
        try:
            await client.delete_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            raise UserError(f"Prefect has no global limit {name!r}: `fepflow limits` lists those there are.") from None
