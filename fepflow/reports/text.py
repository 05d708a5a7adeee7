"""Text of others in a file."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """What XML and a spreadsheet can show: control characters and lone surrogates as escapes."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
