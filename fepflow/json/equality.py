"""Equality of JSON values: numbers by value, booleans only with booleans, objects whatever their order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same. What is no JSON value is compared as Python does."""
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
    """Something that can be in a set, the same for values that are equal, and for no others.

    With `fold_case`, texts that differ in case only are equal: the value itself, not what is inside of it.
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
