"""A target that is down is noticed; one that only fails now and then is not taken for one."""

from __future__ import annotations

import asyncio
import time

import pytest

from fepflow.calls import policy
from fepflow.calls.policy import FAILURES, CircuitBreaker
from fepflow.errors import CircuitOpenError, TargetError

REFUSED = TargetError("connection refused by host:80", kind="connect", retryable=True)
NO = TargetError("HTTP 400", kind="http_status", retryable=False, status=400)
LATER = TargetError("HTTP 429", kind="http_status", retryable=True, status=429)


@pytest.fixture(autouse=True)
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "GRACE_SECONDS", 0.4)
    monkeypatch.setattr(policy, "PROBE_SECONDS", 0.1)


def down() -> CircuitBreaker:
    found = CircuitBreaker()
    for _ in range(FAILURES):
        found.failed(REFUSED, first=True)
    return found


async def admitted(found: CircuitBreaker, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await found.admit()
    except TimeoutError:
        return False
    return True


async def test_calls_pass_while_there_are_answers() -> None:
    found = CircuitBreaker()
    for _ in range(5):
        for _ in range(FAILURES - 1):
            found.failed(REFUSED, first=True)
        found.answered()
    assert await admitted(found, 0.01)


@pytest.mark.parametrize("answer", [NO, LATER])
async def test_4xx_does_not_open_the_circuit(answer: TargetError) -> None:
    found = CircuitBreaker()
    for _ in range(FAILURES * 2):
        found.failed(answer, first=True)
    assert await admitted(found, 0.01)


async def test_after_failures_in_a_row_calls_wait_but_for_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "GRACE_SECONDS", 60.0)
    monkeypatch.setattr(policy, "PROBE_SECONDS", 0.3)
    found = down()
    waiting = [asyncio.create_task(found.admit()) for _ in range(5)]
    done, held = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(held)) == (1, 4)
    found.answered()
    await asyncio.gather(*held)


async def test_further_calls_for_cases_that_fail_do_not_make_the_target_down() -> None:
    found = CircuitBreaker()
    for _ in range(FAILURES * 5):
        found.failed(REFUSED, first=False)
    assert found.closed


async def test_a_target_that_stays_down_is_not_called() -> None:
    found = down()
    results: list[object] = []

    async def call() -> None:
        try:
            await found.admit()
        except CircuitOpenError as error:
            results.append(error)
        else:
            found.failed(REFUSED, first=True)
            results.append("probe")

    began = time.monotonic()
    for _ in range(60):
        await call()
        await asyncio.sleep(0.01)
    most = (time.monotonic() - began) / policy.PROBE_SECONDS + 1
    refused = [error for error in results if isinstance(error, CircuitOpenError)]
    assert "the last with: connection refused by host:80" in str(refused[0])
    assert 3 <= results.count("probe") <= most, "somebody still finds out whether it is back"

    await asyncio.sleep(0.11)
    await found.admit()
    found.answered()
    for _ in range(10):
        assert await admitted(found, 0.01)
