"""Text of others in markdown, where it must stay text: no link, image, HTML or structure comes out of it."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks.log import one_line

MAX_LITERAL = 300
WORD_JOINER = "\u2060"
"""Has no width and breaks no line."""

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_ADDRESS = re.compile(r"(?<=://)|(?<=@)|(?<=www)(?=\.)", re.IGNORECASE)


def prose(text: str, limit: int = 1_000) -> str:
    """Text as a part of a sentence, cut to a bound.

    Every punctuation mark is escaped. Addresses are split by a character without width: GitHub's kind of markdown
    makes links of them after it has taken the escapes away.
    """
    return _PUNCTUATION.sub(r"\\\1", _ADDRESS.sub(WORD_JOINER, one_line(text, limit)))


def literal(value: Any) -> str:
    """A value as code on one line, cut to a bound; no table's cell in markdown, where a `|` would end it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = one_line(text, MAX_LITERAL)
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{space}{text}{space}{fence}"
