"""How many calls are under way at once, when a target bears fewer than the suite allows."""

from __future__ import annotations

import asyncio
import time

import pytest

from fepflow.calls.policy import AdaptiveLimiter
from fepflow.errors import TargetError, TargetTimeoutError

BUSY = TargetError("HTTP 429", kind="http_status", retryable=True, status=429)
DOWN = TargetError("HTTP 503", kind="http_status", retryable=True, status=503)
LATE = TargetTimeoutError("too late")
BROKEN = TargetError("reset", kind="connect", retryable=True)
WRONG = TargetError("HTTP 500", kind="http_status", retryable=True, status=500)


async def enter(limiter: AdaptiveLimiter, count: int) -> None:
    for _ in range(count):
        await limiter.enter()


async def is_full(limiter: AdaptiveLimiter) -> bool:
    try:
        async with asyncio.timeout(0.02):
            await limiter.enter()
    except TimeoutError:
        return True
    limiter.leave()
    return False


async def test_slots_are_as_many_as_the_suite_allows() -> None:
    limiter = AdaptiveLimiter(3)
    await enter(limiter, 3)
    assert await is_full(limiter)
    limiter.leave()
    assert not await is_full(limiter)


async def test_callers_get_their_slots_in_the_order_of_coming() -> None:
    limiter = AdaptiveLimiter(1)
    await limiter.enter()
    entered: list[int] = []

    async def caller(number: int) -> None:
        await limiter.enter()
        entered.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(caller(number))
        for expected in ([], [0], [0, 1], [0, 1, 2]):
            await asyncio.sleep(0.001)
            assert entered == expected
            limiter.leave()


async def test_a_caller_that_is_cancelled_takes_no_slot() -> None:
    limiter = AdaptiveLimiter(1)
    await limiter.enter()
    waiting = [asyncio.create_task(limiter.enter()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # while it waits
    await asyncio.wait(waiting[:1])
    limiter.leave()
    waiting[1].cancel()  # its slot is given to it, but it has not heard of it
    await asyncio.wait(waiting)
    assert all(task.cancelled() for task in waiting)
    assert not await is_full(limiter)


@pytest.mark.parametrize("error", [BUSY, DOWN, LATE])
async def test_overload_halves_the_slots(error: TargetError) -> None:
    limiter = AdaptiveLimiter(8)
    await enter(limiter, 8)
    limiter.failed(error, time.monotonic())
    assert limiter.slots == 4
    for _ in range(4):
        limiter.leave()
        assert await is_full(limiter), "those under way end first"
    limiter.leave()
    assert not await is_full(limiter)


@pytest.mark.parametrize("error", [BROKEN, WRONG])
async def test_other_failures_do_not_reduce_the_slots(error: TargetError) -> None:
    limiter = AdaptiveLimiter(8)
    await enter(limiter, 1)
    limiter.failed(error, time.monotonic())
    assert limiter.slots == 8


async def test_calls_that_were_under_way_before_do_not_count_again() -> None:
    limiter = AdaptiveLimiter(8)
    await enter(limiter, 8)
    began = time.monotonic()
    for _ in range(8):
        limiter.failed(BUSY, began)
    assert limiter.slots == 4
    limiter.failed(BUSY, time.monotonic())
    assert limiter.slots == 2


async def test_one_slot_is_always_left() -> None:
    limiter = AdaptiveLimiter(8)
    await enter(limiter, 1)
    for _ in range(10):
        limiter.failed(BUSY, time.monotonic())
    assert limiter.slots == 1


@pytest.mark.parametrize("most", [1, 8, 64])
async def test_successful_calls_restore_all_slots(most: int) -> None:
    limiter = AdaptiveLimiter(most)
    await enter(limiter, 1)
    for _ in range(10):
        limiter.failed(BUSY, time.monotonic())
    for _ in range(most * 40):
        limiter.answered()
    assert limiter.slots == most
    limiter.leave()
    await enter(limiter, most)
    assert await is_full(limiter)


async def test_only_new_extremes_are_reported() -> None:
    changes: list[tuple[int, bool]] = []
    limiter = AdaptiveLimiter(4, on_change=lambda slots, cause: changes.append((slots, cause is not None)))
    await enter(limiter, 1)
    limiter.failed(BUSY, time.monotonic())
    for _ in range(2):
        limiter.answered()
    limiter.failed(BUSY, time.monotonic())
    limiter.failed(BUSY, time.monotonic())
    for _ in range(20):
        limiter.answered()
    limiter.failed(BUSY, time.monotonic())
    assert changes == [(2, True), (1, True), (4, False), (2, True)]


async def test_a_rate_limit_spaces_calls_evenly() -> None:
    limiter = AdaptiveLimiter(10, per_minute=1200)  # one in 50 ms
    began = time.monotonic()
    await enter(limiter, 5)
    assert time.monotonic() - began >= 0.19


async def test_a_caller_cancelled_by_the_rate_limit_gives_its_slot_back() -> None:
    limiter = AdaptiveLimiter(1, per_minute=1)
    await limiter.enter()
    limiter.leave()
    assert await is_full(limiter), "the minute has no room"
    assert limiter._under_way == 0
