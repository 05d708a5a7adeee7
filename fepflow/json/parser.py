"""JSON from elsewhere: parsed by the standard, within limits, and refused in words a user understands."""

from __future__ import annotations

from json import JSONDecodeError
from typing import Any

from fepflow.json.decoder import MAX_DEPTH, is_deep, loads


def parse(text: str) -> Any:
    """`text` as a JSON value; lone surrogates and NUL inside of strings are kept.

    Raises ValueError, with a sentence that fits after "is not valid JSON: ": bad syntax, NaN, a number that overflows,
    a duplicate key, more than 4,300 digits, or more than 100 levels.
    """
    try:
        value = loads(text)
    except JSONDecodeError as error:
        raise ValueError(f"{error.msg.removesuffix(' at')} at {_location(error)}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:
        raise ValueError("a number has too many digits" if "int_max_str_digits" in str(error) else str(error)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


def syntax_error(error: JSONDecodeError) -> str:
    """Return what is wrong, for a message that has the place already; some of Python's end in "at"."""
    return error.msg.removesuffix(" at").removesuffix(" starting")


def _location(error: JSONDecodeError) -> str:
    return f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
