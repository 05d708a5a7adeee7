"""Escapes that texts of the web use (percent-encoding, JSON's and HTML's), seen through: bytes in, bytes out."""

from __future__ import annotations

import re
from array import array
from html.entities import html5

_ESCAPE = re.compile(
    rb"%(?:25)*([0-9A-Fa-f]{2})"
    rb"|\\u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})"
    rb"|\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})|\\([\"'\\/bfnrt])"
    rb"|&#([0-9]{1,7});?|&#[xX]([0-9A-Fa-f]{1,6});?|&([A-Za-z][A-Za-z0-9]{1,30});"
)
_CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_LONGEST_REMEMBERED = 12
_MOST_REMEMBERED = 100_000


def to_bytes(text: str) -> bytes:
    """UTF-8, also of halves of surrogate pairs."""
    return text.encode("utf-8", "surrogatepass")


class _Meanings(dict[bytes, bytes]):
    """What escapes stand for, by their text; a hostile answer may hold millions of them."""

    def __missing__(self, escape: bytes) -> bytes:
        match = _ESCAPE.fullmatch(escape)
        meaning = escape if match is None else _decoded(match)
        if len(escape) <= _LONGEST_REMEMBERED and len(self) < _MOST_REMEMBERED:
            self[escape] = meaning
        return meaning


_meanings = _Meanings()


def unescaped(data: bytes) -> bytes:
    """One round of decoding."""
    return _ESCAPE.sub(lambda match: _meanings[match[0]], data)


def _decoded(match: re.Match[bytes]) -> bytes:
    """What an escape stands for; itself where it stands for nothing."""
    kind, digits = match.lastindex, match[match.lastindex or 0]
    if kind in (1, 5):
        return bytes((int(digits, 16),)) if kind == 1 else _character(int(digits, 16), match)
    if kind == 3:
        high, low = int(match[2], 16), int(digits, 16)
        return _character(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), match)
    if kind == 6:
        return _CONTROLS.get(digits, digits)
    if kind == 9:
        named = html5.get(digits.decode("ascii") + ";")
        return match[0] if named is None else to_bytes(named)
    return _character(int(digits, 10 if kind == 7 else 16), match)


def _character(number: int, match: re.Match[bytes]) -> bytes:
    return to_bytes(chr(number)) if number < 0x110000 else match[0]


def unescaped_with_offsets(data: bytes, offsets: array[int]) -> tuple[bytes, array[int], bool]:
    """One round of decoding, and for each byte that comes out, and for its end, where it stands in the raw text."""
    parts: list[bytes] = []
    found = array("q")
    end = 0
    for match in _ESCAPE.finditer(data):
        decoded = _meanings[match[0]]
        parts += [data[end : match.start()], decoded]
        found.extend(offsets[end : match.start()])
        found.extend([offsets[match.start()]] * len(decoded))
        end = match.end()
    parts.append(data[end:])
    found.extend(offsets[end:])
    whole = b"".join(parts)
    return whole, found, whole != data
