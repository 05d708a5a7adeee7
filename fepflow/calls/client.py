"""The client of a target: deadlines, retries, adaptive concurrency, and a record of every attempt."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from fepflow.calls.adaptive_limiter import AdaptiveLimiter, OnLimitChange
from fepflow.calls.base import UNSENT, Progress, Target, TargetResponse, progress_of_call
from fepflow.calls.call_record import BEFORE, Attempt, CallRecord
from fepflow.calls.circuit_breaker import CircuitBreaker
from fepflow.calls.run_budget import RunBudget
from fepflow.errors import CircuitOpenError, JSONPathError, RunLimitExceededError, TargetError, TargetTimeoutError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.security.redaction import without_secrets, words_of
from fepflow.suite import target

LONGEST_WAIT = 60.0
"""Seconds: no Retry-After of a target holds a run up for longer."""

# Full jitter: after the n-th failure something between 0 and 0.25 s * 2^(n - 1), at most 10 s.
_BACKOFF = wait_random_exponential(multiplier=0.25, max=10)

OnRetry = Callable[[str, int, TargetError, float], None]
"""Called before each wait: case id, number of the failed attempt from 1, its cause, seconds until the next one."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long and how often a target is called, in seconds: `timeout` is the deadline of one attempt, `case_timeout`
    that of all attempts for a case, from the beginning of the first one."""

    attempts: int
    timeout: float
    case_timeout: float | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None

    @classmethod
    def of(cls, config: target.Target, shards: int = 1) -> RetryPolicy:
        """As the suite's target section has it; what it may do at once is shared by so many executors of a run."""
        rate = config.requests_per_minute
        return cls(
            config.attempts,
            config.timeout,
            config.case_timeout,
            max(1, config.calls_at_once // shards),
            rate / shards if rate else None,
        )


class TargetClient:
    """Calls one target for a whole run, from one event loop, many cases at once."""

    def __init__(
        self,
        target: Target,
        policy: RetryPolicy,
        budget: RunBudget | None = None,
        on_retry: OnRetry = lambda *_: None,
        on_limit_change: OnLimitChange | None = None,
    ) -> None:
        self.budget = budget or RunBudget()
        self._target = target
        self._policy = policy
        self._on_retry = on_retry
        self._limiter = AdaptiveLimiter(policy.concurrency, policy.requests_per_minute, on_limit_change)
        self._circuit_breaker = CircuitBreaker()

    @property
    def is_down(self) -> bool:
        """Whether the target is down, and has had time to come back."""
        return self._circuit_breaker.down

    async def ask(self, case: TestCase) -> CallRecord:
        """Call until there is a response, a non-retryable error, or no attempt left. Raises no TargetError.

        Raises RunLimitExceededError, having made no call, when the run may make none any more.
        """
        record = CallRecord()
        try:
            await self._turn()  # the case's time begins when it is its turn
            async with self._case_time(record, self._policy.case_timeout):
                record.response = await self._first_attempt_then_retries(case, record)
        except (RunLimitExceededError, CircuitOpenError) as error:
            if record.attempts:
                record.error = record.attempts[-1].error
            elif isinstance(error, RunLimitExceededError):
                raise
            else:
                record.error = error
        except (TargetError, JSONPathError) as error:
            record.error = error
        return record

    async def call_once_more(self, case: TestCase, record: CallRecord) -> bool:
        """One more call for a case that has had its attempts; `record` gets the result.

        False, having made no call, while the target is down. Raises RunLimitExceededError, having made
        no call, when the run may make none any more.
        """
        try:
            await self._turn()
            async with self._case_time(record, record.time_left()):
                record.response = await self._attempt_and_leave(case, record)
        except CircuitOpenError:
            return False
        except (TargetError, JSONPathError) as error:
            record.error = error
        return True

    def _case_time(self, record: CallRecord, seconds: float | None) -> AbstractAsyncContextManager[None]:
        return nullcontext() if seconds is None or seconds == math.inf else self._limited_time(record, seconds)

    @asynccontextmanager
    async def _limited_time(self, record: CallRecord, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds) as deadline:
                record.ends_at = deadline.when()
                yield
        except TimeoutError:
            if not deadline.expired():
                raise
            message = f"no answer within {self._policy.case_timeout:g} s, all attempts together (target.case_timeout)"
            if (last := record.last_refusal()) is not None:
                message += f"{BEFORE}{last}"
            raise TargetTimeoutError(record.progress.told(message), retryable=False) from None

    async def _turn(self) -> None:
        """Wait until a call may be made, and take its slot, which the call gives back.

        Callers that waited for an open circuit take a slot anew: else all of them would call at once.
        """
        admitted = False
        while True:
            await self._limiter.enter()
            try:
                self.budget.require()
                if admitted or self._circuit_breaker.closed:
                    return
            except BaseException:
                self._limiter.leave()
                raise
            self._limiter.leave()
            await self._circuit_breaker.admit()
            admitted = True

    async def _first_attempt_then_retries(self, case: TestCase, record: CallRecord) -> TargetResponse:
        """Most first attempts succeed: only the others pay for tenacity, 0.2 ms of computing."""
        try:
            return await self._attempt_and_leave(case, record)
        except TargetError as error:
            failures = [error]

        async def attempt() -> TargetResponse:
            if failures:
                raise failures.pop()  # the first attempt, which tenacity has not seen
            await self._turn()
            return await self._attempt_and_leave(case, record)

        def before_sleep(state: RetryCallState) -> None:
            self._on_retry(case.id, state.attempt_number, _cause(state), state.upcoming_sleep)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._policy.attempts),
            wait=_wait,
            retry=retry_if_exception(lambda error: isinstance(error, TargetError) and error.retryable),
            before_sleep=before_sleep,
            reraise=True,
        )
        return await retrying(attempt)

    async def _attempt_and_leave(self, case: TestCase, record: CallRecord) -> TargetResponse:
        try:
            return await self._attempt(case, record)
        finally:
            self._limiter.leave()

    async def _attempt(self, case: TestCase, record: CallRecord) -> TargetResponse:
        started_at, started = utc_now(), time.monotonic()
        error: TargetError | JSONPathError | None = None
        record.progress = Progress()
        progress_of_call.set(record.progress)
        try:
            answer = await self._within_deadline(case, record)
        except TargetError as caught:
            error = caught
            self._limiter.failed(caught, started)
            self._circuit_breaker.failed(caught, first=not record.attempts)
            raise
        except JSONPathError as caught:
            error = caught
            raise
        except asyncio.CancelledError:
            error = TargetTimeoutError(record.progress.told("the call was cut off: the time for the case was over"))
            raise
        else:
            self._limiter.answered()
            self._circuit_breaker.answered()
            return answer
        finally:
            record.attempts.append(Attempt(started_at, round((time.monotonic() - started) * 1000, 1), error))

    async def _within_deadline(self, case: TestCase, record: CallRecord) -> TargetResponse:
        progress = record.progress
        seconds = min(self._policy.timeout, self.budget.left())
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(case, record)
        except TimeoutError:
            if seconds < self._policy.timeout:
                message = progress.told("the call was cut off: the run's deadline was over")
                raise TargetTimeoutError(message) from None
            message = progress.told(f"no complete answer within {seconds:g} s (target.timeout)")
            raise TargetTimeoutError(message, retryable=not progress.fault) from None

    async def _answer(self, case: TestCase, record: CallRecord) -> TargetResponse:
        """The target's response; its errors without secrets, whatever kind of target it is."""
        try:
            if record.request is UNSENT:
                record.request = self._target.render(case)
            return await self._target.call(record.request)
        except TargetError as error:
            raise without_secrets(error) from None
        except (JSONPathError, RunLimitExceededError, TimeoutError):
            raise
        except Exception as error:
            message = f"the target failed: {type(error).__name__}: {words_of(error)}"
            raise TargetError(message, kind="failed", retryable=False) from None


def _wait(state: RetryCallState) -> float:
    retry_after = _cause(state).retry_after
    return _BACKOFF(state) if retry_after is None else min(retry_after, LONGEST_WAIT)


def _cause(state: RetryCallState) -> TargetError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, TargetError)  # nothing else is tried again
    return error
