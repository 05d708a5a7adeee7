"""The client of a target: deadlines, retries, adaptive concurrency, and a record of every attempt."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from fepflow.calls.base import (
    UNSENT,
    AttemptUnderWay,
    Progress,
    Target,
    TargetResponse,
    attempt_under_way,
    progress_of_call,
    traced_requests,
    traceparent,
)
from fepflow.calls.policy import AdaptiveLimiter, CircuitBreaker, OnLimitChange, Retries, RunBudget, time_limit
from fepflow.calls.traces import CallTrace, Traces
from fepflow.errors import (
    CircuitOpenError,
    JSONPathError,
    RunLimitExceededError,
    SimulatedUserError,
    TargetError,
    TargetTimeoutError,
)
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output, TestCase
from fepflow.security.redaction import without_secrets, words_of
from fepflow.suite import target

BACKOFF, LONGEST_BACKOFF = 0.25, 10.0

BEFORE = "; before that: "
"""Words between the end of a case's time and what had gone wrong until then."""

OnRetry = Callable[[str, int, TargetError, float], None]
"""Called before each wait: case id, number of the failed attempt from 1, its cause, seconds until the next one."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of the calls of a target, in seconds: `timeout` is the deadline of one attempt, `case_timeout` that of all
    attempts for a case, from the beginning of the first one."""

    attempts: int
    timeout: float
    case_timeout: float | None = None
    concurrency: int = 16
    requests_per_minute: float | None = None

    @classmethod
    def of(cls, config: target.Target, shards: int = 1) -> RetryPolicy:
        """Return the policy of a suite's target section; `shards` executors of a run share its limits."""
        rate = config.requests_per_minute
        return cls(
            config.attempts,
            config.timeout,
            config.case_timeout,
            max(1, config.calls_at_once // shards),
            rate / shards if rate else None,
        )


class Attempt(NamedTuple):
    """A call: its start, its duration in milliseconds, and its error, if it failed."""

    started_at: datetime
    latency_ms: float
    error: TargetError | JSONPathError | None

    def entry(self, number: int) -> dict[str, Any]:
        """Return it as an entry of `attempt_log`."""
        return {
            "attempt": number,
            "started_at": self.started_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "latency_ms": self.latency_ms,
            "error": None if self.error is None else _describe(self.error),
        }


@dataclass(slots=True, eq=False)
class CallRecord:
    """The calls for one case so far: a response, or an error; and every attempt."""

    repeat: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    response: TargetResponse | None = None
    error: TargetError | JSONPathError | None = None
    request: Any = UNSENT
    """The request as it was rendered, once, for all attempts."""
    progress: Progress = field(default_factory=Progress)
    """The progress of the last attempt."""
    ends_at: float | None = None
    """End of the time for the case, by the event loop's clock."""
    began: float = 0.0
    """The start of the first attempt, by the monotonic clock."""
    lasted: float = 0.0
    """Seconds from then to the end of the last attempt, but for `queued`."""
    span: Any = None
    """The context of the span that the last attempt was exported as."""
    trace: CallTrace | None = None
    """The trace of the last attempt, until it is closed."""
    failed_trace: dict[str, Any] | None = None
    """The trace of the last attempt as far as it had come, if that failed."""
    queued: float = 0.0
    """Seconds in which the next attempt waited for its slot: it is other cases that take them."""

    def time_left(self) -> float:
        """Return the remaining seconds of the case; infinity without a deadline."""
        return math.inf if self.ends_at is None else self.ends_at - asyncio.get_running_loop().time()

    def last_refusal(self) -> TargetError | None:
        """Return the last error that is no timeout: an answer, or a failed connection."""
        errors = [attempt.error for attempt in reversed(self.attempts) if isinstance(attempt.error, TargetError)]
        return next((error for error in errors if not isinstance(error, TargetTimeoutError)), None)

    @property
    def may_recover(self) -> bool:
        """True if there is no response yet, for a reason that a retry may fix."""
        return self.response is None and isinstance(self.error, TargetError) and self.error.retryable

    def output(self) -> Output:
        """Return the output (FEP 3.3): an error is one without a value, or with what the call had before it failed.

        Its metadata has what was mapped of the answer, `latency_ms` (of the whole call: all attempts and the pauses
        between them), `last_attempt_ms` (of the attempt that answered) and `attempts`; after a failure `error` instead
        of the two times: `{type, kind, message, recoverable}`, `status` where there
        was one, and `partial`, which is true, where there is a value all the same. If more than one attempt was made or
        the only one failed, `attempt_log` lists them: `{attempt, started_at, latency_ms, error}`, error null for the
        one that answered.
        """
        if self.response is None:
            assert self.error is not None  # one of them is there after the first attempt
            partial = self.progress.response
            error = {**_describe(self.error), **({} if partial.value is None else {"partial": True})}
            failure = {"error": error, "attempts": len(self.attempts), "attempt_log": self._log()}
            if self.failed_trace is not None:
                failure["trace"] = self.failed_trace
            return Output(value=partial.value, metadata={**partial.metadata, **failure})
        last = self.attempts[-1].latency_ms
        times = {"latency_ms": max(round(self.lasted * 1000, 1), last), "last_attempt_ms": last}
        if self.response.has_own_time:
            times = {}  # how long reading it took says nothing of the agent
        metadata = {**self.response.metadata, **times, "attempts": len(self.attempts)}
        if len(self.attempts) > 1:
            metadata["attempt_log"] = self._log()
        return Output(value=self.response.value, metadata=metadata)

    def _log(self) -> list[dict[str, Any]]:
        return [attempt.entry(number) for number, attempt in enumerate(self.attempts, 1)]


def _describe(error: TargetError | JSONPathError) -> dict[str, Any]:
    if isinstance(error, JSONPathError):
        return {"type": error.fep_type, "kind": "request", "message": str(error), "recoverable": False}
    # What is not retried in this run, another run may get: an open circuit, a case that had too little time.
    recoverable = error.retryable or isinstance(error, CircuitOpenError | TargetTimeoutError | SimulatedUserError)
    described = {"type": error.fep_type, "kind": error.kind, "message": str(error), "recoverable": recoverable}
    return described if error.status is None else {**described, "status": error.status}


Observe = Callable[[TestCase, CallRecord], AbstractContextManager[None]]
"""Opens a context around each attempt for a case, which ends with what the attempt raised."""


class TargetClient:
    """A client that calls one target for a whole run, from one event loop, many cases at once."""

    def __init__(
        self,
        target: Target,
        policy: RetryPolicy,
        budget: RunBudget | None = None,
        on_retry: OnRetry = lambda *_: None,
        on_limit_change: OnLimitChange | None = None,
        traces: Traces | None = None,
        observe: Observe = lambda *_: nullcontext(),
    ) -> None:
        self.budget = budget or RunBudget()
        self._target = target
        self._traces = traces
        self._policy = policy
        self._retries = Retries(TargetError, policy.attempts, BACKOFF, LONGEST_BACKOFF)
        self._on_retry = on_retry
        self._observe = observe
        self._limiter = AdaptiveLimiter(policy.concurrency, policy.requests_per_minute, on_limit_change)
        self._circuit_breaker = CircuitBreaker()
        self._until_known: AbstractAsyncContextManager[object] = nullcontext()
        """The place of a case until its trace has come: only that may tell what the budget has paid for its call."""
        if traces is not None and self.budget.counts:
            self._until_known = asyncio.Semaphore(policy.concurrency)

    @property
    def is_down(self) -> bool:
        """True while the target is down, and its time to come back is over."""
        return self._circuit_breaker.down

    async def ask(self, case: TestCase, repeat: int = 0) -> CallRecord:
        """Call until there is a response, a non-retryable error, or no attempt left. Raises no TargetError.

        Raises RunLimitExceededError if the run may make no more calls, before the first call, or during a conversation.
        """
        async with self._until_known:
            return await self._ask(case, repeat)

    async def _ask(self, case: TestCase, repeat: int) -> CallRecord:
        record = CallRecord(repeat)

        async def attempt() -> TargetResponse:
            if record.attempts:
                await self._turn(record)
            return await self._attempt(case, record)

        def on_retry(number: int, error: TargetError, seconds: float) -> None:
            self._on_retry(case.id, number, error, seconds)

        try:
            await self._turn(record)  # the case's time begins when it is its turn
            async with self._case_time(record, self._policy.case_timeout):
                record.response = await self._retries.run(attempt, on_retry)
        except (RunLimitExceededError, CircuitOpenError) as error:
            errors = [attempt.error for attempt in record.attempts if attempt.error is not None]
            if failures := [failure for failure in errors if not isinstance(failure, SimulatedUserError)]:
                record.error = failures[-1]
            elif isinstance(error, RunLimitExceededError):
                raise
            else:
                record.error = error
        except (TargetError, JSONPathError) as error:
            record.error = error
        await self._end_trace(record)
        return record

    async def call_once_more(self, case: TestCase, record: CallRecord) -> bool:
        """Make one more call for a case whose attempts are used up; `record` gets the result.

        Returns False, without a call, while the target is down. Raises RunLimitExceededError, without a call, if the
        run may make no more calls.
        """
        try:
            await self._turn(record)
            async with self._case_time(record, record.time_left()):
                record.response = await self._attempt(case, record)
        except CircuitOpenError:
            return False
        except (TargetError, JSONPathError) as error:
            record.error = error
        await self._end_trace(record)
        return True

    async def _end_trace(self, record: CallRecord) -> None:
        """Put the trace of the last attempt into the record. Other calls do not wait for its spans."""
        if self._traces is None or record.trace is None:
            return
        trace, record.trace = record.trace, None
        if record.response is None:
            record.failed_trace = await self._traces.abandon(trace, self._target.secrets)
        else:
            record.failed_trace = None
            record.response = await self._traces.finish(trace, record.response, self._target.secrets)

    def _case_time(self, record: CallRecord, seconds: float | None) -> AbstractAsyncContextManager[object]:
        def late() -> TargetTimeoutError:
            message = f"no answer within {self._policy.case_timeout:g} s, all attempts together (target.case_timeout)"
            if (last := record.last_refusal()) is not None:
                message += f"{BEFORE}{last}"
            return TargetTimeoutError(record.progress.describe(message), retryable=False)

        if seconds is None or math.isinf(seconds):
            return nullcontext()
        record.ends_at = asyncio.get_running_loop().time() + seconds
        return time_limit(seconds, late)

    async def _turn(self, record: CallRecord) -> None:
        """Wait until a call may be made, and take its slot, which the call returns.

        Callers that waited for an open circuit take a new slot; otherwise all of them would call at once.
        """
        admitted = False
        while True:
            queued = time.monotonic()
            await self._limiter.enter()
            record.queued += time.monotonic() - queued
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

    async def _attempt(self, case: TestCase, record: CallRecord) -> TargetResponse:
        """Make one call in a slot, and return the slot."""
        started_at, started = utc_now(), time.monotonic()
        if not record.attempts:
            record.began, record.queued = started, 0.0
        error: TargetError | JSONPathError | None = None
        record.progress = Progress()
        progress_of_call.set(record.progress)
        number = len(record.attempts) + 1
        attempt_under_way.set(AttemptUnderWay(case, record.repeat, self.budget, self._limiter.pace, number))
        if self._traces is not None:
            record.trace = self._traces.begin(instead_of=record.trace)
            traceparent.set(record.trace.traceparent)
            traced_requests.set(record.trace.requests)
        try:
            with self._observe(case, record):
                answer = await self._within_deadline(case, record)
        except TargetError as caught:
            error = caught
            if not isinstance(caught, SimulatedUserError):
                self._limiter.failed(caught, started)
                self._circuit_breaker.failed(caught, first=not record.attempts)
            raise
        except JSONPathError as caught:
            error = caught
            raise
        except RunLimitExceededError as caught:
            error = SimulatedUserError(record.progress.describe(str(caught)))
            raise
        except asyncio.CancelledError:
            message = "the call was cut off: the time for the case was over"
            error = TargetTimeoutError(record.progress.describe(message))
            raise
        else:
            self._limiter.answered()
            self._circuit_breaker.answered()
            return answer
        finally:
            ended = time.monotonic()
            record.attempts.append(Attempt(started_at, round((ended - started) * 1000, 1), error))
            record.lasted = ended - record.began - record.queued
            self._limiter.leave()

    async def _within_deadline(self, case: TestCase, record: CallRecord) -> TargetResponse:
        # Of a conversation each turn has its own deadline (`fepflow.calls.conversations`).
        timeout = math.inf if case.is_conversation else self._policy.timeout
        progress, seconds = record.progress, min(timeout, self.budget.left())

        def late() -> TargetTimeoutError:
            if seconds < timeout:
                return TargetTimeoutError(progress.describe("the call was cut off: the run's deadline was over"))
            message = progress.describe(f"no complete answer within {seconds:g} s (target.timeout)")
            return TargetTimeoutError(message, retryable=not progress.fault)

        async with time_limit(seconds, late):
            try:
                if record.request is UNSENT:
                    record.request = self._target.render(case)
                return await self._target.call(record.request)
            except TargetError as error:
                raise without_secrets(error) from None
            except (JSONPathError, RunLimitExceededError):
                raise
            except Exception as error:
                message = f"the target failed: {type(error).__name__}: {words_of(error)}"
                raise TargetError(message, kind="failed", retryable=False) from None
