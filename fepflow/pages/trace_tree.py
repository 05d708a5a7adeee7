"""The trace of a call as a page shows it: its spans as a tree, each with a bar on the time line of the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fepflow.json.values import finite
from fepflow.traces.conventions import summary_of

MOST_SPANS = 200
"""Spans that a page shows; JSON has all of them."""

DEEPEST = 12
"""Levels that are indented."""


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A span: how deep it is, its times in milliseconds, and its bar in hundredths of the time line."""

    name: str
    depth: int
    start_ms: float
    ms: float
    left: float
    width: float
    failed: str | None
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TraceView:
    """A trace in a sentence, and the rows of its tree; `hidden` spans are left out."""

    summary: str
    rows: Sequence[SpanRow]
    hidden: int


def trace_view(trace: Any) -> TraceView | None:
    """Return the trace of an output's metadata; None if there is none. Outputs that were handed to us say what they
    like.
    """
    if not isinstance(trace, dict):
        return None
    listed = trace.get("spans")
    spans = [span for span in listed if _is_span(span)] if isinstance(listed, list) else []
    length = max((span["start_ms"] + span["ms"] for span in spans), default=0) or 1.0
    rows = [_row(span, depth, length) for span, depth in _in_order(spans)]
    return TraceView(summary_of(trace), rows[:MOST_SPANS], max(0, len(rows) - MOST_SPANS))


def _is_span(span: Any) -> bool:
    if not isinstance(span, dict):
        return False
    times = [finite(span.get(name)) for name in ("start_ms", "ms")]
    return all(isinstance(span.get(name), str) for name in ("name", "span_id")) and None not in times


def _in_order(spans: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Return the spans with their depths, each after the one that it is in; a circle of parents is cut."""
    known = {span["span_id"] for span in spans}
    children: dict[Any, list[Mapping[str, Any]]] = {}
    for span in spans:
        parent = span.get("parent_id")
        children.setdefault(parent if isinstance(parent, str) else None, []).append(span)
    placed: dict[str, tuple[Mapping[str, Any], int]] = {}
    tops = [span for span in spans if not isinstance(span.get("parent_id"), str) or span["parent_id"] not in known]
    for top in (*tops, *spans):
        waiting = [(top, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span["span_id"] not in placed:
                placed[span["span_id"]] = span, depth
                waiting += [(child, depth + 1) for child in reversed(children.get(span["span_id"], ()))]
    return list(placed.values())


def _row(span: Mapping[str, Any], depth: int, length: float) -> SpanRow:
    start, lasted = max(0.0, float(span["start_ms"])), max(0.0, float(span["ms"]))
    attributes = span.get("attributes")
    return SpanRow(
        span["name"],
        min(depth, DEEPEST),
        start,
        lasted,
        round(100 * start / length, 2),
        max(0.5, round(100 * lasted / length, 2)),
        str(span.get("status_message") or "error") if span.get("status") == "error" else None,
        attributes if isinstance(attributes, dict) else {},
    )
