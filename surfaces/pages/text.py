"""Text of agents and people on a page: what it holds is seen, and does nothing."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from fepflow.protocol.explanation import as_json
from fepflow.text import brief

MAX_TEXT = 100_000
"""Characters of one value on a page; the rest is counted."""
MAX_DIFF_TOKENS = 2_000
"""Words and spaces of both texts that are compared with each other; longer ones stand side by side unmarked."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""What a browser does not show, or would obey: control characters, changes of direction, what has no width, halves of
characters, tags. Joiners stay: emoji and some scripts are written with them."""
_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")

Change = Literal["same", "changed"]


class Span(NamedTuple):
    """A part of a text, and whether the other text has it too."""

    text: str
    change: Change


def visible(text: str) -> str:
    """The text, with what would not be seen, or would be obeyed, as escapes."""
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def shown(value: Any, limit: int = MAX_TEXT) -> str:
    """A value as a person reads it: a text as it is, all else as indented JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return brief(text, limit)


def snippet(value: Any, limit: int = 200) -> str:
    """The beginning of a value, on one line."""
    text = value if isinstance(value, str) else as_json(value, 4 * limit + 1)
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]}…"


def differences(one: str, other: str) -> tuple[list[Span], list[Span]] | None:
    """Both texts in spans, those that differ marked; None where they are too long to be compared."""
    words, others = _TOKEN.findall(one[:MAX_TEXT]), _TOKEN.findall(other[:MAX_TEXT])
    if len(words) + len(others) > MAX_DIFF_TOKENS:
        return None
    matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
    left: list[Span] = []
    right: list[Span] = []
    for kind, start, stop, other_start, other_stop in matcher.get_opcodes():
        change: Change = "same" if kind == "equal" else "changed"
        left += _span(words[start:stop], change)
        right += _span(others[other_start:other_stop], change)
    return left, right


def _span(tokens: Sequence[str], change: Change) -> Iterator[Span]:
    if tokens:
        yield Span("".join(tokens), change)
