"""Retries, deadlines and the record of attempts, against a real endpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls import policy
from fepflow.calls.base import TargetResponse, output_hash
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.http import HttpTarget
from fepflow.calls.policy import LONGEST_WAIT, RunBudget
from fepflow.errors import CircuitOpenError, RunLimitExceededError
from fepflow.protocol.test_case import Output, TestCase
from tests.fepflow.calls.conftest import CASE, Serve, ask, ask_once, configured, ignore_retries

Retries = list[tuple[str, int, str, float]]


def flaky(failures: int, status: int = 503, headers: dict[str, str] | None = None) -> Callable[..., object]:
    """An endpoint that fails so often before it answers."""
    calls = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        if calls <= failures:
            return web.Response(status=status, headers=headers, text=f"failure {calls}")
        return web.Response(text="42")

    return handler


async def ask_noting(url: str, attempts: int) -> tuple[Output, Retries]:
    retries: Retries = []
    target = HttpTarget(configured(url))
    output = await ask(
        target,
        CASE,
        RetryPolicy(attempts, 5),
        lambda case_id, attempt, cause, wait: retries.append((case_id, attempt, str(cause), wait)),
    )
    await target.aclose()
    return output, retries


async def test_a_case_that_recovers_is_an_answer_with_its_history(serve: Serve) -> None:
    output, retries = await ask_noting(await serve(flaky(2)), attempts=3)
    assert output.value == "42"
    assert output.failure is None
    assert output.metadata is not None
    assert output.metadata["attempts"] == 3
    log = output.metadata["attempt_log"]
    assert [entry["attempt"] for entry in log] == [1, 2, 3]
    assert [entry["error"] and entry["error"]["status"] for entry in log] == [503, 503, None]
    assert log[2]["latency_ms"] == output.metadata["last_attempt_ms"]
    assert output.metadata["latency_ms"] > sum(entry["latency_ms"] for entry in log), "with the pauses between them"
    assert all(datetime.fromisoformat(entry["started_at"]).tzinfo == UTC for entry in log)
    assert all(entry["started_at"].endswith("Z") for entry in log)
    assert [(case, attempt) for case, attempt, _, _ in retries] == [("c1", 1), ("c1", 2)]
    assert "failure 1" in retries[0][2]


async def test_a_case_that_does_not_recover_is_a_failed_output(serve: Serve) -> None:
    output, retries = await ask_noting(await serve(flaky(99)), attempts=3)
    assert output.failure is not None
    assert output.metadata is not None
    assert output.metadata["attempts"] == 3
    assert output.metadata["error"] == output.metadata["attempt_log"][-1]["error"]
    assert output.metadata["error"]["message"] == "HTTP 503 Service Unavailable: failure 3"
    assert len(retries) == 2, "after the last attempt nothing is retried"


async def test_non_retryable_errors_are_not_retried(serve: Serve) -> None:
    output, retries = await ask_noting(await serve(flaky(1, status=400)), attempts=5)
    assert output.failure is not None
    assert output.metadata is not None
    assert output.metadata["attempts"] == 1
    assert retries == []


async def test_a_truncated_response_is_retried(serve: Serve) -> None:
    bodies = iter(['{"answer": "4', '{"answer": "42"}'])

    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=next(bodies), content_type="application/json")

    output = await ask_once(configured(await serve(handler), output="$.answer"), attempts=2)
    assert output.value == "42"


async def test_retry_after_sets_the_wait(serve: Serve) -> None:
    output, retries = await ask_noting(await serve(flaky(1, 429, {"Retry-After": "1"})), attempts=2)
    assert output.value == "42"
    assert retries[0][3] == 1.0


async def test_a_long_retry_after_is_capped(serve: Serve) -> None:
    waits: asyncio.Queue[float] = asyncio.Queue()
    target = HttpTarget(configured(await serve(flaky(1, 503, {"Retry-After": "3600"}))))
    asked = asyncio.create_task(ask(target, CASE, RetryPolicy(2, 5), lambda *retry: waits.put_nowait(retry[3])))
    assert await waits.get() == LONGEST_WAIT
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await target.aclose()


async def test_cancelling_passes_through_a_call_under_way(serve: Serve) -> None:
    reached = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        reached.set()
        await asyncio.sleep(60)
        return web.Response()

    target = HttpTarget(configured(await serve(handler)))
    asked = asyncio.create_task(ask(target, CASE, RetryPolicy(3, 50), ignore_retries))
    await reached.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await target.aclose()


async def test_the_deadline_is_of_one_attempt_and_bounds_every_target() -> None:
    class Stuck:
        fingerprint = "stuck"
        secrets: frozenset[str] = frozenset()

        def render(self, case: TestCase) -> None:
            return None

        async def call(self, request: Any) -> TargetResponse:
            await asyncio.sleep(60)
            return TargetResponse(None)

        async def aclose(self) -> None: ...

    started = time.monotonic()
    output = await ask(Stuck(), CASE, RetryPolicy(2, 0.05), ignore_retries)
    assert time.monotonic() - started < 30
    assert output.metadata is not None
    assert output.metadata["error"]["type"] == "timeout_error"
    assert output.metadata["attempts"] == 2


async def test_whatever_a_target_raises_ends_its_case_and_is_not_tried_again() -> None:
    class Buggy:
        fingerprint = "buggy"
        secrets: frozenset[str] = frozenset()

        def render(self, case: TestCase) -> None:
            return None

        async def call(self, request: Any) -> TargetResponse:
            raise ZeroDivisionError("at http://me:pass@host/x?key=1")

        async def aclose(self) -> None: ...

    output = await ask(Buggy(), CASE, RetryPolicy(3, 1), ignore_retries)
    assert output.metadata is not None
    assert (output.metadata["error"]["kind"], output.metadata["attempts"]) == ("failed", 1)
    assert output.metadata["error"]["message"] == "the target failed: ZeroDivisionError: at http://host/x?***"


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        (Output(value=None), False),
        (Output(value=None, metadata={"error": None}), False),
        (Output(value="x", metadata={"error": {"kind": "connect"}}), False),
        (Output(value=None, metadata={"error": {"kind": "connect", "message": "refused"}}), True),
    ],
)
def test_a_failed_output_has_no_value_and_a_cause(output: Output, failed: bool) -> None:
    assert (output.failure is not None) is failed


def test_the_retry_policy_comes_from_the_suite() -> None:
    times = {"timeout": "2m", "case_timeout": "1h"}
    config = configured("http://host/", target={"attempts": 7, **times, "concurrency": 3, "requests_per_minute": 90})
    assert RetryPolicy.of(config) == RetryPolicy(
        7, timeout=120, case_timeout=3600, concurrency=3, requests_per_minute=90
    )


async def test_waits_are_jittered_and_grow(serve: Serve) -> None:
    _, retries = await ask_noting(await serve(flaky(99)), attempts=4)
    waits = [wait for _, _, _, wait in retries]
    assert all(0 <= wait <= 0.25 * 2**number for number, wait in enumerate(waits, 1))
    assert len(set(waits)) == 3


async def test_a_case_may_be_called_once_more_after_its_attempts(serve: Serve) -> None:
    target = HttpTarget(configured(await serve(flaky(2))))
    caller = TargetClient(target, RetryPolicy(2, 5))
    asked = await caller.ask(CASE)
    assert asked.may_recover
    assert asked.output().failure is not None
    await caller.call_once_more(CASE, asked)
    await target.aclose()
    output = asked.output()
    assert output.value == "42"
    assert output.metadata is not None
    assert [entry["error"] is None for entry in output.metadata["attempt_log"]] == [False, False, True]


async def test_a_case_has_a_deadline_for_all_its_attempts(serve: Serve) -> None:
    calls = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0 if calls == 1 else 30)
        return web.Response(status=500)

    target = HttpTarget(configured(await serve(handler)))
    asked = await TargetClient(target, RetryPolicy(20, 5, case_timeout=1.2)).ask(CASE)
    await target.aclose()
    assert not asked.may_recover
    output = asked.output()
    assert output.metadata is not None
    assert output.metadata["error"]["type"] == "timeout_error"
    message = output.metadata["error"]["message"]
    assert "within 1.2 s, all attempts together" in message
    assert message.endswith("; before that: HTTP 500 Internal Server Error")
    assert output.metadata["error"]["recoverable"] is True, "by a run that gives it more time"
    assert output.metadata["attempts"] in (1, 2)
    assert all(entry["error"] for entry in output.metadata["attempt_log"])


async def test_waiting_for_ones_turn_is_not_the_cases_time(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(0.1)
        return web.Response(text="42")

    target = HttpTarget(configured(await serve(handler)))
    caller = TargetClient(target, RetryPolicy(1, 5, case_timeout=0.7, concurrency=1))
    answers = await asyncio.gather(*(caller.ask(CASE) for _ in range(10)))
    await target.aclose()
    assert all(asked.response for asked in answers)


async def test_no_call_is_made_after_the_deadline(serve: Serve) -> None:
    calls = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        await asyncio.sleep(30)
        return web.Response()

    target = HttpTarget(configured(await serve(handler)))
    caller = TargetClient(target, RetryPolicy(3, 20), RunBudget(0.8))
    asked = await caller.ask(CASE)
    assert "cut off: the run's deadline" in str(asked.error)
    with pytest.raises(RunLimitExceededError):
        await caller.ask(CASE)
    with pytest.raises(RunLimitExceededError):
        await caller.call_once_more(CASE, asked)
    await target.aclose()
    assert calls == 1
    assert len(asked.attempts) == 1


async def test_a_target_that_is_down_is_not_called_for_ever(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "GRACE_SECONDS", 0.3)
    calls = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=502)

    target = HttpTarget(configured(await serve(handler)))
    caller = TargetClient(target, RetryPolicy(3, 5, concurrency=8))
    answers = await asyncio.gather(*(caller.ask(CASE) for _ in range(200)))
    await target.aclose()
    open_circuit = [asked for asked in answers if isinstance(asked.error, CircuitOpenError)]
    assert len(open_circuit) > 150
    assert calls < 40
    assert sum(len(asked.attempts) for asked in answers) == calls
    error = (open_circuit[0].output().metadata or {})["error"]
    assert (error["kind"], error["recoverable"]) == ("circuit_open", True)
    assert "HTTP 502 Bad Gateway" in error["message"]


async def test_a_target_that_answers_others_is_not_down(serve: Serve) -> None:
    calls = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=500 if (await request.json())["input"] % 2 else 200, text="42")

    target = HttpTarget(configured(await serve(handler)))
    caller = TargetClient(target, RetryPolicy(3, 5, concurrency=8))
    answers = await asyncio.gather(*(caller.ask(TestCase(id=str(n), input=n)) for n in range(100)))
    for asked in answers:
        if asked.may_recover:
            assert await caller.call_once_more(CASE, asked)
    await target.aclose()
    assert not caller.is_down
    assert calls == 50 + 50 * (3 + 1)


async def test_the_deadline_of_a_case_is_that_of_its_later_calls_too(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    target = HttpTarget(configured(await serve(handler)))
    caller = TargetClient(target, RetryPolicy(1, 0.2, case_timeout=1.2))
    asked = await caller.ask(CASE)
    assert asked.may_recover
    assert 0 < asked.time_left() < 1.1
    await caller.call_once_more(CASE, asked)
    await asyncio.sleep(asked.time_left())
    await caller.call_once_more(CASE, asked)
    await target.aclose()
    assert not asked.may_recover
    assert "all attempts together" in str(asked.error)


async def test_calls_after_an_open_circuit_keep_to_the_limits(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "PROBE_SECONDS", 0.2)
    under_way = most = calls = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal under_way, most, calls
        calls += 1
        if calls <= 40:
            return web.Response(status=503)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        return web.Response(text="42")

    target = HttpTarget(configured(await serve(handler)))
    caller = TargetClient(target, RetryPolicy(8, 5, concurrency=32))
    answers = await asyncio.gather(*(caller.ask(CASE) for _ in range(60)))
    await target.aclose()
    assert all(asked.response for asked in answers)
    assert most < 32, "it had said that it is overloaded"


async def test_a_request_is_rendered_once_for_all_attempts_and_for_its_hash(serve: Serve) -> None:
    rendered: list[str] = []

    class Counting(HttpTarget):
        def render(self, case: TestCase) -> Any:
            rendered.append(case.id)
            return super().render(case)

    target = Counting(configured(await serve(flaky(9))))
    record = await TargetClient(target, RetryPolicy(2, 5)).ask(CASE)
    assert len(record.attempts) == 2
    by_record = output_hash(target, CASE, 0, record.request)
    assert rendered == [CASE.id]
    assert by_record == output_hash(target, CASE, 0)
    await target.aclose()
