"""A response body, read so that neither its bytes nor what they decompress to can fill the memory."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Protocol

from fepflow.errors import TargetError

ACCEPT_ENCODING = "gzip, deflate"


class _Decoder(Protocol):
    def feed(self, data: bytes, room: int) -> bytes: ...
    def finish(self) -> None: ...


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """The decoded body, of at most `limit` bytes; `encoding` is the Content-Encoding header, "" where there is none.

    Raises TargetError: `too_large` as soon as more than `limit` bytes came or were decompressed, `malformed` when the
    encoding is unknown, or the data are damaged or incomplete.
    """
    decoder = _decoder(encoding.strip().lower())
    body = bytearray()
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if received <= limit:
            body += decoder.feed(chunk, limit - len(body) + 1)
        if received > limit or len(body) > limit:
            raise too_large(limit)
    decoder.finish()
    return bytes(body)


async def read_beginning(chunks: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """The first `limit` bytes of a body that is only shown, or what could be read of it."""
    body = bytearray()
    try:
        decoder = _decoder(encoding.strip().lower())
        async for chunk in chunks:
            body += decoder.feed(chunk, limit - len(body))
            if len(body) >= limit:
                break
    except TargetError:
        return bytes(body)
    return bytes(body[:limit])


def too_large(limit: int) -> TargetError:
    """The error of an answer over `limit` bytes."""
    message = f"the answer is larger than {limit:,} bytes (target.http.max_bytes)"
    return TargetError(message, kind="too_large", retryable=False)


def _decoder(encoding: str) -> _Decoder:
    if encoding in ("", "identity"):
        return _Identity()
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    if encoding == "deflate":
        return _Deflate()
    shown = ascii(encoding[:40])
    message = f"the answer is encoded as {shown}, but fepflow asked for {ACCEPT_ENCODING}"
    raise TargetError(message, kind="malformed", retryable=False)


class _Identity:
    def feed(self, data: bytes, room: int) -> bytes:
        return data[:room]

    def finish(self) -> None:
        pass


class _Gzip:
    """Gzip, also of several members one after the other (RFC 1952, 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False

    def feed(self, data: bytes, room: int) -> bytes:
        body = bytearray()
        while data and len(body) < room:
            if self._member.eof:
                self._member = zlib.decompressobj(wbits=31)
            self._begun = True
            body += _inflate(self._member, data, room - len(body))
            data = self._member.unused_data
        return bytes(body)

    def finish(self) -> None:
        if self._begun and not self._member.eof:
            raise _damaged("it ends too early")


class _Deflate:
    """Deflate as HTTP means it, with zlib's header, or as some servers send it, without."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None

    def feed(self, data: bytes, room: int) -> bytes:
        if self._stream is None:
            has_header = data[0] & 0x0F == 8 if data else True
            self._stream = zlib.decompressobj(wbits=15 if has_header else -15)
        return _inflate(self._stream, data, room)

    def finish(self) -> None:
        if self._stream is not None and not self._stream.eof:
            raise _damaged("it ends too early")


def _inflate(stream: zlib._Decompress, data: bytes, room: int) -> bytes:
    try:
        # A room of 0 would mean "no limit" to zlib. What does not fit is dropped: the caller stops there.
        return stream.decompress(data, max(room, 1))
    except zlib.error as error:
        raise _damaged(str(error)) from None


def _damaged(why: str) -> TargetError:
    return TargetError(f"the answer's compressed data are damaged: {why}", kind="malformed", retryable=True)
