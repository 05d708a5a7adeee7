"""When a target is down, the run notices, and does not ask it a thousand times."""

from __future__ import annotations

import asyncio
import time

from fepflow.errors import CircuitOpenError, TargetError

FAILURES = 20
"""Calls that fail one after the other, without an answer between them, before the target is taken to be down."""

GRACE_SECONDS = 10.0
"""So long a target that seems to be down may take to come back, as after a restart; until then calls wait."""

PROBE_SECONDS = 1.0
"""One call in so many seconds finds out whether it is back."""


class Breaker:
    """Lets calls through while the target answers, however it answers.

    After FAILURES failures in a row calls wait, but for one a second. Any answer lets all of them go on; if none has
    come after GRACE_SECONDS, calls fail at once, and one a second still finds out.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._last: TargetError | None = None
        self._down_since = 0.0
        self._next_probe = 0.0

    async def admit(self) -> None:
        """Return when a call may be made; raises CircuitOpenError when the target is down."""
        while self._failures >= FAILURES:
            now = time.monotonic()
            if now >= self._next_probe:
                self._next_probe = now + PROBE_SECONDS
                return
            if now - self._down_since >= GRACE_SECONDS:
                failed = f"{self._failures} calls in a row failed, the last with: {self._last}"
                raise CircuitOpenError(f"the target is down ({failed})")
            await asyncio.sleep(self._next_probe - now)

    def answered(self) -> None:
        """The target gave an answer, if only that it refuses."""
        self._failures = 0

    def failed(self, error: TargetError) -> None:
        """A call failed. One that another try would not mend, and a plea for patience, are answers."""
        if not error.retryable or error.status == 429:
            self.answered()
            return
        self._failures += 1
        self._last = error
        if self._failures == FAILURES:
            self._down_since = time.monotonic()
            self._next_probe = self._down_since + PROBE_SECONDS
