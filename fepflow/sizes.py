"""How large a JSON value is, as far as it matters."""

from __future__ import annotations

from typing import Any


def is_small(value: Any, nodes: int, characters: int | None = None) -> bool:
    """Whether a value has at most so many nodes (itself, elements, members) and, if asked, characters in its texts.

    It looks at no more of the value than that, so the answer comes as quickly for a huge one, or one in itself.
    """
    waiting = [value]
    while waiting:
        item = waiting.pop()
        nodes -= 1
        if isinstance(item, str) and characters is not None:
            characters -= len(item)
            if characters < 0:
                return False
        elif isinstance(item, dict | list):
            if len(item) > nodes:
                return False
            waiting.extend(item.values() if isinstance(item, dict) else item)
        if nodes < 0:
            return False
    return True
