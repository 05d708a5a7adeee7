"""An AIMD limiter of concurrent calls of a target."""

from __future__ import annotations

import time
from collections.abc import Callable

from aiolimiter import AsyncLimiter
from anyio import CapacityLimiter

from fepflow.errors import TargetError, TargetTimeoutError

OVERLOAD = (429, 503)

OnLimitChange = Callable[[int, TargetError | None], None]
"""Gets the new number of slots, with the cause when they are fewer than ever, or None when all are back."""

ROUNDS = 16
"""Rounds of successful calls that restore all slots."""


class AdaptiveLimiter:
    """Slots for calls: at most `most` at once, and `per_minute` a minute.

    A target that responds with 429 or 503, or times out, gets half as many at once; each round of successful calls
    restores a sixteenth of `most` (additive increase, multiplicative decrease, as in TCP).
    """

    def __init__(self, most: int, per_minute: float | None = None, on_change: OnLimitChange | None = None) -> None:
        self._most = most
        # One at a time, evenly: a bucket that holds a whole minute's calls would let them all out at once.
        self._rate = AsyncLimiter(1, 60 / per_minute) if per_minute else None
        self._on_change = on_change
        self._slots: CapacityLimiter | None = None
        self._regained = 0.0
        self._slowed_at = 0.0
        self._fewest = most

    @property
    def slots(self) -> int:
        """Calls at once, for now."""
        return self._most if self._slots is None else int(self._slots.total_tokens)

    async def enter(self, holder: object) -> None:
        """Wait for a slot, and for the rate; `holder` gives the slot back with `leave`."""
        if self._slots is None:
            self._slots = CapacityLimiter(self._most)  # belongs to the event loop that runs now
        await self._slots.acquire_on_behalf_of(holder)
        if self._rate is not None:
            try:
                await self._rate.acquire()
            except BaseException:
                self.leave(holder)
                raise

    def leave(self, holder: object) -> None:
        """Give the holder's slot back."""
        assert self._slots is not None
        self._slots.release_on_behalf_of(holder)

    def answered(self) -> None:
        """A call succeeded."""
        slots = self.slots
        if slots == self._most:
            return
        self._regained += max(1.0, self._most / ROUNDS) / slots
        if self._regained >= 1:
            self._change(min(slots + int(self._regained), self._most), None)

    def failed(self, error: TargetError, started: float) -> None:
        """A call that began at `started` (monotonic) failed. Only overload reduces the slots, and once a round."""
        overloaded = error.status in OVERLOAD or isinstance(error, TargetTimeoutError)
        if overloaded and self.slots > 1 and started >= self._slowed_at:
            self._slowed_at = time.monotonic()
            self._change(self.slots // 2, error)

    def _change(self, slots: int, cause: TargetError | None) -> None:
        assert self._slots is not None
        self._slots.total_tokens = slots
        self._regained = 0.0
        # A target that fails sometimes makes the slots go up and down all the time: only new extremes are reported.
        changed = slots == self._most or slots < self._fewest
        self._fewest = self._most if slots == self._most else min(slots, self._fewest)
        if changed and self._on_change is not None:
            self._on_change(slots, cause)
