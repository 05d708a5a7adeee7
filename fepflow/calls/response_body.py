"""The body of an HTTP response, read so that neither its bytes nor the decompressed data can fill the memory.

httpx decodes each chunk as a whole: 64 kB of gzip become 64 MB before they can be counted. So bodies come from
`aiter_raw`, and are decompressed here, in small pieces.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator

ACCEPT_ENCODING = "gzip, deflate"
_KNOWN = frozenset({"br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip", "zstd"})

MAX_MEMBERS = 100
"""Parts that one body in gzip may have, each compressed by itself."""

_ANY_HEADER = 32 + zlib.MAX_WBITS
"""zlib's window size for data whose header says whether they are gzip or deflate."""

_PIECE = 262_144
"""Bytes that are decompressed in one go: half a millisecond."""


class BodyError(Exception):
    """The error of a refused body. `kind` is `too_large` or `malformed`; the message continues "the answer".

    `retryable` says whether the next answer may be better.
    """

    def __init__(self, kind: str, message: str, *, retryable: bool = False) -> None:
        self.kind = kind
        self.retryable = retryable
        super().__init__(message)


async def read_body(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> bytes:
    """Return the decoded body, of at most `limit` bytes; `encoding` is the Content-Encoding header, "" if missing.

    Raises BodyError: `too_large` as soon as more than `limit` bytes came or were decompressed, `malformed` when the
    encoding is unknown, or the data are damaged or incomplete.
    """
    body = bytearray()
    async for piece in read_pieces(chunks, encoding, limit):
        body += piece
    return bytes(body)


async def read_pieces(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> AsyncIterator[bytes]:
    """Yield the decoded body piece by piece, as it comes; raises as `read_body` does."""
    decoder = _decoder(encoding)
    received = decoded = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > limit:
            raise too_large(limit)
        for number, piece in enumerate([chunk] if decoder is None else decoder.feed(chunk)):
            decoded += len(piece)
            if decoded > limit:
                raise too_large(limit)
            yield piece
            if number:
                await asyncio.sleep(0)  # a small chunk may become a large text: others have their turn meanwhile
    if decoder is not None:
        decoder.finish()


async def read_events(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> AsyncGenerator[str, None]:
    """Yield the data of each server-sent event in a body as it arrives. Raises as `read_body` does."""
    parser = EventParser()
    async for piece in read_pieces(chunks, encoding, limit):
        for data in parser.feed(piece):
            yield data
    for data in parser.finish():
        yield data


async def read_beginning(chunks: AsyncIterable[bytes], encoding: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a body that is only shown, or as many as could be read."""
    body = bytearray()
    try:
        decoder = _decoder(encoding)
        async for chunk in chunks:
            for piece in [chunk] if decoder is None else decoder.feed(chunk):
                body += piece
                if len(body) >= limit:
                    return bytes(body[:limit])
    except BodyError:
        pass
    return bytes(body)


def too_large(limit: int) -> BodyError:
    """Return the error of a body over `limit` bytes."""
    return BodyError("too_large", f"is larger than {limit:,} bytes")


def _decoder(encoding: str) -> _Decoder | None:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip", "deflate"):
        return _Decoder(may_be_raw=name == "deflate")
    # Whatever a server says may hold a secret.
    shown = name if all(part.strip() in _KNOWN for part in name.split(",")) else "something else"
    raise BodyError("malformed", f"is encoded as {shown}, which was not asked for ({ACCEPT_ENCODING} was)")


class _Decoder:
    """A decoder of gzip, also of several members one after the other (RFC 1952, 2.2), and of deflate.

    Some servers send deflate as it is, without the header of zlib that HTTP demands (RFC 9110, 8.4.1.2).
    """

    def __init__(self, *, may_be_raw: bool) -> None:
        self._stream = zlib.decompressobj(wbits=_ANY_HEADER)
        self._may_be_raw = may_be_raw
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof or not self._members:
                self._members += 1
                if self._members > MAX_MEMBERS:
                    raise _damaged(f"they have more than {MAX_MEMBERS} parts")
                is_raw = self._may_be_raw and data[0] & 0x0F != zlib.DEFLATED
                self._stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS if is_raw else _ANY_HEADER)
            yield from _inflate(self._stream, data)
            data = self._stream.unused_data

    def finish(self) -> None:
        if self._members and not self._stream.eof:
            raise _damaged("it ends too early")


def _inflate(stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Yield the decompressed data, a piece at a time."""
    while data and not stream.eof:
        try:
            yield stream.decompress(data, _PIECE)
        except zlib.error as error:
            raise _damaged(str(error)) from None
        data = stream.unconsumed_tail


def _damaged(why: str) -> BodyError:
    return BodyError("malformed", f"has compressed data that are damaged: {why}", retryable=True)


_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a CR at the end of what has come so far may be half of a CRLF


class EventParser:
    """A parser of server-sent events in a stream of pieces, as far as an answer needs them (HTML Standard, 9.2.6).

    Libraries for them rely on httpx's own decoding, which has no limit; so this works on bytes.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of the events that end in this piece."""
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
        """Yield the data of a last event without its empty line, which many servers leave out."""
        yield from self.feed(b"\n\n")

    def _field(self, line: str) -> None:
        name, _, value = line.removeprefix("\ufeff").partition(":")
        if name == "data":
            self._data.append(value.removeprefix(" "))
