"""How large a JSON value or number is, as far as it matters."""

from __future__ import annotations

import math
from typing import Any

SMALL_NODES, SMALL_CHARACTERS = 2_000, 50_000
"""Up to here, whatever is done with a value takes milliseconds at most."""


def is_large(value: Any) -> bool:
    """Whether work on a value may take long enough to hold others up."""
    return not is_small(value, SMALL_NODES, SMALL_CHARACTERS)


def is_small(value: Any, nodes: int, characters: int | None = None) -> bool:
    """Whether a value has at most so many nodes (itself, elements, members) and characters in its texts and names.

    It looks at no more of the value than that, so the answer comes as quickly for a huge one, or one in itself.
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
    """A number as a float; None for what is none, for NaN, the infinities, and whatever is beyond floats."""
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:  # JSON has integers of any length
        return None


def has_more_values(text: str, values: int) -> bool:
    """Whether JSON text holds more than so many values, estimated without parsing it: by its commas and brackets.

    Each step is a call of Python's that takes milliseconds for megabytes. For what is no JSON it means little.
    """
    if _marks(text) <= values:
        return False
    bare = text.replace("\\\\", "").replace('\\"', "")
    if bare.count('"') > 4 * (values + 1):  # a value has two quotes at most, and so has its name
        return True
    return _marks("".join(bare.split('"')[::2])) > values  # what stands in strings does not count


def _marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")
