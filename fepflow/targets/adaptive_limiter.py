"""How many calls of a target are under way at once: as many as it bears."""

from __future__ import annotations

import time
from collections.abc import Callable

from aiolimiter import AsyncLimiter
from anyio import CapacityLimiter

from fepflow.errors import TargetError, TargetTimeoutError

OVERLOAD = (429, 503)

OnPace = Callable[[int, TargetError | None], None]
"""Told of calls at once from now on: that they are fewer than ever, and why; or that all places are back."""

ROUNDS = 16
"""Rounds of good answers that bring all places back."""


class AdaptiveLimiter:
    """Places for calls: at most `most` at once, and `per_minute` a minute.

    A target that says 429 or 503, or does not answer in time, is asked by half as many at once; each round of good
    answers brings a sixteenth of `most` back (additive increase, multiplicative decrease, as TCP has it).
    """

    def __init__(self, most: int, per_minute: float | None = None, on_change: OnPace | None = None) -> None:
        self._most = most
        # One at a time, evenly: a bucket that holds a whole minute's calls would let them all out at once.
        self._rate = AsyncLimiter(1, 60 / per_minute) if per_minute else None
        self._on_change = on_change
        self._places: CapacityLimiter | None = None
        self._regained = 0.0
        self._slowed_at = 0.0
        self._fewest = most

    @property
    def places(self) -> int:
        """Calls at once, for now."""
        return self._most if self._places is None else int(self._places.total_tokens)

    async def enter(self, caller: object) -> None:
        """Wait for a place, and for the minute to have room; `caller` gives it back with `leave`."""
        if self._places is None:
            self._places = CapacityLimiter(self._most)  # belongs to the event loop that runs now
        await self._places.acquire_on_behalf_of(caller)
        if self._rate is not None:
            try:
                await self._rate.acquire()
            except BaseException:
                self.leave(caller)
                raise

    def leave(self, caller: object) -> None:
        """Give the caller's place back."""
        assert self._places is not None
        self._places.release_on_behalf_of(caller)

    def answered(self) -> None:
        """A call went well."""
        places = self.places
        if places == self._most:
            return
        self._regained += max(1.0, self._most / ROUNDS) / places
        if self._regained >= 1:
            self._change(min(places + int(self._regained), self._most), None)

    def failed(self, error: TargetError, started: float) -> None:
        """A call that began at `started` (monotonic) failed. Only overload slows the pace, and once a round."""
        overloaded = error.status in OVERLOAD or isinstance(error, TargetTimeoutError)
        if overloaded and self.places > 1 and started >= self._slowed_at:
            self._slowed_at = time.monotonic()
            self._change(self.places // 2, error)

    def _change(self, places: int, cause: TargetError | None) -> None:
        assert self._places is not None
        self._places.total_tokens = places
        self._regained = 0.0
        # A target that fails now and then makes the pace go up and down all the time: only what is new is told.
        news = places == self._most or places < self._fewest
        self._fewest = self._most if places == self._most else min(places, self._fewest)
        if news and self._on_change is not None:
            self._on_change(places, cause)
