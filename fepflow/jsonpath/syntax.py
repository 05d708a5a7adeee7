"""Properties of a path's text that are known without parsing it."""

from __future__ import annotations

import re

QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


def outside_quotes(expression: str) -> str:
    """The expression without its quoted names and texts."""
    return QUOTED.sub("", expression)
