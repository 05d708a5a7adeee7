"""How long an HTTP response asks us to wait (Retry-After)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def seconds_to_wait(retry_after: str) -> float | None:
    """A Retry-After header, seconds or an HTTP date (RFC 9110, 10.2.3), in seconds from now; None if it is neither."""
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
