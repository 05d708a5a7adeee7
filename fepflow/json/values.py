"""JSON values: parsing by the standard, limits, comparisons, and an encoding of any value.

The text that `encode` makes can be held by every file and database. It is ASCII: NUL characters, lone surrogates and
everything else beyond ASCII are JSON escapes. What JSON has no word for is tagged: NaN and the infinities become
`{"$float": "NaN"}`, `{"$float": "Infinity"}` and `{"$float": "-Infinity"}`. An object of the user's with just that key,
or with one that was escaped already, gets one more `$` (`{"$$float": …}`), which reading takes away again: every value
comes back as it was. As in JSON itself, tuples come back as lists, keys as strings, and two surrogates that make a pair
as the character they stand for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterator
from json import JSONDecodeError
from typing import Any

from pydantic_core import from_json, to_jsonable_python

from fepflow.text import brief

MAX_DEPTH = 100
"""Levels of a value that is read from elsewhere."""


def is_deep(value: Any) -> bool:
    """Return whether a JSON value has more than MAX_DEPTH levels. The deepest would exhaust recursion."""
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
    """Read JSON by the standard: NaN, infinities, duplicate keys and numbers that overflow are a ValueError."""
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("Unexpected byte order mark", text, 0)
    return _DECODER.decode(text)


def loads_with_nan(text: str) -> Any:
    """Read JSON as `loads` does, but accept NaN and infinities, which some tools write, as floats."""
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
        raise ValueError(f"the key {brief(twice, 60)!r} appears twice in one object")
    return result


_NAN_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)


def parse(text: str, *, nan: bool = False) -> Any:
    """Return the JSON value of a text; lone surrogates and NUL inside of strings are kept. `nan`: see `loads_with_nan`.

    Raises ValueError, with a sentence that fits after "is not valid JSON: ": bad syntax, NaN, a number that overflows,
    a duplicate key, more than 4,300 digits, or more than 100 levels.
    """
    try:
        value = (loads_with_nan if nan else loads)(text)
    except JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{error.msg.removesuffix(' at')} at {place}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:
        raise ValueError("a number has too many digits" if "int_max_str_digits" in str(error) else str(error)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


def syntax_error(error: JSONDecodeError) -> str:
    """Return Python's message about a syntax error without its trailing "at", for a message that has the place."""
    return error.msg.removesuffix(" at").removesuffix(" starting")


SMALL_NODES, SMALL_CHARACTERS = 2_000, 50_000
"""Sizes up to which any work on a value takes milliseconds at most."""


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value in which `change` has replaced each value that is neither an object nor a list."""
    if isinstance(value, dict):
        return {name: map_leaves(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [map_leaves(item, change) for item in value]
    return change(value)


def with_named_floats(value: Any) -> Any:
    """Return a JSON value in which NaN and infinities are texts, because JSON has no such numbers."""
    return map_leaves(value, lambda leaf: leaf if not isinstance(leaf, float) or math.isfinite(leaf) else _name(leaf))


def texts_in(value: Any, location: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield all texts of a JSON value, without keys, with their places."""
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts_in(item, (*location, step))


def is_large(value: Any) -> bool:
    """Return whether work on a value may take long enough to hold others up."""
    return not is_small(value, SMALL_NODES, SMALL_CHARACTERS)


def is_small(value: Any, nodes: int, characters: int | None = None) -> bool:
    """Return whether a value has at most `nodes` (itself, elements, members) and `characters` in texts and names.

    It stops at the limit, so a huge value, or one that contains itself, takes no longer.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        nodes -= 1
        if isinstance(item, str) and characters is not None:
            characters -= len(item)
        elif isinstance(item, dict | list):
            if len(item) > nodes:
                return False
            if isinstance(item, dict):
                waiting.extend(item.values())
                if characters is not None:
                    characters -= sum([len(key) for key in item if isinstance(key, str)])
            else:
                waiting.extend(item)
        if nodes < 0 or (characters is not None and characters < 0):
            return False
    return True


def finite(value: Any) -> float | None:
    """Return a finite number as a float; None for other values and for integers beyond floats."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # JSON has integers of any length
        return None


def has_more_values(text: str, values: int) -> bool:
    """Return whether JSON text has more than `values` values, by its commas and brackets, without parsing it.

    It takes milliseconds for megabytes. For a text that is not JSON, the answer means little.
    """
    if _marks(text) <= values:
        return False
    bare = text.replace("\\\\", "").replace('\\"', "")
    if bare.count('"') > 4 * (values + 1):  # a value has two quotes at most, and so has its name
        return True
    return _marks("".join(bare.split('"')[::2])) > values  # what stands in strings does not count


def _marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def json_equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are the same. Other objects are compared as in Python."""
    pairs = [(left, right)]
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, bool) or isinstance(right, bool):
            if left is not right:
                return False
        elif isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs.extend((value, right[key]) for key, value in left.items())
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif left != right:
            return False
    return True


def json_key(value: Any, *, fold_case: bool = False) -> Hashable:
    """Return a hashable key that is the same for equal values only.

    With `fold_case`, texts that differ only in case are equal; texts inside the value are not folded.
    """
    if isinstance(value, str):
        return value.casefold() if fold_case else value
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, dict):
        return dict, frozenset((key, json_key(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return list, tuple(json_key(item) for item in value)
    return value if isinstance(value, Hashable) else repr(value)


def referred(root: Any, reference: str) -> Any:
    """Return the part of the schema `root` that `#/$defs/name` refers to; None if it is missing."""
    for step in reference.removeprefix("#/").split("/"):
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


# --- encoding of any value -------------------------------------------------------------------------------------------


MAX_STORED_DEPTH = 200
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
    form, is nested more than MAX_STORED_DEPTH deep, or contains itself.
    """
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _encode_escaped(value)
    return _encode_escaped(value) if '$float":' in text or may_be_deep(text) else Encoded(text)


def may_be_deep(text: str) -> bool:
    """Return whether JSON text may be nested more than MAX_STORED_DEPTH deep, by its number of brackets."""
    return text.count("[") + text.count("{") > MAX_STORED_DEPTH


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
        return Encoded(_ENCODER.encode(_escape(value, MAX_STORED_DEPTH)))
    except NotJsonError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        # The first line only: pydantic goes on with advice to programmers.
        raise NotJsonError(str(error).partition("\n")[0]) from None


def _escape(value: Any, depth: int) -> Any:
    if depth < 0:
        raise NotJsonError(f"it is nested more than {MAX_STORED_DEPTH} levels deep, or contains itself")
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": _name(value)}
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
