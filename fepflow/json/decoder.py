"""JSON as the standard has it, and how deep a value is."""

from __future__ import annotations

import json
from typing import Any

from fepflow.text import brief

MAX_DEPTH = 100


def is_deep(value: Any) -> bool:
    """Whether a JSON value has more than MAX_DEPTH levels. Level by level: recursion could not stand the deepest."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _containers(parent)]
        if not level:
            return False
    return True


def _containers(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in children if isinstance(child, dict | list)]


def loads(text: str) -> Any:
    """JSON by the standard: NaN, infinities and duplicate keys are a ValueError; so are numbers that overflow."""
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("Unexpected byte order mark", text, 0)
    return _DECODER.decode(text)


def loads_with_nan(text: str) -> Any:
    """The same for files of tools that write NaN and infinities: those become floats."""
    return _NAN_DECODER.decode(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{brief(text, 40)} is too large for a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # None
        raise ValueError(f"the key {brief(twice, 60)!r} stands twice in one object")
    return result


_NAN_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
