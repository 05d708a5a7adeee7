"""Untrusted texts in a prompt: each stands between tags with a random word, and contains nothing like these tags."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Iterable
from functools import cache

# Brackets that look like the beginning of a tag.
_BRACKETS = "<\N{FULLWIDTH LESS-THAN SIGN}\N{SMALL LESS-THAN SIGN}\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}" + (
    "\N{LEFT ANGLE BRACKET}\N{MATHEMATICAL LEFT ANGLE BRACKET}"
)
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


@cache
def _forged(tag: str) -> re.Pattern[str]:
    return re.compile(rf"[{_BRACKETS}](?=[^\w{_BRACKETS}]*{tag})", re.IGNORECASE)


def escaped(text: str, tag: str) -> str:
    """Return a text in which nothing looks like the delimiter `tag`, whatever its random word."""
    seen = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    # A text without a forged delimiter stays exactly as it was.
    return _forged(tag).sub("&lt;", seen) if _forged(tag).search(seen) else text


def random_word(texts: Iterable[str]) -> str:
    """Return a random word that is in none of the texts."""
    texts = list(texts)
    while True:
        nonce = secrets.token_hex(16)
        if not any(nonce in text for text in texts):
            return nonce
