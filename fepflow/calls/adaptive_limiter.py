"""An AIMD limiter of concurrent calls of a target."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from aiolimiter import AsyncLimiter

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
        self._most = self._fewest = self.slots = most
        """`slots` is the number of calls at once, for now."""
        # One at a time, evenly: a bucket that holds a whole minute's calls would let them all out at once.
        self._rate = AsyncLimiter(1, 60 / per_minute) if per_minute else None
        self._on_change = on_change
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._regained = 0.0
        self._slowed_at = 0.0

    async def enter(self) -> None:
        """Wait for a slot, in the order of coming, and for the rate; `leave` gives the slot back."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn
            if self._rate is not None:
                await self._rate.acquire()
        except BaseException:
            if turn.done() and not turn.cancelled():  # it has its slot
                self.leave()
            raise

    def leave(self) -> None:
        """Give a slot back."""
        self._under_way -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._under_way < self.slots:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
                self._under_way += 1

    def answered(self) -> None:
        """A call succeeded."""
        if self.slots == self._most:
            return
        self._regained += max(1.0, self._most / ROUNDS) / self.slots
        if self._regained >= 1:
            self._change(min(self.slots + int(self._regained), self._most), None)

    def failed(self, error: TargetError, started: float) -> None:
        """A call that began at `started` (monotonic) failed. Only overload reduces the slots, and once a round."""
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
