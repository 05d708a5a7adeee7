"""Encoding of any JSON value as text that every file and database can hold.

The text is ASCII: NUL characters, lone surrogates and everything else beyond ASCII are JSON escapes. What JSON has no
word for is tagged: NaN and the infinities become `{"$float": "NaN"}`, `{"$float": "Infinity"}` and
`{"$float": "-Infinity"}`. An object of the user's with just that key, or with one that was escaped already, gets one
more `$` (`{"$$float": …}`), which reading takes away again: every value comes back as it was. As in JSON itself, tuples
come back as lists, keys as strings, and two surrogates that make a pair as the character they stand for.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

from pydantic_core import from_json, to_jsonable_python

MAX_DEPTH = 200
"""Deepest nesting that is stored, which the stack of a reader can hold."""

_TAG = re.compile(r"\$+float")
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class NotJsonError(ValueError):
    """A value has no JSON form; the message says why and fits after "because"."""


class Encoded(str):
    """Text that `encode` made."""

    __slots__ = ()


def encode(value: Any) -> Encoded:
    """Return `value` as ASCII JSON text.

    Dates, sets, models and the like are written as pydantic writes them. Raises NotJsonError for what has no such
    form, is nested more than MAX_DEPTH deep, or contains itself.
    """
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode_escaped(value)
    return _encode_escaped(value) if '$float":' in text or may_be_deep(text) else Encoded(text)


def may_be_deep(text: str) -> bool:
    """Return whether JSON text may be nested more than MAX_DEPTH deep, by its number of brackets."""
    return text.count("[") + text.count("{") > MAX_DEPTH


def decode(text: str) -> Any:
    """Return the value that `encode` was given."""
    if '$float":' in text:
        return json.loads(text, object_hook=_untag)
    try:
        return from_json(text)
    except ValueError:  # lone surrogates, and very deep nesting, are read by Python's own parser only
        return json.loads(text)


def _jsonable(value: Any) -> Any:
    return to_jsonable_python(value, inf_nan_mode="constants")


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_jsonable)


def _encode_escaped(value: Any) -> Encoded:
    try:
        return Encoded(_ENCODER.encode(_escape(value, MAX_DEPTH)))
    except NotJsonError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        # The first line only: pydantic goes on with advice to programmers.
        raise NotJsonError(str(error).partition("\n")[0]) from None


def _escape(value: Any, depth: int) -> Any:
    if depth < 0:
        raise NotJsonError(f"it is nested more than {MAX_DEPTH} levels deep, or contains itself")
    if isinstance(value, float):
        return value if isfinite(value) else {"$float": _name(value)}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        escaped = {key: _escape(item, depth - 1) for key, item in value.items()}
        if len(escaped) == 1:
            (key,) = escaped
            if isinstance(key, str) and _TAG.fullmatch(key):
                return {f"${key}": escaped[key]}
        return escaped
    if isinstance(value, list | tuple):
        return [_escape(item, depth - 1) for item in value]
    return _escape(_jsonable(value), depth - 1)


def _name(value: float) -> str:
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _untag(data: dict[str, Any]) -> Any:
    if len(data) == 1:
        (key,) = data
        if key == "$float":
            return _FLOATS[data[key]]
        if _TAG.fullmatch(key):
            return {key[1:]: data[key]}
    return data
