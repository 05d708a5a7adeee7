"""How many calls are under way at once, when a target bears fewer than the suite allows."""

from __future__ import annotations

import asyncio
import time

import pytest

from fepflow.errors import TargetError, TargetTimeoutError
from fepflow.targets.adaptive_limiter import AdaptiveLimiter

BUSY = TargetError("HTTP 429", kind="http_status", retryable=True, status=429)
DOWN = TargetError("HTTP 503", kind="http_status", retryable=True, status=503)
LATE = TargetTimeoutError("too late")
BROKEN = TargetError("reset", kind="connect", retryable=True)
WRONG = TargetError("HTTP 500", kind="http_status", retryable=True, status=500)


async def enter(pace: AdaptiveLimiter, count: int) -> list[object]:
    callers = [object() for _ in range(count)]
    for caller in callers:
        await pace.enter(caller)
    return callers


async def is_full(pace: AdaptiveLimiter) -> bool:
    caller = object()
    try:
        async with asyncio.timeout(0.02):
            await pace.enter(caller)
    except TimeoutError:
        return True
    pace.leave(caller)
    return False


async def test_there_are_as_many_places_as_the_suite_allows() -> None:
    pace = AdaptiveLimiter(3)
    callers = await enter(pace, 3)
    assert await is_full(pace)
    pace.leave(callers[0])
    assert not await is_full(pace)


@pytest.mark.parametrize("error", [BUSY, DOWN, LATE])
async def test_overload_halves_the_places(error: TargetError) -> None:
    pace = AdaptiveLimiter(8)
    callers = await enter(pace, 8)
    pace.failed(error, time.monotonic())
    assert pace.places == 4
    for caller in callers[:4]:
        pace.leave(caller)
        assert await is_full(pace), "those under way end first"
    pace.leave(callers[4])
    assert not await is_full(pace)


@pytest.mark.parametrize("error", [BROKEN, WRONG])
async def test_other_failures_do_not_slow_the_pace(error: TargetError) -> None:
    pace = AdaptiveLimiter(8)
    await enter(pace, 1)
    pace.failed(error, time.monotonic())
    assert pace.places == 8


async def test_calls_that_were_under_way_before_do_not_count_again() -> None:
    pace = AdaptiveLimiter(8)
    await enter(pace, 8)
    began = time.monotonic()
    for _ in range(8):
        pace.failed(BUSY, began)
    assert pace.places == 4
    pace.failed(BUSY, time.monotonic())
    assert pace.places == 2


async def test_one_place_is_always_left() -> None:
    pace = AdaptiveLimiter(8)
    await enter(pace, 1)
    for _ in range(10):
        pace.failed(BUSY, time.monotonic())
    assert pace.places == 1


@pytest.mark.parametrize("most", [1, 8, 64])
async def test_good_answers_bring_all_places_back(most: int) -> None:
    pace = AdaptiveLimiter(most)
    callers = await enter(pace, 1)
    for _ in range(10):
        pace.failed(BUSY, time.monotonic())
    for _ in range(most * 40):
        pace.answered()
    assert pace.places == most
    pace.leave(callers[0])
    await enter(pace, most)
    assert await is_full(pace)


async def test_only_what_is_new_is_told() -> None:
    told: list[tuple[int, bool]] = []
    pace = AdaptiveLimiter(4, on_change=lambda places, cause: told.append((places, cause is not None)))
    await enter(pace, 1)
    pace.failed(BUSY, time.monotonic())
    for _ in range(2):
        pace.answered()
    pace.failed(BUSY, time.monotonic())
    pace.failed(BUSY, time.monotonic())
    for _ in range(20):
        pace.answered()
    pace.failed(BUSY, time.monotonic())
    assert told == [(2, True), (1, True), (4, False), (2, True)]


async def test_a_rate_lets_calls_go_evenly() -> None:
    pace = AdaptiveLimiter(10, per_minute=1200)  # one in 50 ms
    began = time.monotonic()
    await enter(pace, 5)
    assert time.monotonic() - began >= 0.19


async def test_who_stops_waiting_for_the_rate_gives_the_place_back() -> None:
    pace = AdaptiveLimiter(1, per_minute=1)
    (first,) = await enter(pace, 1)
    pace.leave(first)
    assert await is_full(pace), "the minute has no room"
    assert pace._places is not None
    assert pace._places.borrowed_tokens == 0
