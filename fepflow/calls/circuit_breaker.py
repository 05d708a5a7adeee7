"""A circuit breaker: a target or a model that is down is not called a thousand times."""

from __future__ import annotations

import asyncio
import time

from fepflow.errors import CircuitOpenError, ModelError, ModelUnavailableError, TargetError

FAILURES = 20
"""Consecutive cases whose first call fails, without any response between them, after which the target counts as
down. Further calls for a case do not count: they are made for those that fail."""

GRACE_SECONDS = 10.0
"""So long a target that seems to be down may take to come back, as after a restart; until then calls wait."""

PROBE_SECONDS = 1.0
"""One call in so many seconds finds out whether it is back."""

_ENDPOINT_WIDE = ("unauthorized", "quota")
"""Kinds of errors that every further call of the endpoint would get, too."""


class CircuitBreaker:
    """Lets calls through while the target responds, in whatever way; `what` names the target in messages.

    After FAILURES failures in a row calls wait, but for one a second. Any answer lets all of them go on; if none has
    come after GRACE_SECONDS, calls fail at once, and one a second still finds out.
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
        """Whether calls may be made, as far as one knows."""
        return self._failures < FAILURES

    @property
    def down(self) -> bool:
        """Whether the target has not come back in time."""
        return not self.closed and time.monotonic() - self._down_since >= GRACE_SECONDS

    async def admit(self) -> None:
        """Return when a call may be made; raises the error it was made with when the target is down."""
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
        """The target responded, if only with a refusal."""
        self._failures = 0

    def failed(self, error: TargetError | ModelError, *, first: bool) -> None:
        """A call failed, the first one for its case or another. Non-retryable errors and 429s count as responses."""
        responded = not error.retryable or error.status == 429
        if responded and error.kind not in _ENDPOINT_WIDE:
            self.answered()
        elif first:
            self._failures += 1
            self._last = error
            if self._failures == FAILURES:
                self._down_since = time.monotonic()
                self._next_probe = self._down_since + PROBE_SECONDS
