"""Strategies for what may come from outside: any bytes and texts, and those that are nearly as they should be."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ANY_TEXT = st.text(st.characters(exclude_categories=[]))
SENDABLE = st.text()
"""Without halves of characters, so that it can be written to a file."""

LATIN_1 = st.text(st.characters(max_codepoint=255))


def pieces(*words: str, most: int = 30) -> SearchStrategy[str]:
    """Texts made of these words, and of any other."""
    return st.lists(st.sampled_from(words) | st.text(max_size=3), max_size=most).map("".join)


JSON_PIECES = pieces(
    *'[]{},:" \n\t\\-0123456789.eE',
    *("null", "true", "false", "NaN", "Infinity", "1e400", "1e-400", '"a"', '"a":', '"b"', '"\\ud800"', '"\\u0000"'),
    *("\ufeff", "9" * 400, "9" * 4_400, "[" * 120, "]" * 120, '{"a":', "}"),
)
"""What is nearly JSON."""

TEXTS_OF_JSON = ANY_TEXT.filter(
    # Two halves that make a pair are read as one character, as in JSON itself.
    lambda text: text == text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS_OF_JSON,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS_OF_JSON, inner, max_size=4),
    max_leaves=20,
)


@st.composite
def json_texts(draw: st.DrawFn) -> tuple[str, Any]:
    """A JSON document, written in one of many ways, and its value."""
    value = draw(JSON_VALUES)
    indent = draw(st.none() | st.integers(0, 3))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent, allow_nan=False)
    blank = st.text(" \t\r\n", max_size=3)
    return draw(blank) + text + draw(blank), value


@st.composite
def mutated(draw: st.DrawFn, whole: str, words: tuple[str, ...]) -> str:
    """A text of which parts are gone, doubled, or replaced by one of the words, or by any text."""
    text = whole
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        new = draw(st.sampled_from([*words, "", text[start:end] * 2]) | st.text(max_size=4))
        text = text[:start] + new + text[end:]
    return text
