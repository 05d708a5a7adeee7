"""Asking a target patiently: deadline, retries, and a truthful record of every attempt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from fepflow import suite
from fepflow.errors import JSONPathError, TargetError, TargetTimeoutError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output, TestCase
from fepflow.targets.base import Answer, Target

LONGEST_WAIT = 60.0
"""Seconds: no Retry-After of a target holds a run up for longer."""

# Full jitter: after the n-th failure something between 0 and 0.25 s * 2^n, at most 10 s.
_BACKOFF = wait_random_exponential(multiplier=0.25, max=10)

OnRetry = Callable[[str, int, TargetError, float], None]
"""Told before each wait: case id, number of the failed attempt from 1, its cause, seconds until the next one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a target is asked: `timeout` is the deadline of one whole attempt, in seconds."""

    attempts: int
    timeout: float

    @classmethod
    def of(cls, config: suite.Target) -> Patience:
        """As the suite's target section has it."""
        return cls(config.attempts, config.timeout)


class _Attempt(NamedTuple):
    started_at: datetime
    latency_ms: float
    error: TargetError | JSONPathError | None

    def entry(self, number: int) -> dict[str, Any]:
        """As `attempt_log` has it."""
        return {
            "attempt": number,
            "started_at": self.started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "latency_ms": self.latency_ms,
            "error": None if self.error is None else _describe(self.error),
        }


async def ask(target: Target, case: TestCase, patience: Patience, on_retry: OnRetry) -> Output:
    """Ask until there is an answer, a cause that no retry mends, or no attempt left. Raises no TargetError.

    The output's metadata has what was mapped of the answer, `latency_ms` (of the attempt that answered) and `attempts`;
    after a failure `error` instead of `latency_ms`: `{type, kind, message, recoverable}`, and `status` where there was
    one. If more than one attempt was made or the only one failed, `attempt_log` lists them:
    `{attempt, started_at, latency_ms, error}`, error null for the one that answered.
    """
    attempts: list[_Attempt] = []
    try:
        answer = await _first_attempt_then_retries(target, case, patience, on_retry, attempts)
    except (TargetError, JSONPathError) as error:
        failure = {"error": _describe(error), "attempts": len(attempts), "attempt_log": _log(attempts)}
        return Output(value=None, metadata=failure)
    metadata = {**answer.metadata, "latency_ms": attempts[-1].latency_ms, "attempts": len(attempts)}
    if len(attempts) > 1:
        metadata["attempt_log"] = _log(attempts)
    return Output(value=answer.value, metadata=metadata)


def _log(attempts: list[_Attempt]) -> list[dict[str, Any]]:
    return [attempt.entry(number) for number, attempt in enumerate(attempts, 1)]


async def _first_attempt_then_retries(
    target: Target, case: TestCase, patience: Patience, on_retry: OnRetry, attempts: list[_Attempt]
) -> Answer:
    """Nearly every call answers at once: only one that does not pays for tenacity, 0.2 ms of computing."""
    try:
        return await _attempt(target, case, patience.timeout, attempts)
    except TargetError as error:
        failures = [error]

    async def attempt() -> Answer:
        if failures:
            raise failures.pop()  # the first attempt, which tenacity has not seen
        return await _attempt(target, case, patience.timeout, attempts)

    def before_sleep(state: RetryCallState) -> None:
        on_retry(case.id, state.attempt_number, _cause(state), state.upcoming_sleep)

    retrying = AsyncRetrying(
        stop=stop_after_attempt(patience.attempts),
        wait=_wait,
        retry=retry_if_exception(lambda error: isinstance(error, TargetError) and error.retryable),
        before_sleep=before_sleep,
        reraise=True,
    )
    return await retrying(attempt)


def is_failed(output: Output) -> bool:
    """Whether `output` stands for a target that gave none."""
    return output.value is None and isinstance((output.metadata or {}).get("error"), dict)


async def _attempt(target: Target, case: TestCase, deadline: float, attempts: list[_Attempt]) -> Answer:
    started_at, started = utc_now(), time.perf_counter()
    error: TargetError | JSONPathError | None = None
    try:
        return await _within(deadline, target, case)
    except (TargetError, JSONPathError) as caught:
        error = caught
        raise
    finally:
        attempts.append(_Attempt(started_at, round((time.perf_counter() - started) * 1000, 1), error))


async def _within(deadline: float, target: Target, case: TestCase) -> Answer:
    try:
        async with asyncio.timeout(deadline):
            return await target.call(case)
    except TimeoutError:
        raise TargetTimeoutError(f"no complete answer within {deadline:g} s (target.timeout)") from None


def _wait(state: RetryCallState) -> float:
    asked_for = _cause(state).retry_after
    return _BACKOFF(state) if asked_for is None else min(asked_for, LONGEST_WAIT)


def _cause(state: RetryCallState) -> TargetError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, TargetError)  # nothing else is tried again
    return error


def _describe(error: TargetError | JSONPathError) -> dict[str, Any]:
    if isinstance(error, JSONPathError):
        return {"type": error.fep_type, "kind": "request", "message": str(error), "recoverable": False}
    described = {"type": error.fep_type, "kind": error.kind, "message": str(error), "recoverable": error.retryable}
    return described if error.status is None else {**described, "status": error.status}
