"""Text of agents and people on a page: everything in it is visible, and nothing takes effect."""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

from fepflow.text import as_json, brief

MAX_TEXT = 100_000
"""Characters of one value on a page; the rest is counted."""
MAX_DIFF_WORDS = 2_000
"""Words of both texts that are compared with each other; longer ones stand side by side unmarked."""
MAX_DIFF_PAIRS = 20_000
"""Pairs of equal words, one of each text, up to which texts are compared: each difference takes so many steps."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Characters that a browser does not show, or would obey: control characters, changes of direction, characters without
width, lone surrogates, tags. Joiners stay: emoji and some scripts are written with them."""
_WORD = re.compile(r"(\w+|[^\w\s]|^)(\s*)")
"""A word, or a punctuation mark, and the space behind it."""

Change = Literal["same", "changed"]


_Word = tuple[str, str]


class Span(NamedTuple):
    """A part of a text, and whether the other text has it too."""

    text: str
    change: Change


def visible(text: str) -> str:
    """Return the text with escapes for what a browser would not show, or would obey."""
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shown(value: Any, limit: int = MAX_TEXT) -> str:
    """Return a value as a person reads it: a text as it is, all else as indented JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return brief(text, limit)


def snippet(value: Any, limit: int = 200) -> str:
    """Return the beginning of a value on one line."""
    text = value if isinstance(value, str) else as_json(value, 4 * limit + 1)
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


def differences(one: str, other: str) -> tuple[list[Span], list[Span]] | None:
    """Return both texts as spans, with the differences marked; None if comparing them would take too long."""
    words, others = _WORD.findall(one[:MAX_TEXT]), _WORD.findall(other[:MAX_TEXT])
    names, other_names = [word for word, _ in words], [word for word, _ in others]
    if len(names) + len(other_names) > MAX_DIFF_WORDS or _pairs(names, other_names) > MAX_DIFF_PAIRS:
        return None
    left: list[Span] = []
    right: list[Span] = []
    matcher = difflib.SequenceMatcher(None, names, other_names, autojunk=False)
    for kind, start, stop, other_start, other_stop in matcher.get_opcodes():
        here, there = words[start:stop], others[other_start:other_stop]
        left += _spans(here, there, are_equal=kind == "equal")
        right += _spans(there, here, are_equal=kind == "equal")
    return _joined(left), _joined(right)


def _pairs(words: Sequence[str], others: Sequence[str]) -> int:
    """Count the pairs of equal words."""
    counts, other_counts = Counter(words), Counter(others)
    return sum(count * other_counts[word] for word, count in counts.items())


def _spans(words: Sequence[_Word], others: Sequence[_Word], *, are_equal: bool) -> Iterator[Span]:
    """Yield words and the spaces behind them. Of words that differ, the last space is the same if both have it."""
    for index, (word, space) in enumerate(words):
        yield Span(word, "same" if are_equal else "changed")
        if are_equal:
            is_same = space == others[index][1]
        else:
            is_same = index == len(words) - 1 and bool(others) and others[-1][1] == space
        yield Span(space, "same" if is_same else "changed")


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Join neighbours that are alike, and leave out empty ones."""
    groups = groupby((span for span in spans if span.text), key=lambda span: span.change)
    return [Span("".join(span.text for span in alike), change) for change, alike in groups]
