"""Formatting of texts, numbers and tables for messages, logs and Markdown."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def brief(text: str, limit: int = 300) -> str:
    """Return `text`, or its beginning and its length if it has more than `limit` characters."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def shortened(text: str, limit: int = 300) -> str:
    """Return `text`, or its first `limit` characters and an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def cut(text: str, limit: int | None) -> str:
    """Return `text`, or its beginning and an ellipsis, `limit` characters together."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def as_json(value: Any, limit: int | None = None) -> str:
    """Return a value as JSON on one line, cut to `limit`; the rest of a huge value is not written."""
    parts: list[str] = []
    length = 0
    try:
        for part in _ENCODER.iterencode(value):
            parts.append(part)
            length += len(part)
            if limit is not None and length > limit:
                break
    except (TypeError, ValueError, RecursionError):  # from code: what contains itself, or has odd keys
        return cut(" ".join(repr(value).split()), limit)
    return cut("".join(parts), limit)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=repr)


def text_of(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def printable(text: str) -> str:
    """Return a text for a terminal or a log, with control characters and lone surrogates as escapes."""
    return text if text.isprintable() else "".join(char if char.isprintable() else _escape(char) for char in text)


def known_names(names: Iterable[str]) -> str:
    """Return names for a message, or `none`."""
    return ", ".join(names) or "none"


def is_unicode(text: str) -> bool:
    """Return whether a text has no halves of surrogate pairs, so that it can be sent as UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}"


def one_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters, for a log or a name."""
    return printable(cut(" ".join(text.split()), limit))


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(value: Any) -> Any:
    """Return a duration like 500ms, 30s, 2m, 1h or 7d in seconds, and any other value unchanged. Raises ValueError."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if not match:
            raise ValueError("a duration reads like 500ms, 30s, 2m, 1h or 7d")
        return float(match[1]) * _SECONDS[match[2]]
    return value


def four_digits(value: float, sign: str = "") -> str:
    """Return four digits of a number, or all whole ones of a large one: `0.9301`, `56350`."""
    return f"{value:{sign}.0f}" if 9999.5 <= abs(value) < 1e15 else f"{value:{sign}.4g}"


def number(value: float, unlike: float | None = None) -> str:
    """Return four digits of a number, or all if four would make it look the same as another number, `unlike`."""
    short = four_digits(value)
    return repr(value) if unlike is not None and value != unlike and short == four_digits(unlike) else short


def cell(value: float | None, sign: str = "") -> str:
    """Return four digits of a number for a table; a dot for None."""
    return "·" if value is None else four_digits(value, sign)


def interval_cell(low: float | None, high: float | None) -> str:
    """Return an interval for a table; a dot if neither end is known."""
    return "·" if low is None and high is None else f"{cell(low)} to {cell(high)}"


def p_cell(p: float | None) -> str:
    """Return a p-value for a table; a dot for None."""
    return "·" if p is None else f"{p:.2g}"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: two of its head, then one a row. Cells are markdown already."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def percent(share: float) -> str:
    """Return `95 %`."""
    return f"{share * 100:.5g} %"


def plural(count: int, noun: str) -> str:
    """Return `1 check`, `2 checks`, `3 stories`."""
    ending = noun if count == 1 else f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
    return f"{count} {ending}"


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `11th`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def listed(items: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def listed_first(items: Sequence[str], most: int, width: int | None = 60) -> str:
    """Return the first `most` items as `listed` does, each cut to `width`, and the number of the others."""
    first = [cut(item, width) for item in items[:most]]
    return listed([*first, f"{len(items) - most} more"] if len(items) > most else first)


MAX_LITERAL = 300
WORD_JOINER = "\u2060"
"""Has no width and breaks no line."""

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LOOK_ALIKES = {"`": "\u02cb", "*": "\u2217", "~": "\u223c"}
_LOW_MACRON = "\u02cd"
_EDGE_UNDERSCORES = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
_ACTIVE = re.compile(r"([\]<&\\])")
_BLOCK = re.compile(r"[-+*>#]|\d{1,9}[.)](\s|$)")
_ADDRESS = re.compile(r"(?<=://)|(?<=@)|(?<=www)(?=\.)", re.IGNORECASE)


def escape_markdown(text: str, limit: int = 1_000) -> str:
    """Return text as a part of a sentence, cut to a bound.

    Every punctuation mark is escaped. Addresses are split by a character without width: GitHub's kind of markdown
    makes links of them after it has taken the escapes away.
    """
    return _PUNCTUATION.sub(r"\\\1", _ADDRESS.sub(WORD_JOINER, one_line(text, limit)))


def plain_markdown(text: str, limit: int = MAX_LITERAL) -> str:
    """Return text on one line, cut to a bound, that looks the same where markdown is rendered and where it is not.

    Prefect's UI renders the cells of a table in its first version, and shows them as they are in its second one. So
    nothing visible is added: what would become a link, HTML, an entity, an escape or a block is split by a character
    without width. Nothing splits marks of emphasis and code: where they stand in pairs, they become look-alikes.
    """
    text = one_line(text, limit)
    for mark, alike in _LOOK_ALIKES.items():
        if text.count(mark) > 1:
            text = text.replace(mark, alike)
    text = _EDGE_UNDERSCORES.sub(lambda match: _LOW_MACRON * len(match[0]), text)
    text = _ACTIVE.sub(rf"\1{WORD_JOINER}", _ADDRESS.sub(WORD_JOINER, text))
    return f"{WORD_JOINER}{text}" if _BLOCK.match(text) else text


def slug(name: str) -> str:
    """Return a name for a resource id or an artifact's key: a-z, 0-9 and dashes.

    Names that differ only in other characters get a short hash of the name.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if name.isascii() and plain:
        return plain
    return "-".join(filter(None, (plain, hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8])))
