"""How often a caller may call: limits a minute, counted in this process."""

from __future__ import annotations

import time
from ipaddress import IPv6Address, ip_address, ip_network

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, RateLimiter

from fepflow.errors import RateLimitError

FAILURES_PER_MINUTE = 30
"""Requests of a source a minute whose key or token is not valid that are looked at and told why."""

STRANGERS_PER_MINUTE, REFUSALS_PER_MINUTE = 600, 60
"""Requests a minute of all sources together, and refusals of further ones that are recorded: whoever has many addresses
fills no log."""


class RateLimits:
    """Limits on callers, who are known, and on failures of sources, which are not."""

    def __init__(self, starts: int, requests: int) -> None:
        storage = MemoryStorage()
        self._callers = MovingWindowRateLimiter(storage)
        # The window moves for callers only: of those, memory keeps the names, and of sources there may be any number.
        self._sources = FixedWindowRateLimiter(storage)
        self._starts = RateLimitItemPerMinute(starts, namespace="starts")
        self._requests = RateLimitItemPerMinute(requests, namespace="requests")
        self._failures = RateLimitItemPerMinute(FAILURES_PER_MINUTE, namespace="failures")
        self._strangers = RateLimitItemPerMinute(STRANGERS_PER_MINUTE, namespace="strangers")
        self._refusals = RateLimitItemPerMinute(1, namespace="refusals")
        self._all_refusals = RateLimitItemPerMinute(REFUSALS_PER_MINUTE, namespace="all refusals")

    def take(self, caller: str, *, starts_run: bool) -> None:
        """Count a request of a caller. Raises RateLimitError."""
        limit = self._starts if starts_run else self._requests
        what = "requests that start runs" if starts_run else "requests"
        self._hit(self._callers, limit, caller, f"{caller} has sent more than {limit.amount:,} {what} in a minute")

    def take_failure(self, source: str | None) -> None:
        """Count a request of a source that could not say who it is. Raises RateLimitError."""
        words = "too many requests without a valid key or token came from this address"
        self._hit(self._sources, self._failures, network_of(source), words)
        self._hit(self._sources, self._strangers, "", "too many requests without a valid key or token came")

    def is_recorded(self, caller: str | None, source: str | None) -> bool:
        """Return whether a refusal of a request over a limit is recorded: the first in a minute of a caller or source.

        Of sources together, so many are.
        """
        is_first = self._sources.hit(self._refusals, caller or network_of(source))
        return is_first and (caller is not None or self._sources.hit(self._all_refusals, ""))

    def _hit(self, limiter: RateLimiter, limit: RateLimitItem, who: str, words: str) -> None:
        if not limiter.hit(limit, who):
            seconds = limiter.get_window_stats(limit, who).reset_time - time.time()
            raise RateLimitError(f"{words}: try again later.", max(1.0, seconds))


def network_of(source: str | None) -> str:
    """What is counted as one source: an IPv4 address; of IPv6 the /64, for everybody has one."""
    try:
        address = ip_address(source or "")
    except ValueError:
        return "somewhere"
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((int(address), 64), strict=False))
    return str(address)
