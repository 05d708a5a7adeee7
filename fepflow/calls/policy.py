"""The policy of every call to agents and models: budget, limits, retries, circuit breaker.

`fepflow.calls.client` applies it to the target, `fepflow.calls.models` to judges and embedding models.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fepflow.errors import (
    CircuitOpenError,
    EndpointError,
    ModelError,
    ModelUnavailableError,
    RunLimitExceededError,
    TargetError,
    TargetTimeoutError,
)
from fepflow.json.values import finite

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from fepflow.suite.models import Budget

T = TypeVar("T")
Error = TypeVar("Error", bound=EndpointError)

LONGEST_WAIT = 60.0
"""Seconds: no Retry-After holds a call up for longer."""


# --- deadlines and retries -------------------------------------------------------------------------------------------


@asynccontextmanager
async def time_limit(seconds: float | None, late: Callable[[], Exception]) -> AsyncIterator[asyncio.Timeout]:
    """Raise `late()` if the body takes longer; None and infinity are no limit. The body's own TimeoutError passes."""
    try:
        async with asyncio.timeout(None if seconds is None or math.isinf(seconds) else seconds) as deadline:
            yield deadline
    except TimeoutError:
        if not deadline.expired():
            raise
        raise late() from None


def seconds_to_wait(retry_after: str) -> float | None:
    """Return the seconds of a Retry-After header, a number or an HTTP date (RFC 9110, 10.2.3); None for other text."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # no date, or one that no calendar of Python's has
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class Retries(Generic[Error]):
    """Up to `attempts` calls of an endpoint, as long as their errors, of the class `error`, are retryable.

    The pause before the next call is the one that the endpoint asked for (Retry-After), at most LONGEST_WAIT. Otherwise
    it is a random time of up to `backoff` seconds, doubled with each failure, at most `longest_backoff` (full jitter).
    """

    error: type[Error]
    attempts: int
    backoff: float
    longest_backoff: float

    async def run(self, call: Callable[[], Awaitable[T]], on_retry: Callable[[int, Error, float], None]) -> T:
        """Return the result of `call`. `on_retry` gets the failed attempt's number, its error, and the pause in
        seconds.

        Most first calls succeed, so only the others pay for tenacity, 0.2 ms of CPU time.
        """
        try:
            return await call()
        except self.error as error:
            failures = [error]
        # Of the extra `run`: checks that ask a function of the user's own do without.
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        backoff = wait_random_exponential(multiplier=self.backoff, max=self.longest_backoff)

        async def attempt() -> T:
            if failures:
                raise failures.pop()  # of the first call, which tenacity has not seen
            return await call()

        def wait(state: RetryCallState) -> float:
            retry_after = self._failure(state).retry_after
            return backoff(state) if retry_after is None else min(retry_after, LONGEST_WAIT)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.attempts),
            wait=wait,
            retry=retry_if_exception(lambda error: isinstance(error, self.error) and error.retryable),
            before_sleep=lambda state: on_retry(state.attempt_number, self._failure(state), state.upcoming_sleep),
            reraise=True,
        )
        return await retrying(attempt)

    def _failure(self, state: RetryCallState) -> Error:
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, self.error)  # nothing else is retried
        return error


# --- the circuit breaker ---------------------------------------------------------------------------------------------


FAILURES = 20
"""Consecutive cases whose first call fails, without any response between them, after which an endpoint counts as down.
Further calls for a case do not count: they are made for those that fail."""

GRACE_SECONDS = 10.0
"""Time that an endpoint that seems to be down has to come back, for example after a restart; calls wait for it."""

PROBE_SECONDS = 1.0
"""Interval between the calls that test whether the endpoint is back."""

_ENDPOINT_WIDE = ("unauthorized", "quota")
"""Kinds of errors that every further call of the endpoint would get, too."""


class CircuitBreaker:
    """A circuit breaker for an endpoint; `what` names it in messages.

    After FAILURES failures in a row, calls wait, except one per second. Any answer lets all of them proceed. If none
    has come after GRACE_SECONDS, calls fail at once, and one per second continues to test.
    """

    def __init__(
        self, what: str = "the target", error: type[CircuitOpenError | ModelUnavailableError] = CircuitOpenError
    ) -> None:
        self._what = what
        self._error = error
        self._failures = 0
        self._last: TargetError | ModelError | None = None
        self._down_since = 0.0
        self._next_probe = 0.0

    @property
    def closed(self) -> bool:
        """True while calls may be made, as far as is known."""
        return self._failures < FAILURES

    @property
    def down(self) -> bool:
        """True once the endpoint has not come back in time."""
        return not self.closed and time.monotonic() - self._down_since >= GRACE_SECONDS

    async def admit(self) -> None:
        """Wait until a call may be made. Raises the breaker's error if the endpoint is down."""
        while not self.closed:
            now = time.monotonic()
            if now >= self._next_probe:
                self._next_probe = now + PROBE_SECONDS
                return
            if self.down:
                failed = f"{self._failures} cases in a row failed, the last with: {self._last}"
                raise self._error(f"{self._what} is down ({failed})")
            await asyncio.sleep(self._next_probe - now)

    def answered(self) -> None:
        """Note a response, even a refusal."""
        self._failures = 0

    def failed(self, error: TargetError | ModelError, *, first: bool) -> None:
        """Note a failed call; `first` says whether it was the first one for its case.

        Non-retryable errors and 429s count as responses.
        """
        responded = not error.retryable or error.status == 429
        if responded and error.kind not in _ENDPOINT_WIDE:
            self.answered()
        elif first:
            self._failures += 1
            self._last = error
            if self._failures == FAILURES:
                self._down_since = time.monotonic()
                self._next_probe = self._down_since + PROBE_SECONDS


# --- how many at once ------------------------------------------------------------------------------------------------


OVERLOAD = (429, 503)

OnLimitChange = Callable[[int, TargetError | None], None]
"""Gets the new number of slots, with the cause when they are fewer than ever, or None when all are back."""

ROUNDS = 16
"""Rounds of successful calls that restore all slots."""


class AdaptiveLimiter:
    """Slots for calls of a target: at most `most` at once, and `per_minute` a minute.

    A target that responds with 429 or 503, or times out, gets half as many at once; each round of successful calls
    restores a sixteenth of `most` (additive increase, multiplicative decrease, as in TCP).
    """

    def __init__(self, most: int, per_minute: float | None = None, on_change: OnLimitChange | None = None) -> None:
        self._most = self._fewest = self.slots = most
        """`slots` is the number of calls at once, for now."""
        self._rate = None
        if per_minute:
            from aiolimiter import AsyncLimiter

            # One at a time, evenly: a bucket that holds a whole minute's calls would let them all out at once.
            self._rate = AsyncLimiter(1, 60 / per_minute)
        self._on_change = on_change
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._regained = 0.0
        self._slowed_at = 0.0

    async def enter(self) -> None:
        """Wait for a slot, in the order of arrival, and for the rate; `leave` returns the slot."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn
            await self.pace()
        except BaseException:
            if turn.done() and not turn.cancelled():  # it has its slot
                self.leave()
            raise

    async def pace(self) -> None:
        """Wait for the rate, within a slot, for one more request of the same call."""
        if self._rate is not None:
            await self._rate.acquire()

    def leave(self) -> None:
        """Return a slot."""
        self._under_way -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._under_way < self.slots:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                self._under_way += 1

    def answered(self) -> None:
        """Note a successful call."""
        if self.slots == self._most:
            return
        self._regained += max(1.0, self._most / ROUNDS) / self.slots
        if self._regained >= 1:
            self._change(min(self.slots + int(self._regained), self._most), None)

    def failed(self, error: TargetError, started: float) -> None:
        """Note a failed call that started at `started` (monotonic).

        Only overload reduces the slots, and once per round.
        """
        overloaded = error.status in OVERLOAD or isinstance(error, TargetTimeoutError)
        if overloaded and self.slots > 1 and started >= self._slowed_at:
            self._slowed_at = time.monotonic()
            self._change(self.slots // 2, error)

    def _change(self, slots: int, cause: TargetError | None) -> None:
        self.slots = slots
        self._regained = 0.0
        self._admit()
        # A target that fails sometimes makes the slots go up and down all the time: only new extremes are reported.
        changed = slots == self._most or slots < self._fewest
        self._fewest = self._most if slots == self._most else min(slots, self._fewest)
        if changed and self._on_change is not None:
            self._on_change(slots, cause)


# --- the budget of a run ---------------------------------------------------------------------------------------------


class RunBudget:
    """A deadline, `seconds` from now, and a budget of tokens and money. Once one is reached, no further call is made.

    `left` are the remaining seconds, if some have passed. The budget covers the target and the models of checks. Those
    are called from another thread, so it is thread-safe.
    """

    def __init__(self, seconds: float | None = None, budget: Budget | None = None, left: float | None = None) -> None:
        self._seconds = seconds
        self._ends_at = math.inf if seconds is None else time.monotonic() + (seconds if left is None else left)
        self._budget = budget.limits if budget else {}
        self._lock = Lock()
        self.spent = dict.fromkeys(self._budget, 0.0)
        self._most = dict.fromkeys(self._budget, 0.0)
        self._has_answers = False
        self._reported: set[str] = set()

    @property
    def counts(self) -> bool:
        """True if there is a budget."""
        return bool(self._budget)

    def left(self) -> float:
        """Return the seconds until the deadline; infinity without one."""
        return self._ends_at - time.monotonic()

    @property
    def ended(self) -> str | None:
        """The reason why no further call may be made, or None."""
        if self.left() <= 0:
            return f"the deadline of {self._seconds:g} s (deadline)"
        for name, limit in self._budget.items():
            if self.spent[name] >= limit:
                return f"the budget of {limit:g} {name} (budget.{name}; {self.spent[name]:g} spent)"
        return None

    def require(self) -> None:
        """Raise RunLimitExceededError if no further call may be made."""
        if (self._budget or self._seconds is not None) and (reason := self.ended):
            raise RunLimitExceededError(f"no further call: the run has reached {reason}")

    def spend(self, metadata: Mapping[str, Any] | None) -> None:
        """Count the reported cost of a response; one that reports none counts as the most expensive so far."""
        self._has_answers = True
        for name in self._budget:
            known = _cost((metadata or {}).get(name))
            with self._lock:
                if known is not None:
                    self._reported.add(name)
                cost = self._most[name] if known is None else known
                self._most[name] = max(cost, self._most[name])
                self.spent[name] += cost

    def warnings(self) -> list[str]:
        """Return a sentence about each part of the budget that has limited nothing, as no answer reported its cost."""
        idle = [name for name in self._budget if self._has_answers and name not in self._reported]
        return [
            f"The budget of {self._budget[name]:g} {name} limited nothing: no answer reported a valid number of {name}."
            for name in idle
        ]


def _cost(reported: Any) -> float | None:
    """Return a reported cost; None for one that is not a finite number from 0 on."""
    cost = None if isinstance(reported, bool) else finite(reported)
    return cost if cost is not None and cost >= 0 else None
