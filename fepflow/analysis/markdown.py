"""Text of others in markdown, where it must stay text: no link, image, HTML or structure comes out of it."""

from __future__ import annotations

import re

from fepflow.text import one_line

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


def escape_text(text: str, limit: int = 1_000) -> str:
    """Text as a part of a sentence, cut to a bound.

    Every punctuation mark is escaped. Addresses are split by a character without width: GitHub's kind of markdown
    makes links of them after it has taken the escapes away.
    """
    return _PUNCTUATION.sub(r"\\\1", _ADDRESS.sub(WORD_JOINER, one_line(text, limit)))


def plain(text: str, limit: int = MAX_LITERAL) -> str:
    """Text on one line, cut to a bound, that looks the same where markdown is rendered and where it is not.

    Prefect's UI renders the cells of a table in its first version, and shows them as they are in its second one. So
    nothing visible is added: what would become a link, HTML, an entity, an escape or a block is split by a character
    without width. Nothing splits marks of emphasis and code: where they stand in pairs, they become look-alikes.
    """
    text = one_line(text, limit)
    for mark, alike in _LOOK_ALIKES.items():
        if text.count(mark) > 1:
            text = text.replace(mark, alike)
    text = _EDGE_UNDERSCORES.sub(lambda found: _LOW_MACRON * len(found[0]), text)
    text = _ACTIVE.sub(rf"\1{WORD_JOINER}", _ADDRESS.sub(WORD_JOINER, text))
    return f"{WORD_JOINER}{text}" if _BLOCK.match(text) else text
