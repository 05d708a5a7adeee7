"""A span of an agent's trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MAX_SPANS, MAX_BYTES = 1_000, 4_000_000
"""Most spans of a trace that are kept, and most bytes."""


HANDLERS = ("server", "consumer")
"""Kinds of spans that handle the request of another process."""


@dataclass(slots=True)
class Span:
    """A received span: ids in hexadecimal, times in nanoseconds since 1970, `size` in bytes of protobuf."""

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    kind: str
    start: int
    end: int
    status: str
    status_message: str
    attributes: dict[str, Any]
    events: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0
