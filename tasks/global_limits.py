"""Limits that runs and machines share: Prefect's global concurrency and rate limits."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from http import HTTPStatus
from time import monotonic
from typing import Any, Self
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.responses import GlobalConcurrencyLimitResponse
from prefect.concurrency.asyncio import rate_limit
from prefect.exceptions import ObjectNotFound

from fepflow.asyncio_helpers import gather_or_raise, in_background
from fepflow.errors import InfrastructureError, RunLimitExceededError, UserError
from fepflow.suite.values import LIMIT_NAME
from fepflow.tasks.flow_state import run_log

LEASE_SECONDS = 60
"""Places of a process that is gone come free after so long; one that lives renews its leases."""
PARTS = 8
"""Places are taken in parts of a limit, so that as many runs can be at work under it at once."""
HOLD_SECONDS = 2.0
"""Seconds in which a place serves one call after the other before others may have it. Prefect's server computes for
about 50 ms to give a part and to take it back."""
HOLD_FACTOR = 20
"""And so many times what taking it took, in which the place was empty: a server with much to do takes half a second."""
LONGEST_HOLD = 15.0
IDLE_SECONDS = 0.2
"""Time without a call after which a place is given back."""
COURTESY_SECONDS = 0.05
"""Pause after giving a place back, before a run asks for one again: others may be waiting for it."""
POLL_SECONDS = (0.5, 1.5)
"""Pauses between two requests for places that others have: the first, and the longest. Those that Prefect's server
advises are up to 30 s long, and places stay empty meanwhile: when the first of ten runs ended, with 4 s for a third
of the rest's time."""
ANSWER_SECONDS = 1.0
"""A place is kept while Prefect's API does not answer in this time."""
LAST_SECONDS = 5.0
"""Seconds that the end of a run waits until its places are given back; with Prefect away, their leases end them."""

Limit = GlobalConcurrencyLimitResponse
Slot = Callable[[], AbstractAsyncContextManager[Any]]
"""Entered for each call: waits until it may be made, and is left when it is over."""


class SharedLimits:
    """The limits on a run's calls together with those of other runs; used as `async with` around the calls.

    The run takes places of concurrency limits in small parts, when calls wait for them, holds each for seconds, and
    returns it.
    """

    def __init__(self, names: Sequence[str], calls_at_once: int, seconds_left: Callable[[], float]) -> None:
        self._names = names
        self._calls_at_once = calls_at_once
        self._seconds_left = seconds_left
        self._client: PrefectClient
        self._open = AsyncExitStack()
        self._limits: list[str] = []
        self._rates: list[Limit] = []
        self._most = self._part = 1
        self._held = 0
        self._waiting: asyncio.Queue[asyncio.Future[asyncio.Event]] = asyncio.Queue()
        """Calls that wait for a place. Their place is an event, set when the call is over."""
        self._changed = asyncio.Event()
        self._given_back = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._taking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raise UserError for a limit that Prefect does not have."""
        if self._names:
            self._client = await self._open.enter_async_context(get_client())
            await self._read_limits()
        if self._limits:
            self._taking = self._start(self._take_places())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_SECONDS)
        await self._open.aclose()

    @asynccontextmanager
    async def slots(self, calls: int) -> AsyncIterator[Slot]:
        """Return slots for a number of calls. A rate limit does not count a retry of a call again.

        Entering one raises RunLimitExceededError if none came free before the run's deadline.
        """
        if not self._names:
            yield nullcontext
            return
        async with _granted(self._rates, calls) as grant:

            @asynccontextmanager
            async def slot() -> AsyncIterator[None]:
                async with self._place():
                    await grant()
                    yield

            yield slot

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._taking is None:
            yield
            return
        place: asyncio.Future[asyncio.Event] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait(place)
        self._changed.set()
        seconds = self._seconds_left()
        timeout = None if math.isinf(seconds) else max(seconds, 0.1)
        try:
            both: set[asyncio.Future[Any]] = {place, self._taking}
            await asyncio.wait(both, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not place.done():
                if self._taking.done():
                    self._raise_failure(self._taking)
                raise RunLimitExceededError(f"no slot came free under the limits {', '.join(self._names)}")
            yield
        finally:
            if place.done():
                place.result().set()
            else:
                place.cancel()

    def _raise_failure(self, taking: asyncio.Task[None]) -> None:
        try:
            taking.result()
        except httpx.HTTPError as error:
            names = ", ".join(self._names)
            raise InfrastructureError(f"Prefect's API could not be asked for slots ({names}): {error}") from None

    async def _take_places(self) -> None:
        refusals = 0
        while True:
            while self._waiting.empty() or self._held >= self._most:
                self._changed.clear()
                await self._changed.wait()
            if await self._take_part():
                refusals = 0
                continue
            refusals += 1
            self._given_back.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_pause(refusals)):
                    await self._given_back.wait()

    async def _take_part(self) -> bool:
        """Take a part of the places, to be held in a task of its own; False if others have them."""
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        holding = self._start(self._hold(min(self._part, self._most - self._held), taken))
        await asyncio.wait({taken, holding}, return_when=asyncio.FIRST_COMPLETED)
        if not taken.done():
            holding.result()
        return taken.done()

    async def _hold(self, places: int, taken: asyncio.Future[None]) -> None:
        """Hold places while they are used, if Prefect gives them; leaves `taken` open if others have them.

        Not by Prefect's `concurrency`: it writes an error into the log for each request that is refused.
        """
        began = monotonic()
        try:
            answer = await self._client.increment_concurrency_slots_with_lease(
                self._limits, places, "concurrency", LEASE_SECONDS
            )
        except httpx.HTTPStatusError as error:
            await self._require_refusal(error)
            return
        document = answer.json()
        if not document["limits"]:
            await self._read_limits()  # raises, as it was removed
        lease = UUID(document["lease_id"])
        self._held += places
        taken.set_result(None)
        seconds = min(max(HOLD_SECONDS, HOLD_FACTOR * (monotonic() - began)), LONGEST_HOLD)
        try:
            async with in_background(self._renew(lease), "fepflow-places"):
                while True:
                    await gather_or_raise(self._serve(seconds) for _ in range(places))
                    if await self._answers():  # else the place would be lost until Prefect is back
                        break
        finally:
            try:
                await self._client.release_concurrency_slots_with_lease(lease)
            except httpx.HTTPError as error:  # the lease ends by itself
                run_log().warning("places under %s could not be given back: %s", ", ".join(self._limits), error)
            await asyncio.sleep(COURTESY_SECONDS)
            self._held -= places
            self._changed.set()
            self._given_back.set()

    async def _answers(self) -> bool:
        """Return whether Prefect's API answers. Its client tries again for minutes by itself."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._client.api_healthcheck() is None
        except TimeoutError:
            return False

    async def _renew(self, lease: UUID) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            try:
                await self._client.renew_concurrency_lease(lease, LEASE_SECONDS)
            except httpx.HTTPError as error:  # calls under way go on; Prefect may be back before the lease has ended
                run_log().warning("places under %s could not be kept: %s", ", ".join(self._limits), error)

    async def _serve(self, seconds: float) -> None:
        """Give a place to waiting calls, one after the other, for a limited time."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, IDLE_SECONDS)):
                    place = await self._waiting.get()
            except TimeoutError:
                return
            if not place.done():  # else its call has given up
                over = asyncio.Event()
                place.set_result(over)
                await over.wait()

    async def _require_refusal(self, error: httpx.HTTPStatusError) -> None:
        """Raise an error, unless it is Prefect's answer that others have the places."""
        match error.response.status_code:
            case HTTPStatus.LOCKED:
                return
            case HTTPStatus.UNPROCESSABLE_ENTITY:  # a limit is lower than it was
                await self._read_limits()
            case _:
                raise error

    async def _read_limits(self) -> None:
        limits = [limit for limit in [await self._read(name) for name in self._names] if limit.active]
        self._rates = [limit for limit in limits if limit.slot_decay_per_second > 0]
        concurrency_limits = [limit for limit in limits if limit.slot_decay_per_second == 0]
        self._limits = [limit.name for limit in concurrency_limits]
        self._most = min([self._calls_at_once, *(limit.limit for limit in concurrency_limits)])
        self._part = max(1, min((limit.limit for limit in concurrency_limits), default=1) // PARTS)

    async def _read(self, name: str) -> Limit:
        try:
            return await self._client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            advice = f"`fepflow limits set {name} --concurrency 8` makes it, or --per-minute 600"
            raise UserError(f"Prefect has no global limit {name!r} (target.limits): {advice}.") from None

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="fepflow-places")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _pause(refusals: int) -> float:
    first, longest = POLL_SECONDS
    return random.uniform(0.5, 1) * min(first * 2.0 ** min(refusals, 10), longest)  # noqa: S311  # no secret


@asynccontextmanager
async def _granted(rates: Sequence[Limit], calls: int) -> AsyncIterator[Callable[[], Any]]:
    """Let each call that waits for the rate limits proceed."""
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


async def read_limits() -> list[Limit]:
    """Return all global limits of Prefect's API, by name."""
    limits: list[Limit] = []
    async with get_client() as client:
        while page := await client.read_global_concurrency_limits(limit=200, offset=len(limits)):
            limits += page
    # Prefect keeps the concurrency limits of deployments among them; they are the deployments' own.
    return sorted((limit for limit in limits if not limit.name.startswith("deployment:")), key=lambda limit: limit.name)


async def set_limit(name: str, concurrency: int | None, per_minute: float | None) -> None:
    """Create or change the limit. Calls per minute are slots that come free evenly, a second's worth at once."""
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
            raise UserError(f"Prefect has no global limit {name!r}: `fepflow limits` lists all limits.") from None
