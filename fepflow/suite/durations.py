"""Durations as people write them."""

from __future__ import annotations

import re
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(value: Any) -> Any:
    """A text such as 500ms, 30s, 2m, 1h or 7d as seconds, anything else as it is. Raises ValueError."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            raise ValueError("a duration reads like 500ms, 30s, 2m, 1h or 7d")
        return float(match[1]) * _SECONDS[match[2]]
    return value
