"""Server-sent events, as far as an answer to one request needs them (HTML Living Standard, 9.2.6).

Libraries for them take httpx's own decoding for granted, which no limit holds; so this is done here, on bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end of what has come so far may be half of a CRLF


class EventParser:
    """The data of each event in a stream that comes in pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that this piece ends."""
        self._pieces.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return  # in the middle of a long line, which is put together once only
        *lines, rest = _LINE_END.split(b"".join(self._pieces))
        self._pieces = [rest]
        for line in lines:
            if line:
                self._field(line.decode("utf-8", "replace"))
            elif self._data:
                yield "\n".join(self._data)
                self._data.clear()

    def finish(self) -> Iterator[str]:
        """The data of an event that the end of the stream left without its empty line; many servers do."""
        yield from self.feed(b"\n\n")

    def _field(self, line: str) -> None:
        name, _, value = line.removeprefix("\ufeff").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
