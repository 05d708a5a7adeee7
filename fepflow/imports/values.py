"""Readers of single values in other tools' files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fepflow.json.values import finite, is_deep, map_leaves


def known(**members: Any) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def mapping(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """Return a JSON list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def member(row: Mapping[str, Any], *names: str) -> Any:
    """Return the first member with one of these names that is not None: exports write `traceId` or `trace_id`."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def text_or_none(value: Any) -> str | None:
    """Return a text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value.strip() else None


def finite_number(value: Any) -> float | None:
    """Return a number; None for booleans, NaN, infinities and all that is not a number."""
    return None if isinstance(value, bool) else finite(value)


def number_of(value: Any) -> float | None:
    """Return a number as `finite_number` does, also if a table's cell holds it as text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)


def milliseconds(seconds: Any) -> float | None:
    """Return a duration in seconds as milliseconds; None if it is not a number, or negative."""
    number = finite_number(seconds)
    return None if number is None or number < 0 else round(number * 1000, 3)


def moment(value: Any) -> datetime | None:
    """Return a time as files write it: ISO 8601, or seconds or milliseconds since 1970; None for anything else.

    A time without a zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value.strip())
        elif (seconds := finite_number(value)) is not None:
            time = datetime.fromtimestamp(seconds / 1000 if seconds > 1e11 else seconds, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def cell(value: Any) -> Any:
    """Return the value of a table's cell: JSON if it is an object, a list or a quoted text; None if it is empty.

    A bare number stays a text, because it may be an answer such as `007`.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text in ("", "null"):
        return None
    if text[0] + text[-1] not in ("{}", "[]", '""'):
        return value
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return value
    return value if is_deep(parsed) else parsed


def plain_json(value: Any) -> Any:
    """Return a JSON value in which NaN and infinities are texts, because JSON has no such numbers."""
    return map_leaves(value, lambda leaf: leaf if not isinstance(leaf, float) or math.isfinite(leaf) else str(leaf))


def unique_names(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """Return the names; one that is taken already gets a number: `a`, `a-2`."""
    used, unique = set(taken), []
    numbers: dict[str, int] = {}
    for name in names:
        candidate = name
        while candidate in used:
            numbers[name] = numbers.get(name, 1) + 1
            candidate = f"{name}-{numbers[name]}"
        used.add(candidate)
        unique.append(candidate)
    return unique
